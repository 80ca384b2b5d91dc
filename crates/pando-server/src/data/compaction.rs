//! The compaction of the store that a command starts.

use pando_sync::Arc;
use pandodb::{CompactPhase, CompactReport, Db};

use super::background::{Background, percent};

/// Progress of the running compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactionProgress {
    pub(crate) phase: CompactPhase,
    /// Share of the whole compaction that is done, 0 to 100.
    pub(crate) percent: u32,
}

impl Default for CompactionProgress {
    fn default() -> Self {
        Self {
            phase: CompactPhase::Garbage,
            percent: 0,
        }
    }
}

/// Compactions, one at a time.
pub(crate) type Compaction = Background<CompactionProgress, CompactReport>;

/// Starts one. Returns false if one runs already.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn start(compaction: &Arc<Compaction>, db: Db) -> std::io::Result<bool> {
    Compaction::start(compaction, "pando-compact", move |work| {
        db.compact(|progress| {
            work.note(CompactionProgress {
                phase: progress.phase,
                percent: percent(progress.share),
            })
        })
    })
}
