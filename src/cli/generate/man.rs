//! Manual pages, in section 1.

use std::path::PathBuf;

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};

use super::{super::error::EXIT_CODES, typed};
use crate::{config::names, sandbox};

const SECTION: &str = "1";
const MANUAL: &str = "kli";

/// Adds the page of a command and of each command below it.
pub(super) fn pages(command: &Command, files: &mut Vec<(PathBuf, String)>) {
    let name = typed(command).replace(' ', "-");
    let mut page = page(command, &name);
    if !name.contains('-') {
        page.push_str(&rest());
    }
    files.push((place(&name), page));
    for below in command.get_subcommands() {
        pages(below, files);
    }
}

/// Returns the page of `kli-admin`, which sends to the pages of kli for its commands.
pub(super) fn admin(command: &Command) -> (PathBuf, String) {
    let page = page(command, command.get_name()).replace("kli\\-admin\\-", "kli\\-");
    (place(command.get_name()), page)
}

fn page(command: &Command, name: &str) -> String {
    let source = concat!("kli ", env!("CARGO_PKG_VERSION"));
    // The page has a part of its own for the exit codes.
    let command = command.clone().display_name(name.to_owned()).after_long_help(None::<&str>);
    let man = Man::new(command).manual(MANUAL).source(source);
    let mut page = Vec::new();
    // Writing into memory cannot fail.
    let _written = man.render(&mut page);
    undated(&String::from_utf8_lossy(&page))
}

/// Writes the empty date of a page's head in quotes: left out, what follows would take its place.
fn undated(page: &str) -> String {
    page.replacen(&format!(" {SECTION}  "), &format!(" {SECTION} \"\" "), 1)
}

fn place(name: &str) -> PathBuf {
    format!("man/man{SECTION}/{name}.{SECTION}").into()
}

/// Returns what the page of kli says beyond its flags.
fn rest() -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        item(&mut roff, &code.to_string(), meaning);
    }
    roff.control("PP", []);
    roff.text([roman("Where several apply: 143 or 130, then 5, 4, 3, 1.")]);
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in names::ALL {
        item(&mut roff, name, meaning);
    }
    roff.control("SH", ["FILES"]);
    for (file, meaning) in [
        ("~/.config/kli/settings.json", "the settings of the user"),
        ("~/.local/state/kli/sessions", "the sessions, a file each"),
        ("/etc/kli/policy.json", "what nobody can override"),
    ] {
        item(&mut roff, file, meaning);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("kli-admin"), roman("(1), "), bold("kli-sandbox"), roman("(1)")]);
    body(&roff)
}

fn item(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text(code(meaning));
}

/// Returns a text with what stands in backticks in bold.
fn code(text: &str) -> Vec<Inline> {
    text.split('`')
        .enumerate()
        .map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(part) })
        .collect()
}

/// Returns a part of a page, without the preamble that stands at the head of it once.
fn body(roff: &Roff) -> String {
    let text = roff.to_roff();
    text.strip_prefix('\n').unwrap_or(&text).to_owned()
}

/// Returns the page of the launcher, made from what its `--help` prints.
pub(super) fn sandbox() -> (PathBuf, String) {
    let mut parts = sandbox::command::HELP.split("\n\n");
    let about = parts.next().unwrap_or_default().trim();
    let about = about.trim_end_matches('.').to_lowercase();
    let mut roff = Roff::new();
    let source = concat!("kli-sandbox ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["kli-sandbox", SECTION, "", source, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("kli-sandbox - {about}"))]);
    for part in parts {
        let mut lines = part.trim_end().lines().peekable();
        if let Some(title) = lines.next_if(|line| !line.starts_with(' ')) {
            let title = title.trim_end_matches(':').split(',').next().unwrap_or_default();
            let title = title.replace('`', "").replace("usage", "synopsis").to_uppercase();
            roff.control("SH", [title.as_str()]);
        }
        roff.control("nf", []);
        for line in lines {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("kli"), roman("(1), "), bold("bwrap"), roman("(1)")]);
    (place("kli-sandbox"), undated(&roff.render()))
}
