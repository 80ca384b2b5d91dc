//! A lock of many readers or one writer with the number of its last change, in one word (decision
//! 006). Every operation only tries and never waits. A thread that is refused registers in a
//! [`WaitList`](crate::WaitList) of its own and tries again.
//!
//! ```text
//!  63            8 7        3 2          1               0
//! +---------------+----------+----------+---------------+-----------+
//! | stamp         | holders  | marked   | writer waits  | exclusive |
//! +---------------+----------+----------+---------------+-----------+
//! ```
//!
//! | transition | function |
//! |---|---|
//! | nobody holds it: exclusive; "writer waits" ends | [`StampLock::try_exclusive`] |
//! | shared: "writer waits" begins | the same, refused |
//! | nobody, or up to 30 others, share it: one more | [`StampLock::try_shared`] |
//! | exclusive: a larger stamp | [`StampLock::set`] |
//! | exclusive: nobody | [`StampLock::release_exclusive`] |
//! | shared: one less | [`StampLock::release_shared`] |
//! | any: marked, or not | [`StampLock::mark`], [`StampLock::unmark`] |
//!
//! # The ordering argument
//!
//! A transaction reads a value under a stamp, takes the lock shared, sees that the stamp is the
//! same, takes its place in an order (the log), and only then releases the share. A thread that
//! changes the value takes the lock exclusively before it takes its place, and sets the stamp
//! before it releases the lock. Both are changes of one word. If the share comes first, the writer
//! takes its place after the release (its Acquire follows the Release), and so after the reader. If
//! the change comes first, the reader is refused, or sees the new stamp. So a reader always has its
//! place before the writer that overwrites its value.
//!
//! Sharers could keep a writer away for ever. So a writer that they refuse sets "writer waits" in
//! the word, and no share is given until the writer has taken the lock. But that writer may have
//! given up: a reader that was refused often enough while nobody held the lock takes a share
//! anyway, clears "writer waits", and wakes all waiters.
//!
//! The mark tells whoever takes the lock exclusively to look for more elsewhere, under locks of
//! other kinds. It is a bit of the same word: of a mark and an exclusive taking one comes first, so
//! either the writer sees the mark, or whoever has set it sees, and can wait for, the writer.

use crate::atomic::{AtomicU64, Ordering, fence};

const EXCLUSIVE: u64 = 1;
const WRITER_WAITS: u64 = 1 << 1;
const MARKED: u64 = 1 << 2;
const SHARED_SHIFT: u32 = 3;
const SHARED_ONE: u64 = 1 << SHARED_SHIFT;
const SHARED: u64 = (1 << STAMP_SHIFT) - SHARED_ONE;
const STAMP_SHIFT: u32 = 8;
/// Maximum stamp.
pub const STAMP_MAX: u64 = u64::MAX >> STAMP_SHIFT;

const _: () = assert!(EXCLUSIVE | WRITER_WAITS | MARKED | SHARED == (1 << STAMP_SHIFT) - 1);

/// Why a share was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The lock is held: its release wakes waiters.
    Held,
    /// Nobody holds the lock, but a writer waits for it: the caller tries again in a moment, since
    /// nobody wakes it.
    WriterWaits,
}

/// The lock and its stamp.
#[derive(Debug, Default)]
pub struct StampLock(AtomicU64);

impl StampLock {
    /// Makes a free lock with stamp 0.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the stamp, which a reader remembers before it reads; None while a writer holds the
    /// lock.
    pub fn stamp(&self) -> Option<u64> {
        // Acquire: pairs with the Release in release_exclusive, so the reader sees the writer's
        // changes.
        let word = self.0.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(word >> STAMP_SHIFT)
    }

    /// Returns whether the stamp is still `stamp` and no writer holds the lock.
    pub fn is_unchanged(&self, stamp: u64) -> bool {
        // Acquire: the reads that the stamp covers come before this load.
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        word & EXCLUSIVE == 0 && word >> STAMP_SHIFT == stamp
    }

    /// Returns the stamp. The caller holds the lock.
    pub fn held_stamp(&self) -> u64 {
        // Relaxed: the holder has acquired the word.
        self.0.load(Ordering::Relaxed) >> STAMP_SHIFT
    }

    /// Returns whether the stamp is still `stamp`. The caller holds the lock, or knows that no
    /// holder has taken its place in the order without having set its stamp.
    pub fn has_stamp(&self, stamp: u64) -> bool {
        // Relaxed: the holder has acquired the word.
        self.0.load(Ordering::Relaxed) >> STAMP_SHIFT == stamp
    }

    /// Returns whether a writer holds the lock.
    pub fn is_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Returns whether somebody shares the lock.
    pub fn is_shared(&self) -> bool {
        self.0.load(Ordering::Relaxed) & SHARED != 0
    }

    /// Marks the lock, whoever holds it.
    pub fn mark(&self) {
        // AcqRel: pairs with the Acquire of later writers, and with the Releases of earlier ones.
        self.0.fetch_or(MARKED, Ordering::AcqRel);
    }

    /// Takes the mark away.
    pub fn unmark(&self) {
        self.0.fetch_and(!MARKED, Ordering::Release);
    }

    /// Returns whether no writer holds the lock. If so, what the last one has changed can be seen.
    pub fn has_no_writer(&self) -> bool {
        // Acquire: pairs with the Release in release_exclusive.
        self.0.load(Ordering::Acquire) & EXCLUSIVE == 0
    }

    /// Tries to take the lock exclusively: returns whether it is marked. If sharers prevent that,
    /// sets "writer waits".
    ///
    /// # Errors
    /// [`Refused::Held`].
    #[inline]
    pub fn try_exclusive(&self) -> Result<bool, Refused> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & EXCLUSIVE != 0 {
                return Err(Refused::Held);
            }
            let refused = seen & SHARED != 0;
            let new = match refused {
                true => seen | WRITER_WAITS,
                false => (seen & !WRITER_WAITS) | EXCLUSIVE,
            };
            if new == seen {
                return Err(Refused::Held);
            }
            // Acquire: pairs with the Releases of both kinds of holder.
            let swap =
                self.0
                    .compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Relaxed);
            match swap {
                Ok(_) if refused => return Err(Refused::Held),
                Ok(_) => return Ok(seen & MARKED != 0),
                Err(now) => seen = now,
            }
        }
    }

    /// Tries to take a share. With `gives_way`, a waiting writer goes first. Without it, a caller
    /// that gets a share has to wake all waiters of the lock.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn try_shared(&self, gives_way: bool) -> Result<(), Refused> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let waits = seen & WRITER_WAITS != 0;
            if seen & EXCLUSIVE != 0 || seen & SHARED == SHARED || waits && seen & SHARED != 0 {
                return Err(Refused::Held);
            }
            if waits && gives_way {
                return Err(Refused::WriterWaits);
            }
            let new = (seen & !WRITER_WAITS) + SHARED_ONE;
            // Acquire: pairs with the Release in release_exclusive.
            let swap =
                self.0
                    .compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Relaxed);
            match swap {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Raises the stamp. The caller holds the lock exclusively, or nobody else changes stamps.
    ///
    /// # Panics
    /// When `stamp` is beyond [`STAMP_MAX`].
    pub fn set(&self, stamp: u64) {
        assert!(stamp <= STAMP_MAX, "a stamp of more than 56 bits");
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            let low = old & ((1 << STAMP_SHIFT) - 1);
            let new = (old >> STAMP_SHIFT).max(stamp) << STAMP_SHIFT | low;
            // Release: pairs with the Acquire in stamp.
            match self
                .0
                .compare_exchange(old, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Releases the exclusive lock. The caller wakes all waiters.
    ///
    /// # Panics
    /// When nobody held the lock exclusively.
    pub fn release_exclusive(&self) {
        // Release: pairs with the Acquires in stamp and the tries.
        let old = self.0.fetch_and(!EXCLUSIVE, Ordering::Release);
        assert!(old & EXCLUSIVE != 0, "a lock that nobody held was released");
        assert!(old & SHARED == 0, "shared and exclusive at once");
    }

    /// Releases a share. Returns true if the caller has to wake all waiters.
    ///
    /// # Panics
    /// When nobody shared the lock.
    #[must_use]
    pub fn release_shared(&self) -> bool {
        // Release: pairs with the Acquire in try_exclusive.
        let old = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        assert!(old & SHARED != 0, "a share that nobody had was given back");
        assert!(old & EXCLUSIVE == 0, "shared and exclusive at once");
        old & SHARED == SHARED || old & SHARED == SHARED_ONE && old & WRITER_WAITS != 0
    }

    /// Returns true if a writer that was refused, and has registered since, may try again.
    /// Otherwise it will be woken.
    pub fn looks_free(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & EXCLUSIVE != 0 {
                return false;
            }
            if seen & SHARED == 0 {
                return true;
            }
            // "Writer waits" may have been cleared, and without it sharers wake nobody.
            let new = seen | WRITER_WAITS;
            match self
                .0
                .compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
    }

    /// The same for a reader that was refused a share.
    pub fn looks_shareable(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let is_kept = word & WRITER_WAITS != 0 && word & SHARED != 0;
        word & EXCLUSIVE == 0 && word & SHARED != SHARED && !is_kept
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers_hold_it() {
        let lock = StampLock::new();
        assert_eq!(lock.try_exclusive(), Ok(false));
        assert_eq!(lock.stamp(), None);
        assert!(!lock.is_unchanged(0), "a writer holds the lock");
        assert!(lock.has_stamp(0));
        assert_eq!(lock.try_exclusive(), Err(Refused::Held));
        assert_eq!(lock.try_shared(true), Err(Refused::Held));
        lock.set(7);
        lock.set(5);
        lock.release_exclusive();
        assert_eq!(lock.stamp(), Some(7), "stamps never go back");
        for _ in 0..31 {
            lock.try_shared(true).unwrap();
        }
        assert_eq!(
            lock.try_shared(true),
            Err(Refused::Held),
            "the 32nd reader waits"
        );
        assert!(!lock.looks_shareable());
        assert!(lock.is_unchanged(7), "readers change nothing");
        assert!(lock.release_shared(), "the 32nd reader is woken");
        assert!((0..29).all(|_| !lock.release_shared()));
        assert!(!lock.release_shared(), "no thread waits");
        assert_eq!(lock.try_exclusive(), Ok(false));
    }

    #[test]
    fn a_writer_that_waits_is_let_in_before_more_readers() {
        let lock = StampLock::new();
        lock.try_shared(true).unwrap();
        assert_eq!(lock.try_exclusive(), Err(Refused::Held));
        assert_eq!(lock.try_shared(true), Err(Refused::Held));
        assert!(lock.release_shared(), "the writer is woken");
        assert_eq!(lock.try_shared(true), Err(Refused::WriterWaits));
        assert_eq!(lock.try_exclusive(), Ok(false));
        lock.release_exclusive();
        lock.try_shared(true).expect("the writer no longer waits");
    }

    #[test]
    fn a_writer_that_has_given_up_keeps_nobody_away() {
        let lock = StampLock::new();
        lock.try_shared(true).unwrap();
        assert_eq!(lock.try_exclusive(), Err(Refused::Held));
        assert!(lock.release_shared());
        assert_eq!(lock.try_shared(true), Err(Refused::WriterWaits));
        lock.try_shared(false)
            .expect("a reader may ignore the writer that waits");
        lock.try_shared(true)
            .expect("the mark of the writer is gone");
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-sync --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use crate::{Arc, WaitList, park, thread, thread_waker};

    #[derive(Default)]
    struct Place {
        lock: StampLock,
        waiters: WaitList,
        /// The order of operations. In the log a mutex determines it; here it is a counter.
        order: AtomicU64,
        /// What the lock guards; changed by a load and a store.
        value: AtomicU64,
    }

    impl Place {
        fn next(&self) -> u64 {
            self.order.fetch_add(1, Ordering::Relaxed) + 1
        }

        /// Reads the value and takes a place in the order. Returns both.
        fn read(&self) -> Option<(u64, u64)> {
            let stamp = self.lock.stamp()?;
            self.lock.try_shared(true).ok()?;
            let same = self.lock.has_stamp(stamp);
            let place = same.then(|| self.next());
            if self.lock.release_shared() {
                self.waiters.notify_all();
            }
            place.map(|place| (stamp, place))
        }

        fn write(&self) -> Option<u64> {
            self.lock.try_exclusive().ok().map(|_| {
                let place = self.next();
                self.lock.set(place);
                self.lock.release_exclusive();
                self.waiters.notify_all();
                place
            })
        }

        fn write_for_sure(&self) -> u64 {
            loop {
                if let Some(place) = self.write() {
                    return place;
                }
                self.waiters.register(&thread_waker());
                if !self.lock.looks_free() {
                    park();
                }
            }
        }
    }

    fn model() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.max_branches = 100_000;
        model
    }

    /// A reader's place is before the writer that overwrites the value it has read, and after the
    /// writer of that value.
    #[test]
    fn readers_stand_between_the_writers_around_them() {
        model().check(|| {
            let place = Arc::new(Place::default());
            let reader = thread::spawn({
                let place = place.clone();
                move || place.read()
            });
            let writes: Vec<u64> = (0..2).filter_map(|_| place.write()).collect();
            if let Some((read, at)) = reader.join().unwrap() {
                let newest = writes.iter().rev().find(|write| **write < at);
                assert_eq!(read, newest.copied().unwrap_or(0), "{writes:?}, {at}");
            }
        });
    }

    /// Whoever has marked the lock, and has seen it without a writer since, is alone with what the
    /// lock guards: a writer that sees the mark leaves it alone.
    #[test]
    fn nobody_writes_what_was_marked() {
        model().check(|| {
            let place = Arc::new(Place::default());
            let writer = thread::spawn({
                let place = place.clone();
                move || {
                    for _ in 0..2 {
                        if let Ok(is_marked) = place.lock.try_exclusive() {
                            if !is_marked {
                                let value = place.value.load(Ordering::Relaxed);
                                place.value.store(value + 1, Ordering::Relaxed);
                            }
                            place.lock.release_exclusive();
                        }
                    }
                }
            });
            place.lock.mark();
            while !place.lock.has_no_writer() {
                thread::yield_now();
            }
            let value = place.value.load(Ordering::Relaxed);
            place.value.store(value + 10, Ordering::Relaxed);
            place.lock.unmark();
            writer.join().unwrap();
            let value = place.value.load(Ordering::Relaxed);
            assert!((10..=12).contains(&value), "{value}: a change was lost");
        });
    }

    /// A writer that readers have refused is woken, even if one of the readers does not give way.
    #[test]
    fn a_writer_that_was_refused_is_woken() {
        model().check(|| {
            let place = Arc::new(Place::default());
            let reader = thread::spawn({
                let place = place.clone();
                move || {
                    for _ in 0..2 {
                        if place.lock.try_shared(false).is_ok() {
                            // The reader may have cleared the mark "writer waits".
                            place.waiters.notify_all();
                            if place.lock.release_shared() {
                                place.waiters.notify_all();
                            }
                        }
                    }
                }
            });
            assert_eq!(place.write_for_sure(), 1);
            reader.join().unwrap();
        });
    }
}
