//! The settings: each file by itself, so that one that is broken does not hide the next, and then
//! all of them together, as a run would take them.

use std::path::{Path, PathBuf};

use crate::{
    cli::{error::CliError, setup},
    config::{self, Layer, Paths, names},
    host::examine::{self, Content},
    sandbox::doctor::{Finding, Status},
};

use super::Here;

/// A file of settings.
struct File {
    id: &'static str,
    path: PathBuf,
    /// How it is read by itself; `None` when only the settings as a whole tell.
    layer: Option<Layer>,
}

/// A project's settings, from its root.
const PROJECT: &str = ".kli/settings.json";

pub(super) fn checks(here: &Here) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for file in files(here) {
        found.push(check(&file, &mut warnings));
    }
    match &here.setup {
        Ok(setup) => {
            for warning in &setup.warnings {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            match setup.check_start() {
                Ok(()) => {
                    found.push(Finding::new("settings", Status::Ok, "the settings go together"));
                }
                Err(error) => found.push(problem(&error)),
            }
        }
        Err(error) => {
            // Most often it is what a file said by itself already.
            if !found.iter().any(|check| check.message == error.fault.message) {
                found.push(problem(error));
            }
        }
    }
    found.extend(
        warnings.into_iter().map(|text| Finding::new("settings.notice", Status::Warning, text)),
    );
    found
}

fn problem(error: &CliError) -> Finding {
    let mend = error.hints.first().map_or("mend what is named", String::as_str);
    Finding::new("settings", Status::Problem, error.fault.message.clone()).repair(mend)
}

fn files(here: &Here) -> Vec<File> {
    let mut files = Vec::new();
    // A relative one is refused by the settings as a whole.
    let baked = here.environment.var_os(names::KLI_BAKED).map(Path::new);
    if let Some(baked) = baked.filter(|baked| baked.is_absolute()) {
        files.push(File {
            id: "settings.baked",
            path: Paths::baked_settings(baked),
            layer: Some(Layer::Baked),
        });
    }
    if let Some(paths) = &here.paths {
        files.push(File { id: "settings.user", path: paths.settings(), layer: Some(Layer::User) });
    }
    if let Some(root) = here.repository.as_ref().or(here.workspace.as_ref().ok()) {
        files.push(File { id: "settings.project", path: root.join(PROJECT), layer: None });
    }
    files.push(File { id: "settings.policy", path: PathBuf::from(config::POLICY), layer: None });
    files
}

fn check(file: &File, warnings: &mut Vec<String>) -> Finding {
    let path = file.path.display();
    if let Some(layer) = file.layer {
        return match setup::read_file(&file.path, layer, warnings) {
            Ok(Some(_)) => Finding::new(file.id, Status::Ok, format!("`{path}` can be read")),
            Ok(None) => {
                Finding::new(file.id, Status::Info, format!("there is no `{path}`; none is needed"))
            }
            Err(error) => Finding::new(file.id, Status::Problem, error.fault.message)
                .repair("mend the place that is named, or move the file away"),
        };
    }
    match examine::content(&file.path) {
        Content::Absent => {
            Finding::new(file.id, Status::Info, format!("there is no `{path}`; none is needed"))
        }
        Content::Closed | Content::Directory | Content::Socket | Content::Other => {
            Finding::new(file.id, Status::Problem, format!("`{path}` is no file that can be read"))
                .repair("make it readable for this user, or move it away")
        }
        Content::Empty | Content::File { .. } => {
            Finding::new(file.id, Status::Ok, format!("`{path}` is there"))
        }
    }
}
