//! The latch of a frame: version, exclusive and shared modes in one word (decision 008).
//!
//! ```text
//! bit 63      53 52                                                  1   0
//!     +---------+------------------------------------------------------+---+
//!     | shared  |                      version                         | X |
//!     +---------+------------------------------------------------------+---+
//! ```
//! An even version means free or shared, an odd one means held exclusively. The version grows by
//! two with every exclusive release and with nothing else. It is never reset: a frame keeps it when
//! it is reused.
//!
//! | transition            | function              | orders                                       |
//! |-----------------------|-----------------------|----------------------------------------------|
//! | read begins           | `read`                | Acquire: later reads come after              |
//! | read is checked       | `validate`            | `fence(Acquire)`: earlier reads come before  |
//! | free -> exclusive     | `try_exclusive`       | Acquire, then `fence(Release)`               |
//! | exclusive -> free     | `release_exclusive`   | Release: writes come before                  |
//! | free, shared -> shared| `try_shared`          | Acquire                                      |
//! | shared -> fewer       | `release_shared`      | Release                                      |
//!
//! # The ordering argument
//!
//! A reader loads version v (Acquire), reads words (relaxed), fences (Acquire) and loads v again.
//! A writer takes the latch (v + 1), fences (Release), writes words (relaxed) and stores v + 2
//! (Release). If one of the reader's word loads sees a value of the writer, then the writer's
//! `fence(Release)` after its CAS and the reader's `fence(Acquire)` after that load synchronise,
//! so the reader's second load sees v + 1 or later, and the check fails. If the reader's first
//! load saw v + 2, it synchronises with the release, so all words of the writer are seen.

use pando_sync::atomic::{AtomicU64, Ordering, fence};

const EXCLUSIVE: u64 = 1;
const SHARED_SHIFT: u32 = 53;
const SHARED_ONE: u64 = 1 << SHARED_SHIFT;
const VERSION_MASK: u64 = SHARED_ONE - 1;
const SHARED_MAX: u64 = (1 << (64 - SHARED_SHIFT)) - 1;

/// A latch that optimistic readers validate without writing.
#[derive(Debug, Default)]
pub struct Latch(AtomicU64);

impl Latch {
    /// Returns a free latch of version 0.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the version, or None while the latch is held exclusively.
    #[inline]
    pub fn read(&self) -> Option<u64> {
        // Acquire: pairs with the Release in release_exclusive.
        let version = self.0.load(Ordering::Acquire) & VERSION_MASK;
        (version & EXCLUSIVE == 0).then_some(version)
    }

    /// Returns whether the latch is not held exclusively, and was not since `version` was read.
    #[inline]
    pub fn validate(&self, version: u64) -> bool {
        // Acquire: pairs with the fence(Release) in try_exclusive; see the module's argument.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) & VERSION_MASK == version
    }

    /// Takes the latch exclusively if its version is still `version` and nobody shares it.
    #[inline]
    pub fn try_exclusive(&self, version: u64) -> bool {
        debug_assert!(version & EXCLUSIVE == 0);
        // Acquire: pairs with the Release of the last release. Later accesses stay after it.
        let taken = self.0.compare_exchange(
            version,
            version | EXCLUSIVE,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return false;
        }
        // Release: pairs with the fence(Acquire) in validate; see the module's argument.
        fence(Ordering::Release);
        true
    }

    /// Ends the exclusive hold that began at `version`.
    #[inline]
    pub fn release_exclusive(&self, version: u64) {
        let old = self.0.load(Ordering::Relaxed);
        assert_eq!(
            old,
            version | EXCLUSIVE,
            "released by somebody who does not hold the latch"
        );
        let next = (version + 2) & VERSION_MASK;
        // Release: pairs with the Acquire in read, try_exclusive and try_shared.
        self.0.store(next, Ordering::Release);
    }

    /// Tries once to take a share. Returns the version, or None if the latch is held exclusively,
    /// or changes at the same time.
    #[inline]
    pub fn try_shared(&self) -> Option<u64> {
        let old = self.0.load(Ordering::Relaxed);
        if old & EXCLUSIVE != 0 || old >> SHARED_SHIFT == SHARED_MAX {
            return None;
        }
        // Acquire: pairs with the Release in release_exclusive.
        self.0
            .compare_exchange(old, old + SHARED_ONE, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|old| old & VERSION_MASK)
    }

    /// Gives a share back.
    #[inline]
    pub fn release_shared(&self) {
        // Release: pairs with the Acquire in try_exclusive: all reads under the share happen before
        // the next writer writes.
        let old = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        assert!(
            old >> SHARED_SHIFT > 0,
            "a share that nobody took was given back"
        );
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_version_grows_by_two_with_each_exclusive_release_only() {
        let latch = Latch::new();
        assert_eq!(latch.read(), Some(0));
        assert_eq!(latch.try_shared(), Some(0));
        assert!(!latch.try_exclusive(0), "shared");
        latch.release_shared();
        assert!(latch.validate(0));
        assert!(latch.try_exclusive(0));
        assert_eq!(latch.read(), None);
        assert_eq!(latch.try_shared(), None);
        assert!(!latch.validate(0));
        latch.release_exclusive(0);
        assert_eq!(latch.read(), Some(2));
        assert!(!latch.try_exclusive(0), "an old version");
    }

    #[test]
    #[should_panic(expected = "nobody took")]
    fn a_share_is_given_back_once() {
        Latch::new().release_shared();
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use pando_sync::{Arc, thread};

    struct Frame {
        latch: Latch,
        words: [AtomicU64; 2],
    }

    fn frame() -> Arc<Frame> {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Frame {
            latch: Latch::new(),
            words,
        })
    }

    fn write(frame: &Frame, value: u64) {
        while let Some(version) = frame.latch.read() {
            if frame.latch.try_exclusive(version) {
                for word in &frame.words {
                    word.store(value, Ordering::Relaxed);
                }
                frame.latch.release_exclusive(version);
                return;
            }
        }
    }

    /// Everything that an optimistic reader has validated belongs to one state.
    #[test]
    fn a_validated_read_is_never_torn() {
        loom::model(|| {
            let frame = frame();
            let writer = thread::spawn({
                let frame = frame.clone();
                move || write(&frame, 1)
            });
            if let Some(version) = frame.latch.read() {
                let first = frame.words[0].load(Ordering::Relaxed);
                let second = frame.words[1].load(Ordering::Relaxed);
                if frame.latch.validate(version) {
                    assert_eq!(first, second);
                }
            }
            writer.join().unwrap();
        });
    }

    /// Two writers exclude each other, and the second sees what the first has written.
    #[test]
    fn exclusive_holds_follow_each_other() {
        loom::model(|| {
            let frame = frame();
            let add = |frame: &Frame| {
                if let Some(version) = frame.latch.read()
                    && frame.latch.try_exclusive(version)
                {
                    let value = frame.words[0].load(Ordering::Relaxed);
                    frame.words[0].store(value + 1, Ordering::Relaxed);
                    frame.latch.release_exclusive(version);
                    return 1;
                }
                0
            };
            let other = thread::spawn({
                let frame = frame.clone();
                move || add(&frame)
            });
            let mine = add(&frame);
            let both = mine + other.join().unwrap();
            assert_eq!(frame.words[0].load(Ordering::Relaxed), both);
            assert_eq!(frame.latch.read(), Some(2 * both));
        });
    }

    /// No thread writes while a reader holds the latch shared.
    #[test]
    fn a_share_keeps_writers_out() {
        loom::model(|| {
            let frame = frame();
            let writer = thread::spawn({
                let frame = frame.clone();
                move || {
                    if let Some(version) = frame.latch.read()
                        && frame.latch.try_exclusive(version)
                    {
                        frame.words[0].store(1, Ordering::Relaxed);
                        frame.words[1].store(1, Ordering::Relaxed);
                        frame.latch.release_exclusive(version);
                    }
                }
            });
            if frame.latch.try_shared().is_some() {
                let first = frame.words[0].load(Ordering::Relaxed);
                assert_eq!(first, frame.words[1].load(Ordering::Relaxed));
                frame.latch.release_shared();
            }
            writer.join().unwrap();
        });
    }
}
