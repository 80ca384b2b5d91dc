//! Point reads of several keys at once: while the lines of one key's next node are on their way,
//! the other keys continue (decision 050).
//!
//! A read of a tree that does not fit into the processor's caches waits for memory once or twice at
//! each level. Here all keys of a group take one step, which ends with a prefetch for the next
//! step, and then all take the next step, so their misses overlap. This is group prefetching (Chen,
//! Ailamaki, Gibbons, Mowry: Improving Hash Join Performance through Prefetching, ICDE 2004) over
//! the optimistic descent of [`crate::tree`]; each key's steps are those of a single read.

use pando_pool::{Attempt, Optimistic, Pool, Restart};

use crate::access::{Access, OptimisticAccess, ask_for_record};
use crate::descent::{Down, acquire_child, step_down};
use crate::finger::Finger;
use crate::leaf::{Leaf, Lookup};
use crate::node::search::Candidate;
use crate::node::view::Node;
use crate::place::Place;
use crate::tree::{FrameNode, Tree, counted, not_of_tree};

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

/// The way of one key, which ends in a leaf.
#[derive(Debug, Clone, Copy)]
struct Way<'p> {
    /// The node that the key has come to, or what has ended its way.
    node: Attempt<Optimistic<'p>>,
    /// The link from an inner node to the next one.
    down: Down<'p>,
    /// What a leaf says of the key without its records.
    candidate: Candidate,
    /// True when no node of its level lies to the right of the node.
    is_rightmost: bool,
    /// The node is that of the key before it, and was acquired for that one. Only where places are
    /// looked for.
    is_shared: bool,
}

/// Working memory of [`Tree::locate_group`].
#[derive(Debug, Default)]
pub struct Ways<'p>([Way<'p>; GROUP_MAX]);

impl Tree {
    /// Looks up at most [`GROUP_MAX`] keys and appends their values to `values`. Sets the fate of
    /// each key, in their order. The caller tries keys with a fault or conflict again.
    ///
    /// # Panics
    /// When there are more keys.
    pub fn get_group(
        &self,
        pool: &Pool,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
        fates: &mut [Fate; GROUP_MAX],
    ) {
        self.read_group(pool, &mut OptimisticAccess, keys, (values, fates));
    }

    #[inline]
    pub(crate) fn read_group<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        keys: &[&[u8]],
        (values, fates): (&mut Vec<u8>, &mut [Fate; GROUP_MAX]),
    ) {
        let mut ways = [Way::default(); GROUP_MAX];
        self.descend_group(pool, access, keys, &mut ways);
        for ((fate, way), key) in fates.iter_mut().zip(&ways).zip(keys) {
            way.read(pool, key, values, fate);
        }
    }

    /// Finds the places of at most [`GROUP_MAX`] keys. Returns them and their leaves, as they were
    /// seen, in the order of the keys. Of a key in the leaf of the one before it, only the leaf is
    /// told, since a change of that one moves it. `ways` is working memory.
    ///
    /// # Panics
    /// When there are more keys.
    pub fn locate_group<'p, 'w>(
        &self,
        pool: &'p Pool,
        keys: &'w [&[u8]],
        ways: &'w mut Ways<'p>,
    ) -> impl Iterator<Item = Attempt<(Place, Optimistic<'p>)>> + use<'p, 'w> {
        let tree = *self;
        self.descend_near(pool, keys, &mut ways.0);
        ways.0.iter().zip(keys).map(move |(way, key)| {
            let found = way.node.map(|leaf| {
                let finger = Finger::at(tree, leaf, way.is_rightmost);
                if way.is_shared {
                    return (Place::from(finger), leaf);
                }
                let spot = Leaf::at(leaf).node.find_at(way.candidate, key);
                (Place::at(finger, spot), leaf)
            });
            counted(pool, found)
        })
    }

    /// Finds out whether the first of `keys`, which ascend, belong into one leaf. Returns how many
    /// of them do, where the first one is, and the leaf, as it was seen. None if the second one
    /// belongs elsewhere, or if anything is in the way: then little was spent on it.
    pub fn locate_neighbours<'p>(
        &self,
        pool: &'p Pool,
        keys: &[&[u8]],
    ) -> Option<(usize, Place, Optimistic<'p>)> {
        let (first, mut together) = (keys.first()?, keys.len());
        let mut is_rightmost = true;
        let mut here = self.root(pool, &mut OptimisticAccess).ok()?;
        let mut node = self.node_at(here, None).ok()?;
        for level in (0..node.level()).rev() {
            here.touch_inner();
            let index = node.child_for(first);
            let is_last = index + 1 == node.count();
            if !is_last {
                together = below_child(&node, index, &keys[..together]);
            }
            if together < 2 {
                return None;
            }
            is_rightmost &= is_last;
            // Proves that all of this was so when it took the child's version.
            here = step_down(pool, &mut OptimisticAccess, here, &node, index).ok()?;
            node = self.node_at(here, Some(level)).ok()?;
        }
        here.touch();
        let finger = Finger::at(*self, here, is_rightmost);
        let place = Place::at(finger, node.find_in_leaf(first));
        (together > 1).then_some((together, place, here))
    }

    /// Descends to the leaf of each key.
    fn descend_group<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        keys: &[&[u8]],
        ways: &mut [Way<'p>; GROUP_MAX],
    ) {
        assert!(keys.len() <= GROUP_MAX, "a group of {} keys", keys.len());
        let ways = &mut ways[..keys.len()];
        let Some((root, node)) = self.open_root(pool, access, ways) else {
            return;
        };
        let height = node.level();
        for (way, key) in ways.iter_mut().zip(keys) {
            (way.node, way.is_rightmost) = (Ok(root), true);
            match height {
                0 => way.search_leaf(&root, &node, key),
                _ => way.search_inner(pool, &root, &node, key),
            }
        }
        // All keys are on one level.
        for level in (1..height).rev() {
            for (way, key) in ways.iter_mut().zip(keys) {
                if let Some((here, node)) = self.step(pool, access, way, level) {
                    way.search_inner(pool, &here, &node, key);
                }
            }
        }
        if height > 0 {
            for (way, key) in ways.iter_mut().zip(keys) {
                if let Some((here, node)) = self.step(pool, access, way, 0) {
                    way.search_leaf(&here, &node, key);
                }
            }
        }
    }

    /// Opens the root for all `ways`. `None`: they have the reason why it cannot be.
    #[inline]
    fn open_root<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        ways: &mut [Way<'p>],
    ) -> Option<(Optimistic<'p>, FrameNode<'p>)> {
        let root = self.root(pool, access);
        let opened = root.and_then(|root| Ok((root, self.node_at(root, None)?)));
        opened
            .inspect_err(|restart| ways.iter_mut().for_each(|way| way.node = Err(*restart)))
            .ok()
    }

    /// Descends to the leaf of each key. Where neighbours go the same way, as many of sorted keys
    /// do, each node is acquired once for all of them (decision 109).
    ///
    /// The step of the first of them proves what the others have read in the parent, too: all of
    /// them have searched it at the same version before any of them takes the step.
    fn descend_near<'p>(&self, pool: &'p Pool, keys: &[&[u8]], ways: &mut [Way<'p>; GROUP_MAX]) {
        assert!(keys.len() <= GROUP_MAX, "a group of {} keys", keys.len());
        let ways = &mut ways[..keys.len()];
        let Some((root, node)) = self.open_root(pool, &mut OptimisticAccess, ways) else {
            return;
        };
        let height = node.level();
        for (at, way) in ways.iter_mut().enumerate() {
            (way.node, way.is_rightmost, way.is_shared) = (Ok(root), true, at > 0);
        }
        for level in (0..=height).rev() {
            let mut at = 0;
            while at < ways.len() {
                let others = ways[at + 1..].iter().take_while(|way| way.is_shared);
                let end = at + 1 + others.count();
                let (stretch, keys) = (&mut ways[at..end], &keys[at..end]);
                at = end;
                let found = match level == height {
                    true => Some((root, node)),
                    false => self.step(pool, &mut OptimisticAccess, &mut stretch[0], level),
                };
                match found {
                    None => {
                        let end = stretch[0].node;
                        stretch.iter_mut().for_each(|way| way.node = end);
                    }
                    Some((here, node)) if level == 0 => {
                        stretch.iter_mut().for_each(|way| way.node = Ok(here));
                        stretch[0].search_leaf(&here, &node, keys[0]);
                    }
                    Some((here, node)) => search_together(pool, (here, &node), stretch, keys),
                }
            }
        }
    }

    /// Goes on to the next node, whose level is `level`, and opens it.
    #[expect(
        clippy::inline_always,
        reason = "else each node goes through memory, twice"
    )]
    #[inline(always)]
    fn step<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        way: &mut Way<'p>,
        level: u8,
    ) -> Option<(Optimistic<'p>, FrameNode<'p>)> {
        let child = match &way.node {
            Ok(parent) => acquire_child(pool, access, parent, &way.down),
            Err(_) => return None,
        };
        way.node = child;
        let here = child.ok()?;
        let node = Node::open_of(here.words().slice(), self.id, level);
        if node.is_none() {
            way.node = not_of_tree(here);
        }
        node.map(|node| (here, node))
    }
}

/// Returns how many of the first of `keys`, which ascend, are below child `index` of `node`, which
/// is that of the first key.
fn below_child(node: &FrameNode<'_>, index: usize, keys: &[&[u8]]) -> usize {
    let is_below = |key: &&[u8]| node.child_for(key) == index;
    match keys {
        [_, second, ..] if !is_below(second) => 1,
        [.., last] if is_below(last) => keys.len(),
        _ => keys.partition_point(is_below),
    }
}

/// Searches the keys of `ways` in the inner node to which all of them have come, and prefetches the
/// children.
#[inline]
fn search_together<'p>(
    pool: &'p Pool,
    (here, node): (Optimistic<'p>, &FrameNode<'p>),
    ways: &mut [Way<'p>],
    keys: &[&[u8]],
) {
    here.touch_inner();
    let mut taken = None;
    for (way, key) in ways.iter_mut().zip(keys) {
        let index = node.child_for(key);
        way.node = Ok(here);
        way.is_rightmost &= index + 1 == node.count();
        way.is_shared = taken == Some(index);
        if !way.is_shared {
            way.down = Down::to(pool, node, index);
            taken = Some(index);
        }
    }
}

impl Default for Way<'_> {
    fn default() -> Self {
        Self {
            node: Err(Restart::Conflict),
            down: Down::default(),
            candidate: Candidate::default(),
            is_rightmost: true,
            is_shared: false,
        }
    }
}

impl<'p> Way<'p> {
    /// Searches `key` in an inner node, which is that of `here`, and prefetches its child.
    #[expect(clippy::inline_always, reason = "as for Tree::step")]
    #[inline(always)]
    fn search_inner(
        &mut self,
        pool: &'p Pool,
        here: &Optimistic<'p>,
        node: &FrameNode<'p>,
        key: &[u8],
    ) {
        here.touch_inner();
        let index = node.child_for(key);
        self.is_rightmost &= index + 1 == node.count();
        self.down = Down::to(pool, node, index);
    }

    /// Searches `key` in a leaf, which is that of `here`, and prefetches its record.
    #[expect(clippy::inline_always, reason = "as for Tree::step")]
    #[inline(always)]
    fn search_leaf(&mut self, here: &Optimistic<'p>, node: &FrameNode<'p>, key: &[u8]) {
        here.touch();
        self.candidate = ask_for_record(*here, node, key);
    }

    /// Takes the last step: reads the record of `key`, and sets its fate.
    #[inline]
    fn read(&self, pool: &Pool, key: &[u8], values: &mut Vec<u8>, fate: &mut Fate) {
        let start = values.len();
        let read = self.node.and_then(|leaf| {
            let leaf = Leaf::at(leaf);
            let spot = leaf.node.find_at(self.candidate, key);
            leaf.read_short(spot, values)
        });
        match read {
            Ok(Some(lookup)) => {
                let bytes = values.len() - start;
                *fate = Fate::Read {
                    lookup,
                    start,
                    bytes,
                };
            }
            Ok(None) => *fate = Fate::Long,
            Err(restart) => {
                values.truncate(start);
                *fate = Fate::Restart(restart);
                let _counted: Attempt<()> = counted(pool, Err(restart));
            }
        }
    }
}
