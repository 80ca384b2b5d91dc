//! A snapshot that reads old versions in memory, and may go on on disk (decision 071).

use pando_format::Lsn;
use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Rank, RwLock};
use pando_versions::Registration;

use crate::kept::settled::Settled;

/// A registered snapshot, and what it reads once it is settled.
#[derive(Debug)]
pub(crate) struct Young {
    registration: Registration,
    /// Number of handles that read it.
    handles: AtomicUsize,
    /// It belongs to a transaction: it is settled only when old versions have no room.
    is_of_transaction: bool,
    began: time::Instant,
    /// A read of its transaction has failed, since it was ended.
    has_failed: AtomicBool,
    /// Set before the registration is ended.
    settled: RwLock<Option<Arc<Settled>>>,
}

impl Young {
    /// Returns a snapshot that is not settled, for one handle.
    pub(crate) fn new(registration: Registration, is_of_transaction: bool) -> Self {
        Self {
            registration,
            handles: AtomicUsize::new(1),
            is_of_transaction,
            began: time::now(),
            has_failed: AtomicBool::new(false),
            settled: RwLock::new(Rank::Leaf, None),
        }
    }

    /// Notes another handle.
    pub(crate) fn add_handle(&self) {
        // Relaxed: whoever adds one has one.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a handle has gone. Returns true if it was the last.
    pub(crate) fn remove_handle(&self) -> bool {
        // Relaxed: the one whose handle is the last takes it out of its list, under the lock of
        // that, and what the others have read is kept by their references.
        let before = self.handles.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a handle that there is not");
        before == 1
    }

    /// The LSN that it reads at.
    pub(crate) fn lsn(&self) -> Lsn {
        self.registration.lsn()
    }

    /// How long ago it began.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Its registration, which has ended when the snapshot is settled.
    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Returns whether it belongs to a transaction.
    pub(crate) fn is_of_transaction(&self) -> bool {
        self.is_of_transaction
    }

    /// Notes that a read of its transaction has failed, since it was ended.
    pub(crate) fn note_failed(&self) {
        // Relaxed: calls of one transaction follow each other, as its owner sees to.
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether a read of its transaction has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns whether it was settled and can still be read. Asked by who finds the registration
    /// ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled().is_some_and(|settled| !settled.is_ended())
    }

    /// Returns what it reads if it is settled. A caller that finds the registration ended asks
    /// this afterwards, and begins the read again if there is something.
    pub(crate) fn settled(&self) -> Option<Arc<Settled>> {
        // Acquire: pairs with what end does with the word of the registration: a caller that has
        // seen that word sees what was set before.
        fence(Ordering::Acquire);
        self.settled.read().clone()
    }

    /// Makes it read `settled` from now on, and ends its registration.
    pub(crate) fn settle(&self, settled: &Arc<Settled>) {
        assert_eq!(settled.lsn(), self.lsn(), "the state of another moment");
        let before = self.settled.write().replace(settled.clone());
        assert!(before.is_none(), "a snapshot is settled once");
        self.registration.end();
    }
}
