//! Pages on disk, compressed or not, in blocks of any size, and how much of them is read.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, Operation};
use pandodb::device::{AnyDevice, FaultyDevice};
use pandodb::statistics::Ticker;
use pandodb::{Builder, Compression, Db, Durability, Table, VerifyReport};

use crate::fixture::{NONE, open_on};

fn options() -> Builder {
    Db::builder()
        .max_memory(2 << 20)
        .frames(64)
        .log_bytes(1 << 20)
        .durability(Durability::None)
}

/// Returns bytes of which about one in `sparse` does not compress.
fn value(random: &mut Rng, length: usize, sparse: u64) -> Vec<u8> {
    let mut byte = || match random.u64(..) {
        noise if noise.is_multiple_of(sparse) => (noise >> 8) as u8,
        _ => b'v',
    };
    (0..length).map(|_| byte()).collect()
}

fn fill(table: &Table, random: &mut Rng, keys: u64, writes: u64, sparse: u64) {
    for _ in 0..writes {
        let key = random.u64(..keys).to_be_bytes();
        let length = random.usize(..300);
        let value = value(random, length, sparse);
        table.put_with(&key, &value, NONE).unwrap();
    }
}

fn read_all(table: &Table, keys: u64) -> usize {
    let found = |key: &u64| table.get(&key.to_be_bytes()).unwrap().is_some();
    (0..keys).filter(found).count()
}

#[test]
fn a_device_that_looks_finds_every_read_context_clean() {
    let device = FaultyDevice::new(1);
    let how = options().page_size(16384).compression(Compression::Lz4);
    let db = open_on(&device, how);
    let table = db.table("t").unwrap();
    let mut random = Rng::with_seed(5);
    fill(&table, &mut random, 20_000, 20_000, 3);
    let present = read_all(&table, 20_000);
    let made = db.statistics().get(Ticker::ReadContextsMade);
    let seen = device.contexts_seen();
    for _ in 0..2 {
        assert_eq!(read_all(&table, 20_000), present);
    }
    let reads = device.contexts_seen().seen - seen.seen;
    assert!(reads > 300, "{reads} reads");
    assert_eq!(device.contexts_seen().unclean, 0);
    let again = db.statistics().get(Ticker::ReadContextsMade);
    assert_eq!(again, made, "no context is made once a thread has one");
    // A failed read also uses the context: its error reports it, and the next read starts clean.
    device.fail(FaultPlan::once(Operation::Read, "data", 1, Fault::Io));
    let failed = (0..20_000_u64).find_map(|key| table.get(&key.to_be_bytes()).err());
    let text = failed.unwrap().to_string();
    assert!(text.contains("(a faulty device)"), "{text}");
    assert_eq!(read_all(&table, 20_000), present);
    assert_eq!(device.contexts_seen().unclean, 0);
}

#[test]
fn compressed_pages_come_through_channels_too() {
    let device = FaultyDevice::new(2);
    let how = options().page_size(16384).compression(Compression::Lz4);
    let db = open_on(&device, how);
    let table = db.table("t").unwrap();
    let mut random = Rng::with_seed(5);
    fill(&table, &mut random, 20_000, 20_000, 8);
    let before = db.statistics().get(Ticker::PagesDecompressed);
    let looked = device.contexts_seen().seen;
    for start in (0..20_000_u64).step_by(2500) {
        let keys: Vec<[u8; 8]> = (0..100).map(|n| (start + 25 * n).to_be_bytes()).collect();
        let many = table
            .get_many(&keys.iter().map(|key| &key[..]).collect::<Vec<_>>())
            .unwrap();
        for (key, value) in keys.iter().zip(many) {
            assert_eq!(table.get(key).unwrap(), value);
        }
    }
    let through = db.statistics().get(Ticker::PagesDecompressed) - before;
    let blocking = device.contexts_seen().seen - looked;
    assert!(
        through > blocking + 20,
        "{through} pages, {blocking} of them without a channel"
    );
}

#[test]
fn blocks_smaller_than_the_device_can_write_are_refused_by_name() {
    let device = FaultyDevice::new(1);
    device.set_direct_alignment(4096);
    let made = |bytes| {
        let any = AnyDevice::from(device.clone());
        Db::open_device(options().block_size(bytes), any).map(drop)
    };
    let text = made(512).unwrap_err().to_string();
    assert!(
        text.contains("block_size") && text.contains("4096 bytes"),
        "{text}"
    );
    made(4096).unwrap();
}

#[test]
fn a_store_of_small_blocks_is_read_where_sectors_are_larger() {
    let device = FaultyDevice::new(1);
    let small = || options().block_size(512).compression(Compression::Lz4);
    let db = open_on(&device, small());
    assert!(db.report().direct_io);
    let table = db.table("t").unwrap();
    fill(&table, &mut Rng::with_seed(5), 3000, 6000, 20);
    let present = read_all(&table, 3000);
    drop(table);
    db.close().unwrap();
    device.set_direct_alignment(4096);
    let db = open_on(&device, small());
    assert!(!db.report().direct_io, "through the page cache");
    let table = db.table("t").unwrap();
    assert_eq!(read_all(&table, 3000), present);
    fill(&table, &mut Rng::with_seed(7), 3000, 3000, 20);
    drop(table);
    db.close().unwrap();
}

/// Compares the used space that the open store counts with that which a reader of its files counts.
fn check_space(db: &Db, device: &FaultyDevice) -> pandodb::StoreStat {
    db.checkpoint().unwrap();
    let report = db.report();
    assert_eq!(report.dirty_frames, 0);
    let copy = device.after_crash(1, CrashMode::AllSurvive);
    let found = VerifyReport::of_device(&AnyDevice::from(copy)).unwrap();
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    let stat = found.stat;
    assert_eq!(
        report.data_bytes - report.data_free_bytes,
        stat.used_bytes,
        "the bitmap that is kept equals the one that is built"
    );
    let stored: u64 = stat.stored.iter().map(|stored| stored.stored_bytes).sum();
    assert_eq!(stored, stat.used_bytes);
    stat
}

#[test]
fn the_space_that_is_kept_equals_what_the_mapping_names() {
    let device = FaultyDevice::new(3);
    let codecs = [
        Compression::Lz4,
        Compression::None,
        Compression::Snappy,
        Compression::Lz4,
    ];
    let mut random = Rng::with_seed(11);
    let mut met = BTreeSet::new();
    let mut mixed = false;
    for how in codecs {
        let db = open_on(
            &device,
            options().page_size(16384).block_size(512).compression(how),
        );
        let table = db.table("t").unwrap();
        for round in 0..5 {
            fill(&table, &mut random, 10_000, 2000, 1 + round % 3 * 4);
            let stat = check_space(&db, &device);
            met.extend(stat.stored.iter().map(|stored| stored.compression));
            mixed |= stat.stored.len() > 1;
            assert!(
                stat.data_bytes < 3 * stat.used_bytes + (24 << 20),
                "{stat:?}"
            );
        }
        drop(table);
        db.close().unwrap();
    }
    let db = open_on(&device, options());
    let stat = check_space(&db, &device);
    assert_eq!((stat.page_size, stat.block_size), (16384, 512));
    assert!(mixed && met.len() == 3, "{met:?}");
    for stored in &stat.stored {
        assert_eq!(stored.page_bytes, stored.pages * 16384);
        let is_plain = stored.compression == "none";
        assert_eq!(stored.stored_bytes == stored.page_bytes, is_plain);
    }
}

/// Returns all sound page images in a data file, as (offset, stored bytes).
fn images(data: &[u8], page: usize, block: usize) -> Vec<(usize, Vec<u8>)> {
    let u32_at = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
    let mut found = Vec::new();
    for at in (0..data.len()).step_by(block) {
        let length = match data[at + 14] {
            0 => page,
            _ => (64 + u32_at(at + 60)).next_multiple_of(block),
        };
        let Some(image) = data.get(at..at + length) else {
            continue;
        };
        if length <= page && pando_format::page::checksum(image) as usize == u32_at(at) {
            found.push((at, image.to_vec()));
        }
    }
    found
}

#[test]
fn no_byte_of_an_earlier_use_reaches_the_data_file() {
    const MARK: [u8; 4] = [0xA5, 0x5A, 0xC3, 0x3C];
    let marks = |bytes: &[u8]| bytes.windows(4).filter(|four| *four == MARK).count();
    let device = FaultyDevice::new(4);
    let how = || {
        options()
            .block_size(512)
            .page_size(8192)
            .compression(Compression::Snappy)
    };
    let db = open_on(&device, how());
    // Frames, image buffers and read buffers are filled with marks, and then all marked data are
    // deleted.
    let table = db.table("marks").unwrap();
    for key in 0..400_u64 {
        table
            .put_with(&key.to_be_bytes(), &MARK.repeat(700), NONE)
            .unwrap();
    }
    read_all(&table, 400);
    drop(table);
    db.drop_table("marks").unwrap();
    let table = db.table("t").unwrap();
    for key in 0..300_u64 {
        let length = 3000 + 37 * key as usize;
        let value = value(&mut Rng::with_seed(key), length, 4);
        table.put_with(&key.to_be_bytes(), &value, NONE).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let stat = VerifyReport::of_device(&AnyDevice::from(device.clone()));
    assert!(stat.unwrap().damages.is_empty());
    let mut decoder = pando_format::PageDecoder::default();
    let size = pando_format::PageSize::new(8192).unwrap();
    let (mut compressed, mut tails) = (0, 0);
    for (at, image) in images(&device.snapshot_file("data"), 8192, 512) {
        if image[14] != 0 {
            let used = 64 + u32::from_le_bytes(image[60..64].try_into().unwrap()) as usize;
            assert!(
                image[used..].iter().all(|byte| *byte == 0),
                "padding at {at}"
            );
            compressed += 1;
        }
        let page = decoder.decode(&image, size, 512).unwrap();
        let payload = u32::from_le_bytes(page[56..60].try_into().unwrap()) as usize;
        if page[12] == 3 && payload < 8192 - 64 {
            assert!(
                page[64 + payload..].iter().all(|byte| *byte == 0),
                "tail at {at}"
            );
            assert_eq!(marks(&page[64 + payload..]), 0);
            tails += 1;
        }
    }
    assert!(compressed > 100 && tails > 50, "{compressed}, {tails}");
}

#[test]
fn a_compressed_page_that_was_damaged_is_named() {
    let device = FaultyDevice::new(5);
    let db = open_on(
        &device,
        options().page_size(16384).compression(Compression::Lz4),
    );
    let table = db.table("t").unwrap();
    fill(&table, &mut Rng::with_seed(9), 20_000, 20_000, 4);
    drop(table);
    db.close().unwrap();
    let data = device.snapshot_file("data");
    // These are all images of each page; only the mapping knows which of them is current.
    let mut of_page: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, image) in images(&data, 16384, 4096) {
        let page = u32::from_le_bytes(image[4..8].try_into().unwrap());
        of_page.entry(page).or_default().push((at, image.len()));
    }
    for (index, (page, places)) in of_page.iter().skip(5).step_by(17).take(8).enumerate() {
        let copy = device.after_crash(1, CrashMode::AllSurvive);
        for (at, length) in places {
            // The damage is in the header, in the compressed bytes, or in the padding.
            let offsets = [14, 61, 70, length - 1];
            copy.flip_bit("data", (at + offsets[index % 4]) as u64, 3);
        }
        let found = VerifyReport::of_device(&AnyDevice::from(copy)).unwrap();
        let name = pando_format::PageId(*page).to_string();
        let named = found.damages.iter().any(|damage| damage.place == name);
        assert!(named, "{name} at {places:?}: {:?}", found.damages);
    }
}
