//! Discards: space that is free goes back to the file system, though it lies in the middle of the
//! data file, by holes (decision 042).
//!
//! What is discarded leaves the allocator: to it, its blocks are taken. So nobody is reserved them,
//! and no page finds out by its write that the disk has become full meanwhile. When blocks run
//! short they come back before the file grows: the file system allocates them again, which is
//! where a full disk shows, and the allocator gets them after.
//!
//! Only what is free is discarded: what no checkpoint that may be read names, and no record of the
//! log behind it. This runs behind a checkpoint whose superblock is durable in both slots, on its
//! thread. The reserve, what is reserved, and twice what is kept ready are never discarded.
//!
//! Nothing of it is on disk: who opens a store finds all of these blocks free. With discards on,
//! opening lets the file system allocate the whole file again, so that what is reserved is there.

use pando_device::File;
use pando_format::Extent;
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_sync::atomic::Ordering;

use crate::space::discards::sum;
use crate::space::keeper::SpaceKeeper;

/// Bytes of the runs that are discarded: shorter ones would make more pieces of the file than they
/// save.
const RUN_BYTES: u64 = 256 << 10;
/// Most runs that one checkpoint discards.
const RUNS_MAX: usize = 1024;

impl SpaceKeeper {
    /// From here on what is spare is discarded behind each checkpoint. Before anything is reserved:
    /// what an earlier life has discarded becomes part of the file again.
    pub(crate) fn begin_discards(&self) {
        let bytes = self.blocks() * self.block_bytes();
        // A full disk is met by the first writes of pages then, which wait for room.
        let _ = self.file().allocate(0, bytes);
        self.discards.on.store(true, Ordering::Relaxed);
    }

    /// Gives what is spare back to the file system, in batches; `committed` says how many blocks
    /// dirty pages need. The checkpoint that has freed it is durable. Blocks.
    pub(crate) fn discard_spare(&self, committed: impl Fn() -> u64) {
        // Relaxed: set before there are threads; after a failure one more try does no harm.
        if !self.discards.on.load(Ordering::Relaxed) {
            return;
        }
        let mut extents = self.discards.extents.lock();
        // Under the lock: a compaction says that it begins, then takes all of them back.
        if self.is_low() {
            return;
        }
        let run = RUN_BYTES / self.block_bytes();
        let run = run.clamp(1, EXTENT_BLOCKS_MAX.into()) as u32;
        let take = || {
            let _reservation = self.reserve_spare(run.into(), &committed)?;
            self.space().allocate(run, None)
        };
        let mut taken: Vec<Extent> = std::iter::from_fn(take).take(RUNS_MAX).collect();
        taken.sort_unstable_by_key(|extent| extent.block);
        let apart = |pair: &[Extent]| {
            u64::from(pair[0].block) + u64::from(pair[0].blocks) <= u64::from(pair[1].block)
        };
        assert!(taken.windows(2).all(apart), "a run was given out twice");
        while !taken.is_empty() {
            let row = row_len(&taken);
            let (offset, bytes) = self.range_of(&taken[..row]);
            if let Err(error) = self.file().punch(offset, bytes) {
                self.discards.fail(&error);
                break;
            }
            let blocks = sum(&taken[..row]);
            self.count_discarded(blocks);
            extents.extend(taken.drain(..row));
        }
        self.discards.note(&extents);
        drop(extents);
        self.free_unused(taken);
    }

    /// Where a row of extents lies in the file, and its length.
    fn range_of(&self, row: &[Extent]) -> (u64, u64) {
        let first = row.first().expect("a row has an extent");
        assert!(
            u64::from(first.block) + sum(row) <= self.blocks(),
            "a hole behind the end of the file"
        );
        let offset = u64::from(first.block) * self.block_bytes();
        (offset, sum(row) * self.block_bytes())
    }

    /// Takes what was discarded back, until `enough` says so or the disk is full. Returns how many
    /// blocks that are. Blocks.
    pub(crate) fn take_back(&self, enough: impl Fn() -> bool) -> u64 {
        let mut extents = self.discards.extents.lock();
        assert_eq!(
            sum(&extents),
            self.discards.blocks(),
            "what was discarded is counted"
        );
        let mut blocks = 0;
        while !enough() {
            let Some(extent) = extents.pop() else {
                break;
            };
            let (offset, bytes) = self.range_of(&[extent]);
            if self.file().allocate(offset, bytes).is_err() {
                extents.push(extent);
                break;
            }
            blocks += u64::from(extent.blocks);
            self.free_unused([extent]);
        }
        self.discards.note(&extents);
        blocks
    }
}

/// How many of the first of `extents`, which are in order, lie in a row.
fn row_len(extents: &[Extent]) -> usize {
    let adjoins = |pair: &&[Extent]| {
        u64::from(pair[0].block) + u64::from(pair[0].blocks) == u64::from(pair[1].block)
    };
    1 + extents.windows(2).take_while(adjoins).count()
}

#[cfg(test)]
mod tests {
    use pando_device::faulty::{CrashMode, FaultyDevice};
    use pando_device::{AnyDevice, Create, Device, MemoryDevice, OpenOptions};
    use pando_space::{Space, SpaceOptions};
    use pando_stats::{Statistics, Ticker};
    use pando_sync::Arc;

    use super::*;
    use crate::{Batch, Builder, Db, Durability, Table, WriteOptions};

    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 16384;

    fn keeper() -> (SpaceKeeper, Arc<Statistics>) {
        let device = AnyDevice::from(MemoryDevice::new(1 << 28));
        let file = device.open("data", OpenOptions::create(Create::New));
        let file = file.unwrap();
        file.write_at(&vec![7; (BLOCKS * BLOCK) as usize], 0)
            .unwrap();
        let options = SpaceOptions {
            groups: 2,
            unit: 1,
            delete_reserve: 0,
        };
        let space = Space::new(BLOCKS, options);
        let statistics = Arc::new(Statistics::new());
        let keeper = SpaceKeeper::new(space, file, BLOCK, statistics.clone());
        (keeper, statistics)
    }

    fn byte_of(keeper: &SpaceKeeper, block: u64) -> u8 {
        let mut bytes = [0];
        keeper.file().read_at(&mut bytes, block * BLOCK).unwrap();
        bytes[0]
    }

    #[test]
    fn what_is_used_reserved_or_kept_ready_is_not_discarded() {
        let (keeper, statistics) = keeper();
        // Every 100th block is somebody's.
        let used: Vec<u64> = (0..BLOCKS).step_by(100).collect();
        for block in &used {
            let block = *block as u32;
            let extent = Extent { block, blocks: 1 };
            keeper.space().mark_allocated(extent).unwrap();
        }
        keeper.discard_spare(|| 0);
        assert_eq!(keeper.discards.blocks(), 0, "it was not asked for");
        keeper.begin_discards();
        let _reservation = keeper.try_reserve(3000, || 0, false).unwrap();
        keeper.discard_spare(|| 2000);
        let discarded = keeper.discards.blocks();
        assert!(discarded > 4000, "{discarded}");
        assert_eq!(statistics.get(Ticker::BlocksDiscarded), discarded);
        // Reserved, dirty, the reserve of 1 MiB, and twice the low water of 1 MiB.
        let left = keeper.space().free_blocks();
        assert!(left >= 3000 + 2000 + 256 + 2 * 256, "{left}");
        assert_eq!(left + discarded + used.len() as u64, BLOCKS);
        assert!(used.iter().all(|block| byte_of(&keeper, *block) == 7));
        let holes = (0..BLOCKS).filter(|block| byte_of(&keeper, *block) == 0);
        assert_eq!(holes.count() as u64, discarded);
        // What is left may be used up without a look at what was discarded.
        keeper.allocate(&vec![1; left as usize]).unwrap();
        let bytes: Vec<u64> = (0..BLOCKS)
            .filter(|at| byte_of(&keeper, *at) == 0)
            .collect();
        assert_eq!(bytes.len() as u64, discarded, "nothing else is a hole");
        assert_eq!(keeper.take_back(|| false), discarded);
        assert_eq!(keeper.discards.blocks(), 0);
        assert_eq!(keeper.space().free_blocks(), discarded);
        keeper.space().check_invariants();
    }

    #[test]
    fn what_was_discarded_comes_back_before_the_file_grows() {
        let (keeper, _) = keeper();
        keeper.begin_discards();
        keeper.discard_spare(|| 0);
        let discarded = keeper.discards.blocks();
        assert!(discarded > 0);
        let left = keeper.space().free_blocks();
        keeper.want(left + 1000);
        keeper.grow_if_wanted(0);
        assert_eq!(keeper.blocks(), BLOCKS, "it has not grown");
        let back = discarded - keeper.discards.blocks();
        assert!(back >= 1000 && back < discarded, "{back} of {discarded}");
        // A file that is made shorter has none.
        let low = keeper.begin_low();
        assert_eq!(keeper.discards.blocks(), 0);
        keeper.discard_spare(|| 0);
        assert_eq!(keeper.discards.blocks(), 0);
        drop(low);
        keeper.discard_spare(|| 0);
        assert!(keeper.discards.blocks() > 0);
    }

    fn options() -> Builder {
        Db::builder()
            .max_memory(16 << 20)
            .durability(Durability::Durable)
            .discard(true)
    }

    fn open(device: &FaultyDevice) -> (Db, Table) {
        let db = Db::open_device(options(), AnyDevice::from(device.clone())).unwrap();
        let table = db.table("t").unwrap();
        (db, table)
    }

    fn value(number: u32) -> Vec<u8> {
        number.to_be_bytes().repeat(500)
    }

    fn put(table: &Table, numbers: impl Iterator<Item = u32>) {
        let mut batch = Batch::new();
        for number in numbers {
            batch.put(table, &number.to_be_bytes(), &value(number));
            if batch.len() == 100 {
                table
                    .db()
                    .write(&mut batch, WriteOptions::default())
                    .unwrap();
                batch.clear();
            }
        }
        table
            .db()
            .write(&mut batch, WriteOptions::default())
            .unwrap();
    }

    fn check(table: &Table, numbers: impl Iterator<Item = u32>) {
        for number in numbers {
            let found = table.get(&number.to_be_bytes()).unwrap();
            assert_eq!(found, Some(value(number)), "{number}");
        }
    }

    #[test]
    fn a_crash_behind_discards_finds_all_that_was_acknowledged() {
        const KEYS: u32 = 6000;
        for at in 0..9 {
            let device = FaultyDevice::new(at);
            let (db, table) = open(&device);
            put(&table, 0..KEYS);
            db.checkpoint().unwrap();
            let unsynced = WriteOptions::durability(Durability::None);
            for number in KEYS / 8..KEYS {
                let mut batch = Batch::new();
                batch.delete(&table, &number.to_be_bytes());
                db.write(&mut batch, unsynced).unwrap();
            }
            db.flush().unwrap();
            while db.garbage_left() {
                pando_sync::thread::yield_now();
            }
            // Some crash within a checkpoint, at each of its syncs, some behind its discards.
            if at > 0 {
                device.crash_at_sync(device.sync_points() + at);
            }
            if db.checkpoint().and_then(|()| db.checkpoint()).is_ok() {
                let report = db.report();
                assert!(report.data_discarded_bytes > 1 << 20, "{report:?}");
                assert!(report.data_discarded_bytes <= report.data_free_bytes);
            }
            device.crash_now();
            drop((table, db));
            let device = device.after_crash(at, CrashMode::RandomSubset);
            let (db, table) = open(&device);
            check(&table, 0..KEYS / 8);
            assert_eq!(table.len(), u64::from(KEYS / 8));
            // What was a hole is used again.
            put(&table, KEYS..2 * KEYS);
            db.checkpoint().unwrap();
            check(&table, (0..KEYS / 8).chain(KEYS..2 * KEYS));
            db.close().unwrap();
        }
    }
}
