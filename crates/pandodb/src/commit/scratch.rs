//! Working memory of a commit.

use pando_format::log::BatchWriter;
use pando_format::{PageId, TreeId};
use pando_tree::{Place, Scratch};
use pando_versions::VersionScratch;

use crate::commit::delete_room::DeleteWait;
use crate::commit::leaf_checks::CheckedLeaves;
use crate::commit::order::WriteOrder;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::space::id_turns::IdWait;
use crate::writes::set::{Value, WriteSet};
use crate::writes::stripes::Wanted;

/// Working memory of one commit over all of its attempts, reused by the next commit.
#[derive(Debug, Default)]
pub(crate) struct CommitScratch {
    pub(crate) order: WriteOrder,
    pub(crate) stripes: Vec<Wanted>,
    pub(crate) payload: BatchWriter,
    /// True if `order`, `stripes` and `payload` match the write set.
    ready: bool,
    /// Number of reads and watches of the set when `ready` was set.
    reads: usize,
    /// Working memory of the tree, with what a change has left to finish.
    pub(crate) tree: Scratch,
    /// Where the first writes belong, indexed like `order`.
    pub(crate) places: Vec<Place>,
    /// Not all leaves were found at once: they are pinned from now on.
    pub(crate) needs_pins: bool,
    /// How often the pin budget refused a share.
    pub(crate) refusals: u32,
    /// Whose leaves were seen in memory.
    pub(crate) checked: CheckedLeaves,
    /// How often the commit gave way to a writer waiting for a stripe.
    pub(crate) stripe_refusals: u32,
    /// What a commit that only deletes waits for on a full disk.
    pub(crate) delete_wait: DeleteWait,
    /// Its waits for page ids.
    pub(crate) id_wait: IdWait,
    /// Working memory for the versions of what the batch replaces.
    pub(crate) versions: VersionScratch,
    /// Bytes in leaves that the batch replaces, as an earlier attempt has found.
    pub(crate) replaced_bytes: Option<u64>,
    /// After a fault: further pages that the batch needs, besides the page of the fault.
    pub(crate) wanted: Vec<PageId>,
}

impl CommitScratch {
    /// Empties it for another batch. Returns false if it has grown beyond `bytes_max`, or if a
    /// change was left unfinished: then it must not be kept.
    pub(crate) fn empty(&mut self, bytes_max: usize) -> bool {
        self.reset();
        self.needs_pins = false;
        self.refusals = 0;
        self.stripe_refusals = 0;
        self.delete_wait = DeleteWait::default();
        self.id_wait = IdWait::default();
        self.wanted.clear();
        self.tree.forget_leaf();
        let of_writes = self.order.capacity()
            + self.stripes.capacity() * size_of::<Wanted>()
            + self.places.capacity() * size_of::<Place>();
        let is_finished = self.tree.is_finished() && self.versions.forget_store();
        is_finished && self.payload.capacity_bytes() + of_writes <= bytes_max
    }

    /// Prepares it for another batch.
    pub(crate) fn begin_anew(&mut self) {
        self.reset();
        self.needs_pins = false;
        self.delete_wait = DeleteWait::default();
        self.id_wait = IdWait::default();
        self.wanted.clear();
    }

    /// Returns the number of leaves of a batch whose leaves are pinned or checked.
    pub(crate) fn leaves(&self) -> u64 {
        self.checked.leaves(&self.places)
    }

    /// The write set has changed: what was derived from it has to be made again.
    pub(crate) fn reset(&mut self) {
        self.ready = false;
        self.checked = CheckedLeaves::default();
        self.replaced_bytes = None;
    }

    /// Derives order, stripes and payload from `set`, unless they are those of `set` already.
    #[inline]
    pub(crate) fn prepare(&mut self, engine: &Engine, set: &WriteSet) -> Result<()> {
        let reads = set.reads.len() + set.shares.len() + set.watched.len();
        if self.ready && self.reads == reads {
            return Ok(());
        }
        set.check_store(&engine.store.tables)?;
        set.check_tables()?;
        let tree_of = |table: usize| set.tables[table].tree().expect("checked above").id;
        self.checked = CheckedLeaves::default();
        self.order.arrange(set, tree_of);
        self.stripes.clear();
        self.payload.clear();
        if set.len() > 1 {
            self.payload.set_multi_leaf();
        }
        let seen = set.places();
        for at in self.order.positions() {
            let (table, key, value) = set.write_at(*at);
            engine.check_key(key)?;
            let known = seen
                .get(*at)
                .and_then(|seen| seen.stripe_in(tree_of(table)));
            let stripe = known.unwrap_or_else(|| engine.stripes.of(tree_of(table), key));
            debug_assert_eq!(stripe, engine.stripes.of(tree_of(table), key));
            self.stripes.push(Wanted::write(stripe));
            match value {
                Some(Value::Bytes(value)) => {
                    let limit = engine.plain_bytes_max();
                    if value.len() > limit {
                        return Err(Error::ValueTooLong {
                            bytes: value.len(),
                            limit,
                        });
                    }
                    self.payload.put(tree_of(table), key, value);
                }
                Some(Value::Chunks(value)) => {
                    value.append_to(&mut self.payload, tree_of(table), key);
                }
                None => self.payload.delete(tree_of(table), key),
            }
        }
        let operations = self.payload.operations() as usize;
        assert_eq!(operations, set.len(), "the record has each write once");
        if reads > 0 {
            self.add_reads(set, tree_of);
            let watched = set.watched.stamps();
            self.stripes
                .extend(watched.map(|stamp| Wanted::share(stamp.stripe)));
            self.stripes
                .extend(set.shares.iter().copied().map(Wanted::share));
        }
        Wanted::arrange(&mut self.stripes);
        assert!(
            self.stripes.len() <= set.len() + reads,
            "a stripe that belongs to no read or write"
        );
        (self.ready, self.reads) = (true, reads);
        Ok(())
    }

    /// Adds the stripes of what was read, but for those of reads that the write at the same
    /// position follows, which has the stripe already: sorted, it would be dropped again.
    fn add_reads(&mut self, set: &WriteSet, tree_of: impl Fn(usize) -> TreeId) {
        let seen = set.places();
        for (at, stamp) in set.reads.iter().enumerate() {
            let is_written = seen.get(at).is_some_and(|seen| {
                let (table, ..) = set.write_at(at);
                seen.stripe_in(tree_of(table)) == Some(stamp.stripe)
            });
            if !is_written {
                self.stripes.push(Wanted::share(stamp.stripe));
            }
        }
    }
}
