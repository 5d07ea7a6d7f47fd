use proptest::prelude::*;

use super::super::facts::{self, Denied, Found};
use super::super::launch::{options, words_of};
use super::super::mountinfo;
use super::*;

mod held;
mod interpreter;
mod laws;
mod sockets;

use interpreter::{View, view};

const HOME: &str = "/h/me";
const WORKSPACE: &str = "/h/me/src/project";

fn there(path: &str) -> Writable {
    Writable {
        wish: path.into(),
        spelled: path.into(),
        physical: path.into(),
        missing: 0,
        links: Vec::new(),
        directory: true,
        trouble: None,
    }
}

fn denied(path: &str) -> Denied {
    let directory = !["credentials", "secret", ".netrc", ".env", "key", "deep"]
        .iter()
        .any(|file| path.ends_with(file));
    let found = if directory {
        Found::Directory(path.into())
    } else {
        Found::File { physical: path.into(), links: 1 }
    };
    Denied {
        key: "denyRead",
        wish: path.into(),
        spelled: path.into(),
        found,
        places: vec![end(path, None)],
    }
}

fn end(path: &str, anchor: Option<&str>) -> facts::Place {
    facts::Place {
        path: path.into(),
        missing: 0,
        role: facts::Role::End,
        anchor: anchor.map(PathBuf::from),
    }
}

pub(super) fn facts() -> Facts {
    Facts {
        uid: 1000,
        workspace: WORKSPACE.into(),
        homes: vec![HOME.into()],
        physical_homes: vec![HOME.into()],
        home_anchors: vec![HOME.into()],
        mounts: mountinfo::Table::default(),
        refused: Vec::new(),
        environment: vec![("PATH".into(), "/bin".into()), ("TOKEN".into(), "x".into())],
        denied: Vec::new(),
        read_only: Vec::new(),
        writable: Vec::new(),
        state: Some(there("/h/me/.local/state/kli")),
        config: Some(there("/h/me/.config/kli")),
        run: Vec::new(),
        runtime: None,
        sockets: super::super::sockets::Sockets::default(),
        launcher: "/usr/bin/kli-sandbox".into(),
        program: Some("/usr/bin/kli".into()),
        protected: Vec::new(),
        git: None,
        linked: Vec::new(),
        other_state: None,
        kernel_files: Vec::new(),
        key_lists: vec!["/proc/keys".into()],
        sysctl_read_only: false,
        given: facts::Given::default(),
        memory: 8 << 30,
        landlock: Some(7),
        means: crate::sandbox::limits::Means::default(),
    }
}

fn plan(facts: &Facts) -> Plan {
    build(&Spec::default(), facts, &Request::default()).unwrap()
}

proptest! {
    #[test]
    fn what_lies_in_a_directory_lies_there_part_by_part(
        path in "(/(a|b|ab|a\\.|\\.)?){1,4}",
        directory in "(/(a|b|ab)?){1,2}"
    ) {
        let (path, directory) = (Path::new(&path), Path::new(&directory));
        // Spelled as it is asked for, by its parts.
        let path: PathBuf = path.components().collect();
        let directory: PathBuf = directory.components().collect();
        prop_assert_eq!(lies_in(&path, &directory), path.starts_with(&directory));
    }

    #[test]
    fn every_word_is_a_literal(name in "[^/\0]{1,20}") {
        prop_assume!(name != "." && name != "..");
        let mut facts = facts();
        let path = format!("/h/me/x/{name}");
        facts.writable = vec![there(&path)];
        let plan = plan(&facts);
        let words: Vec<OsString> = plan
            .mounts
            .iter()
            .flat_map(|mount| words_of(mount, 9))
            .chain(options(&plan))
            .collect();
        prop_assert_eq!(words.iter().filter(|word| **word == *path).count(), 2);
        prop_assert!(!words.iter().any(|word| word == "--"));
        prop_assert!(words.iter().all(|word| !word.as_bytes().contains(&0)));
    }

    #[test]
    fn a_denied_variable_is_never_kept(names in prop::collection::vec("[A-C_]{1,3}", 0..8), deny in "[A-C_]{1,2}", prefix: bool) {
        let mut facts = facts();
        facts.environment = names.iter().map(|name| (name.into(), "v".into())).collect();
        let text = if prefix { format!("{deny}*") } else { deny };
        let pattern = EnvPattern::try_from(text).unwrap();
        let request = Request { deny_env: vec![pattern.clone()], ..Request::default() };
        let plan = build(&Spec::default(), &facts, &request).unwrap();
        for name in &names {
            let kept = plan.environment.iter().any(|(known, _)| known == name.as_str());
            prop_assert_eq!(kept, !pattern.matches(name.as_bytes()), "{}", name);
        }
    }
}

#[test]
fn a_mask_inside_a_mask_is_one_mask() {
    let mut facts = facts();
    facts.denied = vec![denied("/data/keys/deep"), denied("/data")];
    let masks: Vec<_> = plan(&facts).mounts.into_iter().filter(|it| it.kind.is_mask()).collect();
    assert_eq!(masks.len(), 1);
    assert_eq!(masks[0].destination, Path::new("/data"));
}

#[test]
fn the_resolver_is_shown_only_with_the_network() {
    let mut facts = facts();
    let entry = |path: &str, resolver| super::super::facts::RunEntry {
        path: path.into(),
        link: None,
        resolver,
    };
    facts.run = vec![entry("/run/systemd/resolve", true), entry("/run/wrappers", false)];
    let shows = |request: &Request, path: &str| {
        build(&Spec::default(), &facts, request)
            .unwrap()
            .mounts
            .iter()
            .any(|mount| mount.destination == Path::new(path))
    };
    let cut = Request { no_network: true, ..Request::default() };
    assert!(shows(&Request::default(), "/run/systemd/resolve"));
    assert!(!shows(&cut, "/run/systemd/resolve"));
    assert!(shows(&cut, "/run/wrappers"));
}

#[test]
fn a_state_directory_under_a_mask_is_refused() {
    let mut facts = facts();
    facts.denied = vec![denied("/h/me/.local")];
    let error = build(&Spec::default(), &facts, &Request::default()).unwrap_err();
    assert!(error.to_string().contains("set `stateDir` to false"), "{error}");
    let spec = Spec { state_dir: false, ..Spec::default() };
    assert!(build(&spec, &facts, &Request::default()).is_ok());
}

#[test]
fn the_launcher_under_a_mask_is_refused() {
    let mut facts = facts();
    facts.denied = vec![denied("/usr/bin")];
    let error = build(&Spec::default(), &facts, &Request::default()).unwrap_err();
    assert!(matches!(error, PlanError::Launcher { .. }), "{error}");
}

#[test]
fn a_hard_linked_secret_is_warned_about() {
    let mut facts = facts();
    facts.denied = vec![Denied {
        key: "denyRead",
        wish: "~/.netrc".into(),
        spelled: "/h/me/.netrc".into(),
        found: Found::File { physical: "/h/me/.netrc".into(), links: 2 },
        places: vec![end("/h/me/.netrc", Some(HOME))],
    }];
    assert!(plan(&facts).notes.iter().any(|note| note.contains("2 hard links")));
}

#[test]
fn writable_paths_that_would_open_the_machine_are_refused() {
    for (physical, part) in [
        ("/", "name what is needed below it"),
        ("/proc/sys", "never writable"),
        ("/h", "contains the home"),
    ] {
        let mut facts = facts();
        facts.writable = vec![there(physical)];
        let error = build(&Spec::default(), &facts, &Request::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{physical}: {error}");
    }
}

#[test]
fn without_a_home_there_is_no_state_and_no_failure() {
    let mut facts = facts();
    facts.homes.clear();
    facts.physical_homes.clear();
    facts.home_anchors.clear();
    facts.state = None;
    facts.config = None;
    assert_eq!(view(&plan(&facts), WORKSPACE), View::Writable);
}

#[test]
fn nothing_is_shown_again_under_a_mask() {
    let mut facts = facts();
    let entry =
        super::super::facts::RunEntry { path: "/run/wrappers".into(), link: None, resolver: false };
    facts.run = vec![entry];
    facts.writable = vec![there("/h/me/.config")];
    facts.denied = vec![denied("/run"), denied("/h/me/.config/kli")];
    let plan = plan(&facts);
    for hidden in ["/run/wrappers", "/h/me/.config/kli"] {
        let bound = |it: &Mount| it.destination == Path::new(hidden) && it.kind.is_bind();
        assert!(!plan.mounts.iter().any(bound), "{hidden}");
    }
    assert_eq!(view(&plan, INNER), View::ReadOnly, "the own places stay");
}

#[test]
fn a_variable_goes_with_what_it_points_at() {
    let mut facts = facts();
    facts.workspace = "/tmp/w/project".into();
    facts.config = Some(there("/tmp/config/kli"));
    facts.environment = [
        ("XDG_CONFIG_HOME", "/tmp/config"),
        ("INSIDE", "/tmp/w/project/x"),
        ("GONE", "/tmp/w/other"),
        ("SOCKET", "unix:path=/run/user/1000/bus,guid=1"),
        ("FAR", "/etc/x"),
        ("WORD", "run"),
        ("DISPLAY", "host:0"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    let names = |list: &[(OsString, OsString)]| -> Vec<String> {
        list.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    };
    let plan = plan(&facts);
    let kept = names(&plan.environment);
    let expected = ["DISPLAY", "FAR", "INSIDE", "PWD", "TMPDIR", "WORD", "XDG_CONFIG_HOME"];
    assert_eq!(kept, expected);
}
