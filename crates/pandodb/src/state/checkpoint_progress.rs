//! Whether a checkpoint runs, and how far it is: for those who look from outside, without a lock.

use pando_sync::atomic::{AtomicU64, Ordering};

/// How far the running checkpoint is, if one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointProgress {
    /// Grows by one when a checkpoint begins and when it has ended, the merge of the mapping behind
    /// it included: odd while one runs. Who finds the same even number before and after a call
    /// knows that no checkpoint ran during it.
    pub turn: u64,
    /// Pages that the running or else the last checkpoint found to write.
    pub pages: u64,
    /// Pages that the running one has still to write; 0 when none runs.
    pub pages_left: u64,
}

impl CheckpointProgress {
    /// True if a checkpoint ran at the moment of the look.
    pub fn is_running(&self) -> bool {
        self.turn % 2 == 1
    }
}

/// Beginnings and ends of checkpoints. Written by the one who runs one.
#[derive(Debug, Default)]
pub(crate) struct CheckpointTurns {
    turn: AtomicU64,
    pages: AtomicU64,
}

/// A checkpoint runs while it lives.
pub(crate) struct Turn<'a>(&'a CheckpointTurns);

impl CheckpointTurns {
    /// A checkpoint begins. One at a time: the caller holds its files.
    pub(crate) fn begin(&self) -> Turn<'_> {
        // Release, as at the end: who reads the new number sees what was done before it.
        let before = self.turn.fetch_add(1, Ordering::Release);
        assert_eq!(before % 2, 0, "two checkpoints at a time");
        Turn(self)
    }
}

impl CheckpointTurns {
    /// As now, when `left` says how many pages are still dirty. Takes no lock.
    pub(crate) fn progress(&self, left: impl FnOnce() -> u64) -> CheckpointProgress {
        // Acquire: pairs with the Release of beginning and end.
        let turn = self.turn.load(Ordering::Acquire);
        let left = left();
        // Relaxed: a figure.
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
    /// The checkpoint has found so many pages to write.
    pub(crate) fn set_pages(&self, pages: u64) {
        // Relaxed: a figure.
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
