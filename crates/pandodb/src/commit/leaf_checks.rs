//! Leaves of a batch that is too large to pin all of them: each leaf has been in memory once before
//! the record is written, so that damage to one of them is found while the batch can still be
//! refused (decision 061). Some have left it again when the batch is applied, and are read together
//! then.
//!
//! The progress of the check is kept from one attempt to the next: pages checked earlier may have
//! left memory again by then. The leaves are counted, too: for these blocks are reserved (`pages`).

use pando_format::PageId;
use pando_pool::{Attempt, Restart};
use pando_tree::{Cover, Finger, GROUP_MAX, Place, Ways};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;

/// Most further pages that are read at the same time.
const WANTED_MAX: usize = 64;
/// Number of writes that are looked at to find them, about.
const AHEAD_MAX: usize = 256;

/// How far the leaves of a batch have been checked.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CheckedLeaves {
    /// The least number of writes, from the first on, whose leaves an attempt has pinned, and the
    /// number of these leaves.
    pinned: Option<(usize, u64)>,
    /// Number of writes, from the first on, whose leaves are pinned or were seen in memory.
    pub(crate) writes: usize,
    /// Number of the leaves that were checked.
    leaves: u64,
}

impl CheckedLeaves {
    /// Begins an attempt that has pinned the leaves of the first `pinned` writes, which are
    /// `leaves`. Those that an earlier attempt had pinned besides have been in memory, and are
    /// counted, with those of this attempt once more.
    pub(crate) fn begin(&mut self, pinned: usize, leaves: u64) {
        match self.pinned {
            Some((least, _)) if pinned >= least => {}
            before => {
                self.leaves += before.map_or(0, |(_, leaves)| leaves);
                self.pinned = Some((pinned, leaves));
            }
        }
        self.writes = self.writes.max(pinned);
    }

    /// Returns the number of leaves of a batch, of which `places` are the pinned ones; too many
    /// rather than too few.
    pub(crate) fn leaves(&self, places: &[Place]) -> u64 {
        leaves_of(places) + self.leaves
    }
}

/// Returns the number of leaves of places that are in order.
pub(crate) fn leaves_of(places: &[Place]) -> u64 {
    let mut last = PageId::NONE;
    let known = places.iter().filter(|place| place.is_known());
    let leaves = known.filter(|place| {
        let page = place.finger().page();
        std::mem::replace(&mut last, page) != page
    });
    leaves.count() as u64
}

impl Engine {
    /// Looks for the places of the first writes of `order`, those of one group and of one table,
    /// and tells `note` of each. Returns their number; 0 if their table has another tree by now.
    fn look_at_group<'p>(
        &'p self,
        set: &WriteSet,
        order: &[usize],
        ways: &mut Ways<'p>,
        mut note: impl FnMut(Attempt<Place>),
    ) -> usize {
        let (table, ..) = set.write_at(order[0]);
        let tree = set.tables[table].tree().expect("checked in prepare");
        let state = &set.tables[table].state;
        if state.tree() != Some(tree) {
            return 0;
        }
        let mut keys: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
        let of_table = order
            .iter()
            .map(|at| set.write_at(*at))
            .take_while(|(other, ..)| *other == table);
        let mut count = 0;
        for (place, (_, key, _)) in keys.iter_mut().zip(of_table) {
            *place = key;
            count += 1;
        }
        for found in tree.locate_group(&self.store.pool, &keys[..count], ways) {
            note(on_tree(state, tree, found).map(|(place, _)| place));
        }
        count
    }

    /// Checks the leaves of the writes of `order` from the first one that is not `checked` on, and
    /// advances `checked` past those that are in memory. `wanted` gets further missing pages,
    /// besides the page of the fault.
    pub(crate) fn check_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        checked: &mut CheckedLeaves,
        wanted: &mut Vec<PageId>,
    ) -> Step<()> {
        let mut last = Finger::default();
        let mut ways = Ways::default();
        let (mut at, mut stop) = (checked.writes, None);
        while at < order.len() {
            let (table, key, _) = set.write_at(order[at]);
            let tree = set.tables[table].tree().expect("checked in prepare");
            if stop.is_none() && last.cover(tree, &self.store.pool, key) != Cover::Unknown {
                (at, checked.writes) = (at + 1, checked.writes + 1);
                continue;
            }
            let count = self.look_at_group(set, &order[at..], &mut ways, |found| match found {
                Ok(place) if stop.is_none() => {
                    let finger = place.finger();
                    checked.writes += 1;
                    checked.leaves += u64::from(finger.page() != last.page());
                    last = finger;
                }
                Ok(_) => {}
                Err(restart) if stop.is_none() => stop = Some(restart),
                Err(Restart::Fault(page)) if wanted.len() < WANTED_MAX => {
                    if wanted.last() != Some(&page) {
                        wanted.push(page);
                    }
                }
                Err(_) => {}
            });
            if count == 0 {
                // The check inside the gate finds this again, and reports it.
                return Ok(());
            }
            at += count;
            let is_enough = wanted.len() >= WANTED_MAX || at - checked.writes >= AHEAD_MAX;
            if matches!(stop, Some(Restart::Fault(_)) if !is_enough) {
                continue;
            }
            if let Some(restart) = stop {
                return Err(restart.into());
            }
        }
        match stop {
            Some(restart) => Err(restart.into()),
            None => Ok(()),
        }
    }

    /// Has the pages that the first writes of `order` need, and that are not in memory, read at the
    /// same time. Returns of how many writes. Blocks until they are read; an error is met by who
    /// needs the page.
    #[cold]
    pub(crate) fn read_ahead(&self, set: &WriteSet, order: &[usize]) -> usize {
        let most = WANTED_MAX.min(self.fetch_depth());
        let mut ways = Ways::default();
        let (mut at, mut pages) = (0, Vec::new());
        while at < order.len().min(AHEAD_MAX) && pages.len() < most {
            let count = self.look_at_group(set, &order[at..], &mut ways, |found| {
                if let Err(Restart::Fault(page)) = found
                    && pages.last() != Some(&page)
                {
                    pages.push(page);
                }
            });
            // A table that has another tree needs nothing of this one.
            at += count.max(1);
        }
        if pages.len() > 1 {
            self.fetch_some(&pages);
        }
        at
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use super::*;

    /// How many leaves may be pinned differs from one attempt to the next.
    #[test]
    fn no_leaf_is_left_out_when_fewer_are_pinned() {
        let mut checked = CheckedLeaves::default();
        // Ten writes belong to each leaf, and there are 200.
        checked.begin(100, 10);
        (checked.writes, checked.leaves) = (200, 10);
        for (pinned, all) in [
            (100, 20),
            (60, 26),
            (150, 35),
            (60, 26),
            (200, 40),
            (50, 31),
        ] {
            let leaves = pinned / 10;
            checked.begin(pinned as usize, leaves);
            assert_eq!(checked.writes, 200, "they are not looked at again");
            assert_eq!(checked.leaves(&[]) + leaves, all, "{pinned}");
        }
    }
}
