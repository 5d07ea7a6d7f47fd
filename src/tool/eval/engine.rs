//! The engine as a form meets it: nothing ambient, the names of [`globals`](super::globals), and
//! kli's procedures. It must not know threads or the run; what leaves it goes through two functions
//! of the session.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;
use steel::{
    SteelErr, SteelVal,
    parser::{lexer::TokenStream, tokens::TokenType},
    rerrs::ErrorKind,
    rvals::IntoSteelVal as _,
    steel_vm::{builtin::BuiltInModule, engine::Engine, primitives::register_builtin_modules},
};

use super::{
    globals::{ALLOWED, CUT, REFUSED},
    procedures,
    session::{call, show},
};

/// The longest form, in bytes.
pub(super) const LONGEST: usize = 256 * 1024;

/// How deep parentheses and quotes of a form may nest.
const DEEPEST: u32 = 500;

/// What a printed value may take, in bytes; the rest is left out, and said.
const VALUE: usize = 8 * 1024 * 1024;

/// Starts an engine.
///
/// # Errors
/// The engine's sentence, when its own library does not load.
pub(super) fn start() -> Result<Engine, String> {
    let mut engine = Engine::new_raw_no_kernel();
    let before: Vec<String> =
        engine.globals().iter().map(|name| name.resolve().to_owned()).collect();
    let allowed = allowed();
    for (name, value) in &allowed {
        engine.register_value(name, value.clone());
        engine.register_value(&format!("#%prim.{name}"), value.clone());
    }
    for (name, native) in NATIVES {
        engine.register_value(name, SteelVal::FuncV(*native));
    }
    let texts =
        [library(steel::PRELUDE), include_str!("library.scm").to_owned(), procedures::scheme()];
    for text in texts {
        engine.run(text).map_err(|error| error.to_string())?;
    }
    // What a bare engine brings along: modules, their makers, a printer to standard output.
    for name in before {
        let own = name.strip_prefix("#%prim.").unwrap_or(&name);
        if !allowed.contains_key(own) && own != "error" && own != "error!" {
            engine.register_value(&name, SteelVal::Void);
        }
    }
    Ok(engine)
}

/// Returns the engine's values that a form gets.
fn allowed() -> BTreeMap<String, SteelVal> {
    // Only a place to take them from; it runs nothing.
    let mut source = Engine::new_raw_no_kernel();
    register_builtin_modules(&mut source, true);
    let names: std::collections::BTreeSet<&str> = ALLOWED.split_whitespace().collect();
    let mut found = BTreeMap::new();
    let modules = source.builtin_modules().inner();
    let mut sorted: Vec<(&str, &BuiltInModule)> =
        modules.iter().map(|(name, module)| (&**name, module)).collect();
    // What the engine's users get comes first: a private module has others of the same name.
    sorted.sort_by_key(|(name, _)| (*name != "steel/base", *name));
    for (_, module) in sorted {
        for (name, value) in module.inner_map().iter() {
            if names.contains(&**name) {
                found.entry(name.to_string()).or_insert_with(|| value.clone());
            }
        }
    }
    found
}

/// Returns the engine's library without what reaches beyond it.
fn library(text: &str) -> String {
    // Documentation becomes code that fills a table for its printed help.
    let mut text = text.replace(";;@doc", ";;");
    for (from, to) in CUT {
        if let Some(start) = text.find(from)
            && let Some(end) = text.get(start..).and_then(|rest| rest.find(to))
        {
            text.replace_range(start..start.saturating_add(end), "");
        }
    }
    text
}

/// Looks at a form before the engine's compiler does: the compiler reads files for some words, and
/// recurses as deep as a form nests.
///
/// # Errors
/// A sentence that names the word.
pub(super) fn look_at(form: &str) -> Result<(), String> {
    if form.len() > LONGEST {
        return Err(format!("the form has {} bytes; at most {LONGEST} are taken", form.len()));
    }
    let (mut depth, mut ticks) = (0_u32, 0_u32);
    for token in TokenStream::new(form, true, None) {
        // What is no token is the compiler's to refuse, in its words.
        let Ok(token) = token else { return Ok(()) };
        let mut tick = false;
        match &token.ty {
            TokenType::OpenParen(..) => depth = depth.saturating_add(1),
            TokenType::CloseParen(_) => depth = depth.saturating_sub(1),
            TokenType::Require => return Err(refused("require")),
            TokenType::Identifier(name) => {
                let name = name.resolve();
                if REFUSED.contains(&name)
                    || name.starts_with("#%require")
                    || name.starts_with("%-builtin-module-")
                {
                    return Err(refused(name));
                }
            }
            TokenType::QuoteTick
            | TokenType::QuasiQuote
            | TokenType::Unquote
            | TokenType::UnquoteSplice
            | TokenType::QuoteSyntax
            | TokenType::QuasiQuoteSyntax
            | TokenType::UnquoteSyntax
            | TokenType::UnquoteSpliceSyntax
            | TokenType::DatumComment => tick = true,
            _ => {}
        }
        ticks = if tick { ticks.saturating_add(1) } else { 0 };
        if depth.saturating_add(ticks) > DEEPEST {
            return Err(format!("the form nests deeper than {DEEPEST} levels; take it apart"));
        }
    }
    Ok(())
}

fn refused(name: &str) -> String {
    format!(
        "`{name}` is not part of a session: no modules, no files of code; read a file with \
         `(read-file path)` and define what is needed in the form"
    )
}

/// Evaluates a form.
///
/// # Errors
/// What the engine says, with the place in the form.
pub(super) fn run(engine: &mut Engine, form: &str) -> Result<String, String> {
    match engine.run(form.to_owned()) {
        Ok(values) => {
            let mut text = String::new();
            for value in values.iter().filter(|value| !matches!(value, SteelVal::Void)) {
                if !text.is_empty() {
                    text.push('\n');
                }
                print(&mut text, value, false);
            }
            Ok(text)
        }
        Err(error) => Err(told(engine, error)),
    }
}

/// Returns the engine's words for an error, without its source listing's colours.
fn told(engine: &Engine, error: SteelErr) -> String {
    let short = error.to_string();
    let long = engine.raise_error_to_string(error).unwrap_or_default();
    let text = if long.is_empty() { short } else { long };
    text.trim_end().to_owned()
}

/// Appends a value as the engine writes it, at most [`VALUE`] bytes.
fn print(text: &mut String, value: &SteelVal, raw: bool) {
    use fmt::Write as _;
    match value {
        SteelVal::StringV(string) if raw => text.push_str(string.as_str()),
        SteelVal::CharV(c) if raw => text.push(*c),
        other => {
            let mut to = Short { text, left: VALUE };
            if write!(to, "{other}").is_err() {
                text.push_str("… (cut)");
            }
        }
    }
}

/// Takes so many bytes and no more.
struct Short<'a> {
    text: &'a mut String,
    left: usize,
}

impl fmt::Write for Short<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.left = self.left.checked_sub(piece.len()).ok_or(fmt::Error)?;
        self.text.push_str(piece);
        Ok(())
    }
}

type Native = fn(&[SteelVal]) -> Result<SteelVal, SteelErr>;

/// What is native in place of the engine's own, which would write to standard output; and the one
/// way out.
const NATIVES: &[(&str, Native)] = &[
    ("#%kli", kli),
    ("display", |values| output(values, true, "")),
    ("displayln", |values| output(values, true, "\n")),
    ("newline", |_| output(&[], true, "\n")),
    ("print", |values| output(values, false, "\n")),
    ("write", |values| output(values, false, "")),
    ("writeln", |values| output(values, false, "\n")),
    ("write-char", |values| output(values, true, "")),
    ("write-string", |values| output(values, true, "")),
];

fn output(values: &[SteelVal], raw: bool, end: &str) -> Result<SteelVal, SteelErr> {
    let mut text = String::new();
    for value in values {
        print(&mut text, value, raw);
    }
    text.push_str(end);
    show(&text).map_err(failed)?;
    Ok(SteelVal::Void)
}

fn failed(sentence: String) -> SteelErr {
    SteelErr::new(ErrorKind::Generic, sentence)
}

/// `(#%kli NAME ARGUMENT…)`: asks the run.
fn kli(values: &[SteelVal]) -> Result<SteelVal, SteelErr> {
    let mut words = values.iter().map(|value| json(value, 0));
    let Some(Value::String(name)) = words.next() else {
        return Err(failed("the procedure has no name".into()));
    };
    steel(call(name, words.collect()).map_err(failed)?)
}

fn json(value: &SteelVal, depth: u32) -> Value {
    match value {
        SteelVal::StringV(text) | SteelVal::SymbolV(text) => text.as_str().into(),
        SteelVal::BoolV(value) => (*value).into(),
        SteelVal::IntV(number) => (*number as i64).into(),
        SteelVal::NumV(number) => (*number).into(),
        SteelVal::Void => Value::Null,
        SteelVal::ListV(list) if depth < 64 => {
            list.iter().map(|item| json(item, depth.saturating_add(1))).collect()
        }
        SteelVal::HashMapV(map) if depth < 64 => Value::Object(
            map.iter()
                .map(|(key, item)| {
                    let key = match json(key, depth.saturating_add(1)) {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    (key, json(item, depth.saturating_add(1)))
                })
                .collect(),
        ),
        other => {
            let mut text = String::new();
            print(&mut text, other, true);
            text.into()
        }
    }
}

fn steel(value: Value) -> Result<SteelVal, SteelErr> {
    match value {
        Value::Null => Ok(SteelVal::Void),
        Value::Bool(value) => Ok(SteelVal::BoolV(value)),
        Value::String(text) => text.into_steelval(),
        Value::Number(number) => match number.as_i64().and_then(|n| isize::try_from(n).ok()) {
            Some(number) => Ok(SteelVal::IntV(number)),
            None => Ok(SteelVal::NumV(number.as_f64().unwrap_or_default())),
        },
        Value::Array(items) => {
            items.into_iter().map(steel).collect::<Result<Vec<_>, _>>()?.into_steelval()
        }
        object @ Value::Object(_) => object.to_string().into_steelval(),
    }
}
