//! A commit inside the gate, up to its record: beside others, or with the gate closed, as that of a
//! transaction that has read ranges.

use pando_format::Lsn;
use pando_stats::Ticker;
use pando_sync::gate::{Closed, GateGuard};
use pando_versions::Registration;

use crate::engine::Engine;

/// How a commit is inside the gate.
#[derive(Debug)]
pub(crate) enum Entered<'a> {
    /// It has entered, as others have.
    Open(GateGuard<'a>),
    /// It has closed the gate.
    Closed(Closed<'a>),
}

impl<'a> Entered<'a> {
    /// Opens the gate for others, if it is closed, and stays inside.
    pub(crate) fn open(self) -> GateGuard<'a> {
        match self {
            Self::Open(guard) => guard,
            Self::Closed(closed) => closed.enter(),
        }
    }
}

impl Engine {
    /// Ends the snapshot of a transaction, whose commit then need not save anything for itself; or
    /// all of them, for one that has no room for what others read. The check has passed.
    #[inline]
    pub(crate) fn end_snapshots(&self, own: Option<&Registration>, all: bool) {
        if all {
            tracing::warn!("snapshots were ended: a large transaction leaves them no memory");
            self.store.statistics.tick(Ticker::SnapshotsEnded, 1);
            self.old_versions.snapshots.end_below(Lsn(u64::MAX));
        } else if let Some(own) = own {
            own.end();
        }
    }
}
