//! Replay: applies the batches of the log, in order, to the pages of the last checkpoint.

use std::collections::{HashMap, HashSet};

use pando_format::cast::u32_of_len;
use pando_format::catalogue::FIRST_USER_TREE;
use pando_format::chunks::ChunkPart;
use pando_format::log::{BatchReader, ChunkedValue, Operation};
use pando_format::{Lsn, TreeId, VERSION_COUNTED};
use pando_pool::{ApplyToken, Marks};
use pando_sync::Arc;
use pando_tree::{LeafFill, Scratch, Tree};

use crate::changes::blobs::NewValue;
use crate::changes::logged::check_operation;
use crate::changes::tables::LoggedTableChange;
use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::state::loads::Filled;
use crate::tables::counts::entries_of;
use crate::tables::state::{TableBatch, TableState};

/// Operations for whose pages room is made at once. Each may dirty four pages; most of a long batch
/// share theirs, and those that are dirty count themselves by then.
const OPERATIONS_AT_ONCE: usize = 64;

/// Result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Number of batches.
    pub(crate) records: u64,
    /// Bytes of log after the checkpoint; set once the replay has ended.
    pub(crate) log_bytes: u64,
    /// Leaves that may have to be merged, each given by one of its keys.
    pub(crate) underfull: Vec<(Tree, Vec<u8>, LeafFill)>,
}

/// Returns the name of a table, as a record has it.
fn name_of(name: &[u8], lsn: Lsn) -> Result<&str> {
    str::from_utf8(name)
        .map_err(|_| Error::corrupt(format!("log at {lsn}"), "a table name that is not UTF-8"))
}

/// What a record does to a key.
enum ReplayedWrite<'a> {
    Put(&'a [u8]),
    PutChunks(ChunkedValue<'a>),
    Delete,
}

/// Replays the log into a store that nobody else uses yet.
pub(crate) struct Replay<'a> {
    store: &'a Store,
    scratch: Scratch,
    tables: HashMap<TreeId, Arc<TableState>>,
    /// Numbers of trees that have ever belonged to a table; collected when the first table is
    /// created.
    known: Option<HashSet<u32>>,
    /// LSN of the previous batch, or of the checkpoint.
    last: Lsn,
    replayed: &'a mut Replayed,
}

impl<'a> Replay<'a> {
    /// Begins a replay after a checkpoint at `from`. Adds what it does to `replayed`.
    pub(crate) fn new(store: &'a Store, from: Lsn, replayed: &'a mut Replayed) -> Self {
        Self {
            store,
            scratch: Scratch::new(),
            tables: HashMap::new(),
            known: None,
            last: from,
            replayed,
        }
    }

    /// Number of records that have been replayed.
    pub(crate) fn records(&self) -> u64 {
        self.replayed.records
    }

    /// Applies the batch at `lsn`, except for pages that hold it already.
    pub(crate) fn batch(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        assert!(lsn > self.last, "{lsn} is replayed behind {}", self.last);
        self.last = lsn;
        let damaged = |what: String| Error::corrupt(format!("log at {lsn}"), what);
        let batch = BatchReader::new(payload).map_err(|damage| damaged(damage.what))?;
        let multi_lsn = if batch.operations() > 1 { lsn } else { Lsn(0) };
        let marks = Marks { lsn, multi_lsn };
        let operations = batch.operations();
        let store = self.store;
        // Close the gate for each batch separately: the listener of the recovery is called in
        // between.
        let closed = store.pool.gate().close();
        let token = &store.pool.apply_token(&closed);
        for (index, operation) in batch.enumerate() {
            if index % OPERATIONS_AT_ONCE == 0 {
                self.make_room(operations.saturating_sub(u32_of_len(index)), payload.len());
            }
            let operation = operation.map_err(|damage| damaged(damage.what))?;
            check_operation(store.pool.page_size(), &operation)
                .map_err(|damage| damaged(damage.what))?;
            match operation {
                Operation::Put { tree, key, value } => {
                    self.write(token, tree, marks, key, ReplayedWrite::Put(value))?;
                }
                Operation::PutChunks { tree, key, value } => {
                    self.write(token, tree, marks, key, ReplayedWrite::PutChunks(value))?;
                }
                Operation::Delete { tree, key } => {
                    self.write(token, tree, marks, key, ReplayedWrite::Delete)?
                }
                Operation::CreateTable { name, tree } => {
                    self.change(token, name, (None, Some(tree), None), lsn, index)?;
                }
                Operation::DropTable { name, tree } => {
                    self.change(token, name, (Some(tree), None, None), lsn, index)?;
                }
                Operation::ReplaceTable {
                    name,
                    old_tree,
                    new_tree,
                } => {
                    let trees = (Some(old_tree), Some(new_tree), None);
                    self.change(token, name, trees, lsn, index)?;
                }
                Operation::TakeTree {
                    name,
                    old_tree,
                    new_tree,
                    root,
                    entries,
                } => {
                    if entries_of(entries).is_none() {
                        return Err(damaged(format!("takes a tree of {entries} entries")));
                    }
                    let tree = Tree { id: new_tree, root };
                    let filled = Some(Filled { tree, entries });
                    let trees = (Some(old_tree), Some(new_tree), filled);
                    self.change(token, name, trees, lsn, index)?;
                }
                Operation::SwapTables {
                    first,
                    first_tree,
                    second,
                    second_tree,
                } => {
                    let swapped = [(first, first_tree), (second, second_tree)];
                    self.swap(token, swapped, lsn)?;
                }
            }
        }
        self.replayed.records += 1;
        Ok(())
    }

    /// Grows the data file for the pages that the next ones of `operations` may dirty.
    fn make_room(&self, operations: u32, bytes: usize) {
        let store = self.store;
        let operations = operations.min(u32_of_len(OPERATIONS_AT_ONCE));
        let of_values = bytes / (store.pool.page_size().bytes() / 2);
        let garbage = store.garbage_pages(operations.into(), false);
        let pages = u64::from(operations) * 4 + of_values as u64 + 64 + garbage;
        store.space.want(pages * u64::from(store.page_blocks()));
        store.space.grow_if_wanted(store.committed_blocks(), |_| {
            crate::space::growth::MadeRoom::None
        });
    }

    fn write(
        &mut self,
        token: &ApplyToken<'_>,
        tree: TreeId,
        marks: Marks,
        key: &[u8],
        write: ReplayedWrite<'_>,
    ) -> Result<()> {
        let state = match self.tables.get(&tree) {
            Some(state) => state.clone(),
            None => {
                let state = self.store.tables.of_tree(tree).ok_or_else(|| {
                    Error::corrupt(
                        format!("log at {}", marks.lsn),
                        format!("{tree} is unknown"),
                    )
                })?;
                self.tables.insert(tree, state.clone());
                state
            }
        };
        let known = state
            .tree()
            .filter(|known| known.id == tree)
            .ok_or_else(|| {
                Error::corrupt(
                    format!("log at {}", marks.lsn),
                    format!("{tree} was dropped"),
                )
            })?;
        let (store, scratch) = (self.store, &mut self.scratch);
        let (entries, fill) = match write {
            ReplayedWrite::Put(value) => {
                store.apply(token, known, marks, key, Some(value), scratch)?
            }
            ReplayedWrite::Delete => store.apply(token, known, marks, key, None, scratch)?,
            ReplayedWrite::PutChunks(value) => {
                let parts: Vec<ChunkPart> = value.parts().collect();
                let value = NewValue {
                    head: value.head,
                    shape: value.shape,
                    parts: &parts,
                    ids: None,
                };
                store.apply_chunks(token, known, marks, key, value, scratch)?
            }
        };
        assert!(
            (-1..=1).contains(&entries),
            "a write of one key adds or removes one entry"
        );
        if entries != 0 {
            store.tables.add(&state, entries);
        }
        if fill != LeafFill::Enough {
            self.replayed.underfull.push((known, key.to_vec(), fill));
        }
        Ok(())
    }

    /// Checks that a new tree never belonged to a table: otherwise two tables would share its
    /// pages.
    fn check_new(&mut self, tree: TreeId, lsn: Lsn) -> Result<()> {
        let known = self.known.get_or_insert_with(|| {
            let trees = self.store.tables.trees();
            trees.iter().map(|tree| tree.id.number()).collect()
        });
        let number = tree.number();
        let what = if tree.is_counted() && !self.store.format.has(VERSION_COUNTED) {
            "this version of the format has none"
        } else if number >= FIRST_USER_TREE.0 && known.insert(number) {
            return Ok(());
        } else {
            "was one's before"
        };
        let what = format!("{tree} becomes that of a table, and {what}");
        Err(Error::corrupt(format!("log at {lsn}"), what))
    }

    fn swap(
        &mut self,
        token: &ApplyToken<'_>,
        [first, second]: [(&[u8], TreeId); 2],
        lsn: Lsn,
    ) -> Result<()> {
        let swapped = [
            (name_of(first.0, lsn)?, first.1),
            (name_of(second.0, lsn)?, second.1),
        ];
        self.tables.clear();
        self.store
            .apply_swap(token, swapped, lsn, &mut self.scratch)
    }

    fn change(
        &mut self,
        token: &ApplyToken<'_>,
        name: &[u8],
        (old, new, filled): (Option<TreeId>, Option<TreeId>, Option<Filled>),
        lsn: Lsn,
        index: usize,
    ) -> Result<()> {
        let name = name_of(name, lsn)?;
        self.tables.clear();
        if let Some(new) = new {
            self.check_new(new, lsn)?;
        }
        // `index` is the change's number among all changes of the batch, which precede all its
        // writes.
        let change = LoggedTableChange {
            name,
            old,
            new,
            filled,
        };
        let index = u32_of_len(index);
        let new = self
            .store
            .apply_change(token, change, None, lsn, index, &mut self.scratch)?;
        let new = new.as_slice();
        self.store.tables.replace(new, TableBatch::unseen(lsn));
        Ok(())
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use super::*;
    use crate::Db;
    use pando_format::PageId;
    use pando_format::log::BatchWriter;
    use pando_format::superblock::Superblock;

    /// As a checkpoint does that writes this version.
    fn allow_counted(engine: &crate::engine::Engine) {
        let superblock = engine.checkpoint.lock_files().superblock;
        engine.store.format.written(Superblock {
            version: VERSION_COUNTED,
            ..superblock
        });
    }

    /// If two tables had one tree, its pages would be changed and freed twice.
    #[test]
    fn a_tree_that_gets_a_second_table_is_damage() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let mut batch = |lsn, name: &[u8], tree| {
            let mut record = BatchWriter::new();
            let tree = TreeId(tree);
            record.push(Operation::CreateTable { name, tree });
            replay.batch(Lsn(lsn), record.payload())
        };
        batch(16, b"one", 16).unwrap();
        batch(24, b"two", 17).unwrap();
        for (lsn, tree) in [(32, 16), (40, 17), (48, 1)] {
            let error = batch(lsn, b"three", tree).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
        // A new table must not take the name of an existing one, and thereby its tree.
        assert!(batch(56, b"one", 18).unwrap_err().is_corruption());
        batch(64, b"three", 19).unwrap();
    }

    /// A later opening would refuse a catalogue with two trees of one number, or with a tree that
    /// the version of the format does not have.
    #[test]
    fn a_counted_tree_where_none_can_be_is_damage() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let mut batch = |lsn, name: &[u8], tree| {
            let mut record = BatchWriter::new();
            record.push(Operation::CreateTable { name, tree });
            replay.batch(Lsn(lsn), record.payload())
        };
        let tree = TreeId(16);
        let error = batch(16, b"one", tree.counted()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        allow_counted(&engine);
        batch(24, b"one", tree.counted()).unwrap();
        let error = batch(32, b"two", tree).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }

    /// The trees take keys and values of any other length for a mistake of their caller.
    #[test]
    fn keys_values_and_names_that_no_commit_writes_are_damage() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let tree = TreeId(16);
        let most = engine.store.pool.page_size().key_bytes_max();
        let (key, long) = (vec![7; most], vec![7; most + 1]);
        let value = vec![7; pando_tree::VALUE_BYTES_MAX + 1];
        let create = |name| Operation::CreateTable { name, tree };
        let put = |key, value| Operation::Put { tree, key, value };
        let operations = [
            (create(b""), false),
            (create(b"t"), true),
            (put(&long, b""), false),
            (put(&key, &value), false),
            (Operation::Delete { tree, key: &long }, false),
            (put(&key, b"value"), true),
        ];
        for (lsn, (operation, fine)) in (16..).step_by(8).zip(operations) {
            let mut record = BatchWriter::new();
            record.push(operation);
            let replayed = replay.batch(Lsn(lsn), record.payload());
            match replayed {
                Ok(()) => assert!(fine, "at {lsn}"),
                Err(error) => assert!(!fine && error.is_corruption(), "at {lsn}: {error}"),
            }
        }
    }

    #[test]
    fn a_tree_of_more_entries_than_there_can_be_is_damage() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let mut record = BatchWriter::new();
        let (name, tree) = (b"one", TreeId(16));
        record.push(Operation::CreateTable { name, tree });
        replay.batch(Lsn(16), record.payload()).unwrap();
        for (lsn, entries) in [(24, 1 << 48 | 1), (32, 1 << 63), (40, u64::MAX)] {
            let mut record = BatchWriter::new();
            record.push(Operation::TakeTree {
                name,
                old_tree: tree,
                new_tree: TreeId(17),
                root: PageId(1),
                entries,
            });
            let error = replay.batch(Lsn(lsn), record.payload()).unwrap_err();
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains(&entries.to_string()), "{error}");
        }
    }

    /// Otherwise tables would have one tree, or one that does not fit them.
    #[test]
    fn a_swap_of_trees_that_the_tables_do_not_have_is_damage() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        allow_counted(&engine);
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let trees = [TreeId(16), TreeId(17), TreeId(18).counted()];
        let mut lsn = 8;
        let mut replay = |operation: Operation<'_>| {
            let mut record = BatchWriter::new();
            record.push(operation);
            lsn += 8;
            replay.batch(Lsn(lsn), record.payload())
        };
        for (name, tree) in [(b"a", trees[0]), (b"b", trees[1]), (b"c", trees[2])] {
            replay(Operation::CreateTable { name, tree }).unwrap();
        }
        let swap = |first: &'static [u8], first_tree, second: &'static [u8], second_tree| {
            Operation::SwapTables {
                first,
                first_tree,
                second,
                second_tree,
            }
        };
        let damaged = [
            swap(b"a", trees[1], b"b", trees[0]),
            swap(b"a", trees[0], b"b", trees[0]),
            swap(b"a", trees[0], b"a", trees[0]),
            swap(b"a", trees[0], b"none", trees[1]),
            swap(b"a", trees[0], b"c", trees[2]),
            swap(b"a", trees[0], b"\xff", trees[1]),
        ];
        for operation in damaged {
            let error = replay(operation).unwrap_err();
            assert!(error.is_corruption(), "{operation:?}: {error}");
        }
        replay(swap(b"a", trees[0], b"b", trees[1])).unwrap();
        replay(swap(b"b", trees[0], b"a", trees[1])).unwrap();
        let tree_of = |name| engine.store.tables.get(name).unwrap().tree().unwrap().id;
        assert_eq!([tree_of("a"), tree_of("b")], [trees[0], trees[1]]);
    }

    #[test]
    #[should_panic(expected = "is replayed behind")]
    fn batches_are_replayed_in_the_order_of_the_log() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        let mut replayed = Replayed::default();
        let mut replay = Replay::new(&engine.store, Lsn(8), &mut replayed);
        let mut record = BatchWriter::new();
        replay.batch(Lsn(24), record.payload()).unwrap();
        let _never = replay.batch(Lsn(16), record.payload());
    }
}
