//! Finds the leaves of a batch, and pins them until it is applied, unless it is a short one whose
//! leaves are all in memory.
//!
//! Keys are processed in order. Where they lie apart, groups of them descend together, so that
//! their cache misses overlap. Where they lie close together, the leaf of the previous key is first
//! asked whether it covers the next one too: each leaf is pinned once. Keys that the batch has
//! read before are where they were then, if their leaves have not changed since.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, PagePin, Pool, Restart};
use pando_tree::{Cover, Finger, GROUP_MAX, Place, Tree, Ways};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::wait::reason::Step;
use crate::writes::keys::Told;
use crate::writes::set::WriteSet;

/// Most further pages that are read at the same time for one batch.
const WANTED_MAX: usize = 64;
/// After this many keys in a row that are not in the leaf of their predecessor, keys are taken to
/// lie apart.
const APART: u32 = 2;

/// The pins of the leaves of a batch.
#[derive(Debug, Default)]
pub(crate) struct LeafPins<'a> {
    /// That of the first leaf: many batches have no other, and allocate nothing.
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
    /// None if they are only found, and warm.
    pins: Option<LeafPins<'a>>,
    /// Leaf that was found last.
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
    /// Finds the leaves of the writes of `order`, and pins them. `places` says where they are, in
    /// the same order. If pages are missing, fails with a fault on the first one, and `wanted`
    /// names further ones, so that all are read at the same time.
    pub(crate) fn pin_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        (places, wanted): (&mut Vec<Place>, &mut Vec<PageId>),
    ) -> Step<LeafPins<'_>> {
        let pins = Some(LeafPins::default());
        let pins = self.look_for_leaves(set, order, pins, (places, wanted))?;
        Ok(pins.expect("there were some"))
    }

    /// As [`Engine::pin_leaves`], but the leaves are not pinned, only warm (decision 104).
    pub(crate) fn find_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        (places, wanted): (&mut Vec<Place>, &mut Vec<PageId>),
    ) -> Step<()> {
        let none = self.look_for_leaves(set, order, None, (places, wanted))?;
        assert!(none.is_none(), "a leaf is pinned");
        Ok(())
    }

    fn look_for_leaves<'a>(
        &'a self,
        set: &WriteSet,
        order: &[usize],
        pins: Option<LeafPins<'a>>,
        (places, wanted): (&mut Vec<Place>, &mut Vec<PageId>),
    ) -> Step<Option<LeafPins<'a>>> {
        wanted.clear();
        places.clear();
        let pool = &self.store.pool;
        let mut found = FoundLeaves {
            pins,
            last: Finger::default(),
            places,
            missing: None,
            wanted,
        };
        let seen = set.places();
        let is_new = |at: &&usize| seen.get(**at).is_none_or(|seen| !seen.place.is_known());
        let (mut at, mut alone, mut ways) = (0, APART, None);
        while at < order.len() {
            debug_assert_eq!(found.places.len(), at, "each key has its place");
            let (table, key, _) = set.write_at(order[at]);
            let tree = set.tables[table].tree().expect("checked in prepare");
            if set.tables[table].state.tree() != Some(tree) {
                // The check inside the gate finds this again, and reports it.
                break;
            }
            if let Some(Told { place, .. }) = seen.get(order[at])
                && let Some(pin) = found.hold_seen(pool, tree, place)
            {
                found.add(*place, pin);
                (at, alone) = (at + 1, alone.saturating_add(1));
                continue;
            }
            if alone < APART {
                let covered = match found.last.cover(tree, pool, key) {
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
                let held = found.hold_alone(pool, tree, key);
                found.add_of(on_tree(state, tree, held))?;
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
            let group = &order[at..at + count];
            let ways = ways.get_or_insert_default();
            let (held, together) = self.hold_group(set, tree, group, (&mut found, ways))?;
            alone = if 2 * together > count { 0 } else { APART };
            at += held;
        }
        assert_eq!(found.places.len(), at, "each key has its place");
        let pinned = found.pins.as_ref().map_or(0, LeafPins::len);
        assert!(pinned <= at, "a leaf of no key is pinned");
        match found.missing {
            None => Ok(found.pins),
            Some(page) => Err(Restart::Fault(page).into()),
        }
    }

    /// Finds the leaf of the write at `at`, the only one of its batch. It is not pinned, but warm:
    /// the clock hand has to go round the pool once before it may leave memory, so it is as good as
    /// certain to be there when the write is applied, if nothing blocks before that; and a pin
    /// needs a share of a budget that all cores would write (decision 093).
    #[inline]
    pub(crate) fn find_only_leaf(
        &self,
        set: &WriteSet,
        at: usize,
        places: &mut Vec<Place>,
        wanted: &mut Vec<PageId>,
    ) -> Step<()> {
        // What an earlier batch still wanted is not wanted by this one.
        wanted.clear();
        places.clear();
        let (table, key, _) = set.write_at(at);
        let table = &set.tables[table];
        let tree = table.tree().expect("checked in prepare");
        if table.state.tree() != Some(tree) {
            // The check inside the gate finds this again, and reports it.
            return Ok(());
        }
        let pool = &self.store.pool;
        let seen = set.places().get(at).map(|seen| &seen.place);
        let place = match seen.filter(|place| place.is_current(tree, pool)) {
            Some(place) => *place,
            None => match tree.try_find_place(pool, key) {
                Ok(place) => place,
                // What it met has no meaning if the table has another tree by now.
                Err(restart) => {
                    return on_tree(&table.state, tree, Err(restart)).map_err(Into::into);
                }
            },
        };
        places.push(place);
        Ok(())
    }

    /// Holds the leaves of the writes of `group`, which are writes to one table, or of the first
    /// of them. Returns of how many, and how many of the keys were found to be in the leaf of
    /// their predecessor.
    fn hold_group<'a>(
        &'a self,
        set: &WriteSet,
        tree: Tree,
        group: &[usize],
        (found, ways): (&mut FoundLeaves<'a, '_>, &mut Ways<'a>),
    ) -> Step<(usize, usize)> {
        let (table, ..) = set.write_at(group[0]);
        let state = &set.tables[table].state;
        let mut keys: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
        for (place, at) in keys.iter_mut().zip(group) {
            (_, *place, _) = set.write_at(*at);
        }
        let keys = &keys[..group.len()];
        let mut together = 0;
        let pool = &self.store.pool;
        // Elements of large collections are often neighbours: those that are pushed at an end of a
        // list, or popped. One descent finds the leaf of all of them.
        if tree.id.is_counted()
            && keys.len() > 1
            && let Some((count, place, leaf)) = tree.locate_neighbours(pool, keys)
            && let Ok(hold) = found.hold(leaf)
        {
            found.add(place, hold);
            let behind = found.places.len() + count - 1;
            found.places.resize(behind, found.last.into());
            return Ok((count, 0));
        }
        for (key, place) in keys.iter().zip(tree.locate_group(pool, keys, ways)) {
            if let Ok((place, leaf)) = place {
                if place.finger().page() == found.last.page() {
                    found.places.push(found.last.into());
                    together += 1;
                    continue;
                }
                if found.take_unpinned(place, leaf) {
                    continue;
                }
            }
            let held = match place.and_then(|(place, leaf)| Ok((place, found.hold(leaf)?))) {
                // It has lost against a writer: a search for one key falls back to shared latches,
                // so it gets through.
                Err(Restart::Conflict) => found.hold_alone(pool, tree, key),
                held => held,
            };
            // That the tree is still that of the table is looked at once for all that was found.
            let held = match held {
                Ok(_) => held,
                Err(_) => on_tree(state, tree, held),
            };
            together += usize::from(found.add_of(held)?);
        }
        // What was met has no meaning if the table has another tree by now.
        on_tree(state, tree, Ok((keys.len(), together))).map_err(Into::into)
    }
}

/// A leaf that will be used: pinned, or only warm.
type Hold<'a> = Option<PagePin<'a>>;

impl<'a> FoundLeaves<'a, '_> {
    /// Holds a leaf at the version at which it was seen.
    #[inline]
    fn hold(&self, leaf: Optimistic<'a>) -> Attempt<Hold<'a>> {
        if self.pins.is_some() {
            return leaf.pin().map(Some);
        }
        leaf.validate()?;
        leaf.warm();
        Ok(None)
    }

    /// Notes the place of the next key, which is in another leaf than its predecessor, if leaves
    /// are not pinned and this one has not changed since it was seen. Returns false otherwise.
    #[inline]
    fn take_unpinned(&mut self, place: Place, leaf: Optimistic<'a>) -> bool {
        let is_taken = self.pins.is_none() && leaf.validate().is_ok();
        if is_taken {
            leaf.warm();
            self.last = place.finger();
            self.places.push(place);
        }
        is_taken
    }

    /// Holds the leaf of a place that a read has told; None if it has changed since.
    #[inline]
    fn hold_seen(&self, pool: &'a Pool, tree: Tree, place: &Place) -> Option<Hold<'a>> {
        match self.pins {
            Some(_) => place.pin(tree, pool).map(Some),
            None => place.is_current(tree, pool).then_some(None),
        }
    }

    /// Finds the place of one key, and holds its leaf.
    fn hold_alone(&self, pool: &'a Pool, tree: Tree, key: &[u8]) -> Attempt<(Place, Hold<'a>)> {
        match self.pins {
            Some(_) => {
                let pinned = tree.try_pin_place(pool, key);
                pinned.map(|(place, pin)| (place, Some(pin)))
            }
            None => tree.try_find_place(pool, key).map(|place| (place, None)),
        }
    }

    /// Notes the place of the next key. Returns whether it is in the leaf of its predecessor, which
    /// is held already.
    #[inline]
    fn add(&mut self, place: Place, hold: Hold<'a>) -> bool {
        let is_known = place.finger().page() == self.last.page();
        if is_known {
            self.places.push(self.last.into());
        } else {
            if let (Some(pins), Some(pin)) = (&mut self.pins, hold) {
                pins.push(pin);
            }
            self.last = place.finger();
            self.places.push(place);
        }
        is_known
    }

    /// Notes the place of the next key, if it was found. Returns whether it is in the leaf of its
    /// predecessor.
    #[inline]
    fn add_of(&mut self, held: Attempt<(Place, Hold<'a>)>) -> Step<bool> {
        match held {
            Ok((place, hold)) => Ok(self.add(place, hold)),
            Err(Restart::Fault(page)) => {
                self.miss(page);
                self.places.push(Place::default());
                Ok(false)
            }
            Err(restart) => Err(restart.into()),
        }
    }

    /// Notes a missing page.
    fn miss(&mut self, page: PageId) {
        if self.missing.is_none() {
            self.missing = Some(page);
        } else if !self.wanted.contains(&page) && self.wanted.len() < WANTED_MAX {
            self.wanted.push(page);
        }
    }
}
