use super::*;

fn only(entries: &[(Atom, Constraint)]) -> Narrowing {
    Narrowing::Only {
        authority: Authority::of(entries.iter().cloned()),
        named: entries.iter().map(|(atom, _)| atom.clone()).collect(),
    }
}

fn flag(name: &str) -> Source {
    Source::Flag(name.to_owned())
}

#[test]
fn a_denial_names_the_atom_what_was_asked_and_who_removed_it() {
    let subject = Subject::new([(flag("--read-only"), Narrowing::ReadOnly)]);
    let denial = subject.check(Request::path(Atom::FileWrite, "/ws/a")).unwrap_err();
    assert_eq!(
        denial.to_string(),
        "denied: this run does not hold `file/write`, asked for `/ws/a` (removed by flag --read-only)"
    );
    assert!(subject.check(Request::bare(Atom::FileRead)).is_ok(), "control: reading is left");
}

#[test]
fn the_first_layer_that_removed_it_is_named() {
    let subject = Subject::new([
        (Source::UserSettings, only(&[(Atom::FileWrite, Constraint::under(["/ws/src".into()]))])),
        (flag("--no-bash"), Narrowing::Drop(vec![Atom::ProcessExec])),
    ]);
    let denial = subject.check(Request::path(Atom::FileWrite, "/ws/doc/a")).unwrap_err();
    assert_eq!(denial.removed_by, Some(Source::UserSettings));
    assert!(denial.to_string().contains("only for path under /ws/src, asked for `/ws/doc/a`"));
    let denial = subject.check(Request::bare(Atom::ProcessExec)).unwrap_err();
    assert_eq!(denial.removed_by, Some(Source::UserSettings));
    // The flag took nothing away any more, so it is no source.
    assert_eq!(subject.sources().count(), 1);
}

#[test]
fn a_line_that_cannot_be_read_is_told_from_one_that_is_not_listed() {
    let list = Constraint::commands([vec!["echo".to_owned()]]);
    let subject = Subject::new([(Source::UserSettings, only(&[(Atom::ProcessExec, list)]))]);
    let denied = |line: &str, parsed: Option<Vec<Vec<String>>>| {
        let detail = Detail::Commands { line: line.to_owned(), parsed };
        subject.check(Request { atom: Atom::ProcessExec, detail }).unwrap_err().to_string()
    };
    assert!(denied("echo x >y", None).ends_with("without redirection, expansion or variables"));
    let other = denied("ls", Some(vec![vec!["ls".to_owned()]]));
    assert!(other.ends_with("(removed by user settings)"), "control: {other}");
    let list = Constraint::commands([vec!["git".to_owned()]]);
    let subject = Subject::new([(Source::UserSettings, only(&[(Atom::ProcessExec, list)]))]);
    let words = ["git", "diff", "--output=x"].map(str::to_owned).to_vec();
    let detail = Detail::Commands { line: String::new(), parsed: Some(vec![words]) };
    let option = subject.check(Request { atom: Atom::ProcessExec, detail }).unwrap_err();
    assert!(option.to_string().contains("it begins as listed, but an option"), "{option}");
}

#[test]
fn a_grant_is_for_one_path_and_one_kind() {
    let subject = Subject::new([]);
    let grant = subject.check(Request::path(Atom::FileEdit, "/ws/a")).unwrap();
    assert!(grant.permits_write(Path::new("/ws/a")) && !grant.permits_write(Path::new("/ws/b")));
    assert!(!grant.permits_exec() && !grant.permits_state(Path::new("/ws/a")));
    let read = subject.check(Request::path(Atom::FileRead, "/ws/a")).unwrap();
    assert!(!read.permits_write(Path::new("/ws/a")), "reading is not writing");
    assert!(read.permits_read(Path::new("/ws/a")) && !read.permits_read(Path::new("/ws/b")));
    assert!(!grant.permits_read(Path::new("/ws/a")), "writing is not reading");
    let state = Grant::own_state("/state");
    assert!(state.permits_state(Path::new("/state/x")));
    assert!(!state.permits_state(Path::new("/state/../x")));
    assert!(!state.permits_write(Path::new("/state/x")) && !state.permits_exec());
}

#[test]
fn read_only_keeps_single_tools_that_a_list_names_and_says_which_servers_it_leaves_out() {
    let tool = Atom::McpTool("git".into(), "log".into());
    let server = Atom::McpServer("db".into());
    let list = only(&[
        (Atom::ImageEval, Constraint::Any),
        (tool.clone(), Constraint::Any),
        (server.clone(), Constraint::Any),
    ]);
    let subject =
        Subject::new([(Source::UserSettings, list), (flag("--read-only"), Narrowing::ReadOnly)]);
    assert!(subject.holds(&tool) && !subject.holds(&server));
    assert_eq!(subject.withheld(), [server]);
    assert!(!subject.holds(&Atom::ImageEval) && !subject.holds(&Atom::ExtensionSpawnProcess));
    assert!(subject.holds(&Atom::FileRead) && subject.holds(&Atom::ImageInspect));

    let all = Subject::new([(flag("--read-only"), Narrowing::ReadOnly)]);
    assert!(!all.holds(&tool));
}

#[test]
fn the_outcome_does_not_depend_on_the_order() {
    let tool = Atom::McpTool("git".into(), "log".into());
    let layers = [
        (flag("--read-only"), Narrowing::ReadOnly),
        (
            Source::UserSettings,
            only(&[(tool.clone(), Constraint::Any), (Atom::FileWrite, Constraint::Any)]),
        ),
        (flag("--no-bash"), Narrowing::Drop(vec![Atom::ProcessExec])),
    ];
    let first = Subject::new(layers.clone());
    assert!(first.holds(&tool) && !first.holds(&Atom::FileWrite));
    for order in [[1, 0, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
        let again = Subject::new(order.map(|at| layers[at].clone()));
        assert_eq!(again.authority(), first.authority(), "{order:?}");
    }
}

#[test]
fn what_a_project_or_a_policy_names_grants_nothing_under_read_only() {
    let tool = Atom::McpTool("git".into(), "push".into());
    let list =
        only(&[(tool.clone(), Constraint::Any), (Atom::ExtensionSpawnProcess, Constraint::Any)]);
    for (source, held) in [
        (Source::ProjectSettings, false),
        (Source::Policy, false),
        (Source::Parent, false),
        (Source::UserSettings, true),
        (Source::Baked, true),
        (flag("--capabilities"), true),
    ] {
        let subject = Subject::new([
            (source.clone(), list.clone()),
            (flag("--read-only"), Narrowing::ReadOnly),
        ]);
        assert_eq!(subject.holds(&tool), held, "{source}");
        assert_eq!(subject.holds(&Atom::ExtensionSpawnProcess), held, "{source}");
    }
}

#[test]
fn a_single_tool_beside_its_server_stays_under_read_only() {
    let tool = Atom::McpTool("git".into(), "log".into());
    let server = Atom::McpServer("git".into());
    let list = only(&[(tool.clone(), Constraint::Any), (server.clone(), Constraint::Any)]);
    let subject = Subject::new([(Source::UserSettings, list), (flag("-r"), Narrowing::ReadOnly)]);
    assert!(subject.holds(&tool) && !subject.holds(&server));
    assert!(!subject.holds(&Atom::McpTool("git".into(), "push".into())));
    assert_eq!(subject.withheld(), [server]);
}

#[test]
fn approval_is_asked_for_beside_authority_and_the_strictest_policy_counts() {
    let policies =
        |policies: &[Approve]| {
            Subject::new(policies.iter().map(|policy| {
                (Source::Profile(policy.name().to_owned()), Narrowing::Approve(*policy))
            }))
        };
    let read = || Request::bare(Atom::FileRead);
    let write = || Request::path(Atom::FileWrite, "/ws/a");
    let writes = policies(&[Approve::Writes, Approve::Never]);
    assert!(writes.check(read()).is_ok(), "reading needs none");
    let denial = writes.check(write()).unwrap_err();
    assert_eq!(denial.rule, Rule::Approval(Approve::Writes));
    assert_eq!(
        denial.to_string(),
        "denied: `file/write` needs approval (`approve` is `writes`), and a headless run cannot ask, \
         asked for `/ws/a` (asked for by profile writes)"
    );
    assert!(
        writes
            .check_with(write(), Approval::Given)
            .is_ok_and(|g| g.permits_write(Path::new("/ws/a")))
    );
    assert!(policies(&[Approve::Writes, Approve::All]).check(read()).is_err());
    assert!(policies(&[Approve::Never]).check(write()).is_ok(), "control");
    // A yes does not replace authority.
    let bound = Subject::new([
        (flag("-r"), Narrowing::ReadOnly),
        (Source::Policy, Narrowing::Approve(Approve::All)),
    ]);
    let denial = bound.check_with(write(), Approval::Given).unwrap_err();
    assert_eq!((denial.rule, denial.removed_by), (Rule::Authority, Some(flag("-r"))));
}
