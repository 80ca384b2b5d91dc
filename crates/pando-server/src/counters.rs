//! Counters of an event loop. Written by the loop, read by INFO on any loop.

use std::collections::BTreeMap;

use pando_sync::Mutex;
use pando_sync::atomic::{AtomicU64, Ordering};

/// Most error codes that are counted apart: clients can make codes up (through scripts, say).
const ERROR_CODES_MAX: usize = 128;

/// One count. Every access is relaxed: counters order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What is counted for each command.
#[derive(Debug, Default)]
pub(crate) struct CommandCounters {
    pub(crate) calls: Counter,
    pub(crate) nanoseconds: Counter,
    pub(crate) rejected: Counter,
    pub(crate) failed: Counter,
}

/// The counters of one loop.
#[derive(Debug)]
pub(crate) struct LoopCounters {
    pub(crate) commands: Box<[CommandCounters]>,
    pub(crate) accepted: Counter,
    pub(crate) rejected: Counter,
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) expired: Counter,
    pub(crate) suspended: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) errors_total: Counter,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl LoopCounters {
    pub(crate) fn new(commands: usize) -> Self {
        Self {
            commands: (0..commands).map(|_| CommandCounters::default()).collect(),
            accepted: Counter::default(),
            rejected: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            suspended: Counter::default(),
            conflicts: Counter::default(),
            errors_total: Counter::default(),
            errors: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts an error reply by its first word.
    pub(crate) fn error(&self, reply: &[u8]) {
        self.errors_total.add(1);
        let end = reply.iter().position(|byte| matches!(byte, b' ' | b'\r'));
        let code = &reply[1.min(reply.len())..end.unwrap_or(reply.len())];
        let code = String::from_utf8_lossy(code);
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code.as_ref()) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into_owned(), 1);
        }
    }

    /// Adds this loop's errors by code to `sums`.
    pub(crate) fn add_errors(&self, sums: &mut BTreeMap<String, u64>) {
        for (code, count) in self.errors.lock().iter() {
            *sums.entry(code.clone()).or_insert(0) += count;
        }
    }

    /// `CONFIG RESETSTAT`.
    pub(crate) fn reset(&self) {
        for command in &self.commands {
            command.calls.reset();
            command.nanoseconds.reset();
            command.rejected.reset();
            command.failed.reset();
        }
        let all = [
            &self.accepted,
            &self.rejected,
            &self.input_bytes,
            &self.output_bytes,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.suspended,
            &self.conflicts,
            &self.errors_total,
        ];
        all.into_iter().for_each(Counter::reset);
        self.errors.lock().clear();
    }
}
