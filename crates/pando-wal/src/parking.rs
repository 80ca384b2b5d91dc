//! How a committer sleeps: by the thread's own parking, or by a flag under loom, where `unpark`
//! would also end a wait for a lock or a join.

use std::task::Waker;

/// The state of one wait of a sleeper.
#[cfg(not(pando_loom))]
#[derive(Debug)]
pub(crate) struct Parking {
    waker: Waker,
}

#[cfg(not(pando_loom))]
impl Parking {
    /// Prepares waits of the calling thread, which alone may park.
    pub(crate) fn new() -> Self {
        Self {
            waker: pando_sync::thread_waker(),
        }
    }

    /// Returns the waker that ends a [`Parking::park`], the running one or the next.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Blocks until the waker is woken; may return early.
    pub(crate) fn park(&self) {
        pando_sync::park();
    }
}

/// The same for loom models.
#[cfg(pando_loom)]
#[derive(Debug)]
pub(crate) struct Parking {
    waker: Waker,
    flag: std::sync::Arc<Flag>,
}

#[cfg(pando_loom)]
#[derive(Debug)]
struct Flag {
    woken: pando_sync::Mutex<bool>,
    condition: pando_sync::Condvar,
}

#[cfg(pando_loom)]
impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock() = true;
        self.condition.notify_one();
    }
}

#[cfg(pando_loom)]
impl Parking {
    /// Prepares waits of the calling thread, which alone may park.
    pub(crate) fn new() -> Self {
        let flag = std::sync::Arc::new(Flag {
            woken: pando_sync::Mutex::new(pando_sync::Rank::Leaf, false),
            condition: pando_sync::Condvar::new(),
        });
        Self {
            waker: Waker::from(flag.clone()),
            flag,
        }
    }

    /// Returns the waker that ends a [`Parking::park`], the running one or the next.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Blocks until the waker is woken.
    pub(crate) fn park(&self) {
        let mut woken = self.flag.woken.lock();
        while !*woken {
            woken = self.flag.condition.wait(woken);
        }
        *woken = false;
    }
}
