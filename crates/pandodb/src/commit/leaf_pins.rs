//! The leaves of a batch: found, and pinned until it is applied.
//!
//! Keys come in order. Where they lie apart, they go down in groups, whose misses of the
//! processor's caches overlap. Where they lie together, the leaf of the last one is asked first
//! whether it covers the next one: a leaf is pinned once.

use pando_format::PageId;
use pando_pool::{Attempt, PagePin, Restart};
use pando_tree::{Cover, Finger, GROUP_MAX, Tree};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;

/// Most pages that are read at the same time for one batch.
const WANTED_MAX: usize = 64;
/// Keys in a row that are not in the leaf before, from which on they are taken to lie apart.
const APART: u32 = 2;

/// What has been found so far.
struct Found<'a, 'w> {
    pins: Vec<PagePin<'a>>,
    /// The leaf that was pinned last.
    last: Finger,
    /// Where each key was found, in their order; [`Finger::default`]: behind the one before it.
    fingers: &'w mut Vec<Finger>,
    missing: Option<PageId>,
    wanted: &'w mut Vec<PageId>,
}

impl Engine {
    /// Finds the leaves of the first writes and pins them: those of at most `most` writes. When
    /// some are missing, `wanted` names them, so that they are read at the same time. `fingers` are
    /// where they were found, in the same order.
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
        let mut found = Found {
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
                // Found out again, and said so, inside the gate.
                break;
            }
            if alone < APART {
                let covered = match found.last.cover(tree, &self.store.pool, key) {
                    Cover::Unknown => 0,
                    Cover::One => 1,
                    // Whatever of the table follows.
                    Cover::All => order[at..].partition_point(|at| set.write_at(*at).0 == table),
                };
                if covered > 0 {
                    found.fingers.push(found.last);
                    // Wherever the one before it will have gone.
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

    /// Pins the leaves of `keys`. How many of them are in the leaf of the key before.
    fn pin_group<'a>(
        &'a self,
        set: &WriteSet,
        table: usize,
        tree: Tree,
        keys: &[&[u8]],
        found: &mut Found<'a, '_>,
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
            // One alone, or one that has lost against a writer: those have a way to win.
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
                    // The leaf was taken out or merged since; the next look tells damage from that.
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

impl Found<'_, '_> {
    fn miss(&mut self, page: PageId) {
        if self.missing.is_none() {
            self.missing = Some(page);
        } else if !self.wanted.contains(&page) && self.wanted.len() < WANTED_MAX {
            self.wanted.push(page);
        }
    }
}
