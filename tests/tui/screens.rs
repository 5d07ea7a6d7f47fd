//! The pictures of `docs/terminal.md`: real runs on a pseudo-terminal, as the emulator's cells have
//! them. `KLI_UPDATE_DOCS=1` draws them anew; otherwise what they show is compared with what the
//! runs show now, but for clocks and counts that depend on the machine.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::json;

use super::{Tty, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
    jail::{Who, World},
};

/// Rows and columns of each picture's terminal.
const SIZE: (u16, u16) = (24, 92);

/// kli in a jail, on the terminal of somebody who has just started it from a shell.
fn jailed(world: &World, settings: &str) -> Tty {
    jailed_as(world, settings, "kli")
}

/// The same, started by another line.
fn jailed_as(world: &World, settings: &str, line: &str) -> Tty {
    let kli = world.root.join("kli");
    fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
    world.file("home/.config/kli/settings.json", settings);
    world.program("bin/kli", &format!("#!/bin/sh\nexec j '{}' \"$@\"\n", kli.display()));
    let mut tty = Tty::shell_in(world);
    tty.resize(SIZE.0, SIZE.1);
    tty.press("PS1='$ '; clear\r");
    tty.until("a clear screen", |screen| screen.trim() == "$");
    tty.press(&format!("{line}\r"));
    tty.sees("say what to do");
    tty.settles();
    tty
}

/// A world with a recording.
fn recorded(answers: &[serde_json::Value]) -> World {
    let world = World::new(Who::User);
    world.file("home/recording.jsonl", &recording(answers));
    world
}

/// The settings of a run on a recording in the jail's home.
const REPLAY: &str =
    r#"{"model": "replay/demo", "providers": {"replay": {"file": "~/recording.jsonl"}}}"#;

fn recording(answers: &[serde_json::Value]) -> String {
    answers.iter().map(|answer| format!("{answer}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn start() {
    let world = recorded(&[json!({ "text": "x" })]);
    let mut tty = jailed(&world, REPLAY);
    picture(
        &mut tty,
        "start",
        "kli has just started in its jail: the shell's line, an empty composer, the footer",
    );
    tty.press("\x04");
}

#[test]
fn streaming() {
    let said = "## What I found\n\nThe parser reads the length **before** it is checked, so a short file panics:\n\n\
        | case | length | result |\n|---|---:|---|\n| whole | 128 | ok |\n| cut off | 3 | `panic` |\n| empty | 0 | ok |\n\n\
        The repair is one line:\n\n```rust\nfn header(bytes: &[u8]) -> Option<u32> {\n    // A short file has none.\n    \
        let head = bytes.get(..4)?;\n    Some(u32::from_le_bytes(head.try_into().ok()?))\n}\n```\n\nNow I run the tests";
    let stream = message([text(said)]);
    let end = stream.find("event: content_block_stop").unwrap();
    let world = World::new(Who::User);
    let fake = FakeModel::start(vec![Answer::new(stream).hang_after(end)]);
    let settings = format!(
        r#"{{"model": "local/m", "providers": {{"local": {{"kind": "anthropic", "baseUrl": "{}"}}}}}}"#,
        fake.base_url()
    );
    let mut tty = jailed(&world, &settings);
    tty.press("why does it panic on short files?\r");
    tty.sees("run the tests");
    tty.press("and add one for the empty file");
    tty.settles();
    picture(
        &mut tty,
        "streaming",
        "An answer streams in: a heading, a table, highlighted code; what is written meanwhile stands in the composer",
    );
    assert!(fake.requests().len() == 1);
    drop(fake);
}

#[test]
fn an_edit() {
    let calls = json!({ "text": "The length is checked first now.", "calls": [
        { "name": "edit", "arguments": { "path": "src/header.rs", "edits": [
            { "old": "    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());\n    length\n",
              "new": "    let head = bytes.get(..4)?;\n    Some(u32::from_le_bytes(head.try_into().ok()?))\n" },
            { "old": "-> u32", "new": "-> Option<u32>" } ] } },
        { "name": "bash", "arguments": { "command": "for n in $(seq 1 14); do echo \"test header::case_$n ... ok\"; done" } },
    ]});
    let done = json!({ "text": "Done: **14 tests** pass, the empty file among them.", "usage": { "inputTokens": 5210, "outputTokens": 164 } });
    let world = recorded(&[calls, done]);
    world.file(
        "home/project/src/header.rs",
        "/// The length that a file begins with.\nfn header(bytes: &[u8]) -> u32 {\n    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());\n    length\n}\n",
    );
    let mut tty = jailed(&world, REPLAY);
    tty.press("mend the header\r");
    tty.sees("14 tests");
    tty.settles();
    picture(
        &mut tty,
        "edit",
        "An edit with its changes, and a command whose output is folded to its end",
    );
    tty.press("\x04");
}

#[test]
fn an_approval() {
    let call = json!({ "text": "The build directory can go.", "calls": [
        { "name": "bash", "arguments": { "command": "rm -r build && git status --short" } } ]});
    let world = recorded(&[call]);
    let settings = format!(
        r#"{{"profiles": {{"careful": {{"approve": "writes"}}}}, {}"#,
        REPLAY.trim_start_matches('{')
    );
    let mut tty = jailed_as(&world, &settings, "kli --profile careful");
    tty.press("clean up\r");
    tty.until("a question", |screen| screen.contains("y yes") && !screen.contains("a moment:"));
    tty.settles();
    picture(
        &mut tty,
        "approval",
        "A call waits for an answer: the exact command, and the keys that answer",
    );
}

#[test]
fn completion() {
    let world = recorded(&[json!({ "text": "x" })]);
    let mut tty = jailed(&world, REPLAY);
    tty.press("/co");
    tty.sees("/config");
    tty.settles();
    picture(&mut tty, "completion", "Commands that a beginning can become");
    tty.press("\x03\x03");
}

#[test]
fn an_interrupt_without_a_jail() {
    let env = Env::new();
    let call = json!({ "text": "I look how large it is.", "calls": [
        { "name": "bash", "arguments": { "command": "echo '12M     build/cache'; sleep 600" } } ]});
    replay(&env, &recording(&[call]));
    let mut kli = env.command(&[]);
    fs::create_dir(env.home().join("shop")).unwrap();
    kli.current_dir(env.home().join("shop"));
    let mut tty = Tty::start(&kli, SIZE.0, SIZE.1);
    tty.sees("say what to do");
    tty.press("how large is the build?\r");
    tty.sees("  12M");
    tty.press("\x1b\x1b");
    tty.sees("interrupted");
    tty.settles();
    picture(
        &mut tty,
        "interrupted",
        "An interrupted command outside of kli's jail: the footer says what there is instead, in a warning colour and in words",
    );
    tty.press("\x04");
}

/// Draws a picture, or compares it with the one that is there.
#[track_caller]
fn picture(tty: &mut Tty, name: &str, about: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/screens/{name}.svg"));
    let screen = tty.parser.screen();
    let rows: Vec<String> = screen.rows(0, SIZE.1).map(|row| row.trim_end().to_owned()).collect();
    let used = rows.iter().rposition(|row| !row.is_empty()).map_or(1, |last| last + 1);
    let now = rows[..used].join("\n");
    if std::env::var_os("KLI_UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, drawn(screen, used, about, &now)).unwrap();
        return;
    }
    let svg = fs::read_to_string(&file).unwrap_or_default();
    let shown = svg.split_once("<desc>").and_then(|(_, rest)| rest.split_once("</desc>"));
    let shown = shown.map(|(text, _)| unescape(text)).unwrap_or_default();
    assert_eq!(
        steady(&shown),
        steady(&now),
        "`{}` shows something else: KLI_UPDATE_DOCS=1 draws it anew",
        file.display()
    );
}

/// Returns a screen without what differs from run to run: clocks, spinners, counts of hidden paths,
/// directories of the test, and what confines the machine that it runs on.
fn steady(text: &str) -> String {
    let mut out = String::new();
    for row in text.lines() {
        let mut words: Vec<String> = row.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let next = words.get(at + 1).cloned().unwrap_or_default();
            let number = !words[at].is_empty() && words[at].bytes().all(|b| b.is_ascii_digit());
            if number && ["s", "min", "hidden"].contains(&next.as_str()) {
                "N".clone_into(&mut words[at]);
            }
            if ["/.tmp", "/kli-jail-"].iter().any(|part| words[at].contains(part))
                || words[at].chars().any(|c| ('⠀'..='⣿').contains(&c))
            {
                "…".clone_into(&mut words[at]);
            }
        }
        let mut row = words.join(" ");
        if row.starts_with("outer: ") || row.starts_with("confinement unknown") {
            let rest = row.split_once(" · ").map_or("", |(_, rest)| rest);
            row = format!("no jail · {rest}");
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The width and height of a cell, in the picture's units.
const CELL: (f64, f64) = (8.4, 18.0);
const GROUND: &str = "#1d2021";
const LETTERS: &str = "#d5c4a1";
const PALETTE: [&str; 16] = [
    "#32302f", "#fb4934", "#b8bb26", "#fabd2f", "#83a598", "#d3869b", "#8ec07c", "#d5c4a1",
    "#665c54", "#fb4934", "#b8bb26", "#fabd2f", "#83a598", "#d3869b", "#8ec07c", "#fbf1c7",
];

fn color(color: vt100::Color, or: &str) -> String {
    match color {
        vt100::Color::Default => or.to_owned(),
        vt100::Color::Idx(n @ 0..=15) => PALETTE[usize::from(n)].to_owned(),
        vt100::Color::Idx(n @ 16..=231) => {
            let n = n - 16;
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        vt100::Color::Idx(n) => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (n - 232)),
        vt100::Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

/// Returns a screen as a picture: each run of cells that look the same is one piece of text.
fn drawn(screen: &vt100::Screen, rows: usize, about: &str, text: &str) -> String {
    let (wide, high) = CELL;
    let edge = 10.0;
    let width = f64::from(SIZE.1) * wide + 2.0 * edge;
    let height = u16::try_from(rows).map(f64::from).unwrap() * high + 2.0 * edge;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" \
         font-size=\"14\">\n<title>{}</title>\n<desc>{}</desc>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{GROUND}\"/>\n",
        escape(about),
        escape(text)
    );
    for row in 0..u16::try_from(rows).unwrap() {
        let mut column = 0;
        while column < SIZE.1 {
            let Some(first) = screen.cell(row, column) else { break };
            let look = looks(first);
            let start = column;
            let mut said = String::new();
            while let Some(cell) = screen.cell(row, column) {
                if column >= SIZE.1 || (!cell.is_wide_continuation() && looks(cell) != look) {
                    break;
                }
                if !cell.is_wide_continuation() {
                    said.push_str(if cell.has_contents() { cell.contents() } else { " " });
                }
                column += 1;
            }
            let (letters, ground, attributes) = look;
            let x = edge + f64::from(start) * wide;
            let y = edge + f64::from(row) * high;
            let mut length = f64::from(column - start) * wide;
            if ground != GROUND {
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{high}\" fill=\"{ground}\"/>"
                );
            }
            // Blanks at the end need no letters.
            let blanks = said.len() - said.trim_end_matches(' ').len();
            said.truncate(said.len() - blanks);
            length -= f64::from(u16::try_from(blanks).unwrap()) * wide;
            if !said.is_empty() {
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\" fill=\"{letters}\"{attributes}>{}</text>",
                    y + 13.5,
                    escape(&said)
                );
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The colours of a cell and its other attributes.
fn looks(cell: &vt100::Cell) -> (String, String, String) {
    let (mut letters, mut ground) = (color(cell.fgcolor(), LETTERS), color(cell.bgcolor(), GROUND));
    if cell.inverse() {
        std::mem::swap(&mut letters, &mut ground);
    }
    let mut attributes = String::new();
    for (on, attribute) in [
        (cell.bold(), " font-weight=\"bold\""),
        (cell.italic(), " font-style=\"italic\""),
        (cell.underline(), " text-decoration=\"underline\""),
        (cell.dim(), " opacity=\"0.65\""),
    ] {
        if on {
            attributes.push_str(attribute);
        }
    }
    (letters, ground, attributes)
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    assert_eq!(
        steady("⠦ running bash · 3 s · Esc\njail: net on · 3 hidden · ~/x"),
        steady("⠋ running bash · 11 s · Esc\njail: net on · 14 hidden · ~/x")
    );
    assert_ne!(steady("⠦ running bash · 3 s"), steady("⠦ running edit · 3 s"));
    assert_eq!(unescape(&escape("a <b> & c")), "a <b> & c");
}
