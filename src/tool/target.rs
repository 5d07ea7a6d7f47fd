//! The file that a call is about: its spelling, the physical path that is asked for and acted on,
//! and how a refusal of the system is told.

use std::{path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;

use super::{Context, Outcome, arguments::Arguments};
use crate::{
    authority::Grant,
    host::{
        HostError,
        files::{self, Opened},
    },
};

/// The file that a call is about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// As the model spelled it, control characters escaped.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: PathBuf,
    pub(super) context: Arc<Context>,
}

impl Target {
    /// Reads the argument `path`.
    pub(super) fn of(arguments: Arguments<'_>, context: &Arc<Context>) -> Result<Self, String> {
        let spelled = arguments.text("path")?;
        let path = files::resolve(spelled.as_ref(), &context.workspace, context.home.as_deref())
            .map_err(|error| error.sentence())?;
        Ok(Self { name: printable(&spelled), path, context: Arc::clone(context) })
    }

    /// Refuses a spelling that can only mean a directory.
    pub(super) fn not_a_directory(self, arguments: Arguments<'_>) -> Result<Self, String> {
        if arguments.text("path")?.ends_with('/') {
            return Err(format!(
                "`{}` ends with `/`, which names a directory; name a file",
                self.name
            ));
        }
        Ok(self)
    }

    /// Changes the file under the call's only grant.
    pub(super) fn change(
        &self,
        grants: &[Grant],
        act: impl FnOnce(&Grant) -> Result<Outcome, HostError>,
    ) -> Outcome {
        match grants.first() {
            Some(grant) => act(grant).unwrap_or_else(|error| self.refused(&error)),
            None => Outcome::error("the call was not granted; nothing was written"),
        }
    }

    /// Returns the outcome for a refusal of the system.
    pub(super) fn refused(&self, error: &HostError) -> Outcome {
        let mut text = error.sentence();
        let is_read_only = error.errno() == Some(libc::EROFS);
        if is_read_only && self.context.host.is_jailed() {
            text.push_str(if self.is_masked() { MASKED } else { READ_ONLY });
        }
        Outcome::error(text)
    }

    /// Says whether the jail hides what stands there: it is empty and a mount of its own.
    fn is_masked(&self) -> bool {
        match files::open(&self.path) {
            Ok(Opened::File(file, stamp)) => stamp.size == 0 && files::is_mount_root(&file),
            Ok(Opened::Directory(handle)) => {
                files::is_mount_root(&handle)
                    && files::list(&handle, &self.path, 1).is_ok_and(|(found, _)| found.is_empty())
            }
            Err(_) => false,
        }
    }

    /// Returns the line to add to what was read as empty, when the jail hides it.
    pub(super) fn note_when_masked(&self) -> &'static str {
        if self.context.host.is_jailed() && self.is_masked() { MASKED } else { "" }
    }
}

const READ_ONLY: &str =
    "\nsandbox: this place is read-only inside; naming it in `writablePaths` would change that";
const MASKED: &str = "\nsandbox: this path is hidden inside by `denyRead`; taking it out of that list would change that";

/// Returns a text without control characters, so that a name cannot fake a line.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Runs what touches the disk where it may wait.
pub(super) fn blocking(
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Outcome::error(format!("the tool broke off: {error}")))
    })
}
