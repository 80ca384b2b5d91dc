//! How far a recovery is, for those who wait for it.

use std::fmt;

use pando_format::Lsn;
use pando_sync::{Arc, Mutex, Rank};

/// Bytes of log between two calls of a listener.
const STEP_BYTES: u64 = 1 << 20;

/// How much of the log a recovery has replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of log that were replayed.
    pub replayed_bytes: u64,
    /// Bytes of log behind the checkpoint: as many will be.
    pub log_bytes: u64,
    /// Batches that were replayed.
    pub batches: u64,
}

type Call = Box<dyn FnMut(RecoveryProgress) + Send>;

/// Whom a recovery tells how far it is.
#[derive(Clone)]
pub(crate) struct Listener(Arc<Mutex<Call>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    pub(crate) fn new(call: impl FnMut(RecoveryProgress) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Rank::RecoveryListener, Box::new(call))))
    }
}

/// Counts what is replayed, and tells of it about every MiB and at the end.
pub(crate) struct Meter {
    listener: Option<Listener>,
    from: Lsn,
    end: Lsn,
    told: Lsn,
}

impl Meter {
    /// The log from `from` to `end` is going to be replayed.
    pub(crate) fn new(listener: Option<Listener>, from: Lsn, end: Lsn) -> Self {
        Self {
            listener,
            from,
            end,
            told: from,
        }
    }

    /// Bytes of log behind the checkpoint.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.from.0)
    }

    /// `batches` were replayed, the newest of which has `lsn`.
    pub(crate) fn replayed(&mut self, lsn: Lsn, batches: u64) {
        assert!(
            (self.told..=self.end).contains(&lsn),
            "{lsn} is not what was found before"
        );
        let Some(listener) = &self.listener else {
            return;
        };
        if lsn < self.end && lsn.0 - self.told.0 < STEP_BYTES {
            return;
        }
        self.told = lsn;
        let mut call = listener.0.lock();
        call(RecoveryProgress {
            replayed_bytes: lsn.0.saturating_sub(self.from.0),
            log_bytes: self.log_bytes(),
            batches,
        });
    }
}
