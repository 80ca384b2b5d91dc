//! Discards: free space in the middle of the data file goes back to the file system, by punching
//! holes (decision 042).
//!
//! Discarded blocks leave the allocator, which sees them as allocated. So nobody can reserve them,
//! and no page finds out only when it is written that the disk has become full meanwhile. When
//! blocks run short, discarded ones are taken back before the file grows: first the file system
//! allocates them again, which is where a full disk shows, and then the allocator frees them.
//!
//! Only free space is discarded: blocks that are named neither by a checkpoint that may still be
//! read nor by a record of the log after it. Discards run on the checkpoint thread, after a
//! checkpoint whose superblock is durable in both slots. The reserve, reserved blocks, and twice
//! the number of blocks kept ready are never discarded.
//!
//! No record of discards is on disk: a store that is opened sees all of these blocks as free. With
//! discards on, opening has the file system allocate the whole file again, so that reserved blocks
//! exist.

use pando_device::File;
use pando_format::Extent;
use pando_format::cast::u32_of;
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_sync::atomic::Ordering;

use crate::space::discards::sum;
use crate::space::keeper::SpaceKeeper;

/// Length in bytes of the runs that are discarded: shorter ones would split the file into more
/// pieces than they are worth.
const RUN_BYTES: u64 = 256 << 10;
/// Largest number of runs that one checkpoint discards.
const RUNS_MAX: usize = 1024;

impl SpaceKeeper {
    /// Turns discards on: from here on spare blocks are discarded after each checkpoint. Call it
    /// before anything is reserved: it makes blocks that an earlier life has discarded part of the
    /// file again.
    pub(crate) fn begin_discards(&self) {
        let bytes = self.blocks() * self.block_bytes();
        // If the disk is full, the first writes of pages find out, and wait for room.
        let _ = self.file().allocate(0, bytes);
        self.discards.on.store(true, Ordering::Relaxed);
    }

    /// Gives spare blocks back to the file system, in batches; `committed` returns how many blocks
    /// dirty pages need. The checkpoint that freed the blocks must be durable. Blocks.
    pub(crate) fn discard_spare(&self, committed: impl Fn() -> u64) {
        // Relaxed: set before there are other threads; one more attempt after a failure does no
        // harm.
        if !self.discards.on.load(Ordering::Relaxed) {
            return;
        }
        let mut extents = self.discards.extents.lock();
        // Checked under the lock: a compaction first announces itself, then takes all discarded
        // blocks back.
        if self.is_low() {
            return;
        }
        let run = RUN_BYTES / self.block_bytes();
        let run = u32_of(run.clamp(1, EXTENT_BLOCKS_MAX.into()));
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

    /// Returns the offset in the file of adjacent extents, and their length in bytes.
    fn range_of(&self, row: &[Extent]) -> (u64, u64) {
        let first = row.first().expect("a row has an extent");
        assert!(
            u64::from(first.block) + sum(row) <= self.blocks(),
            "a hole beyond the end of the file"
        );
        let offset = u64::from(first.block) * self.block_bytes();
        (offset, sum(row) * self.block_bytes())
    }

    /// Takes discarded blocks back until `enough` returns true, none are left, or the disk is full.
    /// Returns the number of blocks. May block the thread.
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

/// Returns how many of the first of `extents`, which are sorted, are adjacent.
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
        // Every 100th block is in use.
        let used: Vec<u64> = (0..BLOCKS).step_by(100).collect();
        for block in &used {
            let block = *block as u32;
            let extent = Extent { block, blocks: 1 };
            keeper.space().mark_allocated(extent).unwrap();
        }
        keeper.discard_spare(|| 0);
        assert_eq!(keeper.discards.blocks(), 0, "no discard was asked for");
        keeper.begin_discards();
        let _reservation = keeper
            .try_reserve(3000, || 0, crate::space::urgency::Urgency::No)
            .unwrap();
        keeper.discard_spare(|| 2000);
        let discarded = keeper.discards.blocks();
        assert!(discarded > 4000, "{discarded}");
        assert_eq!(statistics.get(Ticker::BlocksDiscarded), discarded);
        // This is the sum of reserved blocks, blocks for dirty pages, the reserve of 1 MiB, and
        // twice the low-water mark of 1 MiB.
        let left = keeper.space().free_blocks();
        assert!(left >= 3000 + 2000 + 256 + 2 * 256, "{left}");
        assert_eq!(left + discarded + used.len() as u64, BLOCKS);
        assert!(used.iter().all(|block| byte_of(&keeper, *block) == 7));
        let holes = (0..BLOCKS).filter(|block| byte_of(&keeper, *block) == 0);
        assert_eq!(holes.count() as u64, discarded);
        // All remaining blocks can be allocated without touching discarded ones.
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
        keeper.grow_if_wanted(0, |_| crate::space::growth::MadeRoom::None);
        assert_eq!(keeper.blocks(), BLOCKS, "the file has not grown");
        let back = discarded - keeper.discards.blocks();
        assert!(back >= 1000 && back < discarded, "{back} of {discarded}");
        // A file that is being shortened has no discarded blocks.
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
            // The crashes are at each sync of a checkpoint, some of them after its discards.
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
            // Blocks that were holes are used again.
            put(&table, KEYS..2 * KEYS);
            db.checkpoint().unwrap();
            check(&table, (0..KEYS / 8).chain(KEYS..2 * KEYS));
            db.close().unwrap();
        }
    }
}
