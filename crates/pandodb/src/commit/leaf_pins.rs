//! Finds the leaves of a batch, and pins them until it is applied.
//!
//! Keys are processed in order. Where they lie apart, groups of them descend together, so that
//! their cache misses overlap. Where they lie close together, the leaf of the previous key is first
//! asked whether it covers the next one too: each leaf is pinned once. Keys that the batch has
//! read before are where they were then, if their leaves have not changed since.

use pando_format::PageId;
use pando_pool::{Attempt, PagePin, Restart};
use pando_tree::{Cover, Finger, GROUP_MAX, Place, Tree};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::tables::state::TableState;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;

/// Most further pages that are read at the same time for one batch.
const WANTED_MAX: usize = 64;
/// After this many keys in a row that are not in the leaf of their predecessor, keys are taken to
/// lie apart.
const APART: u32 = 2;

/// The pins of the leaves of a batch.
#[derive(Debug, Default)]
pub(crate) struct LeafPins<'a> {
    /// That of the first leaf: most batches have no other, and allocate nothing.
    first: Option<PagePin<'a>>,
    others: Vec<PagePin<'a>>,
}

impl<'a> LeafPins<'a> {
    fn push(&mut self, pin: PagePin<'a>) {
        match self.first {
            None => self.first = Some(pin),
            Some(_) => self.others.push(pin),
        }
    }

    /// Returns the number of leaves.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

/// The leaves found so far.
struct FoundLeaves<'a, 'w> {
    pins: LeafPins<'a>,
    /// Leaf that was pinned last.
    last: Finger,
    /// Where each key was found, in order; [`Place::default`] for a key that is wherever its
    /// predecessor is.
    places: &'w mut Vec<Place>,
    /// First page that was missing.
    missing: Option<PageId>,
    /// Further missing pages.
    wanted: &'w mut Vec<PageId>,
}

impl Engine {
    /// Finds and pins the leaves of the first writes of `order`, at most `most` of them. `places`
    /// says where they are, in the same order. If pages are missing, fails with a fault on the
    /// first one, and `wanted` names further ones, so that all are read at the same time.
    pub(crate) fn pin_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        most: usize,
        places: &mut Vec<Place>,
        wanted: &mut Vec<PageId>,
    ) -> Step<LeafPins<'_>> {
        wanted.clear();
        places.clear();
        let order = &order[..most.min(order.len())];
        let mut found = FoundLeaves {
            pins: LeafPins::default(),
            last: Finger::default(),
            places,
            missing: None,
            wanted,
        };
        let seen = set.places();
        let is_new = |at: &&usize| seen.get(**at).is_none_or(|place| !place.is_known());
        let (mut at, mut alone) = (0, APART);
        while at < order.len() {
            debug_assert_eq!(found.places.len(), at, "each key has its place");
            let (table, key, _) = set.write_at(order[at]);
            let tree = set.tables[table].tree.expect("checked in prepare");
            if set.tables[table].state.tree() != Some(tree) {
                // The check inside the gate finds this again, and reports it.
                break;
            }
            if let Some(place) = seen.get(order[at])
                && place.is_current(tree, &self.store.pool)
            {
                self.pin_place(&set.tables[table].state, tree, Ok(*place), &mut found)?;
                (at, alone) = (at + 1, alone.saturating_add(1));
                continue;
            }
            if alone < APART {
                let covered = match found.last.cover(tree, &self.store.pool, key) {
                    Cover::Unknown => 0,
                    Cover::One => 1,
                    // All following keys of the table.
                    Cover::All => order[at..].partition_point(|at| set.write_at(*at).0 == table),
                };
                if covered > 0 {
                    found.places.push(found.last.into());
                    // They are wherever their predecessor will be by then.
                    let behind = found.places.len() + covered - 1;
                    found.places.resize(behind, Place::default());
                    (at, alone) = (at + covered, 0);
                    continue;
                }
            }
            if alone < APART || at + 1 == order.len() {
                let state = &set.tables[table].state;
                let located = tree.try_locate(&self.store.pool, key);
                self.pin_place(
                    state,
                    tree,
                    located.map(|located| located.place),
                    &mut found,
                )?;
                (at, alone) = (at + 1, alone.saturating_add(1));
                continue;
            }
            let count = order[at..]
                .iter()
                .take(GROUP_MAX)
                .take_while(|at| set.write_at(**at).0 == table)
                .take_while(is_new)
                .count()
                // The first is one whose leaf has changed since it was read.
                .max(1);
            let together = self.pin_group(set, tree, &order[at..at + count], &mut found)?;
            alone = if 2 * together > count { 0 } else { APART };
            at += count;
        }
        assert_eq!(found.places.len(), at, "each key has its place");
        assert!(found.pins.len() <= at, "a leaf of no key is pinned");
        match found.missing {
            None => Ok(found.pins),
            Some(page) => Err(Restart::Fault(page).into()),
        }
    }

    /// Pins the leaves of the writes of `group`, which are writes to one table. Returns how many of
    /// the keys are in the leaf of their predecessor.
    fn pin_group<'a>(
        &'a self,
        set: &WriteSet,
        tree: Tree,
        group: &[usize],
        found: &mut FoundLeaves<'a, '_>,
    ) -> Step<usize> {
        let (table, ..) = set.write_at(group[0]);
        let mut keys: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
        for (place, at) in keys.iter_mut().zip(group) {
            (_, *place, _) = set.write_at(*at);
        }
        let keys = &keys[..group.len()];
        let mut together = 0;
        for (key, place) in keys.iter().zip(tree.locate_group(&self.store.pool, keys)) {
            let place = match place {
                // It has lost against a writer: `try_locate` falls back to shared latches, so it
                // gets through.
                Err(Restart::Conflict) => {
                    let located = tree.try_locate(&self.store.pool, key);
                    located.map(|located| located.place)
                }
                place => place,
            };
            together +=
                usize::from(self.pin_place(&set.tables[table].state, tree, place, found)?);
        }
        Ok(together)
    }

    /// Pins the leaf of the place of the next key, if it was found. Returns whether that is the
    /// leaf of its predecessor.
    #[inline]
    fn pin_place<'a>(
        &'a self,
        table: &TableState,
        tree: Tree,
        place: Attempt<Place>,
        found: &mut FoundLeaves<'a, '_>,
    ) -> Step<bool> {
        if place.is_ok_and(|place| place.finger().page() == found.last.page()) {
            found.places.push(found.last.into());
            return Ok(true);
        }
        let pinned = place.and_then(|place| {
            let finger = place.finger();
            match self.store.pool.pin(finger.page(), finger.hint()) {
                // The leaf was freed or merged since. If it is really damaged, the next attempt
                // finds that.
                Err(Restart::Damaged(..)) => Err(Restart::Conflict),
                pinned => pinned.map(|pin| (pin, place)),
            }
        });
        match on_tree(table, tree, pinned) {
            Ok((pin, place)) => {
                found.pins.push(pin);
                found.last = place.finger();
                found.places.push(place);
            }
            Err(Restart::Fault(page)) => {
                found.miss(page);
                found.places.push(Place::default());
            }
            Err(restart) => return Err(restart.into()),
        }
        Ok(false)
    }
}

impl FoundLeaves<'_, '_> {
    /// Notes a missing page.
    fn miss(&mut self, page: PageId) {
        if self.missing.is_none() {
            self.missing = Some(page);
        } else if !self.wanted.contains(&page) && self.wanted.len() < WANTED_MAX {
            self.wanted.push(page);
        }
    }
}
