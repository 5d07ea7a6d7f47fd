//! kli's procedures: what a form can do outside its session, and how each is done. All go through
//! the run's desk and through `host`, none through the engine.

use std::{fmt::Write as _, path::Path, sync::Arc};

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value, json};

use super::super::{
    Context, Outcome,
    desk::Desk,
    lines,
    memory::Content,
    target::{Target, mark, shown},
};
use crate::{
    authority::{Atom, Grant, Request},
    host::{
        HostError,
        environment::Environment,
        files::{self, Opened},
    },
};

/// The longest file that becomes a text, in bytes.
const LONGEST: u64 = 16 << 20;

/// The most entries of a directory in a list.
const MOST: usize = 10_000;

/// A procedure of kli's.
#[derive(Clone, Copy, Debug)]
pub struct Procedure {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, as in a definition.
    pub parameters: &'static str,
    /// What it does.
    pub does: &'static str,
    /// The tool that stands for it where a layer denies tools by name, and the atom it is checked
    /// under.
    pub checked: &'static str,
}

/// Every procedure of kli's.
pub const PROCEDURES: &[Procedure] = &[
    Procedure {
        name: "read-file",
        parameters: "path",
        does: "the text of a file of at most 16 MiB; bytes that are no UTF-8 become U+FFFD",
        checked: "`read`, `file/read`",
    },
    Procedure {
        name: "write-file",
        parameters: "path text",
        does: "writes a whole file as the tool write does: one that exists must have been read in this run",
        checked: "`write`, `file/write` of the path",
    },
    Procedure {
        name: "list-directory",
        parameters: "path",
        does: "the names in a directory, sorted; those of directories end in `/`",
        checked: "`read`, `file/read`",
    },
    Procedure {
        name: "file-exists?",
        parameters: "path",
        does: "whether a path names anything",
        checked: "`read`, `file/read`",
    },
    Procedure {
        name: "delete-file",
        parameters: "path",
        does: "removes a file or a link, no directory",
        checked: "`write`, `file/write` of the path",
    },
    Procedure {
        name: "bash",
        parameters: "line",
        does: "runs a command line as the tool bash does; its output, or an error when it fails",
        checked: "`bash`, `process/exec` of the line",
    },
    Procedure {
        name: "run",
        parameters: "program . arguments",
        does: "runs a program with these words, through no expansion; a list of the exit status (`#f` for a signal) and the output",
        checked: "`bash`, `process/exec` of the words",
    },
    Procedure {
        name: "posix-getenv",
        parameters: "name",
        does: "a variable of kli's own environment, keys taken out, or `#f`",
        checked: "`eval`, `image/eval`",
    },
    Procedure {
        name: "working-directory",
        parameters: "",
        does: "the workspace, which relative paths start from",
        checked: "`eval`, `image/eval`",
    },
    Procedure {
        name: "tool",
        parameters: "name . arguments",
        does: "calls any tool of the run: `(tool \"search\" \"pattern\" \"TODO\")`; what the model would get, or an error",
        checked: "that tool's name and atom",
    },
];

/// Returns the definitions that a session begins with.
pub(super) fn scheme() -> String {
    let mut text = String::new();
    for Procedure { name, parameters, .. } in PROCEDURES {
        // Writing to a string cannot fail.
        let _ = match parameters.split_once(" . ") {
            Some((first, rest)) => writeln!(
                text,
                "(define ({name} {parameters}) (apply #%kli (cons \"{name}\" (cons {first} {rest}))))"
            ),
            None => {
                writeln!(text, "(define ({name} {parameters}) (#%kli \"{name}\" {parameters}))")
            }
        };
    }
    text
}

/// Returns the table of `docs/eval.md`.
pub fn table() -> String {
    let mut text = "| procedure | does | checked as |\n| --- | --- | --- |\n".to_owned();
    for Procedure { name, parameters, does, checked } in PROCEDURES {
        let spelled = format!("({name} {parameters})").replace(" )", ")");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{spelled}` | {does} | {checked} |");
    }
    text
}

/// Does what a form asks for.
pub(super) fn answer(
    context: &Arc<Context>,
    name: String,
    arguments: Vec<Value>,
) -> BoxFuture<'static, Result<Value, String>> {
    let context = Arc::clone(context);
    async move {
        let Some(desk) = context.state.desk.get().cloned() else {
            return Err("the run has nobody who decides about calls within a call".to_owned());
        };
        let mut value = act(&context, &desk, &name, arguments).await?;
        clean(&*desk, &mut value);
        Ok(value)
    }
    .boxed()
}

/// Keys are taken out where they come in: what a form makes of a text cannot be searched.
fn clean(desk: &dyn Desk, value: &mut Value) {
    match value {
        Value::String(text) => desk.clean(text),
        Value::Array(items) => items.iter_mut().for_each(|item| clean(desk, item)),
        _ => {}
    }
}

async fn act(
    context: &Arc<Context>,
    desk: &Arc<dyn Desk>,
    name: &str,
    arguments: Vec<Value>,
) -> Result<Value, String> {
    let text = |at: usize| match arguments.get(at) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("`{name}` takes texts, not `{other}`")),
        None => Err(format!("`{name}` takes one more argument")),
    };
    match name {
        "read-file" => {
            let target = readable(context, desk, "read-file", &text(0)?).await?;
            blocking(move || read(&target)).await
        }
        "list-directory" => {
            let target = readable(context, desk, "list-directory", &text(0)?).await?;
            blocking(move || list(&target)).await
        }
        "file-exists?" => {
            let target = readable(context, desk, "file-exists?", &text(0)?).await?;
            Ok(files::is_there(&target.path).into())
        }
        "write-file" => {
            let arguments = object([("path", text(0)?), ("content", text(1)?)]);
            said(desk.call("write", arguments).await).map(Value::from)
        }
        "delete-file" => {
            let target = Target::spelled(&text(0)?, context)?;
            let grant = desk
                .check("write", "delete-file", Request::path(Atom::FileWrite, &target.path))
                .await?;
            let path = target.path.clone();
            let done = blocking(move || remove(&grant, &target)).await?;
            desk.changed(&path);
            Ok(done)
        }
        "bash" => {
            let arguments = object([("command", text(0)?)]);
            said(desk.call("bash", arguments).await).map(Value::from)
        }
        "run" => {
            let words: Vec<String> = (0..arguments.len()).map(text).collect::<Result<_, _>>()?;
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            let outcome = desk.call("bash", object([("command", line)])).await;
            match outcome.record.get("exit") {
                Some(exit) => {
                    let exit = if exit.is_null() { json!(false) } else { exit.clone() };
                    Ok(json!([exit, outcome.text]))
                }
                None => Err(outcome.text),
            }
        }
        "posix-getenv" => Ok(variable(context, &text(0)?)),
        "working-directory" => Ok(shown(&context.workspace).into()),
        "tool" => {
            let tool = text(0)?;
            if tool == "eval" {
                return Err("a form cannot call eval; put the form in its place".to_owned());
            }
            let arguments = pairs(arguments.get(1..).unwrap_or_default())?;
            said(desk.call(&tool, arguments).await).map(Value::from)
        }
        _ => Err(format!("there is no procedure `{name}`")),
    }
}

fn said(outcome: Outcome) -> Result<String, String> {
    if outcome.is_error { Err(outcome.text) } else { Ok(outcome.text) }
}

fn object<const N: usize>(pairs: [(&str, String); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Reads `key value …`.
fn pairs(words: &[Value]) -> Result<Map<String, Value>, String> {
    words
        .chunks(2)
        .map(|pair| match pair {
            [Value::String(key), value] => Ok((key.clone(), value.clone())),
            _ => Err("the arguments of a tool are pairs: a key, then its value".to_owned()),
        })
        .collect()
}

/// Returns a word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

async fn readable(
    context: &Arc<Context>,
    desk: &Arc<dyn Desk>,
    does: &'static str,
    spelled: &str,
) -> Result<Target, String> {
    let target = Target::spelled(spelled, context)?;
    desk.check("read", does, Request::path(Atom::FileRead, &target.path)).await?;
    Ok(target)
}

async fn blocking(
    work: impl FnOnce() -> Result<Value, String> + Send + 'static,
) -> Result<Value, String> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(format!("the procedure broke off: {error}")))
}

fn refused(target: &Target, error: &HostError) -> String {
    target.refused(error).text
}

fn read(target: &Target) -> Result<Value, String> {
    let Target { name, path, context } = target;
    match files::read_whole(path, LONGEST).map_err(|error| refused(target, &error))? {
        None => Err(format!(
            "`{name}` has more than {} MiB; read parts with (tool \"read\" …)",
            LONGEST >> 20
        )),
        Some((bytes, stamp)) => {
            // As after a read by the model: a form that knows the file may replace it.
            let digest = Some(lines::digest(&bytes));
            context.state.files.read(path, Content { stamp, digest }, true);
            Ok(String::from_utf8_lossy(&bytes).into_owned().into())
        }
    }
}

fn list(target: &Target) -> Result<Value, String> {
    let opened = files::open(&target.path).map_err(|error| refused(target, &error))?;
    let Opened::Directory(handle) = opened else {
        return Err(format!("`{}` is no directory", target.name));
    };
    let (entries, more) =
        files::list(&handle, &target.path, MOST).map_err(|error| refused(target, &error))?;
    if more > 0 {
        return Err(format!("`{}` has more than {MOST} entries; use find", target.name));
    }
    let names = entries.iter().map(|entry| {
        let end = if entry.kind == rustix::fs::FileType::Directory { mark(entry.kind) } else { "" };
        format!("{}{end}", shown(Path::new(&entry.name)))
    });
    Ok(names.collect())
}

fn remove(grant: &Grant, target: &Target) -> Result<Value, String> {
    files::remove(grant, &target.path).map_err(|error| refused(target, &error))?;
    Ok(Value::Null)
}

fn variable(context: &Context, name: &str) -> Value {
    // What commands do not get, a form does not get.
    if context.bash.withheld.iter().any(|withheld| withheld == name) {
        return false.into();
    }
    Environment::read()
        .var_os(name)
        .map_or(Value::Bool(false), |value| value.to_string_lossy().into_owned().into())
}
