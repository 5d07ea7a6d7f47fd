use super::*;

fn words(before: &str, after: &str) -> Option<String> {
    new_in(before.as_bytes(), after.as_bytes())
}

#[test]
fn what_runs_nothing_is_no_change() {
    for text in [
        "",
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
        "[remote \"origin\"]\n url = https://host/x\n fetch = +refs/heads/*:refs/remotes/origin/*\n",
        "[branch \"main\"]\n remote = origin\n merge = refs/heads/main\n",
        "[user]\n name = x\n email = y\n",
        "[submodule \"a.b\"]\n url = ../x\n active = true\n",
    ] {
        assert_eq!(words("", text), None, "{text}");
    }
}

#[test]
fn what_runs_or_leads_elsewhere_is_named() {
    for (text, name) in [
        ("[core]\n fsmonitor = x\n", "core.fsmonitor"),
        ("[core]\n hooksPath = x\n", "core.hookspath"),
        ("[core]\n worktree = /\n", "core.worktree"),
        ("[include]\n path = x\n", "include.path"),
        ("[includeIf \"onbranch:x\"]\n path = x\n", "includeif.onbranch:x.path"),
        ("[alias]\n st = !x\n", "alias.st"),
        ("[remote \"o\"]\n url = ext::sh -c x\n", "remote.o.url"),
        ("[remote \"o\"]\n url = --upload-pack=x\n", "remote.o.url"),
        ("[remote \"o\"]\n uploadpack = x\n", "remote.o.uploadpack"),
        ("[branch \"m\"]\n remote = ext::x\n", "branch.m.remote"),
        ("[url \"ext::x\"]\n insteadOf = https://\n", "url.ext::x.insteadof"),
        ("[new]\n thing = 1\n", "new.thing"),
    ] {
        let found = words("", text).unwrap();
        assert_eq!(found, format!("git runs or reads what it names: `{name}`"));
        assert_eq!(words(text, text), None);
    }
    assert!(words("[core]\n pager = a\n", "[core]\n pager = b\n").is_some());
    assert_eq!(words("[core]\n pager = a\n", ""), None);
    assert_eq!(words("", "[core\n").unwrap(), "git may run what it names, and it is broken");
    let many: String = (0..9).fold(String::new(), |text, n| format!("{text}[alias]\n a{n} = x\n"));
    assert!(words("", &many).unwrap().ends_with("`alias.a3` and 5 more"));
    let odd = words("", "[alias \"\u{1b}[2J\"]\n x = y\n").unwrap();
    assert!(!odd.contains('\u{1b}'), "{odd}");
}

#[test]
fn a_configuration_leads_to_programs_and_further_configurations() {
    let text = b"[core]\n hooksPath = ~/h\n fsmonitor = tools/w --x\n[alias]\n a = !./b c\n[user]\n name = n\n\
        [include]\n path = ../my own\n";
    let found = leads_to(&config::variables(text), Path::new("/w/r"), Some(Path::new("/h")));
    let plain: Vec<PathBuf> = found.iter().map(|path| plain(path)).collect();
    assert_eq!(plain, ["/h/h", "/w/r/tools/w", "/w/r/b", "/w/my own"].map(PathBuf::from));
}

#[test]
fn a_rebase_runs_its_exec_lines() {
    for text in ["exec x", "pick 1\nx make\n", "\texec\tx\n"] {
        assert!(has_commands(text.as_bytes()), "{text}");
    }
    for text in ["", "pick abc exec\n", "# exec x\n", "execute\n", "break\n"] {
        assert!(!has_commands(text.as_bytes()), "{text}");
    }
}
