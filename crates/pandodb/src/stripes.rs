//! Striped key locks, each with the LSN of the last commit that wrote one of its keys.
//!
//! A stripe is one word: `LSN << 1 | locked`. A read-modify-write remembers the stamp it read
//! before the value; its commit takes the lock and compares. Locks are taken in ascending order,
//! tried and never waited for while another is held.

use pando_format::{Lsn, TreeId};
use pando_sync::WaitList;
use pando_sync::atomic::{AtomicU64, Ordering, fence};
use pando_sync::audit;
use pando_sync::held::{Held, Kind};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

const LOCKED: u64 = 1;
const STRIPES: usize = 1 << 14;
const WAIT_LISTS: usize = 64;

/// Index of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StripeIndex(u32);

/// LSN of the last commit on a stripe, as a reader saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) stripe: StripeIndex,
    lsn: u64,
}

/// All stripes of one engine.
#[derive(Debug)]
pub(crate) struct Stripes {
    words: Box<[AtomicU64]>,
    waiters: Box<[WaitList]>,
    secrets: RapidSecrets,
}

impl Stripes {
    pub(crate) fn new(seed: u64) -> Self {
        let words: Box<[_]> = (0..STRIPES).map(|_| AtomicU64::new(0)).collect();
        audit::name("stripes", &*words);
        Self {
            words,
            waiters: (0..WAIT_LISTS).map(|_| WaitList::new()).collect(),
            secrets: RapidSecrets::seed(seed),
        }
    }

    /// The stripe of a key.
    pub(crate) fn of(&self, tree: TreeId, key: &[u8]) -> StripeIndex {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        // Odd: trees with keys in common have them on different stripes.
        let of_tree = u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        StripeIndex((hash.wrapping_add(of_tree) % STRIPES as u64) as u32)
    }

    fn word(&self, stripe: StripeIndex) -> &AtomicU64 {
        &self.words[stripe.0 as usize]
    }

    /// The stamp to remember before the key is read; None while a commit holds the stripe.
    pub(crate) fn stamp(&self, stripe: StripeIndex) -> Option<Stamp> {
        // Acquire: pairs with the Release in unlock: what the commit wrote is seen.
        let word = self.word(stripe).load(Ordering::Acquire);
        (word & LOCKED == 0).then_some(Stamp {
            stripe,
            lsn: word >> 1,
        })
    }

    /// True if no commit has written the stripe since, and none is about to.
    pub(crate) fn unchanged(&self, stamp: Stamp) -> bool {
        // Acquire: the reads that the stamp covers come before this look.
        fence(Ordering::Acquire);
        self.word(stamp.stripe).load(Ordering::Relaxed) == stamp.lsn << 1
    }

    /// As [`Stripes::unchanged`], for a stripe that the caller has locked.
    pub(crate) fn unchanged_locked(&self, stamp: Stamp) -> bool {
        self.word(stamp.stripe).load(Ordering::Relaxed) == stamp.lsn << 1 | LOCKED
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self, stripe: StripeIndex) -> bool {
        // Acquire: pairs with the Release in unlock.
        self.word(stripe).fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    /// Stamps a stripe; the caller holds its lock, or closed the gate.
    pub(crate) fn stamp_with(&self, stripe: StripeIndex, lsn: Lsn) {
        let word = self.word(stripe);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let new = (lsn.0 << 1).max(old & !LOCKED) | old & LOCKED;
            // Release: pairs with the Acquire in stamp.
            match word.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => old = seen,
            }
        }
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self, stripe: StripeIndex) {
        // Release: pairs with the Acquire in try_lock and stamp.
        let old = self.word(stripe).fetch_and(!LOCKED, Ordering::Release);
        assert!(old & LOCKED != 0, "a stripe that nobody holds was unlocked");
        self.waiters_of(stripe).notify_all();
    }

    /// Wakers of those that wait for the stripe, and for others that share the list.
    pub(crate) fn waiters_of(&self, stripe: StripeIndex) -> &WaitList {
        &self.waiters[stripe.0 as usize % WAIT_LISTS]
    }
}

/// Locks of the stripes of one commit; unlocked on drop.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    stripes: &'a Stripes,
    held: &'a [StripeIndex],
    _held: Held,
}

impl Stripes {
    /// Takes all of `wanted`, which is ascending and free of repetitions, or none.
    ///
    /// # Errors
    /// The first one that is taken.
    pub(crate) fn try_lock_all<'a>(
        &'a self,
        wanted: &'a [StripeIndex],
    ) -> Result<Locked<'a>, StripeIndex> {
        debug_assert!(wanted.is_sorted_by(|a, b| a < b), "ascending");
        for (count, stripe) in wanted.iter().enumerate() {
            if !self.try_lock(*stripe) {
                for taken in &wanted[..count] {
                    self.unlock(*taken);
                }
                return Err(*stripe);
            }
        }
        Ok(Locked {
            stripes: self,
            held: wanted,
            _held: Held::new(Kind::Stripes),
        })
    }
}

impl Locked<'_> {
    /// True if the stripe is among those held.
    pub(crate) fn holds(&self, stripe: StripeIndex) -> bool {
        self.held.binary_search(&stripe).is_ok()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        for stripe in self.held {
            self.stripes.unlock(*stripe);
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_commit_between_read_and_lock_is_seen() {
        let stripes = Stripes::new(1);
        let stripe = stripes.of(TreeId(16), b"key");
        let stamp = stripes.stamp(stripe).unwrap();
        assert!(stripes.unchanged(stamp));
        let held = [stripe];
        let locked = stripes.try_lock_all(&held).unwrap();
        assert!(locked.holds(stripe));
        assert_eq!(stripes.stamp(stripe), None);
        assert!(!stripes.unchanged(stamp), "somebody is about to write");
        assert!(stripes.unchanged_locked(stamp));
        stripes.stamp_with(stripe, Lsn(7));
        drop(locked);
        assert!(!stripes.unchanged(stamp));
        assert!(
            stripes
                .stamp(stripe)
                .is_some_and(|stamp| stripes.unchanged(stamp))
        );
    }

    #[test]
    fn a_taken_stripe_leaves_none_locked() {
        let stripes = Stripes::new(1);
        let (low, high) = (StripeIndex(1), StripeIndex(2));
        assert!(stripes.try_lock(high));
        assert_eq!(stripes.try_lock_all(&[low, high]).err(), Some(high));
        assert!(stripes.try_lock(low), "given back");
    }
}
