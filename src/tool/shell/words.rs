//! Reads a command line as simple commands, when there is no doubt what the shell will run.
//!
//! It says nothing rather than something wrong: whatever the shell could expand, redirect, define
//! or hand to another reader makes the whole line unread, and the unconstrained atom is needed.

/// Words that are commands of the shell's own grammar, or that run, define or rebind other words.
/// A line that has one where a command stands is not read.
const OTHER_READERS: &[&str] = &[
    // Grammar, bash(1) "Reserved words".
    "!",
    "[[",
    "]]",
    "{",
    "}",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "select",
    "then",
    "time",
    "until",
    "while",
    // Builtins that run other words, or change what words and names mean.
    ".",
    "alias",
    "bind",
    "builtin",
    "command",
    "compgen",
    "complete",
    "declare",
    "enable",
    "eval",
    "exec",
    "export",
    "fc",
    "getopts",
    "hash",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "source",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "wait",
    // Programs whose purpose is to run another.
    "ash",
    "bash",
    "busybox",
    "chroot",
    "chrt",
    "dash",
    "doas",
    "entr",
    "env",
    "fish",
    "flock",
    "ionice",
    "ksh",
    "mksh",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "rbash",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "sh",
    "stdbuf",
    "su",
    "sudo",
    "taskset",
    "timeout",
    "toybox",
    "unshare",
    "watch",
    "xargs",
    "zsh",
];

/// Returns the simple commands of a line, each as its words, or `None` when the shell might run
/// anything else. `shell` is the program that will read the line.
pub(super) fn read(line: &str, shell: &std::path::Path) -> Option<Vec<Vec<String>>> {
    // Other shells expand more (zsh: `=ls`).
    let known = ["bash", "dash", "sh"];
    shell.file_name().and_then(|name| name.to_str()).filter(|name| known.contains(name))?;
    let mut reader = Reader { rest: line.chars().peekable(), done: vec![], words: vec![] };
    reader.line()?;
    (!reader.done.is_empty()).then_some(reader.done)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    done: Vec<Vec<String>>,
    words: Vec<String>,
}

impl Reader<'_> {
    fn line(&mut self) -> Option<()> {
        // After `|`, `&&` and `||` another command must come.
        let mut owed = false;
        while let Some(next) = self.rest.peek().copied() {
            match next {
                ' ' | '\t' => drop(self.rest.next()),
                '\n' => {
                    self.rest.next();
                    owed &= !self.end()?;
                }
                ';' => {
                    self.rest.next();
                    if !self.end()? {
                        return None;
                    }
                    owed = false;
                }
                '&' | '|' => {
                    self.rest.next();
                    if self.rest.peek() == Some(&next) {
                        self.rest.next();
                    } else if next == '&' {
                        return None;
                    }
                    if !self.end()? {
                        return None;
                    }
                    owed = true;
                }
                _ => {
                    let word = self.word()?;
                    self.words.push(word);
                }
            }
        }
        owed &= !self.end()?;
        (!owed).then_some(())
    }

    /// Ends a simple command, and says whether there was one.
    fn end(&mut self) -> Option<bool> {
        let words = std::mem::take(&mut self.words);
        let Some(first) = words.first() else { return Some(false) };
        let name = first.rsplit('/').next().unwrap_or(first);
        // A `%` in front names a job to continue.
        if name.is_empty()
            || first.contains('=')
            || first.starts_with('%')
            || OTHER_READERS.contains(&name)
        {
            return None;
        }
        self.done.push(words);
        Some(true)
    }

    fn word(&mut self) -> Option<String> {
        let mut word = String::new();
        while let Some(next) = self.rest.peek().copied() {
            match next {
                ' ' | '\t' | '\n' | ';' | '&' | '|' => break,
                '\'' => {
                    self.rest.next();
                    self.quoted('\'', &mut word, |c| c != '\0')?;
                }
                '"' => {
                    self.rest.next();
                    // `!` is history only where history is on, which a line could ask for.
                    self.quoted('"', &mut word, |c| !"$`\\!\0".contains(c))?;
                }
                _ if next.is_ascii_alphanumeric() || "_-./,:+@%=".contains(next) => {
                    word.push(next);
                    self.rest.next();
                }
                // Also letters outside ASCII: some locales count some of them as blanks.
                _ => return None,
            }
        }
        Some(word)
    }

    fn quoted(&mut self, end: char, word: &mut String, plain: fn(char) -> bool) -> Option<()> {
        loop {
            match self.rest.next()? {
                c if c == end => return Some(()),
                c if plain(c) => word.push(c),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn parse(line: &str) -> Option<Vec<Vec<String>>> {
        read(line, Path::new("/bin/bash"))
    }

    #[test]
    fn plain_lines_are_read() {
        let words = |commands: &[&[&str]]| {
            Some(commands.iter().map(|c| c.iter().map(|w| (*w).to_owned()).collect()).collect())
        };
        assert_eq!(parse("git status"), words(&[&["git", "status"]]));
        assert_eq!(
            parse("cargo build --release && git diff 'a b'\"c d\"e; ls|wc -l ;\n\n rg --glob=x y"),
            words(&[
                &["cargo", "build", "--release"],
                &["git", "diff", "a bc de"],
                &["ls"],
                &["wc", "-l"],
                &["rg", "--glob=x", "y"],
            ])
        );
        assert_eq!(
            parse("git commit -m 'a $b `c`' |\n wc || true"),
            words(&[&["git", "commit", "-m", "a $b `c`"], &["wc"], &["true"],])
        );
        assert_eq!(parse("git add ''"), words(&[&["git", "add", ""]]));
    }

    #[test]
    fn whatever_the_shell_may_read_otherwise_is_not_read() {
        for line in [
            "",
            " ",
            "\n",
            ";",
            "a;;b",
            "a &",
            "a & b",
            "a &&",
            "a ||\n",
            "a |& b",
            "| a",
            "&& a",
            "$x",
            "git $x",
            "a `b`",
            "a $(b)",
            "a \"$b\"",
            "a \"`b`\"",
            "a \\b",
            "a \"\\b\"",
            "a > b",
            "a < b",
            "a 2>&1",
            "a <<E",
            "a *",
            "a ?",
            "a [b]",
            "a ~",
            "~/a",
            "a {b,c}",
            "A=b git",
            "a=b",
            "'A'=b git",
            "if a",
            "! a",
            "time a",
            "{ a",
            "(a)",
            "f() a",
            "a # b",
            "#a",
            "env git",
            "/usr/bin/env git",
            "./sh a",
            "xargs git",
            "eval git",
            "exec git",
            "command git",
            "sudo git",
            "bash -c a",
            "sh -c a",
            "'sh' -c a",
            "export PATH=x",
            "git a; alias git=b",
            "printf -v PATH x",
            "a 'b",
            "a \"b",
            "a \"!b\"",
            "a é",
            "a\u{a0}b",
            "a\rb",
            "a\0",
            "a '\0'",
            "'' a",
            "a\u{2028}b",
            "b/ a",
            "[ a ]",
            "[[ a ]]",
            "a !b",
            "a ^b",
            "hash -p /x git",
            "%1",
            "%git",
            "trap a EXIT",
            ". a",
            "source a",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        assert!(parse("a 'é $x !'; b \"é\"").is_some(), "control: quotes make them plain");
        assert_eq!(read("git status", Path::new("/bin/zsh")), None);
        assert!(read("git status", Path::new("sh")).is_some(), "control");
    }

    /// Runs a line in bash with nothing on PATH and returns the words of every command that bash
    /// looked for, in any order.
    fn bash_runs(line: &str) -> Vec<Vec<String>> {
        let place = tempfile::tempdir().unwrap();
        let hook = place.path().join("hook");
        // Appended to a file: the output of a command may be another's input.
        let log = place.path().join("log");
        let script = format!(
            "command_not_found_handle() {{ printf '%s\\0' \"$#\" \"$@\" >>'{}'; }}; PATH=/none",
            log.display()
        );
        std::fs::write(&hook, script).unwrap();
        let empty = place.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        std::process::Command::new("bash")
            .args(["-c", "--", line])
            .env("BASH_ENV", &hook)
            .current_dir(&empty)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "{line:?} made a file");
        let log = std::fs::read(&log).unwrap_or_default();
        let mut fields = log.split(|byte| *byte == 0).map(|f| String::from_utf8_lossy(f).into());
        let mut found = Vec::new();
        while let Some(count) = fields.next().and_then(|n: String| n.parse::<usize>().ok()) {
            found.push(fields.by_ref().take(count).collect());
        }
        found
    }

    #[test]
    fn the_oracle_sees_what_bash_runs() {
        let mut seen = bash_runs("zb 'x y' | zc && zd $((1+1)); A=1 ze");
        seen.sort();
        let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            seen,
            [words(&["zb", "x y"]), words(&["zc"]), words(&["zd", "2"]), words(&["ze"])]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(250))]
        #[test]
        fn a_line_that_is_read_runs_exactly_what_was_read(
            parts in proptest::collection::vec(prop_oneof![
                6 => "z[a-c]",
                2 => "[a-c=.,:+@%_-]{1,3}",
                2 => "'[a $`\"\\\\;|&é!*~\n-]{0,4}'",
                2 => "\"[a ';|&é*~#(){}<>\n-]{0,4}\"",
                5 => Just(" ".to_owned()),
                2 => Just("; ".to_owned()),
                2 => Just(" && z".to_owned()),
                1 => Just("\n".to_owned()),
                1 => Just("|z".to_owned()),
                1 => "[$`\\\\\"'(){}<>*?~#!&|;^\t\r\\[\\]]",
            ], 1..9),
        ) {
            let line = format!("z{}", parts.concat());
            if let Some(mut read) = parse(&line) {
                // The hook does not get `:`, a builtin. It succeeds, so what stands behind
                // `&&` runs.
                read.retain(|words| words[0] != ":");
                let mut ran = bash_runs(&line);
                read.sort();
                ran.sort();
                prop_assert_eq!(ran, read, "{:?}", line);
            }
        }
    }
}
