//! Where the memory is: the parts of the budget, and what each part uses.

use pandodb::MemoryShare;

use crate::data::engine::bytes;
use crate::shared::Shared;

/// Memory of a connection without its buffers.
const CONNECTION_BYTES: u64 = 1024;

/// The parts of the memory budget, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryUse {
    /// The whole budget.
    pub(crate) max: u64,
    pub(crate) frames: MemoryShare,
    pub(crate) page_table: MemoryShare,
    pub(crate) log_buffers: MemoryShare,
    pub(crate) images: MemoryShare,
    pub(crate) chunk_buffers: MemoryShare,
    pub(crate) tables: MemoryShare,
    /// Values that snapshots still read; their share is a part of the rest.
    pub(crate) old_versions: MemoryShare,
    /// What open transactions have written, read and locked; their share is a part of the rest.
    pub(crate) transactions: MemoryShare,
    /// Watches of connections; their share is a part of the rest.
    pub(crate) watches: MemoryShare,
    /// Places of SCAN cursors; their share is a part of the rest, too.
    pub(crate) cursors: MemoryShare,
    /// The rest of the budget: for watches, cursors, connections, statistics, and memory that is
    /// not counted.
    pub(crate) rest_budget: u64,
    /// Buffers of all connections, an estimate for each, their subscriptions, the messages that
    /// wait, and the keys that they track or wait for.
    pub(crate) connections: u64,
    /// An upper bound: untouched pages of counters take no memory.
    pub(crate) statistics: u64,
}

impl MemoryUse {
    /// Returns the current use. Allocates nothing.
    pub(crate) fn new(shared: &Shared) -> Self {
        let mut found = Self {
            connections: connections(shared),
            statistics: bytes(shared.statistics.bytes_max()),
            ..Self::default()
        };
        if let Some(engine) = shared.engine() {
            let memory = engine.db.memory();
            found.max = memory.max_memory;
            found.frames = memory.frames;
            found.page_table = memory.page_table;
            found.log_buffers = memory.log_buffers;
            found.images = memory.images;
            found.chunk_buffers = memory.chunk_buffers;
            found.tables = memory.tables;
            found.old_versions = memory.old_versions;
            found.transactions = memory.transactions;
            found.watches = MemoryShare {
                budget_bytes: engine.watch_bytes_max,
                used_bytes: shared.watch_bytes.used(),
            };
            found.cursors = MemoryShare {
                budget_bytes: engine.cursor_bytes_max,
                used_bytes: shared.cursors.lock().bytes(),
            };
            found.rest_budget = memory.rest_budget();
            found.statistics += memory.statistics_bytes;
        }
        found
    }

    /// Returns the name of each part, the bytes that it uses, and its budget if it has one.
    pub(crate) fn parts(&self) -> [(&'static str, u64, Option<u64>); 12] {
        let share = |name, of: MemoryShare| (name, of.used_bytes, Some(of.budget_bytes));
        [
            share("frames", self.frames),
            share("page_table", self.page_table),
            share("log_buffers", self.log_buffers),
            share("images", self.images),
            share("chunk_buffers", self.chunk_buffers),
            share("tables", self.tables),
            share("old_versions", self.old_versions),
            share("transactions", self.transactions),
            share("watches", self.watches),
            share("cursors", self.cursors),
            ("connections", self.connections, None),
            ("statistics", self.statistics, None),
        ]
    }

    /// Returns the bytes in use, over all parts.
    pub(crate) fn used(&self) -> u64 {
        self.parts().iter().map(|(_, used, _)| used).sum()
    }

    /// Returns the bytes that are in use before there is any data: buffers and statistics.
    pub(crate) fn at_start(&self) -> u64 {
        self.log_buffers.used_bytes + self.images.used_bytes + self.statistics
    }
}

fn connections(shared: &Shared) -> u64 {
    let buffers = shared
        .clients
        .sum(|record| CONNECTION_BYTES + record.memory());
    buffers + shared.channels.bytes() + shared.tracking.bytes() + shared.waiters.bytes()
}

/// Returns the resident memory of the process, as the system counts it, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}

/// Returns the memory of the machine, as the system counts it, in bytes: 0 if it does not tell.
pub(crate) fn machine_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0) * 1024
}
