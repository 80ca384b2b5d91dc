//! Stores whose bytes were changed and sealed again: every checksum is right, and what it covers is
//! not. What is opened, verified and salvaged then says so, or does without; it never panics, and
//! takes neither memory nor time because a number on the disk says so. What is sound stays.

use std::ops::ControlFlow;

use pando_device::Device;
use pando_device::faulty::FaultyDevice;
use pando_format::bytes::{put_u32, put_u64, u32_at, u64_at};
use pando_format::catalogue::{CATALOGUE_ROOT, CATALOGUE_TREE, GARBAGE_ROOT, GARBAGE_TREE};
use pando_format::checksum::crc32c;
use pando_format::log::{
    BatchWriter, Operation, RecordHeader, RecordKind, SegmentHeader, record_bytes,
};
use pando_format::page::{HEADER_BYTES, PageKind};
use pando_format::{Compression, Lsn, PageId, StoredKind, TreeId};
use pandodb::{Builder, Db, Error, SalvageReport, VerifyReport};

use crate::fixture::{NONE, open_on, text_key as key};
use crate::seals::{
    PAGE, copy, forge_journal, forge_page, forge_superblock, read_page, stored, superblock,
};

const ROWS: u32 = 600;

fn options() -> Builder {
    Db::builder()
        .max_memory(16 << 20)
        .frames(256)
        .compression(Compression::None)
        .chunk_size(8192)
        .chunk_values_over(200_000)
}

fn long(number: u8, bytes: usize) -> Vec<u8> {
    vec![number; bytes]
}

/// Returns a store that a crash has left: with tables, a dropped one, and values in overflow pages
/// and in chunks that were replaced and not freed yet.
fn filled() -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options());
    for name in ["sound", "t", "gone"] {
        let table = db.table(name).unwrap();
        for number in 0..ROWS {
            let value = [&key(number)[..], &[7; 80]].concat();
            table.put_with(&key(number), &value, NONE).unwrap();
        }
    }
    let values = db.table("values").unwrap();
    values.put(b"pages", &long(1, 9_000)).unwrap();
    values.put(b"chunks", &long(2, 300_000)).unwrap();
    values.put(b"stays", &long(4, 9_000)).unwrap();
    // Keeps what is replaced from being freed.
    let snapshot = db.snapshot().unwrap();
    values.put(b"pages", b"new").unwrap();
    values.put(b"chunks", b"new").unwrap();
    db.drop_table("gone").unwrap();
    db.checkpoint().unwrap();
    // A record behind the checkpoint.
    values.put(b"newest", b"value").unwrap();
    let left = copy(&device);
    drop(snapshot);
    left
}

/// Returns the pages of this kind of a tree.
fn pages_of(device: &FaultyDevice, tree: TreeId, kind: PageKind) -> Vec<PageId> {
    let pages = stored(device).into_iter();
    let found = pages.filter(|(_, stored)| {
        let page = read_page(device, *stored);
        stored.kind == StoredKind::Page
            && u32_at(&page, 8) == tree.0
            && PageKind::decode(page[12]) == Some(kind)
    });
    found.map(|(page, _)| page).collect()
}

/// Returns where the values of a leaf lie.
fn values_of(page: &[u8]) -> Vec<std::ops::Range<usize>> {
    let count = u32_at(page, 40) as usize & 0xffff;
    let slots = (0..count).map(|index| u64_at(page, HEADER_BYTES + 8 * index));
    let values = slots.map(|slot| {
        let record = (slot >> 19 & 0x1fff) as usize * 8;
        let suffix = (slot & 0xffff) as usize;
        let start = (record + 2 + suffix.saturating_sub(4)).next_multiple_of(8);
        start..start + (u32_at(page, record) & 0xffff) as usize
    });
    values.collect()
}

/// Verifies, salvages and opens a store. Returns it if it opens.
fn examine(device: &FaultyDevice) -> Result<Db, Error> {
    let _checked = VerifyReport::of_device(&device.clone().into());
    let into = FaultyDevice::new(2);
    let _saved = SalvageReport::of_devices(&device.clone().into(), into.into(), options());
    Db::open_device(options(), device.clone().into())
}

/// Checks that the table that nobody has touched is whole.
#[track_caller]
fn is_whole(db: &Db) {
    let table = db.table("sound").unwrap();
    let rows: Result<Vec<_>, _> = table.iter().collect();
    let rows = rows.unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    for (number, (found, value)) in (0..).zip(rows) {
        assert_eq!(found, key(number));
        assert!(value.starts_with(&key(number)));
    }
}

/// Fields that count or name something: of 8 bytes, of 4.
const LONG_FIELDS: [usize; 7] = [16, 24, 32, 56, 64, 72, 80];
const SHORT_FIELDS: [usize; 4] = [40, 44, 48, 52];

#[test]
fn a_superblock_with_impossible_numbers_is_refused_by_name() {
    let store = filled();
    let check = |at: usize, change: &dyn Fn(&mut [u8])| {
        let device = copy(&store);
        forge_superblock(&device, change);
        let changed = superblock(&device);
        match examine(&device) {
            Ok(db) => is_whole(&db),
            Err(error) => assert!(error.is_corruption(), "{at}: {error}: {changed:?}"),
        }
    };
    let longs = [
        1 << 33,
        1 << 40,
        1 << 62,
        u64::MAX - 4095,
        u64::MAX - 1,
        u64::MAX,
    ];
    for at in LONG_FIELDS {
        for value in longs {
            check(at, &|slot| put_u64(slot, at, value));
        }
    }
    for at in SHORT_FIELDS {
        for value in [0, 1, 4095, 4096, 1 << 16, 1 << 31, u32::MAX] {
            check(at, &|slot| put_u32(slot, at, value));
        }
    }
}

/// The mapping has a word for each id up to the largest.
#[test]
fn a_page_id_that_no_store_comes_to_is_damage() {
    let device = filled();
    let mut done = false;
    forge_journal(&device, |group| {
        if let (false, Some(pair)) = (std::mem::replace(&mut done, true), group.pairs.last_mut()) {
            pair.0 = PageId(u32::MAX - 1);
        }
    });
    let error = examine(&device).expect_err("a page of four milliards");
    assert!(error.is_corruption(), "{error}");
    let error = VerifyReport::of_device(&device.into()).unwrap_err();
    assert!(error.to_string().contains("as many pages"), "{error}");
}

/// What a damaged row names is not freed if it is known to be something else. A store without its
/// catalogue does not open again.
#[test]
fn rows_that_name_pages_of_others_free_none_of_them() {
    let store = filled();
    let tree_of_table = TreeId(16);
    let roots = pages_of(&store, tree_of_table, PageKind::Inner);
    let leaves = pages_of(&store, tree_of_table, PageKind::Leaf);
    let chunk = stored(&store)
        .into_iter()
        .find(|(_, stored)| stored.is_chunk());
    let never_used = PageId(1 << 20);
    let named = [
        CATALOGUE_ROOT,
        PageId(1),
        roots[0],
        chunk.unwrap().0,
        never_used,
    ];
    for system in [CATALOGUE_TREE, GARBAGE_TREE] {
        let leaf = pages_of(&store, system, PageKind::Leaf)[0];
        let page = read_page(&store, stored(&store)[&leaf]);
        for value in values_of(&page) {
            // Of the catalogue: tree, root; of the garbage table the same, or ids; behind a kind.
            let (kind, skipped) = match system {
                CATALOGUE_TREE => (0, 4),
                _ => (
                    page[value.start],
                    [0, 5, 1, 1][usize::from(page[value.start])],
                ),
            };
            let leaf_too = if kind == 2 { &leaves[..1] } else { &[] };
            for target in named.iter().chain(leaf_too) {
                let device = copy(&store);
                let at = value.start + skipped;
                if u32_at(&page, at) == roots[0].0 {
                    continue;
                }
                forge_page(&device, leaf, |page| put_u32(page, at, target.0));
                let context = format!("{system}, kind {kind}, names {target}");
                let db = examine(&device).expect(&context);
                // Waits until garbage is freed, or is left for good; both are fine.
                let _compacted = db.compact(|_| ControlFlow::Continue(()));
                for name in ["t", "values"] {
                    db.drop_table(name).expect(&context);
                }
                db.table("more")
                    .unwrap()
                    .put(b"key", &long(3, 100_000))
                    .expect(&context);
                // Waits until garbage is freed, or is left for good; both are fine.
                let _compacted = db.compact(|_| ControlFlow::Continue(()));
                db.checkpoint().expect(&context);
                is_whole(&db);
                db.close().expect(&context);
                is_whole(&Db::open_device(options(), device.into()).expect(&context));
            }
        }
    }
}

/// The pages of a value are freed without a look at them.
#[test]
fn a_value_that_names_the_catalogue_as_one_of_its_pages_does_not_take_it_along() {
    let store = filled();
    let leaf = pages_of(&store, TreeId(19), PageKind::Leaf)[0];
    let page = read_page(&store, stored(&store)[&leaf]);
    let mut values = values_of(&page).into_iter();
    // Two lengths and the ids of three pages.
    let header = values.find(|value| value.len() == 20).unwrap();
    for root in [CATALOGUE_ROOT, GARBAGE_ROOT] {
        let device = copy(&store);
        forge_page(&device, leaf, |page| {
            put_u32(page, header.start + 8, root.0)
        });
        let db = examine(&device).unwrap();
        db.table("values").unwrap().delete(b"stays").unwrap();
        db.table("more")
            .unwrap()
            .put(b"key", &long(3, 100_000))
            .unwrap();
        is_whole(&db);
        db.close().unwrap();
        is_whole(&Db::open_device(options(), device.into()).unwrap());
    }
}

/// Appends a record with one operation to the newest file of the log.
fn forge_record(device: &FaultyDevice, operation: Operation<'_>) {
    let superblock = superblock(device);
    let names = device.list().unwrap();
    let files = names.into_iter().filter(|name| name.starts_with("log/"));
    let of_life = files.filter_map(|name| {
        let file = device.snapshot_file(&name);
        let header = SegmentHeader::decode(&file).ok()?;
        let segment = header
            .segment
            .filter(|_| header.incarnation == superblock.incarnation)?;
        Some((segment, name, file))
    });
    let (segment, name, file) = of_life.max().expect("a segment of this life");
    let (size, mut at) = (u64::from(superblock.segment_bytes), 4096);
    let base = segment * size;
    while let Ok(header) = RecordHeader::decode(
        &file[at..],
        base + at as u64,
        base + size,
        superblock.incarnation,
    ) {
        at += header.bytes() as usize;
    }
    let mut batch = BatchWriter::new();
    batch.push(operation);
    let payload = batch.payload();
    let header = RecordHeader {
        length: payload.len() as u32,
        kind: RecordKind::Batch,
        flags: 0,
        lsn: Lsn(base + at as u64 + record_bytes(payload.len())),
        incarnation: superblock.incarnation,
        durable: Lsn(0),
        signature: 0,
    };
    let record = [&header.encode(crc32c(payload))[..], payload].concat();
    device.overwrite(&name, at as u64, &record);
}

/// The trees take such keys for a mistake of their caller, and panic. A salvage leaves out the
/// batches from there on, and saves the rest.
#[test]
fn a_record_that_no_commit_writes_is_damage_for_opening_verify_and_salvage() {
    let store = filled();
    let long = vec![7; PAGE / 4 + 1];
    let tree = TreeId(16);
    let operations = [
        Operation::Put {
            tree,
            key: &long,
            value: b"value",
        },
        Operation::Delete { tree, key: &long },
        Operation::CreateTable {
            name: b"",
            tree: TreeId(99),
        },
        Operation::CreateTable {
            name: b"new",
            tree: TreeId(99).counted(),
        },
    ];
    for operation in operations {
        let device = copy(&store);
        forge_record(&device, operation);
        let error = Db::open_device(options(), device.clone().into()).unwrap_err();
        assert!(error.is_corruption(), "{operation:?}: {error}");
        if !matches!(operation, Operation::CreateTable { name: b"new", .. }) {
            let report = VerifyReport::of_device(&device.clone().into()).unwrap();
            assert!(!report.damages.is_empty(), "{operation:?}");
        }
        let into = FaultyDevice::new(2);
        let saved = SalvageReport::of_devices(&device.into(), into.clone().into(), options());
        saved.unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        is_whole(&open_on(&into, options()));
    }
}
