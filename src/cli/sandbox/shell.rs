//! Words of a POSIX shell: names that may hold any byte, quoted, and paths that start at one of the
//! closed set of bases, whose variables the head of every script sets.

use crate::sandbox::spec::{Base, EnvPattern, SpecPath, Xdg};

/// Quotes a text so that a shell takes it as one word, as it stands.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The script's variable for a base, in double quotes; empty for the root.
fn base(base: Base) -> &'static str {
    match base {
        Base::Root => "",
        Base::Home => "\"$home\"",
        Base::Workspace => "\"$workspace\"",
        Base::Xdg(Xdg::Runtime) => "\"$xdg_runtime\"",
        Base::Xdg(Xdg::Config) => "\"$xdg_config\"",
        Base::Xdg(Xdg::Cache) => "\"$xdg_cache\"",
        Base::Xdg(Xdg::State) => "\"$xdg_state\"",
        Base::Xdg(Xdg::Data) => "\"$xdg_data\"",
    }
}

fn joined(start: &str, rest: &str) -> String {
    match (start, rest) {
        (start, "") => format!("{start}/"),
        (start, rest) => format!("{start}/{}", quoted(rest)),
    }
}

/// The name that a path has when it is shown or made writable.
pub(super) fn word(path: &SpecPath) -> String {
    joined(base(path.base), &path.rest)
}

/// The base and the rest of a writable path, two words.
pub(super) fn pair(path: &SpecPath) -> String {
    let start = base(path.base);
    format!("{} {}", if start.is_empty() { "''" } else { start }, quoted(&path.rest))
}

/// Every name that a hidden path has: below both homes, and below a variable's value as well as
/// its default.
pub(super) fn hidden(path: &SpecPath) -> Vec<String> {
    starts(path.base).iter().map(|start| joined(start, &path.rest)).collect()
}

fn starts(from: Base) -> Vec<String> {
    let mut starts = vec![base(from).to_owned()];
    match from {
        Base::Root | Base::Workspace => {}
        Base::Home => starts.push("\"$account\"".to_owned()),
        Base::Xdg(xdg) => match xdg.below_home() {
            Some(below) => {
                starts.push(format!("\"$home\"/{below}"));
                starts.push(format!("\"$account\"/{below}"));
            }
            None => starts.push("/run/user/\"$uid\"".to_owned()),
        },
    }
    starts
}

/// Every pattern that hides what a pattern of the specification names; the reason when a shell has no
/// such pattern.
pub(super) fn patterns(path: &SpecPath) -> Result<Vec<String>, &'static str> {
    let mut rests = vec![String::new()];
    for part in path.rest.split('/') {
        let forms = part_patterns(part)?;
        rests = rests
            .iter()
            .flat_map(|rest| forms.iter().map(move |form| format!("{rest}/{form}")))
            .collect();
        if rests.len() > 64 {
            return Err("it has too many wildcards at the start of names");
        }
    }
    Ok(starts(path.base)
        .iter()
        .flat_map(|start| rests.iter().map(move |rest| format!("{start}{rest}")))
        .collect())
}

fn part_patterns(part: &str) -> Result<Vec<String>, &'static str> {
    if part.contains("**") {
        return Err("a shell knows no `**`, write the levels out");
    }
    let mut form = String::new();
    for character in part.chars() {
        match character {
            '*' | '?' => form.push(character),
            '[' | ']' | '{' | '}' | '\\' => {
                return Err("only `*` and `?` mean the same to every shell");
            }
            plain => form.push_str(&quoted(plain.encode_utf8(&mut [0; 4]))),
        }
    }
    let form = form.replace("''", "");
    // A wildcard at the start of a name does not stand for its dot in a shell.
    Ok(if part.starts_with('*') {
        vec![format!(".[!.]{form}"), format!("..?{form}"), form]
    } else if part.starts_with('?') {
        vec![format!(".{}", form.get(1..).unwrap_or_default()), form]
    } else {
        vec![form]
    })
}

/// A pattern of `case` for names of variables.
pub(super) fn variables(patterns: &[EnvPattern]) -> Vec<String> {
    patterns
        .iter()
        .map(|pattern| {
            let star = if pattern.is_prefix() { "*" } else { "" };
            format!("{}{star}", quoted(pattern.name()))
        })
        .collect()
}

/// Whether a script can hold a variable of this name without harm to itself: its own are all in
/// lower case.
pub(super) fn can_hold(name: &str) -> bool {
    let identifier = name.bytes().enumerate().all(|(at, byte)| {
        byte == b'_' || byte.is_ascii_uppercase() || (at > 0 && byte.is_ascii_digit())
    });
    identifier && !["HOME", "PATH", "IFS", "PWD", "ENV", "OPTIND", "UID"].contains(&name)
}
