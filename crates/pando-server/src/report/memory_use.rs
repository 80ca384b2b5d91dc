//! Where the memory is: each part of the budget with what is in use.

use pandodb::MemoryShare;

use crate::data::engine::bytes;
use crate::shared::Shared;

/// What a connection holds without buffers.
const CONNECTION_BYTES: u64 = 1024;

/// The parts of the memory budget.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryUse {
    /// The budget.
    pub(crate) max: u64,
    pub(crate) frames: MemoryShare,
    pub(crate) page_table: MemoryShare,
    pub(crate) log_buffers: MemoryShare,
    pub(crate) images: MemoryShare,
    pub(crate) chunk_buffers: MemoryShare,
    pub(crate) tables: MemoryShare,
    /// What connections watch; of the rest.
    pub(crate) watches: MemoryShare,
    /// Places at which iterations have stopped; likewise.
    pub(crate) cursors: MemoryShare,
    /// What is left of the budget for those around this, and for what nobody has counted.
    pub(crate) rest_budget: u64,
    pub(crate) connections: u64,
    /// At most: pages of counters that nobody touched take nothing.
    pub(crate) statistics: u64,
}

impl MemoryUse {
    /// As of now. Allocates nothing.
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

    /// Names of all parts, what they use, and their share of the budget if they have their own.
    pub(crate) fn parts(&self) -> [(&'static str, u64, Option<u64>); 10] {
        let share = |name, of: MemoryShare| (name, of.used_bytes, Some(of.budget_bytes));
        [
            share("frames", self.frames),
            share("page_table", self.page_table),
            share("log_buffers", self.log_buffers),
            share("images", self.images),
            share("chunk_buffers", self.chunk_buffers),
            share("tables", self.tables),
            share("watches", self.watches),
            share("cursors", self.cursors),
            ("connections", self.connections, None),
            ("statistics", self.statistics, None),
        ]
    }

    /// All that is in use.
    pub(crate) fn used(&self) -> u64 {
        self.parts().iter().map(|(_, used, _)| used).sum()
    }

    /// What is in use without any data: buffers and statistics.
    pub(crate) fn at_start(&self) -> u64 {
        self.log_buffers.used_bytes + self.images.used_bytes + self.statistics
    }
}

fn connections(shared: &Shared) -> u64 {
    shared
        .clients
        .sum(|record| CONNECTION_BYTES + record.buffer_bytes())
}

/// Resident memory of the process, as the system counts it.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}
