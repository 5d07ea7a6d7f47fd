//! What is held of a repository and of the `protect` list, on plans alone.

use super::super::super::git::{Group, Kind as Repo, Name, Present, Repository};
use super::super::super::spec::Git;
use super::*;

/// What is seen at `path`: the last mount over it.
fn seen<'a>(plan: &'a Plan, path: &str) -> &'a Kind {
    let over = |mount: &&Mount| {
        mount.kind != Kind::Seal && Path::new(path).starts_with(&mount.destination)
    };
    &plan.mounts.iter().rev().find(over).unwrap().kind
}

const MAIN: &str = "/h/me/src/main/.git";

/// A repository whose common directory is `common`, with the names that every one has.
fn repository(kind: Repo, dot_git: &str, own: &str, common: &str) -> Repository {
    let name =
        |name: &str, present, group| Name { path: Path::new(common).join(name), present, group };
    Repository {
        kind,
        git_dir: own.into(),
        common_dir: common.into(),
        dot_git: dot_git.into(),
        writable: true,
        sentence: None,
        names: vec![
            name("hooks", Present::Absent, Group::Hooks),
            name("config", Present::File, Group::Settings),
            name("config.worktree", Present::Absent, Group::Settings),
            name("commondir", Present::Absent, Group::Pointer),
            name("info/attributes", Present::Absent, Group::Settings),
            name("modules/sub/config", Present::File, Group::Settings),
        ],
        pins: vec![common.into(), Path::new(common).join("info")],
    }
}

fn planned(git: Git, repository: Repository) -> Plan {
    let spec = Spec { git, ..Spec::default() };
    let facts = Facts { git: Some(repository), ..facts() };
    build(&spec, &facts, &Request::default()).unwrap()
}

fn clone() -> Repository {
    let git = format!("{WORKSPACE}/.git");
    repository(Repo::Clone, &git, &git, &git)
}

fn worktree() -> Repository {
    let own = format!("{MAIN}/worktrees/project");
    repository(Repo::Worktree, &format!("{WORKSPACE}/.git"), &own, MAIN)
}

fn held(plan: &Plan) -> Vec<(&str, &Kind)> {
    let held = plan.mounts.iter().filter(|mount| mount.kind.is_held());
    held.map(|mount| (mount.destination.to_str().unwrap(), &mount.kind)).collect()
}

fn awaited<'a>(plan: &'a Plan, end: &str) -> Option<&'a Kind> {
    plan.awaited.iter().find(|mount| mount.destination.ends_with(end)).map(|mount| &mount.kind)
}

#[test]
fn a_clone_is_pinned_and_its_settings_are_protected() {
    let plan = planned(Git::Commit, clone());
    let git = format!("{WORKSPACE}/.git");
    let at = |name: &str| format!("{git}/{name}");
    let (config, info, modules, sub, settings) =
        (at("config"), at("info"), at("modules"), at("modules/sub"), at("modules/sub/config"));
    assert_eq!(
        held(&plan),
        [
            (git.as_str(), &Kind::Pin),
            (&config, &Kind::Protect),
            (&info, &Kind::Pin),
            (&modules, &Kind::Pin),
            (&sub, &Kind::Pin),
            (&settings, &Kind::Protect),
        ],
        "what is above comes first"
    );
    assert_eq!(awaited(&plan, "hooks"), Some(&Kind::EmptyDirectory));
    assert_eq!(awaited(&plan, "config.worktree"), Some(&Kind::EmptyFile));
    assert_eq!(awaited(&plan, "commondir"), Some(&Kind::Forbidden));
    assert_eq!(awaited(&plan, "info/attributes"), Some(&Kind::Protect));
    assert_eq!(awaited(&plan, "worktrees"), Some(&Kind::Worktrees));
}

#[test]
fn a_git_directory_outside_becomes_writable_and_nothing_around_it() {
    let plan = planned(Git::Commit, worktree());
    let writable: Vec<&Path> = plan
        .mounts
        .iter()
        .filter(|mount| mount.kind == Kind::Writable)
        .map(|mount| mount.destination.as_path())
        .collect();
    assert!(writable.contains(&Path::new(MAIN)), "{writable:?}");
    assert!(
        !writable.iter().any(|path| path.starts_with("/h/me/src/main") && *path != Path::new(MAIN))
    );
    assert_eq!(seen(&plan, &format!("{MAIN}/config")), &Kind::Protect);
    assert_eq!(seen(&plan, &format!("{WORKSPACE}/.git")), &Kind::Protect);
    assert_eq!(seen(&plan, "/h/me/src/main/file"), &Kind::ReadOnly);
    assert!(!held(&plan).iter().any(|(path, _)| *path == MAIN), "it is a mount already");
}

#[test]
fn read_only_and_what_cannot_be_verified_stay_as_they_are() {
    let mut foreign = worktree();
    foreign.writable = false;
    foreign.sentence = Some("it is somebody else's".into());
    for plan in [planned(Git::ReadOnly, worktree()), planned(Git::Commit, foreign.clone())] {
        assert_eq!(seen(&plan, MAIN), &Kind::ReadOnly);
        assert_eq!(seen(&plan, &format!("{WORKSPACE}/.git")), &Kind::Protect);
        assert!(plan.awaited.is_empty());
    }
    let plan = planned(Git::Commit, foreign);
    assert!(plan.notes.iter().any(|note| note.contains("git: it is somebody else's")));
    let plan = planned(Git::ReadOnly, clone());
    assert_eq!(seen(&plan, &format!("{WORKSPACE}/.git/index")), &Kind::Protect);
    assert_eq!(seen(&plan, &format!("{WORKSPACE}/file")), &Kind::Writable);
}

#[test]
fn unprotected_holds_nothing_and_still_lets_commits_be_made() {
    let plan = planned(Git::Unprotected, worktree());
    assert_eq!(seen(&plan, &format!("{MAIN}/config")), &Kind::Writable);
    assert_eq!(held(&plan), []);
    assert!(plan.awaited.is_empty());
}

#[test]
fn a_git_directory_around_the_workspace_is_opened_in_parts() {
    let common = "/h/me/src/project.git";
    let mut facts = facts();
    facts.workspace = format!("{common}/side").into();
    facts.git = Some(repository(
        Repo::Worktree,
        &format!("{common}/side/.git"),
        &format!("{common}/worktrees/side"),
        common,
    ));
    let plan = plan(&facts);
    for (path, kind) in [
        ("objects/aa", Kind::Writable),
        ("refs/heads", Kind::Writable),
        ("worktrees/side/index", Kind::Writable),
        ("side/file", Kind::Writable),
        ("other/file", Kind::ReadOnly),
        ("worktrees/other/index", Kind::ReadOnly),
        ("config", Kind::ReadOnly),
        ("hooks", Kind::ReadOnly),
    ] {
        assert_eq!(seen(&plan, &format!("{common}/{path}")), &kind, "{path}");
    }
}

#[test]
fn a_denied_git_directory_is_neither_opened_nor_shown() {
    let mut facts = facts();
    facts.git = Some(worktree());
    facts.denied = vec![denied("/h/me/src/main")];
    let plan = plan(&facts);
    assert_eq!(view(&plan, MAIN).rights(), 0);
    assert!(!plan.awaited.iter().any(|mount| mount.destination.starts_with(MAIN)));
}

#[test]
fn what_is_protected_is_pinned_up_to_the_writable_mount_with_its_links() {
    let mut facts = facts();
    let mut linked = there("/h/me/src/project/a/b/rc");
    linked.links = vec!["/h/me/src/project/link/rc".into()];
    let mut absent = there("/h/me/src/project/.envrc");
    absent.missing = 1;
    facts.protected = vec![linked, absent, there("/h/me/elsewhere")];
    let plan = plan(&facts);
    assert_eq!(
        held(&plan),
        [
            ("/h/me/src/project/a", &Kind::Pin),
            ("/h/me/src/project/link", &Kind::Pin),
            ("/h/me/src/project/a/b", &Kind::Pin),
            ("/h/me/src/project/link/rc", &Kind::Pin),
            ("/h/me/src/project/a/b/rc", &Kind::Protect),
        ]
    );
}

#[test]
fn what_is_hidden_in_something_writable_is_pinned_up_to_it_once() {
    let mut facts = facts();
    let many = (0..1000).map(|number| denied(&format!("{WORKSPACE}/a/b/{number}/key")));
    facts.denied =
        (0..1000).map(|number| denied(&format!("{WORKSPACE}/a/c/{number}key"))).collect();
    let paths = |plan: &Plan| -> Vec<PathBuf> {
        let pins = plan.mounts.iter().filter(|mount| mount.kind == Kind::Pin);
        pins.map(|mount| mount.destination.clone()).collect()
    };
    let [a, c] = ["a", "a/c"].map(|it| Path::new(WORKSPACE).join(it));
    assert_eq!(paths(&plan(&facts)), [a, c]);
    facts.denied.extend(many);
    assert_eq!(paths(&plan(&facts)).len(), 1003);
    let far = facts.denied.clone();
    let some = (0..9_500).map(|number| denied(&format!("{WORKSPACE}/a/d/{number}/key")));
    facts.denied.extend(some);
    let error = build(&Spec::default(), &facts, &Request::default()).unwrap_err();
    assert!(error.to_string().contains("more than the 10000"), "{error}");
    facts.denied = far;
    // Where nothing is writable nothing can be renamed, and directly in it there is nothing around.
    facts.denied = vec![denied("/data/sub/key"), denied(&format!("{WORKSPACE}/.env"))];
    assert!(paths(&plan(&facts)).is_empty());
}
