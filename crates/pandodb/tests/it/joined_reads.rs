//! Leaves that lie one behind the other are read together, and fail one by one (decision 114).

use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::statistics::Ticker;
use pandodb::{Builder, Compression, Db, Error, Result, Table};

use crate::fixture::{open_on, text_key, wait_for_garbage};

const KEYS: u32 = 20_000;
const PAGE: usize = 4096;

fn options() -> Builder {
    Db::builder().max_memory(64 << 20).frames(1024)
}

fn value_of(number: u32) -> Vec<u8> {
    format!("value {number:08} {:120}", number % 7).into_bytes()
}

/// Loads a table in order, and opens the store again, with nothing in memory.
fn cold(device: &FaultyDevice, options: impl Fn() -> Builder) -> (Db, Table) {
    let db = open_on(device, options());
    let table = db.table("t").unwrap();
    if table.is_empty() {
        let entries = (0..KEYS).map(|number| (text_key(number), value_of(number)));
        table.load_sorted(entries).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let db = open_on(device, options());
    let table = db.table("t").unwrap();
    (db, table)
}

/// Compares all entries with what was put, up to the first error.
fn scan(table: &Table, backward: bool) -> Result<()> {
    let mut entries = table.iter();
    for number in 0..KEYS {
        let entry = match backward {
            false => entries.next(),
            true => entries.next_back(),
        };
        let (key, value) = entry.expect("as many as were put")?;
        let number = if backward { KEYS - 1 - number } else { number };
        assert_eq!(key, text_key(number));
        assert_eq!(value, value_of(number));
    }
    assert!(entries.next().is_none());
    Ok(())
}

#[test]
fn a_scan_reads_neighbours_together_in_both_directions() {
    let plain = || options();
    let squeezed = || {
        let options = options().page_size(16 << 10).block_size(4 << 10);
        options.compression(Compression::Lz4)
    };
    let all: [&dyn Fn() -> Builder; 2] = [&plain, &squeezed];
    for (kind, options) in all.into_iter().enumerate() {
        for backward in [false, true] {
            let (db, table) = cold(&FaultyDevice::new(1), options);
            let before = db.statistics();
            scan(&table, backward).unwrap();
            let counted = db.statistics().since(&before);
            let (all, joined) = (
                counted.get(Ticker::PageReadsLeaf),
                counted.get(Ticker::PageReadsJoined),
            );
            assert!(all > 100, "{all} leaves");
            assert!(joined * 10 > all, "{kind}: {joined} of {all} together");
        }
    }
}

/// Whoever drops a table of which nothing is in memory has its leaves read, and those beside each
/// other together.
#[test]
fn leaves_of_a_dropped_table_are_read_together() {
    let (db, table) = cold(&FaultyDevice::new(1), options);
    let before = db.statistics();
    drop(table);
    db.drop_table("t").unwrap();
    wait_for_garbage(&db);
    let counted = db.statistics().since(&before);
    let (all, joined) = (
        counted.get(Ticker::PageReadsLeaf),
        counted.get(Ticker::PageReadsJoined),
    );
    assert!(all > 100, "{all} leaves");
    assert!(joined * 10 > all * 8, "{joined} of {all} together");
}

/// Small tables that were dropped while a snapshot kept them from being freed, so that their pages
/// were evicted meanwhile, are read together, too.
#[test]
fn roots_of_dropped_tables_are_read_together() {
    const TABLES: u64 = 1000;
    let options = Db::builder().max_memory(32 << 20).frames(256);
    let device = FaultyDevice::new(1);
    let names: Vec<String> = (0..TABLES).map(|number| format!("t{number:03}")).collect();
    let db = open_on(&device, options);
    for name in &names {
        db.table(name).unwrap().put(b"key", b"value").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    for name in &names {
        db.drop_table(name).unwrap();
    }
    let before = db.statistics();
    drop(snapshot);
    wait_for_garbage(&db);
    let counted = db.statistics().since(&before);
    let (all, joined) = (
        counted.get(Ticker::PageReadsLeaf),
        counted.get(Ticker::PageReadsJoined),
    );
    assert!(all > TABLES / 2, "{all} leaves");
    assert!(joined * 10 > all * 8, "{joined} of {all} together");
}

/// Of pages that are read together, each is read again by itself if that fails; the device fails
/// once.
#[test]
fn a_failure_of_pages_that_are_read_together_is_none_of_a_page() {
    let device = FaultyDevice::new(1);
    let keys: Vec<Vec<u8>> = (0..2_000).map(text_key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (mut failed, mut healed) = (0, 0);
    for nth in 1..20 {
        let (db, table) = cold(&device, options);
        device.fail(FaultPlan::once(Operation::Read, "data", nth, Fault::Io));
        let before = device.faults_struck();
        match table.get_many(&keys) {
            Ok(values) => {
                assert!(values.iter().all(Option::is_some));
                healed += device.faults_struck() - before;
            }
            Err(error) => {
                assert!(error.to_string().contains("reading it"), "{error}");
                failed += 1;
            }
        }
        device.clear_faults();
        assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
        drop(table);
        db.close().unwrap();
    }
    assert!(
        healed > 3,
        "{healed} reads of several pages failed, and {failed} of one"
    );
}

/// A rotten page is an error of that page alone, though it was read together with others.
#[test]
fn a_rotten_page_among_others_is_the_only_one_that_fails() {
    let device = FaultyDevice::new(1);
    let (db, table) = cold(&device, options);
    let rotten = &value_of(KEYS / 2)[..14];
    let data = device.snapshot_file("data");
    let holds = |page: &&[u8]| page.windows(rotten.len()).any(|part| part == rotten);
    let blocks: Vec<usize> = (data.chunks(PAGE).enumerate())
        .filter(|(_, page)| holds(page))
        .map(|(block, _)| block)
        .collect();
    drop(table);
    db.close().unwrap();
    for block in &blocks {
        device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
    }
    let (_db, table) = cold(&device, options);
    let mut entries = table.iter();
    let (mut found, mut error) = (0, None);
    for entry in &mut entries {
        match entry {
            Ok(_) => found += 1,
            Err(failed) => error = Some(failed),
        }
    }
    assert!(
        matches!(error, Some(Error::CorruptPage { .. })),
        "{error:?}"
    );
    assert!(found > KEYS / 3, "{found} entries in front of it");
    let is_there = |number: &u32| matches!(table.get(&text_key(*number)), Ok(Some(_)));
    let missing = (0..KEYS).filter(|number| !is_there(number)).count();
    assert!((1..100).contains(&missing), "{missing} keys on one page");
}
