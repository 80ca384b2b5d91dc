//! Point reads of several keys at once: while the lines of one key's next node are on their way,
//! the others go on.
//!
//! A read of a tree that does not fit into the processor's caches waits for memory once or twice at
//! each level. Here all keys of a group take one step, which ends with asking for what the next
//! step reads, then all take the next one: their misses overlap. This is group prefetching (Chen,
//! Ailamaki, Gibbons, Mowry: Improving Hash Join Performance through Prefetching, ICDE 2004) over
//! the optimistic descent of [`crate::tree`]; each key's steps are those of a single read.

use pando_pool::{Attempt, Optimistic, Pool, Restart};

use crate::access::{OptimisticAccess, ask_for_record};
use crate::descent::{Down, acquire_child};
use crate::finger::Finger;
use crate::leaf::{Leaf, Lookup};
use crate::node::view::LEVEL_MAX;
use crate::tree::{Tree, counted};

/// Most keys of a group: enough to cover the time of a miss, and few enough for the lines that a
/// core can ask for at a time.
pub const GROUP_MAX: usize = 16;

/// What became of a key of a group.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// It was looked up; its value, if there is one, was appended: where, and how many bytes.
    Read {
        /// What was found.
        lookup: Lookup,
        /// Where its value begins in what was appended to.
        start: usize,
        /// Bytes of its value.
        bytes: usize,
    },
    /// Its value lies in pages or chunks of its own: read it by itself.
    Long,
    /// As a single read would have ended.
    Restart(Restart),
}

/// A key on its way.
#[derive(Debug, Clone, Copy)]
enum Way<'p> {
    /// Next is a child of this node; true when no node of its level lies to the right of it.
    Child(Optimistic<'p>, Down, bool),
    /// The leaf, the record that may be the key's on its way; true when it is the last leaf.
    Leaf(Optimistic<'p>, usize, bool),
    /// It has ended.
    Over(Restart),
}

impl Tree {
    /// Looks up to [`GROUP_MAX`] keys up, and appends their values to `values`: the fate of each,
    /// in their order. The key of a fault or conflict is tried again by the caller.
    ///
    /// # Panics
    /// When there are more keys.
    pub fn get_group(
        &self,
        pool: &Pool,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
    ) -> [Fate; GROUP_MAX] {
        let ways = self.descend_group(pool, keys);
        let mut fates = [Fate::Restart(Restart::Conflict); GROUP_MAX];
        for ((fate, way), key) in fates.iter_mut().zip(ways.iter()).zip(keys) {
            *fate = match counted(pool, read(*way, key, values)) {
                Ok(fate) => fate,
                Err(restart) => Fate::Restart(restart),
            };
        }
        fates
    }

    /// Where the leaves of up to [`GROUP_MAX`] keys are, in the order of the keys.
    ///
    /// # Panics
    /// When there are more keys.
    pub fn locate_group(&self, pool: &Pool, keys: &[&[u8]]) -> [Attempt<Finger>; GROUP_MAX] {
        let mut fingers = [Err(Restart::Conflict); GROUP_MAX];
        let ways = self.descend_group(pool, keys);
        for ((finger, way), _) in fingers.iter_mut().zip(ways).zip(keys) {
            let found = match way {
                Way::Leaf(leaf, _, is_rightmost) => Ok(Finger::at(*self, leaf, is_rightmost)),
                // Deeper than a tree can be: its nodes changed all the time.
                Way::Child(..) => Err(Restart::Conflict),
                Way::Over(restart) => Err(restart),
            };
            *finger = counted(pool, found);
        }
        fingers
    }

    /// Leads each key to its leaf. Behind the last key nothing has a meaning.
    fn descend_group<'p>(&self, pool: &'p Pool, keys: &[&[u8]]) -> [Way<'p>; GROUP_MAX] {
        assert!(keys.len() <= GROUP_MAX, "a group of {} keys", keys.len());
        let mut all = [Way::Over(Restart::Conflict); GROUP_MAX];
        let ways = &mut all[..keys.len()];
        let root = self.root(pool, &mut OptimisticAccess);
        for (way, key) in ways.iter_mut().zip(keys) {
            *way = over(root.and_then(|root| self.arrive(pool, root, None, key, true)));
        }
        for _ in 0..LEVEL_MAX {
            let mut any = false;
            for (way, key) in ways.iter_mut().zip(keys) {
                if let Way::Child(parent, down, is_last) = *way {
                    any = true;
                    let child = acquire_child(pool, &mut OptimisticAccess, parent, down);
                    let level = Some(down.level());
                    let arrived =
                        child.and_then(|child| self.arrive(pool, child, level, key, is_last));
                    *way = over(arrived);
                }
            }
            if !any {
                break;
            }
        }
        all
    }

    /// Looks for `key` in a node, whose level is `level` if that is known, and asks for what the
    /// next step reads. `is_last`: no node of its level lies to the right of it.
    #[inline]
    fn arrive<'p>(
        &self,
        pool: &'p Pool,
        here: Optimistic<'p>,
        level: Option<u8>,
        key: &[u8],
        is_last: bool,
    ) -> Attempt<Way<'p>> {
        let node = self.node_at(here, level)?;
        if node.level() == 0 {
            here.touch();
            let candidate = ask_for_record(here, &node, key);
            return Ok(Way::Leaf(here, candidate, is_last));
        }
        here.touch_inner();
        let index = node.child_for(key);
        let down = Down::to(&node, index);
        down.prefetch(pool);
        Ok(Way::Child(here, down, is_last && index + 1 == node.count()))
    }
}

fn over(way: Attempt<Way<'_>>) -> Way<'_> {
    way.unwrap_or_else(Way::Over)
}

/// The last step of a key.
fn read(way: Way<'_>, key: &[u8], values: &mut Vec<u8>) -> Attempt<Fate> {
    let (leaf, candidate) = match way {
        Way::Leaf(leaf, candidate, _) => (leaf, candidate),
        // Deeper than a tree can be: its nodes changed all the time.
        Way::Child(..) => return Err(Restart::Conflict),
        Way::Over(restart) => return Err(restart),
    };
    let leaf = Leaf::at(leaf);
    let spot = leaf.node.find_at(candidate, key);
    let start = values.len();
    match leaf.read_short(spot, values) {
        Ok(Some(lookup)) => Ok(Fate::Read {
            lookup,
            start,
            bytes: values.len() - start,
        }),
        Ok(None) => Ok(Fate::Long),
        Err(restart) => {
            values.truncate(start);
            Err(restart)
        }
    }
}
