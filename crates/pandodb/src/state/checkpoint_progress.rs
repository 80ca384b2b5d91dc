//! Whether a checkpoint is running, and how far it is: readable without a lock.

use pando_sync::atomic::{AtomicU64, Ordering};

/// Progress of the running checkpoint, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointProgress {
    /// Incremented when a checkpoint begins, and when it has ended, which includes the merge of the
    /// mapping after it: odd while one is running. If the same even number is read before and after
    /// a call, no checkpoint ran during the call.
    pub turn: u64,
    /// Pages that the running checkpoint, or else the last one, had to write.
    pub pages: u64,
    /// Pages that the running checkpoint has not written yet; 0 if none is running.
    pub pages_left: u64,
}

impl CheckpointProgress {
    /// True if a checkpoint was running when this was read.
    pub fn is_running(&self) -> bool {
        self.turn % 2 == 1
    }
}

/// Counts begins and ends of checkpoints. Written only by the thread that runs one.
#[derive(Debug, Default)]
pub(crate) struct CheckpointTurns {
    /// As [`CheckpointProgress::turn`].
    turn: AtomicU64,
    /// As [`CheckpointProgress::pages`].
    pages: AtomicU64,
}

/// Exists while a checkpoint is running.
pub(crate) struct Turn<'a>(&'a CheckpointTurns);

impl CheckpointTurns {
    /// Begins a checkpoint. The caller holds the files, so only one runs at a time.
    pub(crate) fn begin(&self) -> Turn<'_> {
        // Release, as at the end: a thread that reads the new number sees what was done before it.
        let before = self.turn.fetch_add(1, Ordering::Release);
        assert_eq!(before % 2, 0, "two checkpoints at a time");
        Turn(self)
    }
}

impl CheckpointTurns {
    /// Returns the progress; `left` returns the number of pages that are still dirty. Takes no
    /// lock.
    pub(crate) fn progress(&self, left: impl FnOnce() -> u64) -> CheckpointProgress {
        // Acquire: pairs with the Release at begin and end.
        let turn = self.turn.load(Ordering::Acquire);
        let left = left();
        // Relaxed: for information only.
        let pages = self.pages.load(Ordering::Relaxed);
        CheckpointProgress {
            turn,
            pages,
            pages_left: if turn.is_multiple_of(2) {
                0
            } else {
                left.min(pages)
            },
        }
    }
}

impl Turn<'_> {
    /// Sets the number of pages that the checkpoint has to write.
    pub(crate) fn set_pages(&self, pages: u64) {
        // Relaxed: for information only.
        self.0.pages.store(pages, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: as in begin.
        self.0.turn.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::Db;

    #[test]
    fn turns_are_odd_while_a_checkpoint_runs_and_count_all() {
        let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let engine = db.engine();
        let quiet = {
            let _files = engine.checkpoint.lock_files();
            let quiet = db.checkpoint_progress();
            assert!(!quiet.is_running());
            let turn = engine.checkpoint.turns.begin();
            turn.set_pages(7);
            let running = db.checkpoint_progress();
            assert!(running.is_running() && running.turn == quiet.turn + 1);
            assert_eq!(running.pages, 7);
            drop(turn);
            quiet
        };
        db.checkpoint().unwrap();
        let _files = engine.checkpoint.lock_files();
        let after = db.checkpoint_progress();
        assert!(!after.is_running() && after.turn >= quiet.turn + 4);
        assert!(after.pages > 0, "{after:?}");
        assert_eq!(after.pages_left, 0);
    }
}
