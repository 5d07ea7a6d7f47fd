//! What a front end has not got rid of yet: the measure by which a reader that does not read holds
//! a run back, so that neither memory grows nor anything is lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// From this many bytes on the model's answer is not read any further.
const FULL: usize = 1024 * 1024;

/// Bytes that were handed over and are not written yet.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: AtomicUsize,
    room: Notify,
}

impl Backlog {
    /// Counts bytes that wait to be written.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Counts bytes that wait no more, from any thread.
    pub fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before >= FULL && before.saturating_sub(bytes) < FULL {
            self.room.notify_waiters();
        }
    }

    /// Says whether so much waits (1 MiB) that nothing more should be made for now.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Acquire) >= FULL
    }

    /// Waits until there is room.
    pub async fn room(&self) {
        loop {
            // Made before the look: what is freed after it wakes this one up.
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    #[test]
    fn it_is_full_until_enough_is_written() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let backlog = Arc::new(Backlog::default());
        backlog.add(FULL - 1);
        assert!(!backlog.is_full(), "control");
        backlog.add(FULL);
        assert!(backlog.is_full());
        let writer = Arc::clone(&backlog);
        runtime.block_on(async {
            let wait = tokio::time::timeout(Duration::from_millis(20), backlog.room());
            assert!(wait.await.is_err(), "there is no room yet");
            let thread = std::thread::spawn(move || writer.take(FULL));
            tokio::time::timeout(Duration::from_secs(10), backlog.room()).await.unwrap();
            thread.join().unwrap();
        });
        assert!(!backlog.is_full());
    }
}
