//! `kli sandbox show`: what confines this process. `kli sandbox recipe`: from the specification of the
//! launcher, confinement that needs no launcher: a script for bubblewrap, Docker, Podman or systemd,
//! or a dev container.
//!
//! A recipe starts nothing and looks at nothing but the specification: what depends on the machine is
//! found out by the script, when it runs. What a kind cannot keep stands at its top.

mod devcontainer;
mod lost;
mod script;
mod shell;

#[cfg(test)]
mod tests;

use std::{io::Read as _, path::Path};

use crate::{
    authority::Grant,
    host::{
        Host, HostError,
        confinement::{self, Signs},
        environment, files, state,
    },
    sandbox::spec::{self, Spec},
    tool::inspect,
};

use super::{
    args::{RecipeKind, SandboxCommand},
    error::CliError,
    setup::read_small,
    terminal,
};

/// Runs `kli sandbox`.
///
/// # Errors
/// When the specification cannot be read or kept, or the output cannot be written.
pub(crate) fn run(command: &SandboxCommand) -> Result<u8, CliError> {
    let SandboxCommand::Recipe { kind, spec, output } = command else {
        show();
        return Ok(0);
    };
    let spec = read(spec.as_deref())?;
    let recipe = make(*kind, &spec)?;
    match (output, recipe.files.as_slice()) {
        (Some(path), _) => write(&recipe, path)?,
        (None, [(_, text), ..]) => terminal::out(text),
        (None, []) => {}
    }
    let hint = match recipe.lost.len() {
        0 => return Ok(0),
        1 => "one thing is not kept as `kli-sandbox run` keeps it".to_owned(),
        lost => format!("{lost} things are not kept as `kli-sandbox run` keeps them"),
    };
    terminal::note(&format!("kli: {hint}, see the top of the recipe"));
    if *kind == RecipeKind::Devcontainer && output.is_none() {
        terminal::note("hint: `--output .devcontainer` writes all files of it");
    }
    Ok(0)
}

/// Prints what confines this process.
fn show() {
    let confinement = confinement::judge(&Signs::read(&environment::Environment::read()));
    terminal::out(&(inspect::confinement(confinement, Host::default().jail().as_ref()) + "\n"));
}

/// What a recipe consists of.
#[derive(Debug)]
struct Recipe {
    /// Names below the output directory and texts; a script is the only one.
    files: Vec<(&'static str, String)>,
    /// Whether kli's own executable belongs beside the files.
    with_program: bool,
    /// What is not kept, a sentence each.
    lost: Vec<String>,
}

fn make(kind: RecipeKind, spec: &Spec) -> Result<Recipe, CliError> {
    let lost = lost::of(kind, spec);
    let (files, with_program) = match kind {
        RecipeKind::Devcontainer => (devcontainer::files(spec, &lost)?, true),
        _ => (vec![("script", script::text(kind, spec, &lost)?)], false),
    };
    Ok(Recipe { files, with_program, lost })
}

/// Reads a specification, by default the one in which every key has its default.
fn read(file: Option<&Path>) -> Result<Spec, CliError> {
    let Some(file) = file else { return Ok(Spec::default()) };
    let refuse = |error: &dyn std::fmt::Display| {
        CliError::config(format!("the specification `{}`: {error}", file.display()))
    };
    let text = if file == Path::new("-") {
        let limit = u64::try_from(spec::MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        let mut text = Vec::new();
        std::io::stdin()
            .lock()
            .take(limit)
            .read_to_end(&mut text)
            .map_err(|error| refuse(&error))?;
        text
    } else {
        let here = environment::current_directory().map_err(|error| refuse(&error))?;
        match read_small(&here.join(file), spec::MAX_BYTES)? {
            Some(text) => text,
            None => return Err(refuse(&"there is no such file")),
        }
    };
    spec::parse(&text).map_err(|error| refuse(&error))
}

/// Writes a recipe to a place where nothing is yet: all of it, or nothing.
fn write(recipe: &Recipe, path: &Path) -> Result<(), CliError> {
    let here = environment::current_directory()
        .map_err(|error| CliError::config(format!("cannot tell the current directory: {error}")))?;
    let target = here.join(path);
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(CliError::config(format!("`{}` names no file", path.display())));
    };
    let refuse = |error: HostError| CliError::config(error.sentence());
    let parent = files::resolve(parent, &here, None).map_err(refuse)?;
    let target = parent.join(name);
    if files::is_there(&target) {
        return Err(CliError::config(format!("`{}` is there already", target.display()))
            .hint("name another place, or remove it first"));
    }
    // Made beside its place and moved there as a whole.
    let grant = Grant::own_state(&parent);
    let beside = parent.join(state::temporary_name());
    state::create_new_dir(&grant, &beside).map_err(refuse)?;
    let made = fill(recipe, &grant, &beside, &target);
    // After a directory was moved to its place nothing is left here.
    if files::is_there(&beside) {
        state::remove_tree(&grant, &beside).map_err(refuse)?;
    }
    made.map_err(refuse)?;
    terminal::note(&format!("kli: `{}` is made", target.display()));
    Ok(())
}

fn fill(recipe: &Recipe, grant: &Grant, beside: &Path, target: &Path) -> Result<(), HostError> {
    if !recipe.with_program {
        for (name, text) in &recipe.files {
            state::write_executable(grant, &beside.join(name), text.as_bytes())?;
            state::move_new(grant, &beside.join(name), target)?;
        }
        return Ok(());
    }
    for (name, text) in &recipe.files {
        state::publish(grant, &beside.join(name), text.as_bytes())?;
    }
    let own = environment::own_executable()
        .map_err(|error| HostError::io("find", Path::new("/proc/self/exe"), error))?;
    state::copy_executable(grant, &own, &beside.join("kli"))?;
    state::move_new(grant, beside, target)
}
