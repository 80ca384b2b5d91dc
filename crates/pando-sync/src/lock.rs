//! Blocking locks. A lock whose holder has panicked can still be taken: the engine poisons itself
//! as a whole (see `pandodb`), and poisoning single locks would only hide the first error.

#[cfg(pando_loom)]
use loom::sync as imp;
#[cfg(all(pando_shuttle, not(pando_loom)))]
use shuttle::sync as imp;
#[cfg(not(any(pando_loom, pando_shuttle)))]
use std::sync as imp;

/// Reference counting is not modelled, since nothing here depends on when the last reference is
/// dropped. The audit counts it.
#[cfg(not(pando_audit))]
pub use std::sync::Arc;

#[cfg(pando_audit)]
pub use crate::audit::arc::Arc;

/// The `Arc` of which a `Waker` is made: always that of `std`.
pub use std::sync::Arc as WakerArc;

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::rank::{Holding, Rank, Ranked};

macro_rules! guards {
    ($($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Debug)]
        #[must_use = "the lock is held as long as this lives"]
        pub struct $name<'a, T> {
            // Dropped first: the lock is released before it is counted as released.
            inner: imp::$name<'a, T>,
            _held: Holding,
        }

        impl<T> Deref for $name<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.inner
            }
        }
    )*};
}

guards! {
    /// Held lock of a [`Mutex`].
    MutexGuard;
    /// Held read lock of a [`RwLock`].
    RwLockReadGuard;
    /// Held write lock of a [`RwLock`].
    RwLockWriteGuard;
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Tells the audit that a lock was taken. Taking a read lock is a write, too.
#[inline]
fn taken<T>(lock: &T) {
    #[cfg(pando_audit)]
    crate::audit::locked(lock);
    #[cfg(not(pando_audit))]
    let _ = lock;
}

/// A mutual exclusion lock; `lock` blocks. The default has the rank `Leaf`.
#[derive(Debug)]
pub struct Mutex<T> {
    inner: imp::Mutex<T>,
    ranked: Ranked,
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(Rank::Leaf, T::default())
    }
}

impl<T> Mutex<T> {
    /// Wraps `value` in a lock of rank `rank`.
    pub fn new(rank: Rank, value: T) -> Self {
        Self {
            inner: imp::Mutex::new(value),
            ranked: Ranked::new(rank),
        }
    }

    /// Blocks until the lock is held.
    ///
    /// # Panics
    /// In debug builds, when the thread holds a lock of the same rank or of a later one.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        taken(self);
        self.ranked.check();
        MutexGuard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            _held: self.ranked.taken(),
        }
    }

    /// Takes the lock if it is free. Never blocks, and may be called while holding any lock.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        taken(self);
        let inner = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            inner,
            _held: self.ranked.taken(),
        })
    }

    /// Returns the value without taking the lock, which nobody else can hold.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock with many readers or one writer. The default has the rank `Leaf`.
#[derive(Debug)]
pub struct RwLock<T> {
    inner: imp::RwLock<T>,
    ranked: Ranked,
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(Rank::Leaf, T::default())
    }
}

impl<T> RwLock<T> {
    /// Wraps `value` in a lock of rank `rank`.
    pub fn new(rank: Rank, value: T) -> Self {
        Self {
            inner: imp::RwLock::new(value),
            ranked: Ranked::new(rank),
        }
    }

    /// Blocks until no writer holds the lock.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        taken(self);
        self.ranked.check();
        RwLockReadGuard {
            inner: self.inner.read().unwrap_or_else(PoisonError::into_inner),
            _held: self.ranked.taken(),
        }
    }

    /// Blocks until nobody holds the lock.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        taken(self);
        self.ranked.check();
        RwLockWriteGuard {
            inner: self.inner.write().unwrap_or_else(PoisonError::into_inner),
            _held: self.ranked.taken(),
        }
    }
}

/// A condition variable of a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// Makes a condition variable without waiters.
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again. May return without a
    /// notification.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        away(guard, |guard| {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Like [`Condvar::wait`], for at most `timeout`. Models wait without a limit.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        #[cfg(not(any(pando_loom, pando_shuttle)))]
        {
            away(guard, |guard| match self.0.wait_timeout(guard, timeout) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            })
        }
        #[cfg(any(pando_loom, pando_shuttle))]
        {
            let _ = timeout;
            self.wait(guard)
        }
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Passes the lock of `guard` to `wait`, which takes it again. Meanwhile the thread does not count
/// as holding it.
#[track_caller]
fn away<'a, T>(
    guard: MutexGuard<'a, T>,
    wait: impl FnOnce(imp::MutexGuard<'a, T>) -> imp::MutexGuard<'a, T>,
) -> MutexGuard<'a, T> {
    let MutexGuard { inner, _held: held } = guard;
    let ranked = held.ranked();
    drop(held);
    ranked.check();
    MutexGuard {
        inner: wait(inner),
        _held: ranked.taken(),
    }
}
