//! Working memory of writes and transactions, which the thread keeps from one to the next, so that
//! a put of one key, or a small transaction, allocates nothing of its own.
//!
//! The kept memory is empty: it names no leaf and no store. A set keeps the handle of the table
//! that it was used for last, but nothing of its content.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::commit::put_scratch::PutScratch;
use crate::commit::scratch::CommitScratch;
use crate::read::buffers::KEPT_BYTES_MAX;
use crate::writes::read_set::ReadSet;
use crate::writes::set::WriteSet;

/// Most buffers of a kind that a thread keeps.
const KEPT_MAX: usize = 4;

/// Why a [`TakenBuffer`] always has its value.
const OWN: &str = "it is given back on drop only";

/// Memory that can be emptied and kept.
pub(crate) trait Keep: Default + 'static {
    /// Empties it. Returns false if it must not be kept: it is larger than `bytes_max`, or
    /// something in it is unfinished.
    fn empty(&mut self, bytes_max: usize) -> bool;

    /// Calls `f` with the places for unused ones of this thread; None when the thread is ending.
    /// They are boxed: each has hundreds of bytes, which would be copied whenever one is taken or
    /// given back.
    fn kept<R>(f: impl FnOnce(&Kept<Self>) -> R) -> Option<R>;
}

/// The unused ones of a thread. Most often there is one at most, in the first place.
type Kept<T> = [Cell<Option<Box<T>>>; KEPT_MAX];

/// Keeps empty ones by thread.
macro_rules! keep_by_thread {
    ($name:ident, $kept:ty) => {
        thread_local! {
            static $name: Kept<$kept> = const { [const { Cell::new(None) }; KEPT_MAX] };
        }

        impl Keep for $kept {
            #[inline]
            fn empty(&mut self, bytes_max: usize) -> bool {
                self.empty(bytes_max)
            }

            #[inline]
            fn kept<R>(f: impl FnOnce(&Kept<Self>) -> R) -> Option<R> {
                $name.try_with(f).ok()
            }
        }
    };
}

keep_by_thread!(SETS, WriteSet);
keep_by_thread!(SCRATCHES, CommitScratch);
keep_by_thread!(PUTS, PutScratch);
keep_by_thread!(READS, ReadSet);

/// Memory taken for one call or one transaction; given back to the thread on drop.
#[derive(Debug)]
pub(crate) struct TakenBuffer<T: Keep>(Option<Box<T>>);

impl<T: Keep> TakenBuffer<T> {
    /// Takes one of this thread, or makes one.
    pub(crate) fn take() -> Self {
        let kept = T::kept(|kept| kept.iter().find_map(Cell::take)).flatten();
        Self(Some(kept.unwrap_or_default()))
    }
}

impl<T: Keep> Default for TakenBuffer<T> {
    fn default() -> Self {
        Self::take()
    }
}

impl<T: Keep> Drop for TakenBuffer<T> {
    fn drop(&mut self) {
        let own = self.0.take();
        if let Some(mut own) = own
            && own.empty(KEPT_BYTES_MAX)
        {
            T::kept(|kept| {
                let mut given = Some(own);
                for place in kept {
                    // What was there goes on to the next place, and what finds none is dropped.
                    given = place.replace(given);
                    if given.is_none() {
                        break;
                    }
                }
            });
        }
    }
}

impl<T: Keep> Deref for TakenBuffer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(OWN)
    }
}

impl<T: Keep> DerefMut for TakenBuffer<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(OWN)
    }
}
