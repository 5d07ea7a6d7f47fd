//! What the model is told before the first prompt: kli's own words or what replaces them, the
//! instructions of whoever configured kli and of the person, the repository's context files, and what
//! is added at the end.

use std::path::{Path, PathBuf};

use crate::{
    agent::{Facts, Surroundings, system_prompt},
    authority::{Confinement, Subject},
    config::Paths,
};

use super::{
    args::RunArguments,
    error::CliError,
    project,
    setup::{Setup, read_small},
};

/// The largest file of a system prompt, in bytes.
const SYSTEM_PROMPT_LIMIT: usize = 256 * 1024;
/// The largest file of the person's own instructions, in bytes.
const OWN_LIMIT: usize = 64 * 1024;
/// The context files when the settings name none.
pub(super) const CONTEXT: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// Everything that system prompts of one run are made of.
#[derive(Clone, Debug)]
pub(crate) struct Instructions {
    workspace: PathBuf,
    confinement: String,
    replacement: Option<String>,
    context: Option<String>,
    own: Option<String>,
    references: String,
    appendix: Option<String>,
}

impl Instructions {
    /// Reads them. Returns them with the repository's context files, which the run keeps an eye on,
    /// and what people should know.
    ///
    /// # Errors
    /// For a file of the person's or of a flag's that cannot be read, or is no UTF-8.
    pub(crate) fn read(
        run: &RunArguments,
        setup: &Setup,
        subject: &Subject,
        confinement: Confinement,
    ) -> Result<(Self, Surroundings, Vec<String>), CliError> {
        let names = match setup.settings.context.get() {
            _ if run.no_context => Vec::new(),
            Some(names) => names.clone(),
            None => CONTEXT.iter().map(|name| (*name).to_owned()).collect(),
        };
        let root = project::root(&setup.workspace);
        let (surroundings, references, notices) =
            Surroundings::read(names, &root, &setup.workspace, subject);
        let instructions = Self {
            workspace: setup.workspace.clone(),
            confinement: confinement.label(),
            replacement: replacement(run, setup)?,
            context: setup.context.clone(),
            own: if run.no_context { None } else { own(setup)? },
            references,
            appendix: appendix(run, setup)?,
        };
        Ok((instructions, surroundings, notices))
    }

    /// Returns the system prompt of an agent with these tools.
    pub(crate) fn for_tools(&self, tools: &[&str]) -> String {
        system_prompt(&Facts {
            workspace: &self.workspace,
            tools,
            confinement: &self.confinement,
            replacement: self.replacement.as_deref(),
            context: self.context.as_deref(),
            own: self.own.as_deref(),
            references: &self.references,
            appendix: self.appendix.as_deref(),
        })
    }
}

/// What takes the place of kli's own words: the flag's file, else that of a trusted project, of the
/// person, of the package.
fn replacement(run: &RunArguments, setup: &Setup) -> Result<Option<String>, CliError> {
    if let Some(file) = &run.system_prompt_file {
        return named(&setup.workspace, file).map(Some);
    }
    let mut texts = texts(setup, Paths::system)?;
    Ok(texts.pop())
}

/// What comes last: of the package, of the person, of a trusted project, then the flag's file.
fn appendix(run: &RunArguments, setup: &Setup) -> Result<Option<String>, CliError> {
    let mut texts = texts(setup, Paths::append_system)?;
    if let Some(file) = &run.append_system_prompt_file {
        texts.push(named(&setup.workspace, file)?);
    }
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}

/// Reads a file of that name from every place that may have one, the weakest first. Empty ones say
/// nothing.
fn texts(setup: &Setup, of: fn(&Path) -> PathBuf) -> Result<Vec<String>, CliError> {
    let own = setup.paths.as_ref().map(Paths::config);
    let mut texts = Vec::new();
    for directory in [setup.baked.as_deref(), own].into_iter().flatten() {
        texts.extend(text(&of(directory), SYSTEM_PROMPT_LIMIT)?);
    }
    if setup.trusted {
        texts.extend(setup.project.prompt(of)?.map(|text| text.trim().to_owned()));
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn own(setup: &Setup) -> Result<Option<String>, CliError> {
    let Some(paths) = &setup.paths else { return Ok(None) };
    Ok(text(&paths.own_context(), OWN_LIMIT)?.filter(|text| !text.is_empty()))
}

/// Reads a file that may be there.
fn text(file: &Path, limit: usize) -> Result<Option<String>, CliError> {
    let Some(bytes) = read_small(file, limit)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| {
        CliError::config(format!("`{}` is not UTF-8; write it anew as UTF-8", file.display()))
    })?;
    Ok(Some(text.trim().to_owned()))
}

/// Reads a file that a flag names.
fn named(workspace: &Path, file: &Path) -> Result<String, CliError> {
    let bytes = read_small(&workspace.join(file), SYSTEM_PROMPT_LIMIT)?
        .ok_or_else(|| CliError::config(format!("there is no file `{}`", file.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::config(format!("`{}` is not UTF-8", file.display())))
}
