//! Each test drives one ticker or measure of the engine or of a layer below, and checks that it
//! moves by exactly what was done. The drive returns the expected change, and the harness measures
//! the actual one.

use std::ops::Bound;
use std::task::Waker;

use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pando_device::{AnyDevice, Create, Device, MemoryDevice, OpenOptions};
use pando_format::lost::AsideChange;
use pando_format::{Extent, FrameIndex, Lsn};
use pando_pool::{LoadStart, Resource, Restart};
use pando_space::{Space, SpaceOptions};
use pando_stats::{Layer, Measure, Statistics, Ticker, Totals};
use pando_sync::time::Duration;
use pando_sync::{Arc, thread, time};
use pando_tree::{Direction, LeafCopy, Scratch, ValueReader};

use crate::commit::outcome::Outcome;
use crate::error::Error;
use crate::locks::{Asked, LockName, LockOwner, Mode, OwnerKind};
use crate::nonblocking::{Polled, Reactor, ValidatedBatch};
use crate::pages::read_context::ReadContext;
use crate::pages::writeback::OnFullDisk;
use crate::space::id_turns::IdWait;
use crate::space::keeper::SpaceKeeper;
use crate::tables::state::GARBAGE;
use crate::wait::reason::{Unfinished, WaitReason};
use crate::writes::jobs::Job;
use crate::writes::set::WriteSet;
use crate::writes::stripes::StripeUse;
use crate::{Batch, Builder, Compression, Db, Durability, Table, TransactionOptions, WriteOptions};

const PAGE_BYTES: u64 = 4096;

struct Place {
    db: Db,
    table: Table,
    device: FaultyDevice,
}

fn options() -> Builder {
    Db::builder()
        .max_memory(32 << 20)
        .durability(Durability::None)
}

fn place_of(device: &FaultyDevice, options: Builder) -> Place {
    let db = Db::open_device(options, AnyDevice::from(device.clone())).unwrap();
    let table = db.table("t").unwrap();
    Place {
        db,
        table,
        device: device.clone(),
    }
}

fn warm() -> Place {
    let place = place_of(&FaultyDevice::new(1), options());
    place.table.put(b"known", b"value").unwrap();
    place
}

/// Returns a store with `value` under `known` and some more keys, with only roots in memory.
fn cold_with(value: &[u8], options: &Builder) -> Place {
    let device = FaultyDevice::new(1);
    let place = place_of(&device, options.clone());
    place.table.put(b"known", value).unwrap();
    for number in 0..20_u32 {
        let key = number.to_be_bytes();
        place.table.put(&key, &[7; 900]).unwrap();
    }
    place.db.close().unwrap();
    reopened(&device, options)
}

/// Reopens the store, and waits until the engine's threads have read what they need at first.
fn reopened(device: &FaultyDevice, options: &Builder) -> Place {
    let place = place_of(device, options.clone());
    let (engine, mut leaf) = (place.db.engine(), LeafCopy::new());
    let all = Bound::Unbounded;
    engine
        .store
        .drive(|| GARBAGE.try_scan_leaf(&engine.store.pool, all, Direction::Forward, &mut leaf))
        .unwrap();
    while place.db.garbage_left() {
        thread::yield_now();
    }
    place
}

fn cold() -> Place {
    cold_with(b"value", &options())
}

fn counts(db: &Db) -> (Totals, Vec<u64>) {
    let count = |measure: &Measure| db.histogram(*measure).count();
    (db.statistics(), Measure::ALL.iter().map(count).collect())
}

fn ticks(db: &Db, ticker: Ticker) -> u64 {
    db.statistics().get(ticker)
}

fn fill(table: &Table, keys: std::ops::Range<u32>) {
    for number in keys {
        table.put(&number.to_be_bytes(), &[1; 900]).unwrap();
    }
}

/// The name of a ticker or measure, the store, and what is done to it, which returns the expected
/// change.
type Drive = (&'static str, fn() -> Place, fn(&Place) -> u64);

/// Tries to read once while the root is latched.
fn read_latched(place: &Place) {
    let engine = place.db.engine();
    let tree = place.table.state.tree().unwrap();
    let latched = engine.store.pool.exclusive(tree.root).unwrap();
    let (mut reader, mut out) = (ValueReader::default(), Vec::new());
    let found = engine.try_get(&place.table.state, b"known", &mut reader, &mut out);
    found.unwrap_err();
    drop(latched);
}

fn register(place: &Place, reason: WaitReason) -> u64 {
    place.db.engine().register(&reason, Waker::noop()).unwrap();
    1
}

fn serve(place: &Place, restart: Restart) -> u64 {
    place.db.engine().store.serve(restart, &mut 0).unwrap();
    1
}

fn conflict(place: &Place) -> u64 {
    let mut reactor = Reactor::new(&place.db, Waker::noop().clone()).unwrap();
    let mut transaction = ValidatedBatch::new(&place.db);
    let mut out = Vec::new();
    let read = transaction.get(&place.table, b"known", &mut out).unwrap();
    assert!(matches!(read, Polled::Ready(true)));
    transaction.put(&place.table, b"known", b"mine").unwrap();
    place.table.put(b"known", b"others").unwrap();
    let outcome = transaction.try_commit(&mut reactor).unwrap();
    let Polled::Ready(Outcome::Conflict { .. }) = outcome else {
        panic!("a conflict is needed");
    };
    1
}

/// Runs a step that faults seven times on a page that is in memory.
fn fault_often(place: &Place) -> u64 {
    let root = place.table.state.tree().unwrap().root;
    let mut turns = 0;
    let step = |_: &mut crate::wait::blocking::Blocked<'_>| {
        turns += 1;
        match turns {
            8 => Ok(()),
            _ => Err(WaitReason::Restart(Restart::Fault(root)).into()),
        }
    };
    place.db.engine().block(step).unwrap();
    1
}

fn drop_a_table(place: &Place) -> u64 {
    let table = place.db.table("dropped").unwrap();
    let before = ticks(&place.db, Ticker::Splits);
    fill(&table, 0..40);
    // The first split of the root makes two pages, and each other split makes one more.
    let pages = 1 + (ticks(&place.db, Ticker::Splits) - before) + 1;
    place.db.drop_table("dropped").unwrap();
    while place.db.garbage_left() {
        thread::yield_now();
    }
    pages
}

/// Writes a checkpoint. Returns the number of pages that it wrote.
fn checkpoint(place: &Place) -> u64 {
    let before = ticks(&place.db, Ticker::PageWrites);
    place.db.checkpoint().unwrap();
    let pages = ticks(&place.db, Ticker::PageWrites) - before;
    assert!(pages > 0);
    pages
}

fn put_and_checkpoint(place: &Place) -> u64 {
    place.table.put(b"known", b"changed").unwrap();
    checkpoint(place)
}

/// The size of a value of three chunks of 128 KiB, the last one shorter.
const LARGE_BYTES: u64 = 300 << 10;

fn put_large(place: &Place) {
    let bytes = vec![7; LARGE_BYTES as usize];
    let put = place.table.put_streamed(b"large", LARGE_BYTES, &bytes[..]);
    put.unwrap();
}

fn with_large() -> Place {
    let place = warm();
    put_large(&place);
    place
}

fn read_large(place: &Place) {
    let value = place.table.get(b"large").unwrap().unwrap();
    assert_eq!(value.len() as u64, LARGE_BYTES);
}

/// Reads a key that is not in memory. The only page that is missing is a leaf.
fn get_cold(place: &Place) -> u64 {
    assert!(place.table.contains(b"known").unwrap());
    1
}

const ENGINE: [Drive; 48] = [
    ("gets", warm, |place| {
        for _ in 0..3 {
            place.table.get(b"known").unwrap();
        }
        let keys: [&[u8]; 4] = [b"known", b"a", b"b", b"c"];
        place.table.get_many_with(&keys, |_, _| ()).unwrap();
        7
    }),
    ("gets_missed", cold, get_cold),
    ("puts", warm, |place| {
        let mut batch = Batch::new();
        for key in [b"a", b"b", b"c"] {
            batch.put(&place.table, key, b"v");
        }
        place.db.write(&mut batch, WriteOptions::default()).unwrap();
        place.table.put(b"d", b"v").unwrap();
        4
    }),
    ("deletes", warm, |place| {
        assert!(place.table.delete(b"known").unwrap());
        1
    }),
    ("write_bytes", warm, |place| {
        place.table.put(b"ab", b"cde").unwrap();
        place.table.delete(b"ab").unwrap();
        5 + 2
    }),
    ("scans", warm, |place| {
        place.table.iter().count();
        place.table.prefix(b"k").count();
        2
    }),
    ("scan_leaves", warm, |place| {
        fill(&place.table, 0..20);
        let leaves = ticks(&place.db, Ticker::Splits) + 1;
        assert!(leaves > 4);
        place.table.iter().count();
        leaves
    }),
    ("commits", warm, |place| {
        fill(&place.table, 0..3);
        3
    }),
    ("commit_conflicts", warm, conflict),
    ("deadlocks", warm, |place| {
        let begin = || place.db.begin(TransactionOptions::default()).unwrap();
        let (mut old, mut young) = (begin(), begin());
        old.lock(&place.table, &[b"a"]).unwrap();
        young.lock(&place.table, &[b"b"]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| old.lock(&place.table, &[b"b"]).unwrap());
            while ticks(&place.db, Ticker::RestartsLock) == 0 {
                thread::yield_now();
            }
            young.lock(&place.table, &[b"a"]).unwrap_err();
        });
        1
    }),
    ("lock_timeouts", warm, |place| {
        let mut holder = place.db.begin(TransactionOptions::default()).unwrap();
        holder.lock(&place.table, &[b"a"]).unwrap();
        let options = TransactionOptions::default().lock_timeout(Duration::from_millis(1));
        let mut late = place.db.begin(options).unwrap();
        late.lock(&place.table, &[b"a"]).unwrap_err();
        1
    }),
    ("snapshots_ended", warm, |place| {
        let _settled = place.db.snapshot_settled().unwrap();
        let engine = place.db.engine();
        // No snapshot is ended while the store looks for garbage, as it does when it is opened.
        while engine.room_comes() {
            place.db.checkpoint().unwrap();
        }
        let _made = engine.make_room(true);
        engine.end_snapshots(None, true);
        2
    }),
    ("restarts_conflict", warm, |place| {
        serve(place, Restart::Conflict) + register(place, WaitReason::Restart(Restart::Conflict))
    }),
    ("restarts_frames", warm, |place| {
        let wait = Restart::Wait(Resource::Frames);
        serve(place, wait) + register(place, WaitReason::Restart(wait))
    }),
    ("restarts_images", warm, |place| {
        let wait = Restart::Wait(Resource::Images);
        serve(place, wait) + register(place, WaitReason::Restart(wait))
    }),
    ("restarts_gate", warm, |place| {
        register(place, WaitReason::Gate)
    }),
    ("restarts_stripe", warm, |place| {
        let tree = place.table.state.tree().unwrap().id;
        let stripe = place.db.engine().stripes.of(tree, b"known");
        register(place, WaitReason::Stripe(stripe, StripeUse::Read))
    }),
    ("restarts_log", warm, |place| {
        register(place, WaitReason::LogSpace(64))
    }),
    ("restarts_blocks", warm, |place| {
        register(place, WaitReason::Blocks(1))
    }),
    ("restarts_page_ids", warm, |place| {
        let need = IdWait::default().need(1, false);
        register(place, WaitReason::PageIds(need))
    }),
    ("restarts_dirty", warm, |place| {
        register(place, WaitReason::Dirty)
    }),
    ("restarts_pins", warm, |place| {
        register(place, WaitReason::Pins(1))
    }),
    ("restarts_applied", warm, |place| {
        register(place, WaitReason::Applied(Lsn(0)))
    }),
    ("restarts_versions", warm, |place| {
        register(place, WaitReason::Versions(1))
    }),
    ("restarts_lock", warm, |place| {
        let engine = place.db.engine();
        let owner = || engine.lock_owner(OwnerKind::Transaction, None, None);
        let (mut holder, mut second) = (owner(), owner());
        let ask = |owner: &mut LockOwner| {
            let mode = Mode::Exclusive { at_most: None };
            owner.ask((0, &LockName::Turn), mode, "", || ()).unwrap()
        };
        assert!(matches!(ask(&mut holder), Asked::Granted));
        let Asked::Waits(wait) = ask(&mut second) else {
            panic!("it is held")
        };
        register(place, WaitReason::Lock(wait))
    }),
    ("restarts_job", warm, |place| {
        let job = Arc::new(Job::new(WriteSet::default()));
        register(place, WaitReason::Job(job))
    }),
    ("pin_shares", warm, fault_often),
    ("writeback_batches", warm, |place| {
        checkpoint(place);
        1
    }),
    ("gate_closes", warm, |place| {
        checkpoint(place);
        1
    }),
    ("gate_closed_ns", warm, |place| {
        let sum = || place.db.histogram(Measure::CheckpointGate).sum();
        let before = sum();
        checkpoint(place);
        assert!(sum() > before);
        sum() - before
    }),
    ("checkpoints", warm, |place| {
        checkpoint(place);
        1
    }),
    ("checkpoint_pages", warm, checkpoint),
    ("mapping_write_bytes", warm, |place| {
        checkpoint(place);
        // One section of the journal holds such a group, and the superblock has two slots.
        3 * 4096
    }),
    ("writes_aside", warm, |place| {
        let engine = place.db.engine();
        let tree = place.table.state.tree().unwrap();
        let change = (&b"key"[..], AsideChange::Delete);
        let error = Error::corrupt("a page", "a test");
        let lsn = engine.log.reserved_end();
        let mut scratch = Scratch::new();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        let token = &engine.store.pool.apply_token(&guard);
        let put = engine
            .store
            .put_aside(token, tree, lsn, change, &error, &mut scratch);
        put.unwrap();
        1
    }),
    ("leaks", warm, |place| {
        let engine = place.db.engine();
        let tree = place.table.state.tree().unwrap();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        let token = &engine.store.pool.apply_token(&guard);
        engine
            .store
            .note_leaks(token, tree.id, 3, &mut Scratch::new())
            .unwrap();
        3
    }),
    ("garbage_pages", warm, drop_a_table),
    ("extents_allocated", warm, checkpoint),
    ("blocks_allocated", warm, checkpoint),
    ("blocks_freed", warm, |place| {
        let free = || place.db.report().data_free_bytes / PAGE_BYTES;
        let before = free();
        let written: u64 = (0..3).map(|_| put_and_checkpoint(place)).sum();
        free() + written - before
    }),
    ("get_sampled_ns", warm, |place| {
        let before = place.db.histogram(Measure::ValueSampled);
        for _ in 0..12_800 {
            place.table.contains(b"known").unwrap();
        }
        let values = place.db.histogram(Measure::ValueSampled).since(&before);
        assert!((50..200).contains(&values.count()), "one of 128");
        assert_eq!(values.sum(), values.count() * 5, "all values have 5 bytes");
        values.count()
    }),
    ("checkpoint_gate_ns", warm, |place| checkpoint(place).min(1)),
    ("checkpoint_write_ns", warm, |place| {
        checkpoint(place).min(1)
    }),
    ("checkpoint_sync_ns", warm, |place| checkpoint(place).min(1)),
    ("checkpoint_publish_ns", warm, |place| {
        checkpoint(place).min(1)
    }),
    ("chunk_reads", with_large, |place| {
        read_large(place);
        3
    }),
    ("chunk_read_bytes", with_large, |place| {
        read_large(place);
        LARGE_BYTES
    }),
    ("chunk_writes", warm, |place| {
        put_large(place);
        3
    }),
    ("chunk_write_bytes", warm, |place| {
        put_large(place);
        LARGE_BYTES
    }),
];

const BELOW: [Drive; 25] = [
    ("restarts", warm, |place| {
        read_latched(place);
        // There are eight optimistic attempts and one with latches.
        9
    }),
    ("restarts_pessimistic", warm, |place| {
        read_latched(place);
        1
    }),
    ("splits", warm, |place| {
        // The fourth of these entries does not fit in a page.
        fill(&place.table, 0..5);
        1
    }),
    ("pages_removed", warm, |place| {
        let keeps = |number| !(100..200).contains(&number);
        shrink(place, keeps, |gone| gone[0] > 0)[0]
    }),
    ("pages_merged", warm, |place| {
        shrink(place, |number| number % 8 == 0, |gone| gone[1] > 0)[1]
    }),
    ("faults", cold, get_cold),
    ("faults_failed", cold, |place| {
        let plan = FaultPlan::once(Operation::Read, "data", 1, Fault::Io);
        place.device.fail(plan);
        place.table.get(b"known").unwrap_err();
        1
    }),
    ("page_reads", cold, get_cold),
    ("page_reads_leaf", cold, get_cold),
    (
        "page_reads_inner",
        || cold_of_three_levels(),
        |place| {
            get_cold(place);
            // Opening the store has wired the root, so only the inner page below it is read.
            1
        },
    ),
    (
        "page_reads_overflow",
        || cold_with(&[5; 20_000], &options()),
        |place| {
            assert_eq!(place.table.get(b"known").unwrap().unwrap().len(), 20_000);
            // Each page has a header of 16 bytes. The index of a value of this size is in its leaf.
            20_000_u64.div_ceil(PAGE_BYTES)
        },
    ),
    ("page_read_bytes", cold, |place| {
        get_cold(place) * PAGE_BYTES
    }),
    ("page_writes", warm, |place| {
        let before = place.db.histogram(Measure::DeviceWrite).count();
        let pages = put_and_checkpoint(place);
        assert!(place.db.histogram(Measure::DeviceWrite).count() > before);
        pages
    }),
    ("page_write_bytes", warm, |place| {
        put_and_checkpoint(place) * PAGE_BYTES
    }),
    ("pages_compressed", compressed, |place| {
        let bytes = || ticks(&place.db, Ticker::PageWriteBytes);
        fill(&place.table, 0..50);
        let before = bytes();
        let pages = checkpoint(place);
        // An uncompressed page takes four blocks, and a compressed one takes one.
        (4 * pages * PAGE_BYTES - (bytes() - before)) / (3 * PAGE_BYTES)
    }),
    (
        "pages_decompressed",
        || cold_with(b"value", &squeezing()),
        get_cold,
    ),
    ("evictions_clean", warm, |place| {
        fill(&place.table, 0..200);
        checkpoint(place);
        let (pool, mut dirty) = (&place.db.engine().store.pool, Vec::new());
        let emptied = pool.sweep(4 * pool.frames(), 20, &mut dirty);
        assert_eq!(emptied, 20);
        20
    }),
    ("evictions_dirty", warm, |place| {
        let engine = place.db.engine();
        let frames = (0..engine.store.pool.frames() as u32).map(FrameIndex);
        let images: Vec<_> = frames
            .filter_map(|frame| engine.store.pool.image_of(frame, None))
            .collect();
        let count = images.len() as u64;
        assert!(count > 0);
        engine.store.write_images(images, OnFullDisk::Wait).unwrap();
        count
    }),
    ("log_bytes", warm, |place| {
        let before = place.db.newest_lsn().0;
        fill(&place.table, 0..3);
        place.db.newest_lsn().0 - before
    }),
    ("log_write_bytes", warm, |place| {
        let bytes = || ticks(&place.db, Ticker::LogWriteBytes);
        let begin = bytes();
        place.db.flush().unwrap();
        let before = (bytes(), ticks(&place.db, Ticker::LogBytes));
        fill(&place.table, 0..3);
        place.db.flush().unwrap();
        let written = bytes() - before.0;
        let records = ticks(&place.db, Ticker::LogBytes) - before.1;
        assert!(written.is_multiple_of(512), "{written}");
        assert!(written >= records && written < records + 4096, "{written}");
        bytes() - begin
    }),
    ("log_flushes", warm, |place| {
        fill(&place.table, 0..3);
        place.db.flush().unwrap();
        1
    }),
    ("log_flushed_records", warm, |place| {
        place.db.flush().unwrap();
        let before = ticks(&place.db, Ticker::LogFlushedRecords);
        fill(&place.table, 0..3);
        place.db.flush().unwrap();
        assert_eq!(ticks(&place.db, Ticker::LogFlushedRecords) - before, 3);
        ticks(&place.db, Ticker::LogFlushedRecords)
    }),
    ("log_flush_ns", warm, |place| {
        fill(&place.table, 0..3);
        place.db.flush().unwrap();
        1
    }),
    ("log_flush_records", warm, |place| {
        let sum = || place.db.histogram(Measure::LogFlushRecords).sum();
        place.db.flush().unwrap();
        let before = sum();
        fill(&place.table, 0..3);
        place.db.flush().unwrap();
        assert_eq!(sum() - before, 3);
        2
    }),
    ("device_read_bytes", cold, |place| {
        get_cold(place) * PAGE_BYTES
    }),
];

/// Tickers that are driven by tests of their own.
const BY_THEMSELVES: [&str; 10] = [
    "blocks_discarded",
    "page_reads_joined",
    "pages_packed",
    "compact_pages",
    "compact_chunks",
    "read_contexts_made",
    "searches_bounded",
    "value_sampled_bytes",
    "put_sampled_ns",
    "commit_sampled_ns",
];

fn squeezing() -> Builder {
    let options = options().page_size(16 << 10).block_size(4 << 10);
    options.compression(Compression::Lz4)
}

fn compressed() -> Place {
    place_of(&FaultyDevice::new(1), squeezing())
}

/// Returns a store with a tree of three levels. `known` is in none of the pages that the opening
/// reads.
fn cold_of_three_levels() -> Place {
    let device = FaultyDevice::new(1);
    let place = place_of(&device, options());
    let mut batch = Batch::new();
    for number in 0..4000_u32 {
        let mut key = [b'a'; 300];
        key[..4].copy_from_slice(&number.to_be_bytes());
        batch.put(&place.table, &key, &[1; 600]);
        if number % 1000 == 999 {
            place.db.write(&mut batch, WriteOptions::default()).unwrap();
            batch.clear();
        }
    }
    place.table.put(b"known", b"value").unwrap();
    place.db.close().unwrap();
    reopened(&device, &options())
}

fn leaves(place: &Place) -> u64 {
    let before = ticks(&place.db, Ticker::ScanLeaves);
    place.table.iter().count();
    ticks(&place.db, Ticker::ScanLeaves) - before
}

/// Tickers that the maintenance thread keeps moving during the count. [`shrink`] compares them with
/// the number of leaves that are gone.
const GOES_ON: [&str; 2] = ["pages_removed", "pages_merged"];

/// Deletes entries until enough leaves are gone. Returns the numbers of removed and of merged
/// leaves.
fn shrink(place: &Place, keeps: fn(u32) -> bool, is_enough: fn([u64; 2]) -> bool) -> [u64; 2] {
    fill(&place.table, 0..400);
    let before = leaves(place);
    for number in (0..400_u32).filter(|number| !keeps(*number)) {
        place.table.delete(&number.to_be_bytes()).unwrap();
    }
    let begun = time::now();
    loop {
        let gone = [Ticker::PagesRemoved, Ticker::PagesMerged];
        let gone = gone.map(|ticker| ticks(&place.db, ticker));
        let left = leaves(place);
        if is_enough(gone) && before - left == gone[0] + gone[1] {
            return gone;
        }
        let is_late = begun.elapsed() > Duration::from_secs(20);
        assert!(!is_late, "{gone:?}, {left} of {before} left");
        thread::yield_now();
    }
}

#[test]
fn everything_of_the_engine_moves_by_what_is_done() {
    for (name, make, drive) in ENGINE.into_iter().chain(BELOW) {
        let place = make();
        let (ticked_before, measured_before) = counts(&place.db);
        let expected = drive(&place);
        let (ticked, measured) = counts(&place.db);
        let ticker = Ticker::ALL.iter().find(|of| of.name() == name);
        let moved = match ticker {
            Some(ticker) => ticked.since(&ticked_before).get(*ticker),
            None => {
                let at = Measure::ALL.iter().position(|of| of.name() == name);
                let at = at.unwrap_or_else(|| panic!("{name} is not known"));
                measured[at] - measured_before[at]
            }
        };
        match GOES_ON.contains(&name) {
            true => assert!(moved >= expected, "{name}: {moved}, {expected} before"),
            false => assert_eq!(moved, expected, "{name}"),
        }
    }
}

#[test]
fn nothing_is_left_out() {
    let ours = |layer| !matches!(layer, Layer::Device | Layer::Server);
    let tickers = Ticker::ALL.iter().filter(|of| ours(of.layer()));
    let measures = Measure::ALL.iter().filter(|of| ours(of.layer()));
    let names = tickers
        .map(|of| of.name())
        .chain(measures.map(|of| of.name()));
    for name in names {
        let drives = ENGINE.iter().chain(&BELOW);
        let is_driven = drives.map(|(driven, ..)| driven).any(|of| *of == name);
        let is_driven = is_driven || BY_THEMSELVES.contains(&name);
        assert!(is_driven, "nothing drives {name}");
    }
}

#[test]
fn one_of_sixteen_commits_is_timed() {
    let place = warm();
    let (_, before) = counts(&place.db);
    fill(&place.table, 0..1600);
    let (_, after) = counts(&place.db);
    let of = |measure: Measure| after[measure as usize] - before[measure as usize];
    for timed in [of(Measure::PutSampled), of(Measure::CommitSampled)] {
        assert!((60..160).contains(&timed), "{timed} of 1600");
    }
    let puts = place.db.histogram(Measure::PutSampled);
    assert!(puts.mean() > 100.0 && puts.percentile(0.5) > 100);
}

#[test]
fn a_thread_makes_one_read_context() {
    let statistics = Statistics::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3 {
                    ReadContext::of_thread(&statistics, |_| ());
                }
            });
        }
    });
    assert_eq!(statistics.get(Ticker::ReadContextsMade), 2);
}

#[test]
fn searches_that_end_at_their_bound_are_counted_once() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 20));
    let file = device.open("data", OpenOptions::create(Create::New));
    let options = SpaceOptions {
        groups: 1,
        ..SpaceOptions::default()
    };
    let statistics = Arc::new(Statistics::new());
    let blocks = 200 * pando_space::REGION_BLOCKS;
    let space = Space::new(u64::from(blocks), options);
    let keeper = SpaceKeeper::new(space, file.unwrap(), 512, statistics.clone());
    // Pairs of free blocks are everywhere, and a run of eight is at the far end. Marking blocks
    // does not tell the space how long the remaining runs are.
    let far = Extent {
        block: blocks - 50,
        blocks: 8,
    };
    let behind = far.block + far.blocks;
    for (block, blocks) in (0..far.block)
        .step_by(3)
        .map(|block| (block, 1))
        .chain([(far.block - 1, 1), (behind, blocks - behind)])
    {
        let taken = Extent { block, blocks };
        // The first of these blocks may be marked already.
        let _ = keeper.space().mark_allocated(taken);
    }
    assert_eq!(keeper.space().allocate(3, None).unwrap().block, far.block);
    let bounded = keeper.space().bounded_searches();
    assert!(bounded > 0);
    // Bounded searches are counted with the next allocation, and only once.
    for _ in 0..2 {
        keeper.allocate(&[1]).unwrap();
        assert_eq!(statistics.get(Ticker::SearchesBounded), bounded);
    }
    assert_eq!(statistics.get(Ticker::BlocksAllocated), 2);
    let first = Extent {
        block: far.block,
        blocks: 3,
    };
    keeper.free_all([first]);
    assert_eq!(statistics.get(Ticker::BlocksFreed), 3);
}

/// Occupancy counts reads in flight by two counters: a reset between the two must not show.
#[test]
fn resets_begin_anew_and_leave_what_is_lent_out_alone() {
    let place = cold();
    get_cold(&place);
    let engine = place.db.engine();
    let (mut reader, mut out) = (ValueReader::default(), Vec::new());
    let missing = engine.try_get(&place.table.state, &[0; 4], &mut reader, &mut out);
    let Err(Unfinished::Wait(WaitReason::Restart(Restart::Fault(page)))) = missing else {
        panic!("only the leaf of the known key is in memory: {missing:?}");
    };
    let Ok(LoadStart::Claimed(ticket)) = engine.store.pool.begin_load(page) else {
        panic!("nobody else reads");
    };
    let lent = crate::Occupancy {
        reads: 1,
        ..Default::default()
    };
    assert_eq!(place.db.occupancy(), lent);
    place.db.reset_statistics();
    assert_eq!(ticks(&place.db, Ticker::Gets), 0);
    assert_eq!(place.db.histogram(Measure::DeviceRead).count(), 0);
    assert_eq!(place.db.occupancy(), lent, "a page is still being read");
    engine.store.pool.fail_load(ticket);
    assert_eq!(place.db.occupancy(), crate::Occupancy::default());
    get_cold(&place);
    assert_eq!(ticks(&place.db, Ticker::Gets), 1);
}
