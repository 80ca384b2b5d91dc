//! Readers of each variant, over one tree.

use std::fmt;

use pando_pool::Attempt;
use pando_tree::ValueReader;

use super::coupled::Coupled;
use super::cursors::{Cursors, LocalLists, SharedList};
use super::descent::{self, NodeLookup, OptimisticAccess};
use super::rig::{ENTRY_BYTES, Rig, is_value_of, retry};
use super::snapshot::{FromHint, FromSnapshot, RootSnapshot};
use crate::ablation::Ablation;
use crate::ablation::rounds::Variant;
use crate::error::{Error, Result};

/// A tree in memory, and what the variants of one ablation of its point reads share.
#[derive(Debug)]
pub struct CachedReads {
    ablation: Ablation,
    pub(super) rig: Rig,
    shared_list: SharedList,
    local_lists: LocalLists,
}

/// A read of a key: whether it is there.
type Get<'a> = dyn FnMut(&[u8], &mut ValueReader, &mut Vec<u8>) -> Attempt<bool> + 'a;

/// The reads of one thread.
pub struct Reader<'a> {
    rig: &'a Rig,
    get: Box<Get<'a>>,
    values: ValueReader,
    key: Vec<u8>,
    out: Vec<u8>,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader<'_> {
    /// Reads key `number` and checks its value.
    ///
    /// # Errors
    /// When it is not there, or has another value.
    #[inline]
    pub fn read(&mut self, number: u64) -> Result<()> {
        let Self {
            rig,
            get,
            values,
            key,
            out,
        } = self;
        rig.keys.write(number, key);
        let found = retry(|| get(key, values, out))?;
        match found && is_value_of(number, out) {
            true => Ok(()),
            false => Err(Error::Wrong {
                workload: "readrandom",
                what: format!("key {number}: {:?}", found.then_some(&out)),
            }),
        }
    }
}

/// A variant of one of these ablations.
pub(super) fn variants(ablation: Ablation) -> Vec<Variant> {
    let (other, ours) = (Variant::other, Variant::ours);
    match ablation {
        Ablation::Descent => vec![
            other("latched", "a shared latch at every level"),
            other(
                "snapshot-latched",
                "a private copy of the root, then shared latches",
            ),
            other(
                "optimistic-snapshot",
                "a private copy of the root, then no latch",
            ),
            other(
                "root-hint",
                "no latch; the root's frame is remembered, not copied",
            ),
            ours("no latch at any level: versions are looked at again"),
        ],
        Ablation::Cursor => vec![
            other("shared", "each read registers in one list"),
            other("core-local", "each read registers in a list of its core"),
            ours("nothing is registered"),
        ],
        _ => Vec::new(),
    }
}

impl CachedReads {
    /// A tree of as many keys as fill `size_bytes`, and what the variants of `ablation` need.
    ///
    /// # Errors
    /// When it is not an ablation of cached reads, or memory is refused.
    pub fn new(ablation: Ablation, size_bytes: u64, page_bytes: usize, seed: u64) -> Result<Self> {
        if variants(ablation).is_empty() {
            return Err(Error::option("name", "is no ablation of cached reads"));
        }
        let rig = Rig::filled((size_bytes / ENTRY_BYTES).max(1), page_bytes, seed)?;
        Ok(Self {
            ablation,
            rig,
            shared_list: SharedList::new(),
            local_lists: LocalLists::new(),
        })
    }

    /// Number of keys: those below it can be read.
    pub fn num(&self) -> u64 {
        self.rig.num
    }

    /// Names of the variants.
    pub fn variants(&self) -> Vec<&'static str> {
        let all = variants(self.ablation);
        all.iter().map(|variant| variant.name).collect()
    }

    /// A reader of the variant called `name`.
    ///
    /// # Panics
    /// When there is none.
    pub fn reader(&self, name: &str) -> Reader<'_> {
        let get: Box<Get<'_>> = match (self.ablation, name) {
            (_, "ours") => {
                let (pool, tree) = (&self.rig.pool, &self.rig.tree);
                Box::new(move |key, values, out| Ok(tree.try_get(pool, key, values, out)?.found))
            }
            (Ablation::Descent, "latched") => self.by(Coupled::default),
            (Ablation::Descent, "snapshot-latched") => self.by_snapshot(Coupled::default),
            (Ablation::Descent, "optimistic-snapshot") => self.by_snapshot(|| OptimisticAccess),
            (Ablation::Descent, "root-hint") => {
                let (pool, tree) = (&self.rig.pool, &self.rig.tree);
                let mut hint = 0;
                Box::new(move |key, _, out| {
                    Ok(descent::get(tree, pool, &mut FromHint(&mut hint), key, out)?.found)
                })
            }
            (Ablation::Cursor, "shared") => self.registering(&self.shared_list),
            (Ablation::Cursor, "core-local") => self.registering(&self.local_lists),
            _ => panic!("{} has no variant '{name}'", self.ablation.name()),
        };
        Reader {
            rig: &self.rig,
            get,
            values: ValueReader::new(),
            key: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Reads that each make a way of their own.
    fn by<'a, A: NodeLookup<'a>>(&'a self, make: impl Fn() -> A + 'a) -> Box<Get<'a>> {
        let (pool, tree) = (&self.rig.pool, &self.rig.tree);
        Box::new(move |key, _, out| Ok(descent::get(tree, pool, &mut make(), key, out)?.found))
    }

    /// Reads from a copy of the root that is kept from one to the next.
    fn by_snapshot<'a, A: NodeLookup<'a>>(&'a self, make: impl Fn() -> A + 'a) -> Box<Get<'a>> {
        let (pool, tree) = (&self.rig.pool, &self.rig.tree);
        let mut snapshot = RootSnapshot::default();
        Box::new(move |key, _, out| {
            let mut way = FromSnapshot {
                snapshot: &mut snapshot,
                below: make(),
            };
            Ok(descent::get(tree, pool, &mut way, key, out)?.found)
        })
    }

    /// Reads that are registered while they go on.
    fn registering<'a>(&'a self, cursors: &'a impl Cursors) -> Box<Get<'a>> {
        let (pool, tree) = (&self.rig.pool, &self.rig.tree);
        Box::new(move |key, values, out| {
            let place = cursors.open(tree.root);
            let lookup = tree.try_get(pool, key, values, out);
            cursors.close(place);
            Ok(lookup?.found)
        })
    }

    #[cfg(test)]
    fn open_cursors(&self) -> usize {
        self.shared_list.count() + self.local_lists.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_reads_every_key_and_notices_another_value() {
        for ablation in [Ablation::Descent, Ablation::Cursor] {
            let reads = CachedReads::new(ablation, 1 << 19, 4096, 1).unwrap();
            for name in reads.variants() {
                let mut reader = reads.reader(name);
                for number in 0..reads.num() {
                    reader.read(number).unwrap();
                }
                assert!(reader.read(reads.num()).is_err(), "a key that is not there");
            }
            assert_eq!(reads.open_cursors(), 0);
        }
        assert!(CachedReads::new(Ablation::Queue, 1 << 19, 4096, 1).is_err());
    }
}
