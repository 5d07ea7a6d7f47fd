use super::*;

fn rules() -> Rules {
    Rules::new(&[PathBuf::from("/home/me")])
}

/// What a file at `path` means, seen from a walk that starts at `root`.
fn at(root: &str, path: &str) -> Option<&'static str> {
    let rules = rules();
    let mut so_far = PathBuf::from(root);
    let mut states = rules.at(&so_far);
    let parts: Vec<&str> = path.split('/').collect();
    let (name, above) = parts.split_last()?;
    for part in above {
        so_far.push(part);
        states = rules.enter(&states, OsStr::new(part), &so_far);
    }
    match rules.file(&states, OsStr::new(name)) {
        Some(Match::Whole(words)) => Some(words),
        _ => None,
    }
}

#[test]
fn a_rule_begins_in_any_directory_and_matches_whole_parts() {
    for root in ["/w", "/home/me/project", "/"] {
        for path in [
            ".envrc",
            "a/b/.envrc",
            ".vscode/tasks.json",
            "a/.vscode/x.json",
            "x.code-workspace",
            ".kli/settings.json",
            ".kli/extensions/deep/er/x",
            ".devcontainer/a/devcontainer.json",
            "mise.prod.toml",
            ".vscode/.vscode/x.json",
            ".claude/.envrc",
            ".claude/x/.mcp.json",
        ] {
            assert!(at(root, path).is_some(), "{root} {path}");
        }
        for path in [
            "envrc",
            ".envrc2",
            "x.envrc",
            ".vscode/sub/tasks.json",
            ".vscode/x.txt",
            "vscode/x.json",
            "Makefile",
            "package.json",
            ".claude/notes.md",
            ".kli",
            ".devcontainer/a/b/devcontainer.json",
            "mise",
            "x.code-workspace/file",
            ".claude/x/settings.json",
        ] {
            assert_eq!(at(root, path), None, "{root} {path}");
        }
    }
}

#[test]
fn start_files_count_in_the_home_alone_from_wherever_the_walk_begins() {
    assert!(at("/home/me", ".bashrc").is_some());
    assert!(at("/home", "me/.bashrc").is_some());
    assert!(at("/home/me/.config", "systemd/user/a.service").is_some());
    assert!(at("/home/me/.config/systemd/user", "a.service").is_some());
    assert!(at("/home/me/.local/bin", "ls").is_some());
    assert_eq!(at("/home/me/project", ".bashrc"), None);
    assert_eq!(at("/home/you", ".bashrc"), None);
    assert_eq!(at("/home/me", "project/bin/x"), None);
    assert!(at("/", "etc/cron.d/x").is_some());
    assert!(at("/etc", "profile").is_some());
    assert_eq!(at("/w", "etc/cron.d/x"), None);
}

#[test]
fn a_directory_of_a_rule_is_one_for_as_long_as_the_rule_goes_on() {
    let rules = rules();
    let enter =
        |states: &[State], name: &str| rules.enter(states, OsStr::new(name), Path::new("/w/x"));
    let vscode = enter(&[], ".vscode");
    assert!(Rules::is_inside(&vscode));
    assert!(!Rules::is_inside(&enter(&vscode, "sub")));
    assert!(!Rules::is_inside(&enter(&[], "src")));
    let deep = enter(&enter(&enter(&[], ".kli"), "a"), "b");
    assert!(Rules::is_inside(&deep));
    assert_eq!(
        rules.file(&[], OsStr::new(".vscode")),
        Some(Match::Part("an editor runs what it names"))
    );
    assert_eq!(rules.file(&[], OsStr::new("src")), None);
}

#[test]
fn every_pattern_can_match_and_none_is_there_twice() {
    let mut seen = Vec::new();
    for group in &GROUPS {
        assert!(!group.words.is_empty());
        for pattern in group.patterns {
            assert!(!pattern.starts_with('/') && !pattern.ends_with('/'), "{pattern}");
            for (index, part) in pattern.split('/').enumerate() {
                assert!(!part.is_empty(), "{pattern}");
                let last = index + 1 == pattern.split('/').count();
                assert!(part.matches('*').count() <= 1 || part == "**" && last, "{pattern}");
            }
            let key = (group.from as u8, *pattern);
            assert!(!seen.contains(&key), "{pattern}");
            seen.push(key);
        }
    }
}
