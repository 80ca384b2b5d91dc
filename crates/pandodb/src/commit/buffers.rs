//! Working memory of writes, kept by the thread from one call to the next: a put of one key
//! allocates nothing of its own.
//!
//! What is kept is empty: it names no leaf, and no store. A set keeps the name of the table that it
//! was used for last, which says nothing of its content.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::commit::steps::CommitScratch;
use crate::writes::set::WriteSet;

/// Bytes from which on a buffer is given back to the system.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Why there is one.
const OWN: &str = "it is given back on drop only";

/// What can be emptied and kept.
pub(crate) trait Keep: Default + 'static {
    /// Empties it. False if it is too large to be kept, or not in order.
    fn empty(&mut self, bytes_max: usize) -> bool;

    /// Those of this thread that nobody uses. None when the thread is at its end. Boxed: hundreds
    /// of bytes each, which would be copied whenever one comes or goes.
    fn kept<R>(f: impl FnOnce(&mut Vec<Box<Self>>) -> R) -> Option<R>;
}

/// Empty ones of this thread: one, and one more for each call from within a call.
macro_rules! keep_by_thread {
    ($name:ident, $kept:ty) => {
        thread_local! {
            static $name: RefCell<Vec<Box<$kept>>> = const { RefCell::new(Vec::new()) };
        }

        impl Keep for $kept {
            fn empty(&mut self, bytes_max: usize) -> bool {
                self.empty(bytes_max)
            }

            fn kept<R>(f: impl FnOnce(&mut Vec<Box<Self>>) -> R) -> Option<R> {
                $name.try_with(|kept| f(&mut kept.borrow_mut())).ok()
            }
        }
    };
}

keep_by_thread!(SETS, WriteSet);
keep_by_thread!(SCRATCHES, CommitScratch);

/// One that this call uses; given back on drop.
pub(crate) struct Own<T: Keep>(Option<Box<T>>);

impl<T: Keep> Own<T> {
    pub(crate) fn take() -> Self {
        Self(Some(T::kept(Vec::pop).flatten().unwrap_or_default()))
    }
}

impl<T: Keep> Drop for Own<T> {
    fn drop(&mut self) {
        let own = self.0.take();
        if let Some(mut own) = own
            && own.empty(KEPT_BYTES_MAX)
        {
            T::kept(|kept| kept.push(own));
        }
    }
}

impl<T: Keep> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(OWN)
    }
}

impl<T: Keep> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(OWN)
    }
}
