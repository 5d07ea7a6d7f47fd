//! Command words: when a simple command is within a list of allowed word prefixes.
//!
//! A list of commands is a guide rail, not a wall: most programs can run others or write files.
//! The well-known ways of doing so in `git` and `rg` are refused here; the sandbox bounds the rest.

use std::collections::BTreeSet;

/// Options that make git run a program or write a file of the caller's choice. Git accepts any
/// unambiguous abbreviation of a long option (gitcli(7)), so prefixes of these are refused too.
const GIT_LONG: &[&str] = &[
    "--config-env",
    "--exec",
    "--exec-path",
    "--ext-diff",
    "--extcmd",
    "--open-files-in-pager",
    "--output",
    "--output-directory",
    "--paginate",
    "--receive-pack",
    "--textconv",
    "--upload-pack",
];

/// Short options that run a program or write a file, with the subcommands that have them. Git takes
/// them in clusters too, and with their value glued on (`git grep -nOless`).
const GIT_SHORT: &[(&[&str], char)] = &[
    (&["archive", "format-patch"], 'o'),
    (&["clone"], 'u'),
    (&["difftool", "rebase"], 'x'),
    (&["grep"], 'O'),
];

/// Options that make rg run a program (rg(1)).
const RG_LONG: &[&str] = &["--hostname-bin", "--pre", "--pre-glob", "--search-zip"];

/// Options in front of git's subcommand that lead it to another repository, whose configuration may
/// name programs that nobody has looked at.
const GIT_ELSEWHERE: &[&str] =
    &["-C", "--attr-source", "--bare", "--git-dir", "--namespace", "--super-prefix", "--work-tree"];

/// Subcommands of git whose purpose is to run what they are given, or what settings name, each with
/// the word behind it that makes it so. A list must name them; `git` alone does not mean them.
const GIT_RUNNERS: &[&[&str]] = &[
    &["bisect", "run"],
    &["citool"],
    &["daemon"],
    &["difftool"],
    &["filter-branch"],
    &["for-each-repo"],
    &["gui"],
    &["hook", "run"],
    &["instaweb"],
    &["mergetool"],
    &["remote-ext"],
    &["send-email"],
    &["shell"],
    &["submodule", "foreach"],
    &["web--browse"],
];

/// Options by which git looks into the working tree of a submodule, whose own configuration may name
/// programs, with the values that make it do so. The empty value stands for any.
const GIT_INTO_SUBMODULES: &[(&str, &[&str])] = &[
    ("--ignore-submodules", &["none", "untracked"]),
    ("--recurse-submodules", &[""]),
    ("--submodule", &["diff"]),
];

/// Options of find that run a program, or write or remove a file (find(1)).
const FIND: &[&str] =
    &["-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"];

/// Says whether every command of a line is within the allowed word lists.
pub(super) fn all_within(commands: &[Vec<String>], allowed: &BTreeSet<Vec<String>>) -> bool {
    let runs = |names: &[&str]| {
        let is_one = |words: &&Vec<String>| words.first().is_some_and(|w| names.contains(&base(w)));
        commands.iter().filter(is_one).count()
    };
    // What git may be asked to run is looked at in the directory where the line starts, and before
    // it starts.
    let moves = runs(&["git"]) > 0 && runs(&["cd", "pushd", "popd"]) > 0;
    let configures = |words: &Vec<String>| {
        words.split_first().is_some_and(|(program, arguments)| {
            base(program) == "git"
                && subcommand(arguments).is_some_and(|(name, _)| name == "config")
        })
    };
    let changes = runs(&["git"]) > 1 && commands.iter().any(configures);
    !commands.is_empty()
        && !moves
        && !changes
        && commands.iter().all(|words| within(words, allowed))
}

/// Returns a program's name without the directories in front.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Returns git's subcommand and what stands behind it. Options in front of it that take a value of
/// their own are refused, so the first word that is no option is it.
fn subcommand(arguments: &[String]) -> Option<(&str, &[String])> {
    let at = arguments.iter().position(|word| !word.starts_with('-'))?;
    let (name, rest) = arguments.get(at..)?.split_first()?;
    Some((name, rest))
}

/// Says whether every command begins with an allowed word list, whatever its options are.
pub(super) fn all_begin(commands: &[Vec<String>], allowed: &BTreeSet<Vec<String>>) -> bool {
    commands.iter().all(|words| allowed.iter().any(|list| words.starts_with(list)))
}

/// Says whether the command starts with one of the allowed word lists and uses no option that is
/// known to run another program.
fn within<'a>(words: &[String], allowed: impl IntoIterator<Item = &'a Vec<String>>) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    // `FOO=x cmd` sets a variable for the command: GIT_EXTERNAL_DIFF, PAGER and kin run programs.
    if program.contains('=') {
        return false;
    }
    let runner = if base(program) == "git" { runner(arguments) } else { None };
    let names = |list: &Vec<String>| {
        runner.unwrap_or_default().iter().all(|word| list.iter().any(|known| known == word))
    };
    allowed.into_iter().any(|list| words.starts_with(list) && names(list))
        && match base(program) {
            "git" => !runs_programs_in_git(arguments),
            "rg" => !arguments.iter().any(|word| runs_programs_in_rg(word)),
            "find" => !arguments.iter().any(|word| FIND.contains(&word.as_str())),
            "sort" => !arguments.iter().any(|word| runs_programs_in_sort(word)),
            _ => true,
        }
}

/// Returns the entry of [`GIT_RUNNERS`] that git's arguments begin with.
fn runner(arguments: &[String]) -> Option<&'static [&'static str]> {
    let (name, rest) = subcommand(arguments)?;
    GIT_RUNNERS.iter().copied().find(|runner| {
        runner.split_first().is_some_and(|(first, more)| {
            *first == name && more.iter().all(|word| rest.iter().any(|given| given == word))
        })
    })
}

/// Says whether an option is one of [`GIT_INTO_SUBMODULES`], however it is abbreviated.
fn goes_into_submodules(word: &str, arguments: &[String]) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let is_clone = subcommand(arguments).is_some_and(|(name, _)| name == "clone");
    // What a clone has just made holds no settings of somebody else's.
    !is_clone
        && name.len() > 2
        && GIT_INTO_SUBMODULES.iter().any(|(long, values)| {
            long.starts_with(name) && values.iter().any(|v| v.is_empty() || *v == value)
        })
}

fn runs_programs_in_git(arguments: &[String]) -> bool {
    // Behind a subcommand it means a patch (`git log -p`); before it, to paginate.
    arguments.first().is_some_and(|first| first == "-p")
        || goes_elsewhere(arguments)
        || arguments.iter().any(|word| {
            let name = word.split('=').next().unwrap_or(word);
            if name.starts_with("--") {
                // The shortest abbreviation that could still mean a listed option: one letter and
                // up.
                return goes_into_submodules(word, arguments)
                    || name.len() > 2 && GIT_LONG.iter().any(|long| long.starts_with(name));
            }
            // `-c key=value` (also glued), `-O[pager]`, `-o file`, `-x command`.
            word.starts_with("-c")
                || word.starts_with("-O")
                || word == "-o"
                || word == "-x"
                || is_listed_cluster(word, arguments)
        })
}

/// Says whether one of [`GIT_ELSEWHERE`] stands before the subcommand.
fn goes_elsewhere(arguments: &[String]) -> bool {
    arguments.iter().take_while(|word| word.starts_with('-')).any(|word| {
        let name = word.split('=').next().unwrap_or(word);
        GIT_ELSEWHERE.contains(&name) || name.starts_with("-C")
    })
}

/// Says whether a word is a cluster of short options with one of [`GIT_SHORT`] in it. The
/// subcommand is looked for in any place, as what stands before it may take a value of its own.
fn is_listed_cluster(word: &str, arguments: &[String]) -> bool {
    word.starts_with('-')
        && GIT_SHORT.iter().any(|(subcommands, option)| {
            word.contains(*option) && arguments.iter().any(|a| subcommands.contains(&a.as_str()))
        })
}

/// sort(1): `-o FILE` writes, `--compress-program` runs, `-T DIR` writes there; long names may be
/// abbreviated.
fn runs_programs_in_sort(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    if name.starts_with("--") {
        return name.len() > 2
            && ["--compress-program", "--output", "--temporary-directory"]
                .iter()
                .any(|long| long.starts_with(name));
    }
    word.starts_with('-') && word.contains(['o', 'T'])
}

fn runs_programs_in_rg(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    if name.starts_with("--") {
        return RG_LONG.contains(&name);
    }
    // A cluster of short options that holds `z` (search compressed files with outside programs).
    word.starts_with('-') && word.contains('z')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, allowed: &[&str]) -> bool {
        let split = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let lists: Vec<Vec<String>> = allowed.iter().map(|list| split(list)).collect();
        within(&split(line), &lists)
    }

    #[test]
    fn a_prefix_of_words_is_compared_word_by_word() {
        assert!(check("git diff HEAD", &["git diff"]));
        assert!(!check("git push", &["git diff"]));
        assert!(!check("gitk diff", &["git"]));
        assert!(check("cargo build", &["cargo", "git"]));
        assert!(!check("PAGER=x git diff", &["git diff", "PAGER=x"]));
    }

    #[test]
    fn a_line_that_changes_the_directory_does_not_run_git() {
        let split = |line: &str| -> Vec<Vec<String>> {
            line.split(" ; ").map(|c| c.split(' ').map(str::to_owned).collect()).collect()
        };
        let lists: BTreeSet<Vec<String>> = split("git ; cd ; ls").into_iter().collect();
        let all = |line: &str| all_within(&split(line), &lists);
        assert!(!all("cd sub ; git log") && !all("git log ; cd sub"));
        assert!(!all("git config alias.x !y ; git x"), "it would run under the new settings");
        assert!(all("git config a.b c ; ls"), "control");
        assert!(all("cd sub ; ls") && all("git log ; ls"), "control: each by itself is fine");
        assert!(!all_within(&[], &lists));
    }

    #[test]
    fn options_that_run_programs_are_refused() {
        for line in [
            "git -c core.pager=x diff",
            "git -ccore.pager=x diff",
            "git diff --ext-diff",
            "git diff --ext",
            "git diff --output=x",
            "git grep -Oless x",
            "git --exec-path=/x diff",
            "git fetch --upload-p=x",
            "git grep -nOtouch x",
            "git -C y grep -nOtouch x",
            "git rebase -ixtouch y",
            "git rebase -xtouch y",
            "git difftool -xtouch",
            "git clone -qu touch y",
            "git archive -oy HEAD",
            "git format-patch -oy HEAD",
            "git -p log",
            "git difftool --extcmd=touch",
            "git diff --submodule=diff",
            "git log -p --submod=diff",
            "git status --ignore-submodules=none",
            "git diff --ignore-s=untracked",
            "git fetch --recurse-submodules",
            "git bisect run touch x",
            "git --no-pager submodule --quiet foreach touch",
            "git filter-branch --tree-filter x",
            "git remote-ext a b",
            "git difftool -t ../../x",
        ] {
            assert!(!check(line, &["git"]), "{line}");
        }
        for line in
            ["git -C x log", "git --git-dir=x log", "git --work-tree x log", "git --bare log"]
        {
            assert!(!check(line, &["git"]), "{line}");
        }
        assert!(check("git log -C", &["git"]), "control: behind the subcommand it means copies");
        for line in [
            "git diff --submodule=log",
            "git diff --submodule",
            "git status --ignore-submodules=dirty",
            "git clone --recurse-submodules x",
            "git bisect good",
            "git submodule status",
        ] {
            assert!(check(line, &["git"]), "control: {line}");
        }
        assert!(check("git bisect run make", &["git bisect run"]), "control: it is named");
        assert!(check("git difftool x", &["git", "git difftool"]), "control: it is named");
        assert!(check("git diff --stat", &["git"]) && check("git log --oneline -n 3", &["git"]));
        for line in
            ["git log -p", "git show -p x", "git add -u", "git grep -n x", "git rebase -i x"]
        {
            assert!(check(line, &["git"]), "control: {line}");
        }
        for line in ["rg --pre=x y", "rg --pre x y", "rg -nz y", "rg --search-zip y"] {
            assert!(!check(line, &["rg"]), "{line}");
        }
        assert!(check("rg -n y src", &["rg"]));
        for line in ["find . -exec a", "find . -delete", "find . -fprintf a", "find . -okdir a"] {
            assert!(!check(line, &["find"]), "{line}");
        }
        assert!(check("find . -name a", &["find"]));
        for line in ["sort -o a b", "sort -uoa b", "sort --out=a b", "sort --compress=a b"] {
            assert!(!check(line, &["sort"]), "{line}");
        }
        assert!(check("sort -u a", &["sort"]));
        assert!(!check("/usr/bin/git -c a=b log", &["/usr/bin/git"]), "whatever its path");
    }
}
