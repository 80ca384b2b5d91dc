//! The dump of the whole store that a command starts: a file in its directory (decision 139).

use pando_sync::time::unix_ms;
use pando_sync::{Arc, Mutex, Rank};
use pandodb::{Db, DumpFile};

use super::background::{Background, percent};

/// The file that the last whole dump is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeDump {
    /// Unix time at which it was asked for, in milliseconds: what was acknowledged before is in it.
    pub(crate) unix_ms: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
}

/// Dumps, one at a time. Progress is in percent; the result says whether it was not told to stop.
#[derive(Debug)]
pub(crate) struct StoreDump {
    pub(crate) work: Arc<Background<u32, bool>>,
    /// The last one since the start of the server. Guarded by its lock, held for a copy.
    whole: Mutex<Option<WholeDump>>,
}

impl Default for StoreDump {
    fn default() -> Self {
        Self {
            work: Arc::default(),
            whole: Mutex::new(Rank::Leaf, None),
        }
    }
}

impl StoreDump {
    /// Starts one. Returns false if one runs already.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(this: &Arc<Self>, db: Db) -> std::io::Result<bool> {
        let own = Arc::clone(this);
        let unix_ms = unix_ms();
        Background::start(&this.work, "pando-dump", move |work| {
            let file = db.dump_to_file(|progress| work.note(percent(progress.share)))?;
            let Some(DumpFile { report, bytes }) = file else {
                return Ok(false);
            };
            *own.whole.lock() = Some(WholeDump {
                unix_ms,
                bytes,
                rows: report.rows(),
            });
            Ok(true)
        })
    }

    /// Returns the file that this server has written last, if it has written one.
    pub(crate) fn whole(&self) -> Option<WholeDump> {
        *self.whole.lock()
    }
}
