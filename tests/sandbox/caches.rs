//! The caches of package managers in one word each: made, writable, and nothing around them is.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::jail::{err, for_both, has, ok};

const CACHES: [&str; 9] = [
    ".cargo/registry",
    ".cargo/git",
    ".cache/go-build",
    "go/pkg",
    ".cache/nix",
    ".npm/_cacache",
    ".npm/_logs",
    ".cache/pip",
    ".cache/uv",
];

#[test]
fn a_word_opens_the_caches_and_no_program_and_no_setting() {
    for_both(|world| {
        let around = [
            ".cargo/bin/tool",
            ".cargo/config.toml",
            ".cargo/credentials.toml",
            "go/bin/tool",
            ".npmrc",
            ".npm/_npx/tool",
            ".config/pip/pip.conf",
            ".config/nix/nix.conf",
        ];
        for file in around {
            world.file(format!("home/{file}"), "as it was");
        }
        world.spec(r#"{"writablePaths":["@cargo","@go","@nix","@npm","@pip","@uv"]}"#);
        let told = ok(&world
            .command(world.launcher())
            .arg("explain")
            .arg(world.spec_file())
            .output()
            .unwrap());
        has(&told, &["writable: @cargo", "writable: @uv"]);
        let mut script = String::from("cd ~\n");
        for cache in CACHES {
            script = format!("{script}echo made > {cache}/made && echo 'wrote {cache}'\n");
        }
        for file in around {
            script = format!("{script}echo changed > {file}\n");
        }
        script.push_str("mv .cargo elsewhere; mv .cargo/registry elsewhere; touch .cargo/new\n");
        let output = world.inside(&script);
        let text = crate::jail::out(&output);
        for cache in CACHES {
            has(&text, &[&format!("wrote {cache}\n")]);
            let made = world.home.join(cache);
            assert!(made.join("made").exists(), "{cache}");
            assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700, "{cache}");
        }
        for file in around {
            assert_eq!(fs::read_to_string(world.home.join(file)).unwrap(), "as it was", "{file}");
        }
        let refusals = err(&output).matches("Read-only file system").count();
        assert!(refusals >= around.len(), "{output:?}");
        assert!(
            world.home.join(".cargo/registry").exists() && !world.home.join(".cargo/new").exists()
        );
        ok(&world
            .plainly("cd ~ && for f in .cargo/config.toml .npmrc; do echo changed > $f; done"));
    });
}

#[test]
fn a_cache_at_a_place_of_the_caller_s_is_that_place() {
    for_both(|world| {
        let cache = world.dir("elsewhere/cache");
        world.spec(r#"{"writablePaths":["@pip"]}"#);
        let script = "echo made > \"$XDG_CACHE_HOME/pip/made\"; touch ~/.cache/pip/made";
        // Outside the home nothing is made, so it is there before.
        world.dir("elsewhere/cache/pip");
        let output = world
            .run_with(&[], &["sh", "-c", script])
            .env("XDG_CACHE_HOME", &cache)
            .output()
            .unwrap();
        assert!(cache.join("pip/made").exists(), "{output:?}");
        assert!(!world.home.join(".cache").exists(), "{output:?}");
    });
}
