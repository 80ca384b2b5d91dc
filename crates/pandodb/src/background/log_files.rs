//! The thread that makes files of the log before records need them, and removes those that a
//! checkpoint has freed (decision 077).

use pando_wal::Surroundings;

use crate::engine::Engine;

impl Engine {
    /// Loop of the thread.
    pub(crate) fn run_log_files(&self) {
        self.log.run_files(self);
    }
}

impl Surroundings for Engine {
    /// The room of files that a checkpoint removes is for those that take their place (decision
    /// 065), as little for the log as for the data file.
    fn alone(&self, allocate: &mut dyn FnMut()) {
        self.store.space.without_growth(allocate);
    }

    fn told(&self, failed: Option<&pando_wal::Error>) {
        let log_bytes = self.log.capacity_bytes();
        match failed {
            Some(error) => tracing::warn!(log_bytes, %error, "the log cannot get longer"),
            None => tracing::info!(log_bytes, "the log can get longer again"),
        }
    }
}
