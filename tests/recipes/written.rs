//! What `kli sandbox recipe` prints and writes, and what it refuses.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::recipe;
use crate::{harness::Env, jail::err};

const SCRIPTS: [&str; 4] = ["bwrap", "docker", "podman", "systemd-run"];

#[test]
fn a_specification_that_the_launcher_refuses_is_refused_in_the_same_words() {
    for (spec, part) in [
        (r#"{"denyRaed":[]}"#, "did you mean `denyRead`?"),
        (r#"{"network":"no"}"#, "`network`"),
        ("", "it is empty"),
        (r#"{"denyRead":["~/../x"]}"#, "`..`"),
        (r#"{"denyReadGlobs":["~/**/x"]}"#, "`denyReadGlobs`"),
        (r#"{"denyReadGlobs":["~/[ab]"]}"#, "`denyReadGlobs`"),
        (r#"{"envFiles":{"path":"~/x"}}"#, "`envFiles`"),
        (r#"{"secretEnv":["a-b"]}"#, "`secretEnv`"),
    ] {
        let output = recipe("bwrap", spec);
        assert_eq!(output.status.code(), Some(2), "{spec}: {output:?}");
        assert!(output.stdout.is_empty());
        assert!(err(&output).contains(part), "{spec}: {}", err(&output));
    }
    let env = Env::new();
    env.kli(&["sandbox", "recipe", "bwrap", "--spec", "absent.json"]).exits(2).says("absent.json");
    env.kli(&["sandbox", "recipe", "chroot"]).exits(2).says("bwrap");
}

#[test]
fn every_script_is_one_that_any_posix_shell_reads() {
    let spec = r#"{"network":false,"nestedUserns":true,"writablePaths":["@cargo","/srv/x"],"readOnlyPaths":["./ro"],
        "denyRead":["~/a'b","$XDG_CONFIG_HOME/x"],"denyReadGlobs":["./*.pem","~/?x"],"denyEnv":["A","B_*"],
        "passEnv":["C"],"env":{"D":"e'f"},"envFiles":{"G":"~/g"},"secrets":{"H":"~/h"},"secretEnv":["I"],
        "allowSockets":["/run/x"],"localPorts":[8080],"tmp":"host-subdir","limits":{"tasks":5,"memory":"1G","fileSize":9}}"#;
    for kind in SCRIPTS {
        for spec in ["{}", spec] {
            let output = recipe(kind, spec);
            assert!(output.status.success(), "{kind}: {output:?}");
            for shell in [&["dash"][..], &["bash"], &["bash", "--posix"]] {
                let mut child = std::process::Command::new(shell[0])
                    .args(&shell[1..])
                    .arg("-n")
                    .stdin(std::process::Stdio::piped())
                    .stderr(std::process::Stdio::piped())
                    .spawn()
                    .unwrap();
                std::io::Write::write_all(&mut child.stdin.take().unwrap(), &output.stdout)
                    .unwrap();
                let read = child.wait_with_output().unwrap();
                assert!(read.status.success(), "{kind} {shell:?}: {}", err(&read));
            }
            assert!(err(&output).contains("are not kept"), "{}", err(&output));
        }
    }
}

#[test]
fn an_output_is_whole_executable_and_never_overwritten() {
    let env = Env::new();
    let make = || env.kli(&["sandbox", "recipe", "bwrap", "--output", "run.sh"]);
    make().exits(0).says("is made");
    let place = env.work().join("run.sh");
    let text = fs::read_to_string(&place).unwrap();
    assert!(text.starts_with("#!/bin/sh\n") && text.ends_with('\n'));
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o100, 0o100);
    assert_eq!(text, env.kli(&["sandbox", "recipe", "bwrap"]).out);
    fs::write(&place, "mine").unwrap();
    make().exits(2).says("is there already");
    assert_eq!(fs::read_to_string(&place).unwrap(), "mine");
    // A dangling link is something, too.
    fs::remove_file(&place).unwrap();
    std::os::unix::fs::symlink("elsewhere", &place).unwrap();
    make().exits(2).says("is there already");
    env.kli(&["sandbox", "recipe", "bwrap", "--output", "no/such/run.sh"]).exits(2);
    assert_eq!(fs::read_dir(env.work()).unwrap().count(), 1, "nothing is left beside it");
}
