//! Progress of a recovery, for callers that wait for it.

use std::fmt;

use pando_format::Lsn;
use pando_sync::{Arc, Mutex, Rank};

/// Bytes of log between two calls of the listener.
const STEP_BYTES: u64 = 1 << 20;

/// How far a recovery has replayed the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of log that have been replayed.
    pub replayed_bytes: u64,
    /// Bytes of log to replay in total: all of it after the checkpoint.
    pub log_bytes: u64,
    /// Batches that have been replayed.
    pub batches: u64,
}

type Call = Box<dyn FnMut(RecoveryProgress) + Send>;

/// The function that a recovery reports its progress to.
#[derive(Clone)]
pub(crate) struct Listener(Arc<Mutex<Call>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    /// Returns a listener that calls `call` under its own lock.
    pub(crate) fn new(call: impl FnMut(RecoveryProgress) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Rank::RecoveryListener, Box::new(call))))
    }
}

/// Counts what is replayed, and reports to the listener about every MiB and at the end.
pub(crate) struct Meter {
    listener: Option<Listener>,
    from: Lsn,
    end: Lsn,
    told: Lsn,
}

impl Meter {
    /// Prepares for a replay of the log from `from` to `end`.
    pub(crate) fn new(listener: Option<Listener>, from: Lsn, end: Lsn) -> Self {
        Self {
            listener,
            from,
            end,
            told: from,
        }
    }

    /// Bytes of log after the checkpoint.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.from.0)
    }

    /// Notes that `batches` have been replayed in total, up to `lsn`; reports if it is time.
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
