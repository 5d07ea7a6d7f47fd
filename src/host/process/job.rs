//! Commands that run beside the calls: started, asked about, ended; never waited for by a call.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    sync::{Notify, watch},
};

use super::{Command, DRAIN, Ended, ExecError, GRACE, LAST, Running, checked, feed, start, tree};
use crate::authority::Grant;

/// A command in the background. It ends with the runtime that it was started in, at the latest.
#[derive(Debug)]
pub struct Job {
    ended: watch::Receiver<Option<Ended>>,
    stop: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

/// Starts a command in the background. `each` gets its output as it comes, on both streams in
/// order; what it keeps of it must be bounded. A time limit of [`Duration::MAX`] is none.
///
/// # Errors
/// When the grant is not for it, or it cannot be started.
pub fn spawn(
    grant: &Grant,
    command: Command,
    mut each: impl FnMut(&[u8]) + Send + 'static,
) -> Result<Job, ExecError> {
    checked(grant, &command)?;
    let (timeout, input) = (command.timeout, command.input.clone());
    let (mut running, mut pipe) = start(command, &[])?;
    feed(&mut running, input);
    // A job is dropped at the end of the run, when nobody waits for the next call.
    running.patience = Duration::from_millis(500);
    let (tell, ended) = watch::channel(None);
    let stop = Arc::new(Notify::new());
    let stopped = Arc::new(AtomicBool::new(false));
    let job = Job { ended, stop: Arc::clone(&stop), stopped: Arc::clone(&stopped) };
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        let end = {
            let mut ending = pin!(running.finish(timeout, Some(&stop)));
            let mut open = true;
            loop {
                tokio::select! {
                    // The end first, so that a flood cannot hold it up.
                    biased;
                    end = &mut ending => break end,
                    read = pipe.read(&mut buffer), if open => match read {
                        Ok(n @ 1..) => each(buffer.get(..n).unwrap_or_default()),
                        _ => open = false,
                    },
                }
            }
        };
        let end = match end {
            // The limit and the wish to end it come out alike; the wish is known here.
            Ended::TimedOut if stopped.load(Ordering::Relaxed) => Ended::Stopped,
            other => other,
        };
        let drain = async {
            while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
                each(buffer.get(..n).unwrap_or_default());
            }
        };
        let complete = tokio::time::timeout(DRAIN, drain).await.is_ok();
        running.leave();
        tell.send_replace(Some(end));
        if !complete {
            // As after a call: what it left must find its pipe neither full nor broken.
            while let Ok(1..) = pipe.read(&mut buffer).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    Ok(job)
}

impl Job {
    /// Returns how it ended; `None` while it runs.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits for its end, at most so long, and returns it as [`Job::ended`] does.
    pub async fn wait(&self, limit: Duration) -> Option<Ended> {
        let mut ended = self.ended.clone();
        let wait = ended.wait_for(Option::is_some);
        match tokio::time::timeout(limit, wait).await {
            Ok(Ok(end)) => end.clone(),
            Ok(Err(_)) | Err(_) => self.ended(),
        }
    }

    /// Ends it with all that it started: TERM, a grace of a second, KILL. Returns how it ended, or
    /// `None` when it would not end.
    ///
    /// # Errors
    /// [`ExecError::NotGranted`].
    pub async fn stop(&self, grant: &Grant) -> Result<Option<Ended>, ExecError> {
        if !grant.permits_jobs() {
            return Err(ExecError::NotGranted);
        }
        if self.ended().is_none() {
            self.stopped.store(true, Ordering::Relaxed);
            self.stop.notify_one();
        }
        Ok(self.wait(GRACE + LAST + DRAIN + Duration::from_secs(1)).await)
    }
}

impl Running {
    /// Waits for the command itself, at most `limit` and until `stop` is told; then ends the whole
    /// tree.
    pub(super) async fn finish(&mut self, limit: Duration, stop: Option<&Notify>) -> Ended {
        let stopped = async {
            match stop {
                Some(stop) => stop.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            status = tokio::time::timeout(limit, self.child.wait()) => if let Ok(status) = status {
                self.tree.leader_is_not_waited_for();
                self.finished = true;
                return status.map_or(Ended::Exit(-1), super::ended);
            },
            () = stopped => {}
        }
        let mut ending = tree::Ending::new(GRACE, LAST);
        while let Some(pause) = ending.step(&self.tree) {
            tokio::time::sleep(pause).await;
            // Reaped here, so that the tree can become empty.
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.tree.leader_is_not_waited_for();
            }
        }
        self.finished = true;
        Ended::TimedOut
    }
}
