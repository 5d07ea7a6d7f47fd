//! The matrix: one row per way out or leak. Each is tried in the jail, by an ordinary user and by
//! root: the refusal is seen, the effect is absent, and the same attempt succeeds where nothing
//! refuses it. `docs/confinement.md` has the table of them, written by the last test here;
//! `scripts/test` prints what the run gave.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::jail::{Who, World, err, out};

mod environment;
mod files;
mod git;
mod kernel;
mod kernel_calls;
mod life;
mod network;
mod start;

/// What a world of the matrix holds.
const SPEC: &str = r#"{"denyRead":["~/.aws","~/.netrc","./.env","~/.absent","~/linked"],
"denyEnv":["TOKEN","AWS_*"],"writablePaths":["~/cache"],"network":false}"#;

/// One attempt.
#[derive(Clone)]
pub(super) struct Row {
    law: u8,
    attempt: &'static str,
    /// Run outside before each attempt.
    setup: &'static str,
    spec: &'static str,
    how: How,
    /// One of these, parted by `|`, is what the inside is told. A row whose script says more than that
    /// when it succeeds says `SECRET`, which no row passes with.
    refusal: &'static str,
    /// Run outside afterwards: prints nothing when the effect is absent.
    effect: &'static str,
    /// Run outside, without a jail.
    control: &'static str,
    /// What the control prints.
    shows: &'static str,
}

#[derive(Clone)]
enum How {
    /// A script for the inside.
    Inside(String),
    /// A script for the outside, which starts the launcher `$L` with `$SPEC` itself.
    Outside(&'static str),
    /// Anything else: returns what was seen; it asserts its own control and the absent effect.
    Code(fn(&World) -> String),
}

/// A row that runs a script inside.
pub(super) fn row(law: u8, attempt: &'static str, script: impl Into<String>) -> Row {
    Row {
        law,
        attempt,
        setup: "",
        spec: SPEC,
        how: How::Inside(script.into()),
        refusal: "",
        effect: "",
        control: "",
        shows: "",
    }
}

/// A row whose script starts the launcher itself.
pub(super) fn start(law: u8, attempt: &'static str, script: &'static str) -> Row {
    Row { how: How::Outside(script), ..row(law, attempt, "") }
}

/// A row that needs hands outside while the inside runs.
pub(super) fn code(law: u8, attempt: &'static str, how: fn(&World) -> String) -> Row {
    Row { how: How::Code(how), ..row(law, attempt, "") }
}

impl Row {
    pub(super) fn setup(self, setup: &'static str) -> Self {
        Self { setup, ..self }
    }

    pub(super) fn spec(self, spec: &'static str) -> Self {
        Self { spec, ..self }
    }

    pub(super) fn refused(self, refusal: &'static str) -> Self {
        Self { refusal, ..self }
    }

    pub(super) fn effect(self, effect: &'static str) -> Self {
        Self { effect, ..self }
    }

    pub(super) fn control(self, control: &'static str, shows: &'static str) -> Self {
        Self { control, shows, ..self }
    }
}

/// The world that every row starts in.
fn prepare(world: &World) {
    world.file("home/.aws/credentials", "SECRET-AWS\n");
    world.file("home/.netrc", "SECRET-NETRC\n");
    world.file("home/.plain", "plain\n");
    world.file("home/project/.env", "SECRET-ENV\n");
    world.file("home/project/ordinary", "ordinary\n");
    world.file("outside/file", "outside\n");
    world.file("data/key", "SECRET-LINKED\n");
    world.dir("home/cache");
    world.link("home/linked", world.root.join("data"));
    let begun = world.plainly(
        "git init -q . && git config user.email a@example.org && git config user.name a && \
         git add ordinary && git commit -qm begun",
    );
    assert!(begun.status.success(), "{begun:?}");
}

fn with_variables(world: &World, script: &str) -> Output {
    let mut command = world.run_with(&[], &["sh", "-c", script]);
    command
        .env("TOKEN", "SECRET-TOKEN")
        .env("AWS_SECRET_ACCESS_KEY", "SECRET-KEY")
        .env("R", &world.root);
    command.output().unwrap()
}

fn outside(world: &World, script: &str) -> Output {
    let mut command = world.command("timeout");
    command
        .args(["-k", "1", "30", "sh", "-c", script])
        .env("TOKEN", "SECRET-TOKEN")
        .env("AWS_SECRET_ACCESS_KEY", "SECRET-KEY")
        .env("R", &world.root)
        .env("L", world.launcher())
        .env("SPEC", world.spec_file());
    command.output().unwrap()
}

/// Tries one row and returns what the inside was told, on one line.
fn attempt(world: &World, row: &Row) -> String {
    let name = format!("law {}, {:?}: {}", row.law, world.who, row.attempt);
    world.spec(row.spec);
    if !row.setup.is_empty() {
        let done = outside(world, row.setup);
        assert!(done.status.success(), "{name}: setup: {done:?}");
    }
    let told = match &row.how {
        How::Code(how) => how(world),
        How::Outside(script) => {
            let tried = outside(world, script);
            format!("{}{}", out(&tried), err(&tried))
        }
        How::Inside(script) => {
            let tried = with_variables(world, script);
            assert_ne!(tried.status.code(), Some(124), "{name}: it hung: {tried:?}");
            format!("{}{}", out(&tried), err(&tried))
        }
    };
    // The variable that names the pipe with the keys is no key.
    let leaked = told.replace("KLI_SECRETS_FD", "").contains("SECRET");
    assert!(!leaked, "{name}: leaked: {told}");
    let found = row.refusal.split('|').find(|part| told.contains(part));
    let found = found.unwrap_or_else(|| panic!("{name}: not `{}`: {told}", row.refusal));
    if !row.effect.is_empty() {
        let effect = outside(world, row.effect);
        assert_eq!(out(&effect).trim(), "", "{name}: the effect is there: {effect:?}");
    }
    if !row.control.is_empty() {
        let control = outside(world, row.control);
        let seen = format!("{}{}", out(&control), err(&control));
        assert!(row.shows.split('|').any(|part| seen.contains(part)), "{name}: control: {seen}");
    }
    found.trim_end().replace('\n', " ")
}

fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(files::rows());
    rows.extend(environment::rows());
    rows.extend(network::rows());
    rows.extend(kernel::rows());
    rows.extend(kernel_calls::rows());
    rows.extend(life::rows());
    rows.extend(git::rows());
    rows.extend(start::rows());
    // Stable: the rows of a law stay in the order in which they are written.
    rows.sort_by_key(|row| row.law);
    rows
}

/// The rows of law 7 that are tried by a test of their own: with all of them one test would take longer
/// than a test may on a busy machine.
fn is_call(row: &Row) -> bool {
    row.attempt.starts_with("the call `")
}

/// Tries the rows of one law for both users, all of them before the first failure is told.
fn law(number: u8) {
    let rows: Vec<Row> =
        all().into_iter().filter(|row| row.law == number && !is_call(row)).collect();
    tried(number, &format!("law-{number:02}"), &rows);
}

/// The same for these rows; what they gave goes to the file `name`.
fn tried(number: u8, name: &str, rows: &[Row]) {
    assert!(rows.len() >= 3, "law {number} has {} rows", rows.len());
    let mut table = String::new();
    let mut failed = Vec::new();
    for who in [Who::User, Who::Root] {
        for row in rows {
            // One of its own: what a row leaves behind is no other's.
            let world = World::new(who);
            prepare(&world);
            let tried =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attempt(&world, row)));
            match tried {
                Ok(told) => {
                    let user = if who == Who::Root { "root" } else { "user" };
                    let _ = writeln!(table, "{number:>3}  {user}  ok  {} -> {told}", row.attempt);
                }
                Err(_) => failed.push(format!("{who:?}: {}", row.attempt)),
            }
        }
    }
    assert!(failed.is_empty(), "law {number}: {failed:#?}");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("matrix");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), table).unwrap();
}

#[test]
fn law_07_calls() {
    let rows: Vec<Row> = all().into_iter().filter(is_call).collect();
    assert_eq!(rows.len(), kernel_calls::rows().len());
    assert!(rows.iter().all(|row| row.law == 7));
    tried(7, "law-07-calls", &rows);
}

macro_rules! laws {
    ($($name:ident $number:literal,)*) => {
        $(#[test] fn $name() { law($number); })*

        #[test]
        fn every_law_has_its_rows() {
            let rows = all();
            for number in [$($number),*] {
                let count = rows.iter().filter(|row| row.law == number).count();
                assert!(count >= 3, "law {number} has {count} rows");
            }
            assert!(rows.len() >= 100, "{} rows", rows.len());
            for row in &rows {
                let controlled = matches!(row.how, How::Code(_)) || !row.shows.is_empty();
                assert!(controlled && !row.refusal.is_empty(), "no control: {}", row.attempt);
            }
        }
    };
}

laws! {
    law_01_view 1,
    law_02_hidden 2,
    law_03_absent 3,
    law_04_environment 4,
    law_05_descriptors 5,
    law_06_sockets 6,
    law_07_kernel 7,
    law_08_life 8,
    law_09_git 9,
    law_10_workspace 10,
    law_11_fail_closed 11,
    law_12_usable 12,
    law_13_told 13,
    law_14_limits 14,
    law_15_keys 15,
    law_16_next_start 16,
}

const BEGIN: &str = "<!-- matrix: begin -->\n";
const END: &str = "<!-- matrix: end -->\n";

/// The table in `docs/confinement.md` is made from the rows; it is written with `KLI_UPDATE_DOCS=1`.
#[test]
fn the_table_in_the_documentation_is_current() {
    let mut table = String::from(
        "| law | attempt | what the inside is told | control |\n| --- | --- | --- | --- |\n",
    );
    for row in all() {
        let cell = |text: &str| text.replace('|', " or ").replace('\n', " ");
        let told = cell(row.refusal);
        let control = if row.control.is_empty() {
            "in the test".to_owned()
        } else if row.shows.is_empty() {
            "succeeds outside".to_owned()
        } else {
            format!("outside: {}", cell(row.shows))
        };
        let _ = writeln!(table, "| {} | {} | {told} | {control} |", row.law, cell(row.attempt));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/confinement.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the matrix has its place");
    let (_, after) = rest.split_once(END).expect("the matrix has an end");
    let wanted = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    if std::env::var_os("KLI_UPDATE_DOCS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    assert!(
        text == wanted,
        "the matrix in docs/confinement.md is stale: run with KLI_UPDATE_DOCS=1"
    );
}
