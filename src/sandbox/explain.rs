//! A plan for people: in words, as a bubblewrap command that can be pasted, or as JSON.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::Serialize;

use super::facts;
use super::launch::{LaunchError, namespaces, words_of};
use super::namespace::{self, overlay};
use super::plan::kernel::AbstractSockets;
use super::plan::{self, Kind, Mount, Name, NameKind, Plan, Request, printable, shown};
use super::spec::Spec;

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A mount a line, each with its reason.
    Words,
    /// A command for a POSIX shell.
    Shell,
    /// One JSON object.
    Json,
}

/// Prints what `run` would do here and now. Creates nothing on the machine; to see which overlays the
/// kernel makes, this process enters a user and a mount namespace of its own and stays there.
///
/// # Errors
/// [`LaunchError`] when there is no plan, with the sentence that `run` would print.
pub fn render(spec: &Spec, request: &Request, format: Format) -> Result<Vec<u8>, LaunchError> {
    let mut facts = facts::probe(spec, request)?;
    let mut plan = plan::build(spec, &facts, request)?;
    match namespace::enter(false) {
        Ok(()) => {
            while let Some(refused) = overlay::refused(&plan) {
                facts.refused.extend(refused);
                plan = plan::build(spec, &facts, request)?;
            }
        }
        Err(error) => {
            plan.notes
                .push(format!("{error}: `run` is refused here, and `doctor` says what helps"));
        }
    }
    Ok(match format {
        Format::Words => words(&plan).into_bytes(),
        Format::Shell => shell(&plan),
        Format::Json => json(&plan),
    })
}

fn verb(kind: &Kind) -> &'static str {
    match kind {
        Kind::ReadOnly | Kind::ReadOnlyFrom(_) => "read-only",
        Kind::Writable | Kind::WritableFrom(_) => "writable",
        Kind::Tmpfs { .. } => "memory",
        Kind::Dev => "dev",
        Kind::Proc => "proc",
        Kind::Directory { .. } => "directory",
        Kind::Link(_) => "link",
        Kind::Marker => "file",
        Kind::Seal => "sealed",
        Kind::Protect => "protected",
        Kind::Pin => "pinned",
        Kind::MaskFile => "hidden file",
        Kind::MaskDirectory => "hidden directory",
        Kind::EmptyFile => "empty file",
        Kind::EmptyDirectory => "empty directory",
        Kind::Forbidden => "forbidden",
        Kind::Worktrees => "watched",
    }
}

fn name_verb(kind: &NameKind) -> &'static str {
    match kind {
        NameKind::File => "hidden file",
        NameKind::Directory => "hidden directory",
        NameKind::Absent => "absent",
        NameKind::Link(_) => "link",
    }
}

fn words(plan: &Plan) -> String {
    let mut lines = vec![
        format!("workspace: {}", shown(&plan.workspace)),
        format!("network: {}", if plan.network { "the host's" } else { "loopback only" }),
        format!(
            "hidden paths: {} (each stands below; what is absent and kept so counts, sockets do not)",
            plan.hidden
        ),
    ];
    for (name, what) in plan.kernel.refused() {
        lines.push(format!("refused calls: {name:<14} -- {what}"));
    }
    lines.push(format!(
        "abstract sockets: {}; signals: {}",
        match plan.kernel.abstract_sockets {
            AbstractSockets::OwnNetwork => "the jail's own network has its own",
            AbstractSockets::Scoped => "kept in by Landlock",
            AbstractSockets::NoSockets => "none, as no Unix socket can be opened",
            AbstractSockets::Reachable => "the host's can be reached",
        },
        if plan.kernel.scoped {
            "kept in by the PID namespace and by Landlock"
        } else {
            "kept in by the PID namespace"
        }
    ));
    lines.extend(plan.kernel.bounds().into_iter().map(|bound| format!("limit: {bound}")));
    let line = |verb: &str, path: &std::path::Path, reason: &str| {
        format!("  {verb:<16} {}  -- {}", shown(path), printable(reason))
    };
    if !plan.overlays.is_empty() {
        lines.push(
            "by name, on read-only overlays that are there before anything else (they hold \
             whatever the host does; what else is below them is shown as it was first looked up):"
                .to_owned(),
        );
    }
    for overlay in &plan.overlays {
        lines.push(line("overlay", &overlay.anchor, &overlay.reason));
        for name in &overlay.names {
            lines.push(line(name_verb(&name.kind), &name.path, &name.reason));
        }
    }
    for rebind in &plan.rebinds {
        lines.push(line("fresh", &rebind.path, &rebind.reason));
    }
    lines.push("mounts (a later one wins):".to_owned());
    for mount in &plan.mounts {
        lines.push(line(verb(&mount.kind), &mount.destination, &mount.reason));
    }
    if plan.mounts.iter().any(|mount| mount.kind.is_held()) {
        lines.push(
            "a mount holds what is there: when the host replaces it, it is put back at once, and \
             until then the new content is seen"
                .to_owned(),
        );
    }
    for mount in &plan.awaited {
        lines.push(format!(
            "as soon as it appears: {}",
            line(verb(&mount.kind), &mount.destination, &mount.reason).trim_start()
        ));
    }
    for create in &plan.create {
        lines.push(format!("created before the start: {}", shown(&create.path)));
    }
    for (name, reason) in &plan.removed {
        lines.push(format!("variable removed: {} -- {reason}", printable(&name.to_string_lossy())));
    }
    for name in &plan.corrected {
        lines.push(format!("variable set: {}", printable(&name.to_string_lossy())));
    }
    lines.extend(plan.handed.words());
    lines.extend(plan.notes.iter().map(|note| format!("note: {}", printable(note))));
    lines.push(String::new());
    lines.join("\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    workspace: String,
    network: bool,
    hidden_paths: usize,
    refused_calls: Vec<&'a str>,
    abstract_sockets: &'a str,
    signals_scoped: bool,
    limits: Vec<String>,
    overlays: Vec<ToldOverlay<'a>>,
    fresh: Vec<ToldMount<'a>>,
    mounts: Vec<ToldMount<'a>>,
    awaited: Vec<ToldMount<'a>>,
    created: Vec<String>,
    removed_variables: Vec<String>,
    set_variables: Vec<String>,
    handed: Vec<String>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ToldOverlay<'a> {
    anchor: String,
    reason: &'a str,
    names: Vec<ToldMount<'a>>,
}

#[derive(Serialize)]
struct ToldMount<'a> {
    kind: &'a str,
    destination: String,
    reason: &'a str,
}

fn json<'a>(plan: &'a Plan) -> Vec<u8> {
    let text = |name: &OsString| name.to_string_lossy().into_owned();
    let told = |kind, path: &std::path::Path, reason: &'a str| ToldMount {
        kind,
        destination: path.to_string_lossy().into_owned(),
        reason,
    };
    let list = |list: &'a [Mount]| {
        list.iter().map(|it| told(verb(&it.kind), &it.destination, &it.reason)).collect()
    };
    let told = Told {
        workspace: plan.workspace.to_string_lossy().into_owned(),
        network: plan.network,
        hidden_paths: plan.hidden,
        refused_calls: plan.kernel.refused().map(|(name, _)| name).collect(),
        abstract_sockets: plan.kernel.abstract_sockets.word(),
        signals_scoped: plan.kernel.scoped,
        limits: plan.kernel.bounds(),
        overlays: plan
            .overlays
            .iter()
            .map(|overlay| ToldOverlay {
                anchor: overlay.anchor.to_string_lossy().into_owned(),
                reason: &overlay.reason,
                names: overlay
                    .names
                    .iter()
                    .map(|name| told(name_verb(&name.kind), &name.path, &name.reason))
                    .collect(),
            })
            .collect(),
        fresh: plan.rebinds.iter().map(|it| told("fresh", &it.path, &it.reason)).collect(),
        mounts: list(&plan.mounts),
        awaited: list(&plan.awaited),
        created: plan.create.iter().map(|it| it.path.to_string_lossy().into_owned()).collect(),
        removed_variables: plan.removed.iter().map(|(name, _)| text(name)).collect(),
        set_variables: plan.corrected.iter().map(text).collect(),
        handed: plan.handed.words(),
        notes: &plan.notes,
    };
    let mut text = serde_json::to_vec_pretty(&told).unwrap_or_default();
    text.push(b'\n');
    text
}

/// What the command cannot do, for those who read it. A line that begins with `#` is no comment at every
/// prompt, a here-document is one everywhere.
const SHELL_CANNOT: &str = "\
: <<'KLI'
Only `kli-sandbox run` does this: names stay hidden when the host replaces them (here each is a mount,
which a rename on the host takes away), absent names stay absent, symbolic links stay as they are, sockets
and pipes below the home are cut, what the host mounts later stays out, system calls are filtered, the
session's keyring is a fresh one, signals and abstract sockets are scoped, `limits` hold.
KLI
";

/// The marker as it is true without what only the launcher asks of the kernel.
fn without_the_launcher(marker: &str) -> String {
    let mut text = marker.replacen("\"signalsScoped\":true", "\"signalsScoped\":false", 1);
    for word in ["scoped", "no sockets"] {
        let [told, true_here] =
            [word, "reachable"].map(|word| format!("\"abstractSockets\":\"{word}\""));
        text = text.replacen(&told, &true_here, 1);
    }
    if let Some((before, after)) = text.split_once("\"limits\":[")
        && let Some((_, rest)) = after.split_once("],\"workspace\":")
    {
        text = format!("{before}\"limits\":[],\"workspace\":{rest}");
    }
    text
}

/// A name that an overlay holds, as a mask of bubblewrap's own; none for a link, whose target is hidden
/// as well, and for what is absent.
fn as_mask(name: &Name) -> Option<Mount> {
    let kind = match name.kind {
        NameKind::File if !name.is_link => Kind::MaskFile,
        NameKind::Directory if !name.is_link => Kind::MaskDirectory,
        _ => return None,
    };
    Some(Mount { destination: name.path.clone(), kind, reason: name.reason.clone() })
}

/// One command. All that hides is bubblewrap's own here and comes last.
fn shell(plan: &Plan) -> Vec<u8> {
    let mut text = SHELL_CANNOT.as_bytes().to_vec();
    text.extend_from_slice(b"( e=$(mktemp) && trap 'rm -f \"$e\"' EXIT && chmod 0444 \"$e\" &&");
    for create in &plan.create {
        text.extend_from_slice(b" mkdir -p -m 0700 -- ");
        text.extend(quoted(create.path.as_os_str()));
        text.extend_from_slice(b" &&");
    }
    text.extend(plan.tmp.iter().flat_map(|tmp| {
        let tmp = quoted(tmp.as_os_str());
        [b" mkdir -m 0700 -- ", tmp.as_slice(), b" && mkdir -m 1777 -- ", &tmp, b"/tmp &&"].concat()
    }));
    text.extend_from_slice(b" env");
    for (name, _) in &plan.removed {
        text.extend_from_slice(b" -u ");
        text.extend(quoted(name));
    }
    for (name, value) in plan.environment.iter().filter(|(name, _)| plan.corrected.contains(name)) {
        let mut pair = name.as_bytes().to_vec();
        pair.push(b'=');
        pair.extend_from_slice(value.as_bytes());
        text.push(b' ');
        text.extend(quoted(&OsString::from_vec(pair)));
    }
    text.extend_from_slice(b" bwrap");
    let options = namespaces(plan).into_iter().map(OsString::from).chain([
        "--new-session".into(),
        "--chdir".into(),
        plan.workspace.clone().into(),
    ]);
    for word in options {
        text.push(b' ');
        text.extend(quoted(&word));
    }
    let by_name = plan.overlays.iter().flat_map(|overlay| &overlay.names).filter_map(as_mask);
    for mount in plan.mounts.iter().cloned().chain(by_name) {
        text.extend_from_slice(b" \\\n  ");
        text.extend(mount_words(&mount));
    }
    text.extend_from_slice(b" \\\n  -- \"${SHELL:-/bin/sh}\" 9<<'KLI'\n");
    text.extend_from_slice(without_the_launcher(&plan.marker).as_bytes());
    text.extend_from_slice(b"\nKLI\n)\n");
    text
}

fn mount_words(mount: &Mount) -> Vec<u8> {
    let to = quoted(mount.destination.as_os_str());
    match &mount.kind {
        Kind::MaskFile => [b"--ro-bind \"$e\" ".as_slice(), &to].concat(),
        Kind::MaskDirectory => {
            [b"--perms 0555 --size 4096 --tmpfs ".as_slice(), &to, b" --remount-ro ", &to].concat()
        }
        Kind::Protect => [b"--ro-bind ".as_slice(), &to, b" ", &to].concat(),
        Kind::Pin => [b"--bind ".as_slice(), &to, b" ", &to].concat(),
        _ => words_of(mount, 9).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' '),
    }
}

/// A word as a POSIX shell reads it back, byte for byte. A control character would be a key to the
/// line editor that it is pasted into, so `printf` makes it; a line break in quotes is none.
fn quoted(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-=:,+@%".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return word.as_bytes().to_vec();
    }
    let mut text = vec![b'\''];
    let escape = |text: &mut Vec<u8>, bytes: &[u8]| {
        text.extend_from_slice(b"'\"$(printf '");
        for byte in bytes {
            text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        }
        text.extend_from_slice(b"')\"'");
    };
    for piece in word.as_bytes().utf8_chunks() {
        for character in piece.valid().chars() {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            if character == '\'' {
                text.extend_from_slice(b"'\\''");
            } else if character.is_control() && character != '\n' {
                escape(&mut text, bytes);
            } else {
                text.extend_from_slice(bytes);
            }
        }
        if !piece.invalid().is_empty() {
            escape(&mut text, piece.invalid());
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::without_the_launcher;

    #[test]
    fn the_pasted_command_claims_nothing_that_only_the_launcher_does() {
        let marker = r#"{"version":1,"network":true,"abstractSockets":"scoped","signalsScoped":true,"userNamespaces":false,"limits":["9 tasks","1 [x],"],"workspace":"/w\"signalsScoped\":true","hiddenPaths":2}"#;
        let told: serde_json::Value = serde_json::from_str(&without_the_launcher(marker)).unwrap();
        assert_eq!(told["abstractSockets"], "reachable");
        assert_eq!(told["signalsScoped"], false);
        assert_eq!(told["limits"], serde_json::json!([]));
        assert_eq!(told["workspace"], "/w\"signalsScoped\":true");
        assert_eq!(told["hiddenPaths"], 2);
        let own = r#"{"abstractSockets":"own network","limits":[],"workspace":"/w"}"#;
        assert_eq!(without_the_launcher(own), own);
    }
}
