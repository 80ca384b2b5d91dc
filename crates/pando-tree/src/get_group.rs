//! Point reads of several keys at once: while the lines of one key's next node are on their way,
//! the other keys continue (decision 050).
//!
//! A read of a tree that does not fit into the processor's caches waits for memory once or twice at
//! each level. Here all keys of a group take one step, which ends with a prefetch for the next
//! step, and then all take the next step, so their misses overlap. This is group prefetching (Chen,
//! Ailamaki, Gibbons, Mowry: Improving Hash Join Performance through Prefetching, ICDE 2004) over
//! the optimistic descent of [`crate::tree`]; each key's steps are those of a single read.

use pando_pool::{Attempt, Optimistic, Pool, Restart};

use crate::access::{OptimisticAccess, ask_for_record};
use crate::descent::{Down, acquire_child};
use crate::finger::Finger;
use crate::leaf::{Leaf, Lookup};
use crate::node::view::LEVEL_MAX;
use crate::tree::{Tree, counted};

/// Maximum number of keys in a group: enough to cover the time of a miss, and few enough for the
/// number of lines that a core can fetch at a time.
pub const GROUP_MAX: usize = 16;

/// Result for one key of a group.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// The key was looked up, and its value, if there is one, was appended.
    Read {
        /// What the read found.
        lookup: Lookup,
        /// Start of the value in `values`.
        start: usize,
        /// Length of the value in bytes.
        bytes: usize,
    },
    /// The value lies in pages or chunks of its own: the caller reads the key by itself.
    Long,
    /// A single read would have ended with this restart.
    Restart(Restart),
}

/// Progress of one key.
#[derive(Debug, Clone, Copy)]
enum KeyProgress<'p> {
    /// The next step goes to a child of this node. True when no node of the child's level lies to
    /// the right of it.
    Child(Optimistic<'p>, Down, bool),
    /// The leaf, and the entry that may be the key's, whose record is being prefetched. True for
    /// the last leaf.
    Leaf(Optimistic<'p>, usize, bool),
    /// The read of this key has ended.
    Over(Restart),
}

impl Tree {
    /// Looks up at most [`GROUP_MAX`] keys and appends their values to `values`. Returns the fate
    /// of each key, in their order. The caller tries keys with a fault or conflict again.
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

    /// Finds the leaves of at most [`GROUP_MAX`] keys, in the order of the keys.
    ///
    /// # Panics
    /// When there are more keys.
    pub fn locate_group(&self, pool: &Pool, keys: &[&[u8]]) -> [Attempt<Finger>; GROUP_MAX] {
        let mut fingers = [Err(Restart::Conflict); GROUP_MAX];
        let ways = self.descend_group(pool, keys);
        for ((finger, way), _) in fingers.iter_mut().zip(ways).zip(keys) {
            let found = match way {
                KeyProgress::Leaf(leaf, _, is_rightmost) => {
                    Ok(Finger::at(*self, leaf, is_rightmost))
                }
                // Cannot be: each node is one level below the one before.
                KeyProgress::Child(..) => Err(Restart::Conflict),
                KeyProgress::Over(restart) => Err(restart),
            };
            *finger = counted(pool, found);
        }
        fingers
    }

    /// Descends to the leaf of each key. Elements after the last key have no meaning.
    fn descend_group<'p>(&self, pool: &'p Pool, keys: &[&[u8]]) -> [KeyProgress<'p>; GROUP_MAX] {
        assert!(keys.len() <= GROUP_MAX, "a group of {} keys", keys.len());
        let mut all = [KeyProgress::Over(Restart::Conflict); GROUP_MAX];
        let ways = &mut all[..keys.len()];
        let root = self.root(pool, &mut OptimisticAccess);
        for (way, key) in ways.iter_mut().zip(keys) {
            *way = over(root.and_then(|root| self.arrive(pool, root, None, key, true)));
        }
        for _ in 0..LEVEL_MAX {
            let mut any = false;
            for (way, key) in ways.iter_mut().zip(keys) {
                if let KeyProgress::Child(parent, down, is_last) = *way {
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

    /// Searches `key` in a node, whose level is `level` if that is known, and prefetches what the
    /// next step reads. `is_last`: no node of its level lies to the right of it.
    #[inline]
    fn arrive<'p>(
        &self,
        pool: &'p Pool,
        here: Optimistic<'p>,
        level: Option<u8>,
        key: &[u8],
        is_last: bool,
    ) -> Attempt<KeyProgress<'p>> {
        let node = self.node_at(here, level)?;
        if node.level() == 0 {
            here.touch();
            let candidate = ask_for_record(here, &node, key);
            return Ok(KeyProgress::Leaf(here, candidate, is_last));
        }
        here.touch_inner();
        let index = node.child_for(key);
        let down = Down::to(&node, index);
        down.prefetch(pool);
        Ok(KeyProgress::Child(
            here,
            down,
            is_last && index + 1 == node.count(),
        ))
    }
}

fn over(way: Attempt<KeyProgress<'_>>) -> KeyProgress<'_> {
    way.unwrap_or_else(KeyProgress::Over)
}

/// Takes the last step of a key: reads its record.
fn read(way: KeyProgress<'_>, key: &[u8], values: &mut Vec<u8>) -> Attempt<Fate> {
    let (leaf, candidate) = match way {
        KeyProgress::Leaf(leaf, candidate, _) => (leaf, candidate),
        // Cannot be: each node is one level below the one before.
        KeyProgress::Child(..) => return Err(Restart::Conflict),
        KeyProgress::Over(restart) => return Err(restart),
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
