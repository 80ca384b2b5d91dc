//! Salvage of stores with a single damage: every row that is not listed as lost is in the new
//! store, no row in it is wrong, and the new store is sound.

use std::collections::BTreeMap;

use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_device::{AnyDevice, Device};
use pando_format::bytes::u32_at;
use pando_format::catalogue::FIRST_USER_TREE;
use pando_format::mapping::Group;
use pando_format::page::PageKind;
use pandodb::{Batch, Builder, Db, Error, SalvageReport, VerifyReport, WriteOptions};

use crate::fixture::{NONE, open_on, text_key as key};

const PAGE: usize = 4096;
const ROWS: u32 = 9000;

/// Rows by table and key.
type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn options() -> Builder {
    let options = Db::builder().max_memory(8 << 20).frames(64);
    options.chunk_size(8192).chunk_values_over(200_000)
}

fn open(device: &FaultyDevice) -> Db {
    open_on(device, options())
}

fn long(number: u32, bytes: usize) -> Vec<u8> {
    let mark = format!("value {number:03} ");
    mark.bytes().cycle().take(bytes).collect()
}

/// Returns a closed store with short rows, with values in overflow pages with and without an index,
/// and with values in chunks.
fn filled(seed: u64) -> FaultyDevice {
    let device = FaultyDevice::new(seed);
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in 0..ROWS {
        let value = [&key(number)[..], &[7; 80]].concat();
        table.put_with(&key(number), &value, NONE).unwrap();
    }
    let values = db.table("values").unwrap();
    for number in 0..4 {
        let at = |base| key(base + number);
        values.put(&at(0), &long(number, 9_000)).unwrap();
        values.put(&at(100), &long(100 + number, 100_000)).unwrap();
        values.put(&at(200), &long(200 + number, 300_000)).unwrap();
    }
    db.table("small").unwrap().put(b"a", b"b").unwrap();
    db.table("empty").unwrap();
    db.close().unwrap();
    device
}

fn content(device: &FaultyDevice) -> Content {
    let db = open(&device.after_crash(1, CrashMode::AllSurvive));
    let mut content = Content::new();
    for name in db.tables() {
        let table = db.table(&name).unwrap();
        for entry in table.iter() {
            let (key, _) = entry.unwrap();
            let value = table.get(&key).unwrap().unwrap();
            content.insert((name.clone(), key), value);
        }
    }
    content
}

/// Returns the pages of `data` for which `wanted` returns true, including older images.
fn pages(device: &FaultyDevice, wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    let data = device.snapshot_file("data");
    let pages = data.chunks_exact(PAGE).enumerate();
    let found = pages.filter(|(_, page)| wanted(page));
    let blocks: Vec<usize> = found.map(|(block, _)| block).collect();
    assert!(!blocks.is_empty(), "there is such a page");
    blocks
}

/// Returns the names of files that begin with `prefix`.
fn names(device: &FaultyDevice, prefix: &str) -> Vec<String> {
    let names = AnyDevice::from(device.clone()).list().unwrap();
    names
        .into_iter()
        .filter(|name| name.starts_with(prefix))
        .collect()
}

fn rot(device: &FaultyDevice, wanted: impl Fn(&[u8]) -> bool) {
    for block in pages(device, wanted) {
        device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
    }
}

fn is_page(page: &[u8], kind: PageKind, level: u8) -> bool {
    u32_at(page, 8) >= 16 && PageKind::decode(page[12]) == Some(kind) && page[13] == level
}

fn holds(page: &[u8], text: &[u8]) -> bool {
    page.windows(text.len()).any(|at| at == text)
}

fn salvage(device: &FaultyDevice) -> (SalvageReport, FaultyDevice) {
    let before = device.snapshot_file("data");
    let new = FaultyDevice::new(77);
    let from = device.clone().into();
    let report = SalvageReport::of_devices(&from, new.clone().into(), options()).unwrap();
    assert!(
        before == device.snapshot_file("data"),
        "salvage only reads the store"
    );
    let verified = VerifyReport::of_device(&new.clone().into()).unwrap();
    assert_eq!(verified.damages, []);
    (report, new)
}

/// Checks that every row of `new` is right, and that all missing rows were reported as lost.
/// Returns the missing keys.
fn check(report: &SalvageReport, new: &FaultyDevice, expected: &Content) -> Vec<Vec<u8>> {
    let found = content(new);
    for (place, value) in &found {
        assert!(expected.get(place) == Some(value), "{place:?} is wrong");
    }
    let mut missing = Vec::new();
    for (place, _) in expected
        .iter()
        .filter(|(place, _)| !found.contains_key(place))
    {
        let (name, key) = place;
        let mut of_table = report.lost.iter().filter(|lost| lost.table == *name);
        assert!(of_table.any(|lost| lost.contains(key)), "{place:?}");
        missing.push(key.clone());
    }
    let rows: u64 = report.tables.iter().map(|table| table.rows).sum();
    assert_eq!(rows, found.len() as u64);
    missing
}

fn salvaged(device: &FaultyDevice, expected: &Content) -> (SalvageReport, Vec<Vec<u8>>) {
    let (report, new) = salvage(device);
    let missing = check(&report, &new, expected);
    (report, missing)
}

#[test]
fn a_sound_store_is_copied_as_it_is() {
    let device = filled(1);
    let expected = content(&device);
    let (report, new) = salvage(&device);
    assert_eq!(check(&report, &new, &expected), Vec::<Vec<u8>>::new());
    assert!(report.is_whole() && report.harmless.is_empty());
    let names: Vec<&str> = report.tables.iter().map(|table| &table.name[..]).collect();
    assert_eq!(names, ["empty", "small", "t", "values"]);
    let sizes = expected.iter().filter(|((name, _), _)| name == "t");
    let bytes: usize = sizes.map(|((_, key), value)| key.len() + value.len()).sum();
    assert_eq!(report.tables[2].bytes, bytes as u64);
    assert_eq!(open(&new).hash_key(), open(&device).hash_key());
    let again = SalvageReport::of_devices(&device.into(), new.into(), options());
    let refused = again.unwrap_err().to_string();
    assert!(refused.contains("empty directory"), "{refused}");
}

#[test]
fn a_leaf_takes_its_rows_along() {
    let device = filled(2);
    let expected = content(&device);
    let row = key(4000);
    rot(&device, |page| {
        is_page(page, PageKind::Leaf, 0) && holds(page, &row)
    });
    let (report, missing) = salvaged(&device, &expected);
    assert!(missing.contains(&row) && missing.len() < 100, "{missing:?}");
    assert_eq!((report.lost.len(), report.unbounded.len()), (1, 0));
    assert!(!report.is_whole());
}

/// No row is missing, but salvage cannot know that.
#[test]
fn leaves_below_a_node_that_cannot_be_read_are_found() {
    for level in [1, 2] {
        let device = filled(3);
        let expected = content(&device);
        rot(&device, |page| is_page(page, PageKind::Inner, level));
        let (report, missing) = salvaged(&device, &expected);
        assert_eq!(missing, Vec::<Vec<u8>>::new(), "level {level}");
        let found: u64 = report.lost.iter().map(|lost| lost.found).sum();
        assert_eq!(found, u64::from(ROWS), "level {level}");
        if level == 2 {
            assert_eq!(
                (&report.lost[0].from[..], &report.lost[0].to),
                (&b""[..], &None)
            );
        }
    }
}

#[test]
fn a_table_of_one_leaf_may_be_lost_as_a_whole() {
    let device = filled(4);
    let expected = content(&device);
    let small = pages(&device, |page| {
        is_page(page, PageKind::Leaf, 0) && u32_at(page, 40) & 0xffff == 1
    });
    for block in small {
        device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
    }
    let (report, missing) = salvaged(&device, &expected);
    assert_eq!(missing, [b"a"]);
    let tables: Vec<&str> = report.lost.iter().map(|lost| &lost.table[..]).collect();
    assert_eq!(tables, ["small"]);
    assert!(report.lost[0].contains(b"") && report.lost[0].contains(&[255; 9]));
}

#[test]
fn a_value_that_cannot_be_read_is_one_key() {
    let overflow = |page: &[u8]| is_page(page, PageKind::Overflow, 0);
    let text = |number: u32| long(number, 40)[..20].to_vec();
    let chunk = text(202);
    let [second, indexed] = [text(2), text(101)];
    type Wanted<'a> = &'a dyn Fn(&[u8]) -> bool;
    let cases: [(Wanted<'_>, u32); 3] = [
        (&|page| overflow(page) && holds(page, &second), 2),
        (&|page| overflow(page) && holds(page, &indexed), 101),
        (
            &|page| page.starts_with(b"value") && holds(page, &chunk),
            202,
        ),
    ];
    for (wanted, number) in cases {
        let device = filled(5);
        let expected = content(&device);
        rot(&device, wanted);
        let (report, missing) = salvaged(&device, &expected);
        assert_eq!(missing, [key(number)]);
        assert_eq!(report.lost.len(), 1, "{:?}", report.lost);
        assert_eq!(report.lost[0].from, key(number));
        assert!(!report.lost[0].contains(&key(number + 1)));
    }
    let device = filled(5);
    let expected = content(&device);
    rot(&device, |page| is_page(page, PageKind::OverflowIndex, 0));
    let (_, missing) = salvaged(&device, &expected);
    assert_eq!(missing, [100, 101, 102, 103].map(key));
}

#[test]
fn tables_whose_names_are_lost_get_others() {
    let device = filled(6);
    let expected = content(&device);
    rot(&device, |page| u32_at(page, 8) == 1 && page[12] == 1);
    let (report, new) = salvage(&device);
    assert_eq!(report.unbounded.len(), 1, "{:?}", report.unbounded);
    let found = content(&new);
    let short: Vec<&Vec<u8>> = found
        .iter()
        .filter(|((name, _), _)| name == "lost/16")
        .map(|(_, value)| value)
        .collect();
    assert_eq!(short.len(), ROWS as usize);
    let values: Vec<&Vec<u8>> = found.values().collect();
    assert_eq!(values, expected_in_order_of_trees(&expected));
    assert!(
        report
            .lost
            .iter()
            .all(|lost| lost.table.starts_with("lost/"))
    );
}

/// Returns all values in the order in which their tables were created: t, values, small.
fn expected_in_order_of_trees(content: &Content) -> Vec<&Vec<u8>> {
    let tables = ["t", "values", "small"].into_iter();
    let rows = tables.flat_map(|table| {
        let of_table = content.iter().filter(move |((name, _), _)| name == table);
        of_table.map(|(_, value)| value)
    });
    rows.collect()
}

#[test]
fn one_slot_of_the_superblock_is_enough() {
    for slot in [0, 1] {
        let device = filled(7);
        let expected = content(&device);
        device.flip_bit("superblock", slot * 4096 + 20, 1);
        let (report, missing) = salvaged(&device, &expected);
        assert_eq!(missing, Vec::<Vec<u8>>::new());
        assert!(report.is_whole());
        assert_eq!(report.harmless.len(), 1, "{:?}", report.harmless);
    }
    let device = filled(7);
    for slot in [0, 1] {
        device.flip_bit("superblock", slot * 4096 + 20, 1);
    }
    let new = FaultyDevice::new(78);
    let from = device.into();
    let error = SalvageReport::of_devices(&from, new.into(), options()).unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn a_section_of_the_mapping_takes_its_pages_along() {
    let device = filled(8);
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in ROWS..4 * ROWS {
        table.put_with(&key(number), &[9; 80], NONE).unwrap();
    }
    drop(table);
    db.compact(|_| std::ops::ControlFlow::Continue(())).unwrap();
    db.close().unwrap();
    let expected = content(&device);
    let name = names(&device, "map.").remove(0);
    assert!(device.snapshot_file(&name).len() >= 8192);
    device.flip_bit(&name, 4096 + 100, 1);
    let (report, missing) = salvaged(&device, &expected);
    assert_eq!(report.harmless.len(), 1, "{:?}", report.harmless);
    assert!(missing.len() > 100, "{}", missing.len());
    assert!(missing.len() < expected.len() - 5000, "{}", missing.len());
}

#[test]
fn pairs_of_a_damaged_group_are_used_where_their_pages_say_the_same() {
    let device = filled(9);
    let expected = content(&device);
    let journal = device.snapshot_file("journal.1");
    // Damages a page word in the middle of the longest group.
    let groups = (0..journal.len()).step_by(4096);
    let groups = groups.filter(|at| journal[*at..].starts_with(b"PJNL"));
    let longest = groups.max_by_key(|at| u32_at(&journal, at + 16)).unwrap();
    let pair = u32_at(&journal, longest + 16) / 2;
    let word = longest as u64 + 24 + 16 * u64::from(pair) + 8;
    device.flip_bit("journal.1", word, 2);
    let (report, new) = salvage(&device);
    assert_eq!(report.unbounded.len(), 1, "{:?}", report.unbounded);
    let found = content(&new);
    for (place, value) in &found {
        assert!(expected.get(place) == Some(value), "{place:?} is wrong");
    }
    let missing = expected.len() - found.len();
    assert!(missing < 200, "{missing}");
}

/// Checksums do not help against a program that has counted wrongly: a number that is none of
/// entries would be negative, or overflow with the next put.
#[test]
fn a_count_that_no_table_can_have_is_damage_and_costs_no_row() {
    for count in [1 << 48 | 1, 1 << 63, u64::MAX] {
        let device = filled(14);
        let expected = content(&device);
        let journal = device.snapshot_file("journal.1");
        let groups = (0..journal.len()).step_by(4096);
        for at in groups.filter(|at| journal[*at..].starts_with(b"PJNL")) {
            let (mut group, _) = Group::decode(&journal[at..]).unwrap();
            for (tree, entries) in &mut group.counts {
                *entries = if *tree < FIRST_USER_TREE {
                    *entries
                } else {
                    count
                };
            }
            let mut changed = Vec::new();
            group.encode(&mut changed);
            device.overwrite("journal.1", at as u64, &changed);
        }
        let error = Db::open_device(options(), device.clone().into()).unwrap_err();
        let text = error.to_string();
        assert!(error.is_corruption(), "{text}");
        assert!(text.contains(&format!("has {count} entries")), "{text}");
        let (_, missing) = salvaged(&device, &expected);
        assert_eq!(missing, Vec::<Vec<u8>>::new());
    }
}

#[test]
fn the_log_is_applied_as_far_as_it_can_be_read() {
    let device = filled(10);
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in 0..20 {
        table.put(&key(number), &long(500 + number, 60)).unwrap();
    }
    let crashed = device.after_crash(1, CrashMode::AllSurvive);
    device.crash_now();
    drop((table, db.close()));
    let expected = content(&crashed);
    let (report, missing) = salvaged(&crashed, &expected);
    assert!(report.is_whole() && missing.is_empty());
    assert_eq!(report.batches, 20);
    let text = long(510, 60);
    let record = names(&crashed, "log/").into_iter().find_map(|name| {
        let bytes = crashed.snapshot_file(&name);
        let at = bytes.windows(text.len()).position(|at| at == text)?;
        Some((name, at as u64))
    });
    let (name, at) = record.unwrap();
    crashed.flip_bit(&name, at, 1);
    let (report, new) = salvage(&crashed);
    assert_eq!((report.batches, report.unbounded.len()), (10, 1));
    let found = content(&new);
    for number in 0..20 {
        let value = &found[&("t".to_owned(), key(number))];
        assert_eq!(*value == long(500 + number, 60), number < 10, "{number}");
    }
}

/// Tables that are created and dropped, loads, and values that keep chunks of their predecessors.
#[test]
fn every_operation_of_the_log_is_applied() {
    let device = filled(11);
    let db = open(&device);
    let loaded = db.table("loaded").unwrap();
    let mut loader = loaded.loader().unwrap();
    for number in 0..500 {
        loader.put(&key(number), b"loaded").unwrap();
    }
    loader.finish().unwrap();
    loaded.put(&key(3), b"and changed").unwrap();
    let values = db.table("values").unwrap();
    values
        .put_range(&key(201), 20_000, b"in the middle")
        .unwrap();
    values.put(&key(203), &long(999, 250_000)).unwrap();
    values.put_range(&key(203), 0, b"twice").unwrap();
    assert!(values.delete(&key(0)).unwrap());
    db.clear_tables(&[&db.table("small").unwrap()]).unwrap();
    db.table("small").unwrap().put(b"c", b"d").unwrap();
    db.drop_table("empty").unwrap();
    let fresh = db.table("fresh").unwrap();
    let mut batch = Batch::new();
    batch.put(&fresh, b"a", b"1");
    batch.delete(&values, &key(1));
    db.write(&mut batch, WriteOptions::default()).unwrap();
    let crashed = device.after_crash(1, CrashMode::AllSurvive);
    device.crash_now();
    drop((loaded, values, fresh, batch, db.close()));
    let expected = content(&crashed);
    assert_eq!(expected[&("loaded".to_owned(), key(3))], b"and changed");
    let (report, missing) = salvaged(&crashed, &expected);
    assert_eq!((report.lost.len(), report.unbounded.len()), (0, 0));
    assert!(missing.is_empty() && report.batches >= 8);
    let names: Vec<&str> = report.tables.iter().map(|table| &table.name[..]).collect();
    assert_eq!(names, ["fresh", "loaded", "small", "t", "values"]);
    // Chunks that a record keeps from a lost value are lost, too. If a record cannot be applied, no
    // older value remains.
    for number in [201, 999] {
        let chunk = long(number, 40)[..20].to_vec();
        rot(&crashed, |page| {
            page.starts_with(b"value") && holds(page, &chunk)
        });
    }
    let (report, missing) = salvaged(&crashed, &expected);
    assert_eq!(missing, [201, 203].map(key));
    assert_eq!(report.lost.len(), 2, "{:?}", report.lost);
}

#[test]
fn writes_that_were_put_aside_are_in_their_tables() {
    let device = filled(12);
    let crashed = {
        let db = open(&device);
        let table = db.table("t").unwrap();
        table.put(&key(1500), b"older").unwrap();
        table.put(&key(1500), b"in the log").unwrap();
        assert!(table.delete(&key(1501)).unwrap());
        table.put(&key(20), b"elsewhere").unwrap();
        let crashed = device.after_crash(1, CrashMode::AllSurvive);
        device.crash_now();
        drop((table, db.close()));
        crashed
    };
    let expected = content(&crashed);
    let row = key(1502);
    let damage = || {
        rot(&crashed, |page| {
            is_page(page, PageKind::Leaf, 0) && holds(page, &row)
        });
    };
    damage();
    open(&crashed).close().unwrap();
    let (report, new) = salvage(&crashed);
    let missing = check(&report, &new, &expected);
    assert_eq!(report.writes_aside, 3);
    assert!(missing.contains(&row) && !missing.contains(&key(1500)));
    // The page can be read again. With the writes that were put aside, nothing is missing.
    damage();
    let (report, missing) = salvaged(&crashed, &expected);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.writes_aside, missing.len()), (3, 0));
}

/// Whatever a power cut leaves of the new store is not opened, but all of it or nothing; and a
/// salvage into the same directory begins anew.
#[test]
fn a_salvage_that_is_cut_off_leaves_no_store_behind() {
    let device = filled(1);
    let expected = content(&device);
    let salvage_into = |new: &FaultyDevice| {
        let from = device.clone().into();
        SalvageReport::of_devices(&from, new.clone().into(), options())
    };
    let whole = FaultyDevice::new(1);
    salvage_into(&whole).unwrap();
    let changes = whole.changes();
    assert!(changes > 60, "{changes}");
    let (mut refused, mut ended) = (0, 0);
    let step = (changes / 60).max(1) as usize;
    for at in (1..changes + 20).step_by(step).chain(changes - 8..=changes) {
        let new = FaultyDevice::new(at);
        new.crash_at_change(at);
        let has_ended = salvage_into(&new).is_ok();
        new.crash_now();
        let mode = [CrashMode::AllSurvive, CrashMode::AllLost][at as usize % 2];
        let new = new.after_crash(at, mode);
        match Db::open_device(options(), new.clone().into()) {
            Ok(db) if !has_ended && db.tables().is_empty() => continue,
            Ok(db) => {
                drop(db);
                assert!(content(&new) == expected, "{at}");
                ended += 1;
                continue;
            }
            Err(Error::InvalidOption { what, .. }) if !has_ended => {
                assert!(what.contains("salvage it again"), "{at}: {what}");
                refused += 1;
            }
            Err(other) => panic!("{at}: {other}"),
        }
        salvage_into(&new).unwrap();
        assert!(content(&new) == expected, "{at}");
    }
    assert!(refused > 20 && ended > 0, "{refused}, {ended}");
}
