//! Allocation of long runs, in few pieces, for pages that are written together.

use pando_format::Extent;
use pando_format::extent::EXTENT_BLOCKS_MAX;

use crate::group::Found;
use crate::region::{REGION_BLOCKS, blocks_in};
use crate::space::Space;

/// Number of regions of a group whose runs are compared for one piece.
const COMPARED_REGIONS: usize = 4;
/// Minimum number of extents that a run must have provided for the next run to be compared with
/// others, too.
const DEALT_MIN: usize = 4;

impl Space {
    /// Allocates `total` blocks without a reservation, in as few runs as a bounded search finds.
    /// Each run is a multiple of `unit` blocks, so that a page of `unit` blocks is never cut. A run
    /// may be longer than an extent can be: the caller cuts it, and may free it in any parts.
    ///
    /// All or nothing: on false, `out` is unchanged.
    ///
    /// # Panics
    /// Unless `unit` is 1 to [`EXTENT_BLOCKS_MAX`] and divides `total`.
    #[must_use]
    pub fn allocate_batch(&self, total: u32, unit: u32, out: &mut Vec<Extent>) -> bool {
        if !self.withdraw(u64::from(total)) {
            return false;
        }
        let done = self.allocate_runs(total, unit, out);
        if !done {
            self.ledger.freed(u64::from(total));
        }
        done
    }

    /// Allocates one extent for each of `lengths`, at most a unit each, in their order, without a
    /// reservation and in as few runs as a bounded search finds.
    ///
    /// All or nothing: on false, `out` is unchanged. Never false while [`Space::free_units`] is at
    /// least the number of lengths and nobody else allocates.
    ///
    /// # Panics
    /// When a length is 0 or more than a unit.
    #[must_use]
    pub fn allocate_mixed(&self, lengths: &[u32], out: &mut Vec<Extent>) -> bool {
        let total = lengths.iter().map(|length| u64::from(*length)).sum();
        assert!(
            lengths
                .iter()
                .all(|length| (1..=self.unit).contains(length)),
            "extents of {lengths:?} blocks are asked for in units of {}",
            self.unit
        );
        if let [length] = lengths {
            let one = self.allocate(*length, None);
            out.extend(one);
            return one.is_some();
        }
        if !self.withdraw(total) {
            return false;
        }
        let kept = out.len();
        let mut left = lengths;
        let mut compare = true;
        while let Some(first) = left.first() {
            let wanted: u64 = left.iter().map(|length| u64::from(*length)).sum();
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            let long = if compare {
                self.take_longest(wanted, 1)
            } else {
                None
            };
            let run = long
                .and_then(|run| self.keep_if_long_enough(run, *first))
                .or_else(|| self.allocate_run(*first, None));
            let Some(run) = run else {
                for extent in out.drain(kept..) {
                    self.free_run(extent);
                }
                self.ledger.freed(total);
                return false;
            };
            let rest = self.deal(run, left, out);
            // Among short runs it is not worth searching for the longest each time.
            compare &= left.len() - rest.len() >= DEALT_MIN;
            left = rest;
        }
        true
    }

    /// Frees the run if it is shorter than `least` blocks, and returns it otherwise.
    fn keep_if_long_enough(&self, run: Extent, least: u32) -> Option<Extent> {
        if run.blocks >= least {
            return Some(run);
        }
        self.free_run(run);
        self.ledger.freed(0);
        None
    }

    /// Cuts a run into extents of `lengths`, as many as fit, and frees the rest. Returns the
    /// remaining lengths.
    fn deal<'a>(&self, run: Extent, lengths: &'a [u32], out: &mut Vec<Extent>) -> &'a [u32] {
        let end = run.block + (run.blocks - 1);
        let mut block = run.block;
        let mut rest = run.blocks;
        let mut dealt = 0;
        for length in lengths.iter().take_while(|length| {
            let fits = **length <= rest;
            rest -= if fits { **length } else { 0 };
            fits
        }) {
            out.push(Extent {
                block,
                blocks: *length,
            });
            block = block.wrapping_add(*length);
            dealt += 1;
        }
        if rest > 0 {
            self.free_run(Extent {
                block: end - (rest - 1),
                blocks: rest,
            });
            self.ledger.freed(0);
        }
        &lengths[dealt..]
    }

    /// Like [`Space::allocate_batch`], on a reservation, which stays if nothing is allocated.
    ///
    /// # Panics
    /// As [`Space::allocate_batch`], and when fewer blocks are reserved.
    #[must_use]
    pub fn allocate_batch_reserved(&self, total: u32, unit: u32, out: &mut Vec<Extent>) -> bool {
        assert!(
            self.ledger.reserved() >= u64::from(total),
            "{total} blocks are allocated on a reservation that was not made"
        );
        let done = self.allocate_runs(total, unit, out);
        if done {
            self.ledger.use_reserved(u64::from(total));
        } else {
            self.ledger.freed(0);
        }
        done
    }

    /// Takes bits. The caller updates the ledger, and counts a free when this fails.
    fn allocate_runs(&self, total: u32, unit: u32, out: &mut Vec<Extent>) -> bool {
        assert!(
            (1..=EXTENT_BLOCKS_MAX).contains(&unit) && total.is_multiple_of(unit),
            "{total} blocks are asked for in units of {unit}"
        );
        let kept = out.len();
        let mut left = total;
        while left > 0 {
            let run = self
                .take_longest(left, unit)
                .or_else(|| self.allocate_run(unit, None));
            let Some(run) = run else {
                for run in out.drain(kept..) {
                    self.free_run(run);
                }
                return false;
            };
            left -= run.blocks;
            match out[kept..].last_mut() {
                Some(last) if last.block + last.blocks == run.block => last.blocks += run.blocks,
                _ => out.push(run),
            }
        }
        true
    }

    /// Takes the first run of `wanted` blocks, or else the longest run, of a few regions of each
    /// group.
    fn take_longest(&self, wanted: u32, unit: u32) -> Option<Extent> {
        let enough = wanted.min(REGION_BLOCKS - REGION_BLOCKS % unit);
        let mut best: Option<(usize, Found, u32)> = None;
        for index in self.groups_from_here() {
            let best_len = best.as_ref().map_or(unit - 1, |(_, _, len)| *len);
            if self.free_of(index) <= u64::from(best_len) {
                continue;
            }
            let taken = self.with(index, |group| {
                let (region, run) = group.longest(enough, COMPARED_REGIONS)?;
                let found = Found {
                    region,
                    start: run.start,
                };
                let len = blocks_in(&run);
                if len >= enough {
                    group.take(region, run.start, enough);
                    return Some(found);
                }
                if len > best_len {
                    best = Some((index, found, len));
                }
                None
            });
            if let Some(found) = taken {
                return Some(self.extent(index, &found, enough));
            }
        }
        let (index, found, len) = best?;
        let len = len - len % unit;
        self.with(index, |group| {
            let free = group.is_free(found.region, found.start, len)
                && group.is_low_edge(found.region, found.start);
            if free {
                group.take(found.region, found.start, len);
            }
            free
        })
        .then(|| self.extent(index, &found, len))
    }
}
