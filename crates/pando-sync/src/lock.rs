//! Blocking locks. A lock whose holder panicked is entered all the same: the engine poisons itself
//! as a whole (see `pandodb`), so poisoning single locks would only hide the first error.

#[cfg(pando_loom)]
use loom::sync as imp;
#[cfg(all(pando_shuttle, not(pando_loom)))]
use shuttle::sync as imp;
#[cfg(not(any(pando_loom, pando_shuttle)))]
use std::sync as imp;

/// Reference counting is not modelled: nothing here depends on when the last one goes. The audit
/// counts it.
#[cfg(not(pando_audit))]
pub use std::sync::Arc;

#[cfg(pando_audit)]
pub use crate::audit::arc::Arc;

/// What a `Waker` is made of: always the one of `std`.
pub use std::sync::Arc as WakerArc;

use std::sync::PoisonError;

/// Held lock of a [`Mutex`].
pub type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;
/// Held read lock of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = imp::RwLockReadGuard<'a, T>;
/// Held write lock of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = imp::RwLockWriteGuard<'a, T>;

/// Tells the audit that a lock is taken: a reader's share is a write, too.
#[inline]
fn taken<T>(lock: &T) {
    #[cfg(pando_audit)]
    crate::audit::locked(lock);
    #[cfg(not(pando_audit))]
    let _ = lock;
}

/// A mutual exclusion lock; `lock` blocks.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Blocks until the lock is held.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        taken(self);
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free; never blocks.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        taken(self);
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// What it holds, without taking the lock: nobody else can.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock with many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(imp::RwLock<T>);

impl<T> RwLock<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }

    /// Blocks until no writer holds the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        taken(self);
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until nobody holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        taken(self);
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable of a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition nobody waits for.
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], at most `timeout` long. Models wait without a limit.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        #[cfg(not(any(pando_loom, pando_shuttle)))]
        {
            match self.0.wait_timeout(guard, timeout) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            }
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
