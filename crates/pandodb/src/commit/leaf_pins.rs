//! Finds the leaves of a batch, and pins them until it is applied.
//!
//! Keys are processed in order. Where they lie apart, groups of them descend together, so that
//! their cache misses overlap. Where they lie close together, the leaf of the previous key is first
//! asked whether it covers the next one too: each leaf is pinned once.

use pando_format::PageId;
use pando_pool::{Attempt, PagePin, Restart};
use pando_tree::{Cover, Finger, GROUP_MAX, Tree};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;

/// Most further pages that are read at the same time for one batch.
const WANTED_MAX: usize = 64;
/// After this many keys in a row that are not in the leaf of their predecessor, keys are taken to
/// lie apart.
const APART: u32 = 2;

/// The leaves found so far.
struct FoundLeaves<'a, 'w> {
    pins: Vec<PagePin<'a>>,
    /// Leaf that was pinned last.
    last: Finger,
    /// Where each key was found, in order; [`Finger::default`] for a key that is wherever its
    /// predecessor is.
    fingers: &'w mut Vec<Finger>,
    /// First page that was missing.
    missing: Option<PageId>,
    /// Further missing pages.
    wanted: &'w mut Vec<PageId>,
}

impl Engine {
    /// Finds and pins the leaves of the first writes of `order`, at most `most` of them. `fingers`
    /// says where they are, in the same order. If pages are missing, fails with a fault on the
    /// first one, and `wanted` names further ones, so that all are read at the same time.
    pub(crate) fn pin_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        most: usize,
        fingers: &mut Vec<Finger>,
        wanted: &mut Vec<PageId>,
    ) -> Step<Vec<PagePin<'_>>> {
        wanted.clear();
        fingers.clear();
        let order = &order[..most.min(order.len())];
        let mut found = FoundLeaves {
            pins: Vec::with_capacity(order.len().min(GROUP_MAX)),
            last: Finger::default(),
            fingers,
            missing: None,
            wanted,
        };
        let (mut at, mut alone) = (0, APART);
        while at < order.len() {
            debug_assert_eq!(found.fingers.len(), at, "each key has its place");
            let (table, key, _) = set.write_at(order[at]);
            let tree = set.tables[table].tree.expect("checked in prepare");
            if set.tables[table].state.tree() != Some(tree) {
                // The check inside the gate finds this again, and reports it.
                break;
            }
            if alone < APART {
                let covered = match found.last.cover(tree, &self.store.pool, key) {
                    Cover::Unknown => 0,
                    Cover::One => 1,
                    // All following keys of the table.
                    Cover::All => order[at..].partition_point(|at| set.write_at(*at).0 == table),
                };
                if covered > 0 {
                    found.fingers.push(found.last);
                    // They are wherever their predecessor will be by then.
                    let behind = found.fingers.len() + covered - 1;
                    found.fingers.resize(behind, Finger::default());
                    (at, alone) = (at + covered, 0);
                    continue;
                }
            }
            let most = if alone < APART { 1 } else { GROUP_MAX };
            let mut keys: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
            let mut count = 0;
            for (place, at) in keys.iter_mut().zip(&order[at..]).take(most) {
                let (other, key, _) = set.write_at(*at);
                if other != table {
                    break;
                }
                *place = key;
                count += 1;
            }
            let keys = &keys[..count];
            let together = self.pin_group(set, table, tree, keys, &mut found)?;
            alone = match count {
                1 => alone.saturating_add(1),
                _ if 2 * together > count => 0,
                _ => APART,
            };
            at += count;
        }
        assert_eq!(found.fingers.len(), at, "each key has its place");
        assert!(found.pins.len() <= at, "a leaf of no key is pinned");
        match found.missing {
            None => Ok(found.pins),
            Some(page) => Err(Restart::Fault(page).into()),
        }
    }

    /// Pins the leaves of `keys`. Returns how many of the keys are in the leaf of their
    /// predecessor.
    fn pin_group<'a>(
        &'a self,
        set: &WriteSet,
        table: usize,
        tree: Tree,
        keys: &[&[u8]],
        found: &mut FoundLeaves<'a, '_>,
    ) -> Step<usize> {
        let alone = |key| -> Attempt<Finger> {
            let located = tree.try_locate(&self.store.pool, key);
            located.map(|located| located.finger)
        };
        let mut fingers = [Err(Restart::Conflict); GROUP_MAX];
        if keys.len() > 1 {
            fingers = tree.locate_group(&self.store.pool, keys);
        }
        let mut together = 0;
        for (key, finger) in keys.iter().zip(fingers) {
            // A single key, or one that lost against a writer: `try_locate` falls back to shared
            // latches, so it gets through.
            let finger = match finger {
                Err(Restart::Conflict) => alone(key),
                finger => finger,
            };
            if finger.is_ok_and(|finger| finger.page() == found.last.page()) {
                together += 1;
                found.fingers.push(found.last);
                continue;
            }
            let pinned = finger.and_then(|finger| {
                match self.store.pool.pin(finger.page(), finger.hint()) {
                    // The leaf was freed or merged since. If it is really damaged, the next attempt
                    // finds that.
                    Err(Restart::Damaged(..)) => Err(Restart::Conflict),
                    pinned => pinned.map(|pin| (pin, finger)),
                }
            });
            match on_tree(&set.tables[table].state, tree, pinned) {
                Ok((pin, finger)) => {
                    found.pins.push(pin);
                    found.last = finger;
                    found.fingers.push(finger);
                }
                Err(Restart::Fault(page)) => {
                    found.miss(page);
                    found.fingers.push(Finger::default());
                }
                Err(restart) => return Err(restart.into()),
            }
        }
        Ok(together)
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
