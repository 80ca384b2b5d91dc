//! Progress of a recovery, for callers that wait for it.

use std::fmt;

use pando_format::Lsn;
use pando_format::log::record_bytes;
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
    end: Lsn,
    log_bytes: u64,
    replayed_bytes: u64,
    told_bytes: u64,
}

impl Meter {
    /// Prepares for a replay of `log_bytes` bytes of the log, up to `end`.
    pub(crate) fn new(listener: Option<Listener>, end: Lsn, log_bytes: u64) -> Self {
        Self {
            listener,
            end,
            log_bytes,
            replayed_bytes: 0,
            told_bytes: 0,
        }
    }

    /// Notes that the batch of `lsn` with a record of `payload` bytes has been replayed, and with
    /// it `batches` in total; reports if it is time.
    pub(crate) fn replayed(&mut self, lsn: Lsn, payload: usize, batches: u64) {
        assert!(lsn <= self.end, "{lsn} is not what was found before");
        // Without padding, which the last one makes up for.
        self.replayed_bytes += record_bytes(payload);
        assert!(
            self.replayed_bytes <= self.log_bytes,
            "more records than log"
        );
        if lsn == self.end {
            self.replayed_bytes = self.log_bytes;
        }
        let Some(listener) = &self.listener else {
            return;
        };
        if lsn < self.end && self.replayed_bytes - self.told_bytes < STEP_BYTES {
            return;
        }
        self.told_bytes = self.replayed_bytes;
        let mut call = listener.0.lock();
        call(RecoveryProgress {
            replayed_bytes: self.replayed_bytes,
            log_bytes: self.log_bytes,
            batches,
        });
    }
}
