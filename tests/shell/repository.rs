//! Under a list of commands git runs nothing that the repository it looks at names.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use super::{Run, names};

/// A repository whose own configuration names a program for everything that git runs one for. Each
/// of them leaves a file named after it in `canaries`.
fn hostile(work: &Path, canaries: &Path) {
    fs::create_dir(canaries).unwrap();
    let git = |words: &[&str]| {
        let ran = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fsmonitor=false"])
            .args(words)
            .current_dir(work)
            .env("HOME", work)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "-q", "."]);
    fs::write(work.join("a.txt"), "one\n").unwrap();
    fs::write(work.join("b.bin"), "one\n").unwrap();
    fs::write(work.join(".gitattributes"), "*.txt diff=conv\n*.bin filter=filt\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    fs::write(work.join("a.txt"), "two\n").unwrap();
    fs::write(work.join("b.bin"), "two\n").unwrap();
    let program = |name: &str, rest: &str| {
        let file = canaries.parent().unwrap().join(format!("{name}.sh"));
        let mark = canaries.join(name);
        fs::write(&file, format!("#!/bin/sh\n: >'{}'\n{rest}\n", mark.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    for (key, name, rest) in [
        ("core.fsmonitor", "fsmonitor", "printf '\\0'"),
        ("diff.conv.textconv", "textconv", "cat \"$1\""),
        ("filter.filt.clean", "clean", "cat"),
        ("core.pager", "pager", "cat"),
        ("gpg.program", "gpg", "exit 1"),
    ] {
        git(&["config", key, &program(name, rest)]);
    }
    git(&["config", "log.showSignature", "true"]);
    git(&["config", "alias.st", &format!("!{}", program("alias", ""))]);
    for hook in ["post-index-change", "pre-commit"] {
        fs::create_dir_all(work.join(".git/hooks")).unwrap();
        fs::rename(program(hook, ""), work.join(".git/hooks").join(hook)).unwrap();
    }
}

const LOOKING: [&str; 5] =
    ["git status", "git diff", "git log -p", "git show", "git status --short && git diff --stat"];

#[test]
fn under_the_review_list_git_runs_nothing_that_a_repository_names() {
    let run = Run::bash(&LOOKING);
    let canaries = run.env.home().join("canaries");
    hostile(&run.env.work(), &canaries);
    run.kli(&["--profile", "review"]).0.exits(0);
    let results = run.results();
    assert_eq!(names(&canaries), Vec::<String>::new(), "{results:#?}");
    // And it works: the changes are seen.
    assert!(results[0].contains("modified:   a.txt"), "{}", results[0]);
    assert!(results[1].contains("-one\n+two"), "{}", results[1]);
    assert!(results[2].contains("first") && results[2].contains("+one"), "{}", results[2]);
    assert!(results[4].contains("2 files changed"), "{}", results[4]);

    // Control: without a list the repository's programs run, as its user wants.
    let free = Run::bash(&LOOKING);
    let canaries = free.env.home().join("canaries");
    hostile(&free.env.work(), &canaries);
    free.kli(&[]).0.exits(0);
    let ran = names(&canaries);
    for name in ["clean", "fsmonitor", "textconv"] {
        assert!(ran.contains(&name.to_owned()), "{name} is not in {ran:?}");
    }
}

/// Puts a submodule with a configuration of its own into the repository, and says in `.gitmodules`
/// and in the configuration that git shall look into it.
fn hostile_submodule(work: &Path, canaries: &Path) {
    let script = canaries.parent().unwrap().join("sub.sh");
    fs::write(&script, format!("#!/bin/sh\n: >'{}/sub'\ncat\n", canaries.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let sub = work.join("sub");
    fs::create_dir(&sub).unwrap();
    let git = |directory: &Path, words: &[&str]| {
        let ran = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fsmonitor=false"])
            .args(["-c", "core.hooksPath=/dev/null", "-c", "filter.filt.clean="])
            .args(words)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&sub, &["init", "-q", "."]);
    fs::write(sub.join(".gitattributes"), "*.txt filter=own\n").unwrap();
    fs::write(sub.join("s.txt"), "one\n").unwrap();
    git(&sub, &["add", "."]);
    git(&sub, &["commit", "-qm", "first"]);
    fs::write(sub.join("s.txt"), "two\n").unwrap();
    git(&sub, &["config", "filter.own.clean", script.to_str().unwrap()]);
    let modules = "[submodule \"s\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n";
    fs::write(work.join(".gitmodules"), modules).unwrap();
    git(work, &["add", ".gitmodules", "sub"]);
    git(work, &["config", "diff.submodule", "diff"]);
    git(work, &["config", "diff.ignoreSubmodules", "none"]);
}

#[test]
fn under_the_review_list_git_does_not_look_into_a_submodule() {
    let lines = ["git status", "git diff", "git log -p"];
    let refused = ["git diff --submodule=diff", "git status --ignore-submodules=none"];
    for with_modules in [true, false] {
        let run = Run::bash(&[&lines[..], &refused[..]].concat());
        let canaries = run.env.home().join("canaries");
        hostile(&run.env.work(), &canaries);
        hostile_submodule(&run.env.work(), &canaries);
        if !with_modules {
            // Then git reads it from the index.
            fs::remove_file(run.env.work().join(".gitmodules")).unwrap();
        }
        run.kli(&["--profile", "review"]).0.exits(3);
        let results = run.results();
        assert_eq!(names(&canaries), Vec::<String>::new(), "{results:#?}");
        assert!(results[0].contains("modified:   a.txt"), "{}", results[0]);
        assert!(results[1].contains("-one\n+two"), "{}", results[1]);
        for refusal in &results[3..] {
            assert!(refusal.starts_with("denied: "), "{refusal}");
        }
    }

    let free = Run::bash(&lines[..1]);
    let canaries = free.env.home().join("canaries");
    hostile(&free.env.work(), &canaries);
    hostile_submodule(&free.env.work(), &canaries);
    free.kli(&[]).0.exits(0);
    assert!(names(&canaries).contains(&"sub".to_owned()), "control: it would have run");
}

#[test]
fn git_is_asked_about_the_repository_that_the_line_will_use() {
    let run = Run::bash(&["git status"]);
    let canaries = run.env.home().join("canaries");
    let elsewhere = run.env.home().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    hostile(&elsewhere, &canaries);
    let settings = json!({"bash": {"env": {
        "GIT_DIR": elsewhere.join(".git"), "GIT_WORK_TREE": elsewhere,
    }}});
    run.env.settings(&settings.to_string());
    run.kli(&["--profile", "review"]).0.exits(0);
    let results = run.results();
    assert!(results[0].contains("modified:   a.txt"), "control: {}", results[0]);
    assert_eq!(names(&canaries), Vec::<String>::new(), "{results:#?}");
}

#[test]
fn a_diff_driver_that_cannot_be_set_to_nothing_fails_instead_of_running() {
    let run = Run::bash(&["git diff", "git diff --no-ext-diff"]);
    let canaries = run.env.home().join("canaries");
    hostile(&run.env.work(), &canaries);
    let script = run.env.home().join("external.sh");
    fs::write(&script, format!("#!/bin/sh\n: >'{}/external'\n", canaries.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for key in ["diff.external", "diff.conv.command"] {
        let ran = Command::new("git")
            .args(["config", key])
            .arg(&script)
            .current_dir(run.env.work())
            .output()
            .unwrap();
        assert!(ran.status.success());
    }
    run.kli(&["--profile", "review"]).0.exits(0);
    let results = run.results();
    assert_eq!(names(&canaries), Vec::<String>::new(), "{results:#?}");
    assert!(results[0].contains("external diff died"), "{}", results[0]);
    assert!(results[1].contains("-one\n+two"), "{}", results[1]);
    let free = Command::new("git").arg("diff").current_dir(run.env.work()).output().unwrap();
    drop(free);
    assert!(names(&canaries).contains(&"external".to_owned()), "control: it would have run");
}
