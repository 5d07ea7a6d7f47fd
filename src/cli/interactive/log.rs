//! The events of a conversation as the lines of a headless run, in the file of `--log` or of the
//! setting `log`.

use std::{fs::File, io::Write as _, sync::Arc};

use tokio::sync::mpsc::UnboundedSender;

use crate::{agent::Backlog, tui::Answer};

use super::{
    super::{
        args::RunArguments,
        error::CliError,
        headless,
        print::{Front, Names, line::Line},
        setup::Setup,
        terminal::Lane,
    },
    House,
};

/// A file that the conversations of one process are written to, one after the other.
pub(super) struct Log {
    name: String,
    file: File,
}

/// Opens the log that the flag or the settings ask for; none when neither does.
///
/// # Errors
/// For a file that cannot be one.
pub(super) fn open(run: &RunArguments, setup: &Setup) -> Result<Option<Log>, CliError> {
    let file = match (&run.log, setup.settings.log.get()) {
        (Some(file), _) => file.clone(),
        (None, Some(file)) => setup.spelled(file)?,
        (None, None) => return Ok(None),
    };
    let (name, file) = headless::open_log(&file)?;
    Ok(Some(Log { name, file }))
}

impl Log {
    /// Returns what writes a conversation's lines, the first of them written.
    pub(super) fn front(
        &self,
        house: &House<'_>,
        session: Option<&String>,
        backlog: &Arc<Backlog>,
        notices: &[String],
    ) -> Result<Front, CliError> {
        let cannot =
            |error: std::io::Error| CliError::internal(format!("cannot write the log: {error}"));
        let mut file = self.file.try_clone().map_err(cannot)?;
        let (name, answers): (_, UnboundedSender<Answer>) =
            (self.name.clone(), house.answers.clone());
        let lane = Lane::new(Arc::clone(backlog), move |text| {
            file.write_all(text.as_bytes()).inspect_err(|error| {
                let errors =
                    format!("the log `{name}` ends here, as it cannot be written: {error}");
                drop(answers.send(Answer { errors, failed: true, ..Answer::default() }));
            })
        })
        .map_err(cannot)?;
        let model = Some(house.assembly.model().name().to_owned());
        let names = Names { session: session.cloned(), model, ..Names::default() };
        let mut front = Front::logging(lane, names, Arc::clone(backlog));
        front.line(&headless::init(&house.setup, &house.assembly, session.cloned()));
        for notice in notices {
            front.line(&Line::Notice { text: notice.clone() });
        }
        Ok(front)
    }
}
