//! Extents of the common lengths, kept ready for each core (decision 031).
//!
//! A magazine is filled from a few regions at a time, under its `filling` lock, and only while much
//! more is free. Extents are withdrawn from the available blocks when they are put into a magazine,
//! so a thread that takes one changes no number that others use. They still count as free, and
//! nothing is refused before the magazines were [drained](Space::drain).
//!
//! A block in a magazine is not free in the bitmap. So each region knows the cores whose magazines
//! may contain blocks of it, and a free of one of its blocks checks them: it detects if a block in
//! a magazine is freed again.

use pando_format::Extent;
use pando_format::cast::usize_of;
use pando_sync::atomic::Ordering;

use crate::group::{Miss, Wanted};
use crate::magazine::{Filled, PLACES, READY_BLOCKS_MAX};
use crate::region::REGION_BLOCKS;
use crate::search::SEARCH_WORDS_MAX;
use crate::space::{Piece, Space};

/// A row of a magazine contains at most one in this many of the available blocks.
#[cfg(not(any(pando_loom, pando_shuttle)))]
const SHARE: u64 = 256;
#[cfg(any(pando_loom, pando_shuttle))]
const SHARE: u64 = 2;

/// Number of magazines of other cores that are tried while another thread, which may have lost the
/// processor, fills that of this core.
const OTHERS: usize = 3;

/// A guard: while it lives, nothing is put into magazines.
#[derive(Debug)]
#[must_use]
pub(crate) struct Drained<'a>(&'a Space);

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        // Relaxed: see `Space::drain`.
        self.0.drains.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Extents of one length, at most as many as a row has places.
struct Batch {
    blocks: [u32; PLACES],
    len: usize,
}

impl Space {
    /// Takes an extent from the magazine of the calling thread's core.
    #[inline]
    pub(crate) fn take_ready(&self, count: u32) -> Option<Extent> {
        let block = self.magazines.here().pop(count)?;
        Some(Extent {
            block,
            blocks: count,
        })
    }

    /// Fills the row of extents of `count` blocks in the magazine of the calling thread's core, and
    /// returns one of them to the caller. That one was withdrawn from the available blocks, too.
    pub(crate) fn fill(&self, count: u32) -> Filled {
        if count as usize > READY_BLOCKS_MAX {
            return Filled::NotTried;
        }
        let (first, cores) = (self.magazines.index(), self.magazines.len());
        for step in 0..cores.min(1 + OTHERS) {
            let core = (first + step) % cores;
            if step > 0
                && let Some(block) = self.magazines.at(core).pop(count)
            {
                return Filled::Served(Extent {
                    block,
                    blocks: count,
                });
            }
            if let Some(filled) = self.fill_of(core, count) {
                return filled;
            }
        }
        Filled::NotTried
    }

    /// Fills the magazine of `core`. Returns None if another thread does.
    fn fill_of(&self, core: usize, count: u32) -> Option<Filled> {
        let magazine = self.magazines.at(core);
        let mut filling = magazine.filling.try_lock()?;
        // Relaxed: if this does not see a drain, the drain takes this lock later and finds what is
        // put here. If a drain has held the lock before, the lock makes its number visible here.
        if self.drains.load(Ordering::Relaxed) > 0 {
            return Some(Filled::NotTried);
        }
        let room = magazine.room(count) as u64;
        let reserve = self.ledger.delete_reserve();
        let share = self.ledger.available().saturating_sub(reserve) / SHARE;
        let share = share / (self.magazines.len() as u64 * u64::from(count));
        let extents = usize_of(room.min(share));
        if extents < 2 {
            return Some(Filled::NotTried);
        }
        let withdrawn = extents as u64 * u64::from(count);
        if !self.ledger.withdraw(withdrawn, reserve) {
            return Some(Filled::NotTried);
        }
        *filling = true;
        let wanted = Wanted {
            count,
            extents,
            core,
        };
        let served = self.lend(wanted);
        let lent = served.as_ref().map_or(0, |(_, extents)| *extents as u64);
        self.ledger.deposit(withdrawn - lent * u64::from(count));
        Some(match served {
            Some((block, _)) => Filled::Served(Extent {
                block,
                blocks: count,
            }),
            None => Filled::Searched,
        })
    }

    /// Takes extents from the first group that has one, keeps one, and puts the others into the
    /// core's magazine. Returns the kept one, and the number of all of them.
    fn lend(&self, wanted: Wanted) -> Option<(u32, usize)> {
        let magazine = self.magazines.at(wanted.core);
        for index in self.groups_from_here() {
            if self.free_of(index) < u64::from(wanted.count) {
                continue;
            }
            let mut batch = Batch {
                blocks: [0; PLACES],
                len: 0,
            };
            let lent = self.with(index, |group| {
                group.lend(wanted, SEARCH_WORDS_MAX, |region, start| {
                    batch.blocks[batch.len] = self.block(index, region, start);
                    batch.len += 1;
                })?;
                // The last block of all cannot be in a magazine, and places are in ascending order.
                let blocks = &batch.blocks[..batch.len];
                let (served, rest) = match blocks {
                    [rest @ .., u32::MAX] => (u32::MAX, rest),
                    [first, rest @ ..] => (*first, rest),
                    [] => unreachable!("a run was found"),
                };
                magazine.fill(wanted.count, rest);
                Ok((served, blocks.len()))
            });
            match lent {
                Ok(lent) => return Some(lent),
                Err(Miss::Nothing) => {}
                Err(Miss::Bounded) => self.count_bounded(),
            }
        }
        None
    }

    /// Gives the extents in magazines back to the bitmap, and adds pending frees to the ledger. On
    /// return every block is in the bitmap or has an owner, and it stays so while the guard lives.
    pub(crate) fn drain(&self) -> Drained<'_> {
        // Relaxed: see `fill`.
        self.drains.fetch_add(1, Ordering::Relaxed);
        let mut blocks = 0;
        for magazine in self.magazines.iter() {
            let mut filling = magazine.filling.lock();
            if *filling {
                magazine.clear(|extent| {
                    self.free_run(extent);
                    blocks += u64::from(extent.blocks);
                });
                *filling = false;
            }
        }
        if blocks > 0 {
            self.ledger.freed(blocks);
        }
        self.collect();
        Drained(self)
    }

    /// Gives back the extents in the magazines of all cores. Called before a count of free
    /// [units](Space::free_units) is considered too low.
    pub fn drain_ready(&self) {
        drop(self.drain());
    }

    /// Returns the number of blocks that are kept ready. They are free, but not in the bitmap.
    pub fn ready_blocks(&self) -> u64 {
        let magazines = self.magazines.iter();
        let extents = magazines.flat_map(|magazine| magazine.extents());
        extents.map(|extent| u64::from(extent.blocks)).sum()
    }

    /// Returns the first block of a piece that is in a magazine. The caller holds the lock of its
    /// group. `in_magazines` is the field of its region: this clears the bits of cores without
    /// blocks of it.
    pub(crate) fn find_ready(&self, piece: &Piece, in_magazines: &mut u64) -> Option<u32> {
        let start = self.block(piece.group, piece.region, 0);
        let region = start..=start + (REGION_BLOCKS - 1);
        let first = start + piece.start;
        let wanted = first..=first + (piece.count - 1);
        let mut cores = *in_magazines;
        while cores != 0 {
            let core = cores.trailing_zeros();
            cores &= cores - 1;
            let (found, any) = self
                .magazines
                .at(core as usize)
                .look_for(wanted.clone(), region.clone());
            if found.is_some() {
                return found;
            }
            if !any {
                *in_magazines &= !(1 << core);
            }
        }
        None
    }

    /// Panics unless ready extents are allocated in the bitmap and known to their regions. Only
    /// called while nobody allocates or frees.
    pub(crate) fn check_ready(&self) {
        for (core, magazine) in self.magazines.iter().enumerate() {
            for piece in magazine.extents().flat_map(|extent| self.pieces(extent)) {
                self.with(piece.group, |group| {
                    let region = &group.regions[piece.region];
                    assert!(
                        region.in_magazines >> core & 1 == 1,
                        "{piece:?} is known of"
                    );
                    let used = (0..piece.count).all(|at| !region.is_free(piece.start + at, 1));
                    assert!(used, "{piece:?} is ready and free at once");
                });
            }
        }
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-space --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use pando_sync::{Arc, thread};

    use crate::ledger::Urgency;
    use crate::space::{Space, SpaceOptions};

    /// Makes a space of `blocks` free blocks in one group.
    fn space(blocks: u64) -> Arc<Space> {
        let options = SpaceOptions {
            groups: 1,
            ..SpaceOptions::default()
        };
        Arc::new(Space::new(blocks, options))
    }

    fn model(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(run);
    }

    /// One thread takes a block from the magazine while another drains the magazine.
    #[test]
    fn the_last_block_on_a_magazine_has_one_owner() {
        model(|| {
            let space = space(8);
            let one = space.allocate(1, None).unwrap();
            let rest = space.allocate(6, None).unwrap();
            assert_eq!(space.ready_blocks(), 1);
            let other = thread::spawn({
                let space = space.clone();
                move || space.allocate(1, None)
            });
            let mine = space.reserve(1, Urgency::Normal);
            let found = other.join().unwrap();
            assert!(found.is_some() != mine, "{found:?}, {mine}");
            if mine {
                assert!(space.allocate_reserved(1, None).is_some());
            } else {
                found.into_iter().for_each(|extent| space.free(extent));
            }
            space.free(one);
            space.free(rest);
            space.check_invariants();
        });
    }

    /// A caller that needs all remaining blocks waits for blocks that are about to be put into a
    /// magazine, and no block is put there before it has checked.
    #[test]
    fn nothing_is_refused_while_it_lies_on_a_magazine() {
        model(|| {
            let space = space(16);
            let other = thread::spawn({
                let space = space.clone();
                move || [space.allocate(2, None), space.allocate(1, None)]
            });
            assert!(space.reserve(13, Urgency::Normal), "at least 13 are left");
            let taken = other.join().unwrap();
            assert!(taken.iter().all(Option::is_some), "{taken:?}");
            assert_eq!(space.free_blocks(), 13);
            for _ in 0..13 {
                assert!(space.allocate_reserved(1, None).is_some());
            }
            space.check_invariants();
        });
    }

    /// Two threads fill and empty the same magazine.
    #[test]
    fn what_is_on_a_magazine_is_taken_once() {
        model(|| {
            let space = space(8);
            let take = |space: &Space| [space.allocate(1, None), space.allocate(1, None)];
            let other = thread::spawn({
                let space = space.clone();
                move || take(&space)
            });
            let mine = take(&space);
            let theirs = other.join().unwrap();
            let mut blocks: Vec<u32> = mine
                .into_iter()
                .chain(theirs)
                .map(|extent| extent.expect("more are left").block)
                .collect();
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!(blocks.len(), 4);
            assert_eq!(space.free_blocks(), 4);
            space.check_invariants();
        });
    }
}
