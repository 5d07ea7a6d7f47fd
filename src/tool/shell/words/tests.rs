#![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

use super::*;
use proptest::prelude::*;

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
    assert_eq!(
        parse("git diff HEAD~1 v1.0^..HEAD~~^2"),
        words(&[&["git", "diff", "HEAD~1", "v1.0^..HEAD~~^2"]])
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
        "time a",
        "{ a",
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
        "a b=~",
        "a b:~/c",
        "a ''~",
        "a b~'c' ~",
        "test -v 'a[$(b)]'",
        "test a",
        "'[' -v 'a[$(b)]' ']'",
        "/usr/bin/test a",
        "history -w a",
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

#[test]
fn the_commands_of_groups_and_compound_commands_are_read() {
    let texts = |line: &str| {
        parse(line).map(|all| all.iter().map(|c| c.join(" ")).collect::<Vec<_>>().join(" ; "))
    };
    for (line, read) in [
        ("(a b)", "a b"),
        ("(a; (b)) | c && { d; e; }", "a ; b ; c ; d ; e"),
        ("! a b", "a b"),
        ("! a && ! (b)", "a ; b"),
        ("if a; then b; elif c\nthen d; else e; fi; f", "a ; b ; c ; d ; e ; f"),
        ("while a; do b; done", "a ; b"),
        ("until a | b\ndo\n{ c\n}\ndone", "a ; b ; c"),
        ("a 2>&1 | b >/dev/null 2>&1", "a ; b"),
        ("{ a; } 2>/dev/null; (b) </dev/null", "a ; b"),
        ("a <<'E'\n$x `y`\nE\nb", "a ; b"),
        ("a <<E | b\nplain; rm x\nE\nc", "a ; b ; c"),
        ("a if then", "a if then"),
        ("a \"if\" 'do'", "a if do"),
    ] {
        assert_eq!(texts(line).as_deref(), Some(read), "{line:?}");
    }
}

#[test]
fn nasty_lines_are_not_read() {
    for line in [
        // Names and values.
        "LD_PRELOAD=x git status",
        "PATH=. git status",
        "GIT_EXTERNAL_DIFF=x git diff",
        "a=(b)",
        "a[0]=b",
        "a+=b c",
        "g\\it status",
        "\"git\"\\\n status",
        "gi\\\nt status",
        "a 'b'\\\n'c'",
        "$'git' status",
        "a $'\\x3b' b",
        "a $\"b\"",
        "a $((1))",
        "a $[1]",
        "a ${b}",
        "a ${b:-c}",
        "a \u{3000}b",
        "a\u{a0}b",
        "a\u{85}b",
        "git\u{200b} status",
        "a\u{feff}",
        "a\r\nb",
        "a\rb",
        "a\x0cb",
        "a\x0bb",
        "a\x1b[0m",
        "a !!",
        "!a",
        "!",
        "a !$",
        // Compound commands that define, choose, count or rebind.
        "for PATH in .; do git status; done",
        "for x in a; do b; done",
        "for ((;;)); do a; done",
        "select x in a; do b; done",
        "case a in b) c;; esac",
        "f() { a; }",
        "f () ( a )",
        "function f { a; }",
        "git() { rm x; }; git status",
        "((a))",
        "((a)) && b",
        "( (a) )x",
        "[[ -n a ]] && b",
        "[[ $(a) ]]",
        "coproc a",
        "coproc f { a; }",
        "time -p a",
        "! time a",
        "{a;}",
        "{ a }",
        "a {b..c}",
        "a{,b}",
        // Files and other readers.
        "a >b",
        "a >|b",
        "a &>/dev/null",
        "a >&b",
        "a >&/dev/null",
        "a <>b",
        "a </dev/tcp/127.0.0.1/1",
        "a >/dev/null2",
        "a >'/dev/null'",
        "a > /dev/nullb",
        "a 3>&1",
        "a 2>&3",
        "a 2>&-",
        "a {x}>/dev/null",
        "a <&0",
        "a <<<b",
        "a <(b)",
        "a >(b)",
        "a <<E\n$(b)\nE",
        "a <<E\n`b`\nE",
        "a <<E\nb\\\nE\nE",
        "a <<E\nb",
        "a <<-E\nb\n\tE",
        "a <<'E' <<E\nx\nE\n$x\nE",
        "bash <<'E'\na\nE",
        "if a; then b",
        "if a; then exec b; fi",
        "while read x; do a; done",
        "(a &)",
        "{ a & }",
        "a && { b & }",
        "a & & b",
        "a &&& b",
        "a ||| b",
        "a;;",
        "a;&",
        "a |& b",
        "a | time b",
        "a && (source b)",
        "nohup a",
        "jobs -x a",
        "fg",
        "ssh x a",
        "a #b",
        "a;#b\nc",
        "a\n#b",
        "#!/bin/sh\na",
        "\0",
        "a 'b\0c'",
        ">/dev/null",
        "2>&1",
        "()",
        "(",
        "( )",
        ")",
    ] {
        assert_eq!(parse(line), None, "{line:?}");
    }
    let deep = |n: usize| format!("{}a{}", "( ".repeat(n), " )".repeat(n));
    assert!(parse(&deep(20)).is_some(), "control");
    for n in [33, 1000, 15_000] {
        assert_eq!(parse(&deep(n)), None, "{n}");
    }
    assert_eq!(parse(&format!("a {}", "b".repeat(LONGEST))), None);
    assert_eq!(parse(&format!("{}a", "! ".repeat(10_000))), None);
}

/// Runs a line in bash with nothing on PATH and returns the words of every command that bash
/// looked for, in any order.
fn bash_runs(line: &str) -> Vec<Vec<String>> {
    let place = tempfile::tempdir().unwrap();
    let hook = place.path().join("hook");
    // A file for each: the output of a command may be another's input, and two may run at once.
    let log = place.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let script = format!(
        "command_not_found_handle() {{ printf '%s\\0' \"$#\" \"$@\" >'{}/'$BASHPID-$EPOCHREALTIME; }}; PATH=/none",
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
    let files = std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
    let log: Vec<u8> = files.flat_map(|file| std::fs::read(file).unwrap()).collect();
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
    assert_eq!(seen, [words(&["zb", "x y"]), words(&["zc"]), words(&["zd", "2"]), words(&["ze"])]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn a_line_that_is_read_runs_exactly_what_was_read(
        parts in proptest::collection::vec(prop_oneof![
            6 => "z[a-c]",
            2 => "[a-c=.,:+@%_~^-]{1,3}",
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
            if line.contains("||") {
                // What stands behind it does not run, as the hook succeeds.
                read.retain(|words| ran.contains(words));
            }
            read.sort();
            ran.sort();
            prop_assert_eq!(ran, read, "{:?}", line);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_line_with_grammar_runs_nothing_that_was_not_read(
        parts in proptest::collection::vec(prop_oneof![
            6 => "z[a-c]",
            2 => "'[a $`\"\\\\;|&*~\n(){}-]{0,4}'",
            4 => Just(" ".to_owned()),
            3 => Just("; ".to_owned()),
            1 => Just("\n".to_owned()),
            2 => Just(" && ".to_owned()),
            2 => Just(" || z".to_owned()),
            1 => Just(" | z".to_owned()),
            2 => Just("( ".to_owned()),
            2 => Just(" )".to_owned()),
            2 => Just("{ ".to_owned()),
            2 => Just("; }".to_owned()),
            1 => Just("! ".to_owned()),
            3 => Just("if z; then z".to_owned()),
            2 => Just("; elif z; then z".to_owned()),
            2 => Just("; else z".to_owned()),
            3 => Just("; fi".to_owned()),
            2 => Just("until z; do z".to_owned()),
            2 => Just("; done".to_owned()),
            1 => Just(" 2>&1".to_owned()),
            1 => Just(" >/dev/null".to_owned()),
            1 => Just(" <<'E'\n$(zx)\nE\n".to_owned()),
            1 => Just(" <<E\nzx\nE\n".to_owned()),
            1 => "[$`\\\\\"'(){}<>*?#!&|;\t\r]",
        ], 1..12),
    ) {
        let line = parts.concat();
        if let Some(mut read) = parse(&line) {
            for words in bash_runs(&line) {
                let at = read.iter().position(|one| *one == words);
                prop_assert!(at.is_some(), "{:?} ran {:?}", line, words);
                read.remove(at.unwrap());
            }
        }
    }
}

#[test]
fn long_lines_are_read_or_not_but_never_break_the_reader() {
    let started = std::time::Instant::now();
    for piece in [
        "a;",
        "a\n",
        "a&&",
        "a||",
        "a|",
        "! ",
        "a ",
        "'",
        "\"",
        "'x'",
        "( ",
        "(a) ",
        "{ ",
        "{ a; }\n",
        "if a; then b; fi\n",
        "if a; then ",
        "elif ",
        "until a; do ",
        "a <<E\nE\n",
        "a <<'E' ",
        "a 2>&1 ",
        ">/dev/null ",
        "a; } ",
        ") ",
        "a\t\n\n",
        "do ",
        "fi;",
    ] {
        for count in [1, 30, 250, 2000, LONGEST / piece.len()] {
            let line = piece.repeat(count);
            let ended = format!("{line}a");
            for line in [line, ended] {
                let _read_or_not = parse(&line);
            }
        }
    }
    assert!(parse(&format!("{}a", "a; ".repeat(200))).is_some_and(|all| all.len() == 201));
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}

proptest! {
    #[test]
    fn any_text_is_read_or_not(line in "[a-c '\"(){};|&<>!E/dnul$`\\\\\n\t\0é-]{0,80}") {
        let _read_or_not = parse(&line);
    }
}
