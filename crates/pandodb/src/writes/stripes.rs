//! Striped key locks, each with the LSN of the last commit that wrote one of its
//! keys (decision 006).
//!
//! A stripe is a [`StampLock`]. A transaction remembers the stamps of what it reads. Its commit
//! takes exclusive locks on the stripes of the keys that it writes, and holds them from before it
//! appends its record until after its last change to a page. It takes shared locks on the stripes
//! of the keys that it has read, and holds them while it compares stamps and takes its LSN. So
//! whoever has read a value has a smaller LSN than whoever overwrites it: the order of the log is a
//! serial order of all batches, and the batches up to any LSN together make the state of a serial
//! execution.
//!
//! A commit tries all of its stripes in ascending order. If it is refused one, it gives all of them
//! back before it waits for that one.

use pando_format::cast::u32_of;
use pando_format::{Lsn, TreeId};
use pando_sync::audit;
use pando_sync::held::{Held, Kind};
use pando_sync::stamp_lock::Refused;
use pando_sync::{StampLock, WaitList};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Number of stripes of plain trees, and of those of counted ones. A server that keeps elements of
/// collections as rows of counted trees writes very many of them, and they are to turn no stripe
/// of a key that somebody watches.
const STRIPES: usize = 1 << 14;
/// Number of wait lists; each serves several stripes.
const WAIT_LISTS: usize = 64;
/// LSNs are multiples of this: stamps leave out the low bits.
const LSN_STEP: u64 = 8;
/// How often a commit gives way to a writer that waits for a stripe which nobody holds: a few
/// pauses, so that the writer gets a processor.
const REFUSALS_MAX: u32 = 64;

/// Index of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StripeIndex(u32);

impl StripeIndex {
    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// LSN of the last commit on a stripe, as a reader saw it before it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// All keys whose hash leads to it share it.
    pub(crate) stripe: StripeIndex,
    stamp: u64,
}

impl Stamp {
    /// LSN of the last commit on the stripe.
    pub(crate) fn lsn(self) -> Lsn {
        Lsn(self.stamp * LSN_STEP)
    }
}

/// What a stripe is taken or waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StripeUse {
    /// A commit writes its keys.
    Write,
    /// A commit has read its keys.
    Share,
    /// A read needs its stamp.
    Read,
}

/// A stripe that a commit takes: its index, and in the lowest bit 0 for a write, 1 for a share. So
/// of two with the same stripe, the write sorts before the share; and numbers are sorted fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted(u32);

impl Wanted {
    /// A stripe to be held exclusively.
    #[inline]
    pub(crate) fn write(stripe: StripeIndex) -> Self {
        Self(stripe.0 << 1)
    }

    /// A stripe to be held shared.
    #[inline]
    pub(crate) fn share(stripe: StripeIndex) -> Self {
        Self(stripe.0 << 1 | 1)
    }

    #[inline]
    fn stripe(self) -> StripeIndex {
        StripeIndex(self.0 >> 1)
    }

    #[inline]
    fn is_write(self) -> bool {
        self.0 & 1 == 0
    }

    /// Fills `wanted` with what a commit that only reads takes for a second look.
    pub(crate) fn shares(stamps: &[Stamp], wanted: &mut Vec<Self>) {
        wanted.clear();
        wanted.extend(stamps.iter().map(|stamp| Self::share(stamp.stripe)));
        Self::arrange(wanted);
    }

    /// Sorts the stripes into the order in which a commit takes them, each stripe once.
    pub(crate) fn arrange(wanted: &mut Vec<Self>) {
        if wanted.len() < 2 {
            return;
        }
        wanted.sort_unstable();
        // Of two entries of one stripe the first is the write, and it stays.
        wanted.dedup_by_key(|wanted| wanted.stripe());
        debug_assert!(
            wanted.is_sorted_by(|a, b| a.stripe() < b.stripe()),
            "ascending, each once"
        );
    }
}

/// Why the stripes of a commit were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Somebody holds this stripe.
    Held(StripeIndex, StripeUse),
    /// A writer is about to take a stripe: try again in a moment.
    WriterWaits,
}

/// All stripes of one engine.
#[derive(Debug)]
pub(crate) struct Stripes {
    /// Indexed by [`StripeIndex`].
    locks: Box<[StampLock]>,
    /// Each list serves several stripes.
    waiters: Box<[WaitList]>,
    secrets: RapidSecrets,
}

impl Stripes {
    /// Returns unlocked stripes without commits, which hash keys with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let locks: Box<[_]> = (0..2 * STRIPES).map(|_| StampLock::new()).collect();
        audit::name("stripes", &*locks);
        Self {
            locks,
            waiters: (0..WAIT_LISTS).map(|_| WaitList::new()).collect(),
            secrets: RapidSecrets::seed(seed),
        }
    }

    /// Returns the stripe of a key of a tree.
    pub(crate) fn of(&self, tree: TreeId, key: &[u8]) -> StripeIndex {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        // Odd, so that trees with the same keys have them on different stripes.
        let of_tree = u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let of_kind = hash.wrapping_add(of_tree) % STRIPES as u64;
        StripeIndex(u32_of(of_kind) + u32::from(tree.is_counted()) * u32_of(STRIPES as u64))
    }

    /// Returns whether the stripe is one of counted trees.
    pub(crate) fn is_of_counted(stripe: StripeIndex) -> bool {
        stripe.0 as usize >= STRIPES
    }

    fn lock(&self, stripe: StripeIndex) -> &StampLock {
        &self.locks[stripe.0 as usize]
    }

    /// Returns the stamp to remember before the key is read; None while a commit writes the stripe.
    pub(crate) fn stamp(&self, stripe: StripeIndex) -> Option<Stamp> {
        let stamp = self.lock(stripe).stamp();
        stamp.map(|stamp| Stamp { stripe, stamp })
    }

    /// Returns the stamp of a stripe that the caller holds.
    pub(crate) fn stamp_held(&self, stripe: StripeIndex) -> Stamp {
        let stamp = self.lock(stripe).held_stamp();
        Stamp { stripe, stamp }
    }

    /// Returns true if no commit has written the stripe since `stamp` was taken, and none is about
    /// to.
    pub(crate) fn unchanged(&self, stamp: Stamp) -> bool {
        self.lock(stamp.stripe).is_unchanged(stamp.stamp)
    }

    /// Returns true if no commit has written the stripe since `stamp` was taken. The caller holds
    /// the stripe, or has closed the gate.
    pub(crate) fn unchanged_held(&self, stamp: Stamp) -> bool {
        self.lock(stamp.stripe).has_stamp(stamp.stamp)
    }

    /// Stamps a stripe, which the caller holds exclusively unless it has closed the gate.
    pub(crate) fn stamp_with(&self, stripe: StripeIndex, lsn: Lsn) {
        assert!(lsn.0.is_multiple_of(LSN_STEP), "{lsn} ends no record");
        let lock = self.lock(stripe);
        debug_assert!(lock.held_stamp() <= lsn.0 / LSN_STEP, "stamps only grow");
        lock.set(lsn.0 / LSN_STEP);
    }

    /// Marks the stripe: a key of it is locked, or about to be.
    pub(crate) fn mark(&self, stripe: StripeIndex) {
        self.lock(stripe).mark();
    }

    /// Takes the mark away.
    pub(crate) fn unmark(&self, stripe: StripeIndex) {
        self.lock(stripe).unmark();
    }

    /// Returns whether no commit writes the stripe.
    pub(crate) fn has_no_writer(&self, stripe: StripeIndex) -> bool {
        self.lock(stripe).has_no_writer()
    }

    /// The wakers of those that wait for the stripe, or for others that share the list.
    pub(crate) fn waiters_of(&self, stripe: StripeIndex) -> &WaitList {
        &self.waiters[stripe.0 as usize % WAIT_LISTS]
    }

    /// For a caller that was refused and has registered since: returns true if trying again makes
    /// sense.
    pub(crate) fn looks_free(&self, stripe: StripeIndex, how: StripeUse) -> bool {
        let lock = self.lock(stripe);
        match how {
            StripeUse::Write => lock.looks_free(),
            StripeUse::Share => lock.looks_shareable(),
            StripeUse::Read => !lock.is_exclusive(),
        }
    }

    /// Takes one stripe. `gives_way`: a share gives way to a writer that waits. Returns whether it
    /// is to be written, and marked: somebody may have locked a key of it.
    fn try_take(&self, wanted: Wanted, gives_way: bool) -> Result<bool, NotTaken> {
        let stripe = wanted.stripe();
        let lock = self.lock(stripe);
        if wanted.is_write() {
            let taken = lock.try_exclusive();
            return taken.map_err(|_| NotTaken::Held(stripe, StripeUse::Write));
        }
        match lock.try_shared(gives_way) {
            Ok(()) if gives_way => Ok(false),
            Ok(()) => {
                // It passed a writer that waits, and that has to try again.
                self.waiters_of(stripe).notify_all();
                Ok(false)
            }
            Err(Refused::Held) => Err(NotTaken::Held(stripe, StripeUse::Share)),
            Err(Refused::WriterWaits) => Err(NotTaken::WriterWaits),
        }
    }

    /// Gives one stripe back, and wakes those that wait for it.
    fn give_back(&self, taken: Wanted) {
        let stripe = taken.stripe();
        let lock = self.lock(stripe);
        let somebody_waits = match taken.is_write() {
            true => {
                lock.release_exclusive();
                true
            }
            false => lock.release_shared(),
        };
        if somebody_waits {
            self.waiters_of(stripe).notify_all();
        }
    }
}

/// The stripes that one commit holds; given back on drop.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    stripes: &'a Stripes,
    held: &'a [Wanted],
    /// The stripes that were only read are given back already.
    shares_ended: bool,
    /// A key of a stripe that is to be written may be locked.
    is_marked: bool,
    _held: Held,
}

impl Stripes {
    /// Takes all of `wanted`, or none. `wanted` is ascending and has each stripe once. `refusals`
    /// counts how often one commit gave way to writers. Never blocks.
    ///
    /// # Errors
    /// The stripe that could not be taken, or the writer that comes first.
    pub(crate) fn try_lock_all<'a>(
        &'a self,
        wanted: &'a [Wanted],
        refusals: &mut u32,
    ) -> Result<Locked<'a>, NotTaken> {
        let ascending = |a: &Wanted, b: &Wanted| a.stripe() < b.stripe();
        debug_assert!(wanted.is_sorted_by(ascending), "ascending");
        let gives_way = *refusals < REFUSALS_MAX;
        let mut is_marked = false;
        for (count, one) in wanted.iter().enumerate() {
            match self.try_take(*one, gives_way) {
                Ok(marked) => is_marked |= marked,
                Err(refused) => {
                    for taken in &wanted[..count] {
                        self.give_back(*taken);
                    }
                    *refusals += u32::from(refused == NotTaken::WriterWaits);
                    return Err(refused);
                }
            }
        }
        *refusals = 0;
        Ok(Locked {
            stripes: self,
            held: wanted,
            shares_ended: false,
            is_marked,
            _held: Held::new(Kind::Stripes),
        })
    }
}

/// The only stripe that a commit of one write holds, exclusively; given back on drop.
#[derive(Debug)]
pub(crate) struct LockedOne<'a> {
    stripes: &'a Stripes,
    stripe: StripeIndex,
    is_marked: bool,
    _held: Held,
}

impl Stripes {
    /// Takes a stripe to write it; None if somebody holds it. Never blocks.
    #[inline]
    pub(crate) fn try_lock_one(&self, stripe: StripeIndex) -> Option<LockedOne<'_>> {
        let is_marked = self.lock(stripe).try_exclusive().ok()?;
        Some(LockedOne {
            stripes: self,
            stripe,
            is_marked,
            _held: Held::new(Kind::Stripes),
        })
    }
}

impl LockedOne<'_> {
    /// As [`Locked::is_marked`].
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// As [`Locked::stamp_with`].
    #[inline]
    pub(crate) fn stamp_with(&self, lsn: Lsn) {
        let before = self.stripes.stamp_held(self.stripe);
        assert!(before.lsn() < lsn, "{lsn} is not after {}", before.lsn());
        self.stripes.stamp_with(self.stripe, lsn);
    }
}

impl Drop for LockedOne<'_> {
    #[inline]
    fn drop(&mut self) {
        self.stripes.give_back(Wanted::write(self.stripe));
    }
}

impl Locked<'_> {
    /// Gives the shares back: the commit has its LSN, so what it has read may be overwritten.
    pub(crate) fn end_shares(&mut self) {
        assert!(!self.shares_ended, "shares end once");
        self.shares_ended = true;
        for share in self.held.iter().filter(|one| !one.is_write()) {
            self.stripes.give_back(*share);
        }
    }

    /// Returns whether keys that the commit writes may be locked by a transaction.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns true if the commit holds the stripe exclusively.
    pub(crate) fn writes(&self, stripe: StripeIndex) -> bool {
        self.held.binary_search(&Wanted::write(stripe)).is_ok()
            && self.stripes.lock(stripe).is_exclusive()
    }

    /// Stamps the stripes that the commit has written.
    pub(crate) fn stamp_with(&self, lsn: Lsn) {
        assert!(
            self.shares_ended,
            "it has an LSN, but still holds its shares"
        );
        for write in self.held.iter().filter(|one| one.is_write()) {
            let stripe = write.stripe();
            let before = self.stripes.stamp_held(stripe);
            assert!(before.lsn() < lsn, "{lsn} is not after {}", before.lsn());
            self.stripes.stamp_with(stripe, lsn);
        }
    }

    /// Returns true if `stamp` may be compared: its stripe is held.
    pub(crate) fn holds(&self, stamp: Stamp) -> bool {
        let place = |one: &Wanted| one.stripe().cmp(&stamp.stripe);
        !self.shares_ended && self.held.binary_search_by(place).is_ok()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        for one in self.held {
            if one.is_write() || !self.shares_ended {
                self.stripes.give_back(*one);
            }
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
        let held = [Wanted::write(stripe)];
        let mut locked = stripes.try_lock_all(&held, &mut 0).unwrap();
        assert!(locked.holds(stamp));
        assert_eq!(stripes.stamp(stripe), None);
        assert!(!stripes.unchanged(stamp), "a writer holds the stripe");
        assert!(stripes.unchanged_held(stamp));
        locked.end_shares();
        locked.stamp_with(Lsn(16));
        drop(locked);
        assert!(!stripes.unchanged(stamp));
        assert!(
            stripes
                .stamp(stripe)
                .is_some_and(|stamp| stripes.unchanged(stamp))
        );
    }

    /// If one stripe cannot be locked, the stripes locked before it are released.
    #[test]
    fn a_taken_stripe_leaves_none_locked() {
        let stripes = Stripes::new(1);
        let (low, high) = (StripeIndex(1), StripeIndex(2));
        let other = [Wanted::write(high)];
        let other = stripes.try_lock_all(&other, &mut 0).unwrap();
        for first in [Wanted::write(low), Wanted::share(low)] {
            let wanted = [first, Wanted::write(high)];
            let refused = stripes.try_lock_all(&wanted, &mut 0).err();
            assert_eq!(refused, Some(NotTaken::Held(high, StripeUse::Write)));
            assert!(stripes.looks_free(low, StripeUse::Write), "given back");
        }
        drop(other);
    }

    /// Shared stripes are released once the log record has its LSN, and written ones stay locked.
    #[test]
    fn what_was_read_is_kept_from_writers_until_the_record_has_its_lsn() {
        let stripes = Stripes::new(1);
        let (read, written) = (StripeIndex(1), StripeIndex(2));
        let mut wanted = vec![
            Wanted::share(written),
            Wanted::write(written),
            Wanted::share(read),
            Wanted::share(read),
        ];
        Wanted::arrange(&mut wanted);
        assert_eq!(wanted, [Wanted::share(read), Wanted::write(written)]);
        let mut locked = stripes.try_lock_all(&wanted, &mut 0).unwrap();
        let overwrite = [Wanted::write(read)];
        let refused = stripes.try_lock_all(&overwrite, &mut 0).err();
        assert_eq!(refused, Some(NotTaken::Held(read, StripeUse::Write)));
        locked.end_shares();
        assert!(stripes.try_lock_all(&overwrite, &mut 0).is_ok());
        assert!(!stripes.looks_free(written, StripeUse::Read));
        drop(locked);
        assert!(stripes.looks_free(written, StripeUse::Write));
    }

    #[test]
    fn a_writer_gets_a_stripe_that_is_always_shared() {
        let stripes = Stripes::new(1);
        let stripe = StripeIndex(1);
        let (share, write) = ([Wanted::share(stripe)], [Wanted::write(stripe)]);
        let reader = stripes.try_lock_all(&share, &mut 0).unwrap();
        assert!(stripes.try_lock_all(&write, &mut 0).is_err());
        let mut refusals = 0;
        let refused = stripes.try_lock_all(&share, &mut refusals).err();
        assert_eq!(refused, Some(NotTaken::Held(stripe, StripeUse::Share)));
        drop(reader);
        let refused = stripes.try_lock_all(&share, &mut refusals).err();
        assert_eq!((refused, refusals), (Some(NotTaken::WriterWaits), 1));
        drop(stripes.try_lock_all(&write, &mut 0).expect("its turn"));
        assert!(stripes.try_lock_all(&share, &mut refusals).is_ok());
        assert_eq!(refusals, 0);
        // A writer that has given up keeps others out only for a while.
        let reader = stripes.try_lock_all(&share, &mut 0).unwrap();
        assert!(stripes.try_lock_all(&write, &mut 0).is_err());
        drop(reader);
        let tries = (0..).take_while(|_| stripes.try_lock_all(&share, &mut refusals).is_err());
        assert_eq!(tries.count(), REFUSALS_MAX as usize);
    }
}
