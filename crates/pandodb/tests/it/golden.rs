//! Stores that earlier versions wrote: each one opens, verifies, replays its log, and holds
//! everything that was put. An unknown version is refused by name.
//!
//! The files are in `tests/golden`, whose README says how they are made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, str};

use pando_sync::{Arc, Mutex, Rank};
use pandodb::device::faulty::CrashMode;
use pandodb::device::{AnyDevice, Create, Device, FaultyDevice, File, IoBuf, OpenOptions};
use pandodb::{
    Batch, Builder, Compression, Db, Error, RecoveryProgress, Table, TableOptions, VerifyReport,
};

use crate::fixture::NONE;

/// The newest version that this program writes. A store has the least one that has what it uses.
const VERSION: u32 = 3;
/// Limit for all files of a version together, so that the repository stays small.
const GOLDEN_BYTES_MAX: u64 = 200 << 10;
const UNPACKED_BYTES_MAX: usize = 64 << 20;
const CHUNK_BYTES: u64 = 4096;

/// The names of the stores, each with another layout of pages on disk.
const SHAPES: [&str; 9] = [
    "plain", "lz4", "snappy", "zstd", LOADED, RECORDED, SWAPPED, COUNTED, WEIGHTED,
];
/// The pages are those of "plain", and the log contains a load.
const LOADED: &str = "loaded";
/// As "loaded", and the superblock names the compression.
const RECORDED: &str = "recorded";
/// As "recorded", and two tables are swapped in the log.
const SWAPPED: &str = "swapped";
/// As "plain" and a load, with counted tables: all that came with version 2.
const COUNTED: &str = "counted";

/// As "counted", with weighted tables, which came with version 3.
const WEIGHTED: &str = "weighted";

/// Returns the version of the stores of a shape.
fn version_of(shape: &str) -> u32 {
    match shape {
        WEIGHTED => 3,
        COUNTED => 2,
        _ => 1,
    }
}

fn options(shape: &str) -> Builder {
    let options = Db::builder()
        .max_memory(2 << 20)
        .frames(64)
        .log_bytes(1 << 20)
        .chunk_size(CHUNK_BYTES)
        .chunk_values_over(120_000);
    let pages = |page, block, compression| {
        let options = options.clone().page_size(page).block_size(block);
        options.compression(compression)
    };
    match shape {
        "plain" | LOADED | COUNTED | WEIGHTED => pages(4096, 4096, Compression::None),
        "lz4" => pages(16384, 4096, Compression::Lz4),
        RECORDED | SWAPPED => pages(8192, 512, Compression::Lz4),
        "snappy" => pages(16384, 512, Compression::Snappy),
        _ => pages(8192, 512, Compression::Zstd(3)),
    }
}

fn open(device: &FaultyDevice, options: Builder) -> pandodb::Result<Db> {
    Db::open_device(options, AnyDevice::from(device.clone()))
}

/// Returns `bytes` bytes that contain `number`, some of which do not compress.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number;
    let byte = |at: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        match at % 128 {
            0 => (state >> 56) as u8,
            _ => b'a' + ((number as usize + at / 64) % 26) as u8,
        }
    };
    (0..bytes).map(byte).collect()
}

/// The content of a store, and the writes that produce it.
struct Content<'a> {
    db: &'a Db,
    /// Of all its tables.
    options: TableOptions,
    is_counted: bool,
    is_weighted: bool,
    model: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Content<'_> {
    fn table(&self, name: &str) -> Table {
        self.db.table_with(name, self.options).unwrap()
    }

    fn put(&mut self, table: &str, key: &str, value: Vec<u8>) {
        let handle = self.table(table);
        handle.put_with(key.as_bytes(), &value, NONE).unwrap();
        let rows = self.model.entry(table.into()).or_default();
        rows.insert(key.into(), value);
    }

    fn delete(&mut self, table: &str, key: &str) {
        let handle = self.table(table);
        assert!(handle.delete_with(key.as_bytes(), NONE).unwrap());
        self.model.get_mut(table).unwrap().remove(key.as_bytes());
    }

    fn edit(&mut self, table: &str, key: &str, offset: usize, bytes: &[u8]) {
        let handle = self.table(table);
        handle
            .put_range(key.as_bytes(), offset as u64, bytes)
            .unwrap();
        let rows = self.model.get_mut(table).unwrap();
        let value = rows.get_mut(key.as_bytes()).unwrap();
        value.resize(value.len().max(offset + bytes.len()), 0);
        value[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes the writes that are in the checkpoint.
    fn before(&mut self, shape: &str) {
        if [LOADED, RECORDED, SWAPPED].contains(&shape) {
            self.put("alpha", "chunks/1", value(3, 130_000));
            return self.put("new", "key", value(4, 40));
        }
        for number in 0..600_u64 {
            let bytes = (number * 7 % 300) as usize;
            self.put("alpha", &format!("key{number:05}"), value(number, bytes));
        }
        // These values are in overflow pages, with an index page, and in chunks.
        self.put("alpha", "long/1", value(1, 10_000));
        self.put("alpha", "long/2", value(2, 110_000));
        self.put("alpha", "chunks/1", value(3, 150_000));
        self.put("alpha", "chunks/2", value(4, 130_001));
        self.put("alpha", &"k".repeat(1000), value(5, 9));
        for number in 0..40 {
            self.put("beta", &format!("{number}"), value(number, 50));
            self.put("gone", &format!("{number}"), value(number, 60));
        }
        self.put("gone", "chunks", value(6, 125_000));
    }

    /// Makes a load and the writes that follow it in the log.
    fn load(&mut self) {
        let row = |number: u64| match number {
            70 => (format!("key{number:05}"), value(number, 10_000)),
            80 => (format!("key{number:05}"), value(number, 121_000)),
            _ => (format!("key{number:05}"), value(number, 30)),
        };
        let rows = (0..200).map(row);
        let rows: BTreeMap<_, _> = rows.map(|(key, value)| (key.into_bytes(), value)).collect();
        let table = self.table("loaded");
        assert_eq!(table.load_sorted(&rows).unwrap(), 200);
        self.model.insert("loaded".into(), rows);
        for number in (0..330).step_by(3) {
            self.put("loaded", &format!("key{number:05}"), value(number, 25));
        }
        self.delete("loaded", "key00080");
    }

    fn swap(&mut self, first: &str, second: &str) {
        let tables = (&self.table(first), &self.table(second));
        self.db.swap_tables(&[tables]).unwrap();
        let rows = self.model.remove(first).unwrap();
        let rows = self.model.insert(second.into(), rows).unwrap();
        self.model.insert(first.into(), rows);
    }

    /// Makes the writes that are in the log after the checkpoint, with every kind of operation.
    fn behind(&mut self, shape: &str) {
        if [LOADED, RECORDED, SWAPPED].contains(&shape) {
            self.load();
            if shape == SWAPPED {
                self.swap("new", "loaded");
                self.put("new", "key00001", value(5, 70));
                self.put("loaded", "key00001", value(6, 80));
            }
            return;
        }
        for number in (0..600_u64).step_by(9) {
            self.put(
                "alpha",
                &format!("key{number:05}"),
                value(number + 1000, 40),
            );
        }
        for number in (1..600_u64).step_by(9) {
            self.delete("alpha", &format!("key{number:05}"));
        }
        self.put("alpha", "long/1", value(7, 20_000));
        self.edit("alpha", "chunks/1", 70_000, &value(8, 5000));
        self.delete("alpha", "chunks/2");
        self.put("new", "chunks", value(9, 121_000));
        self.db.drop_table("gone").unwrap();
        self.model.remove("gone");
        let beta = self.table("beta");
        self.db.clear_tables(&[&beta]).unwrap();
        self.model.get_mut("beta").unwrap().clear();
        let new = self.table("new");
        let mut batch = Batch::new();
        for number in 0..50 {
            let key = format!("batch{number}");
            let value = value(number, 30);
            batch.put(&beta, key.as_bytes(), &value);
            batch.put(&new, key.as_bytes(), &value);
            for table in ["beta", "new"] {
                let rows = self.model.get_mut(table).unwrap();
                rows.insert(key.clone().into(), value.clone());
            }
        }
        self.db.write(&mut batch, NONE).unwrap();
        if self.is_counted {
            self.load();
        }
    }

    /// Returns what a row with this value counts for.
    fn weight(&self, value: &[u8]) -> u64 {
        match value.first() {
            // Longer ones are in overflow pages or in chunks.
            Some(first @ 128..) if self.is_weighted && value.len() < 1900 => u64::from(first - 128),
            _ => 1,
        }
    }

    fn check(&self) {
        let names: Vec<String> = self.model.keys().cloned().collect();
        assert_eq!(self.db.tables(), names);
        for (name, rows) in &self.model {
            let table = self.db.existing_table(name).unwrap();
            assert_eq!(table.len(), rows.len() as u64, "{name}");
            let found = table.iter().map(|entry| entry.unwrap());
            assert!(found.eq(rows.clone()), "{name}: not what was put");
            for (key, value) in rows {
                assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
            }
            let kind = (table.is_counted(), table.is_weighted());
            assert_eq!(kind, (self.is_counted, self.is_weighted));
            let mut rank = 0;
            for (key, value) in rows.iter().filter(|_| self.is_counted) {
                assert_eq!(table.rank(key).unwrap(), rank);
                let weight = self.weight(value);
                if let Some(last) = weight.checked_sub(1) {
                    let unit = Some((key.clone(), last));
                    assert_eq!(table.unit_at(rank + last).unwrap(), unit);
                }
                rank += weight;
            }
            if self.is_counted {
                assert_eq!(table.count(..).unwrap(), rank);
            }
        }
    }
}

fn content<'a>(db: &'a Db, shape: &str) -> Content<'a> {
    Content {
        db,
        options: TableOptions::new()
            .counted(shape == COUNTED)
            .weighted(shape == WEIGHTED),
        is_counted: [COUNTED, WEIGHTED].contains(&shape),
        is_weighted: shape == WEIGHTED,
        model: BTreeMap::new(),
    }
}

/// Returns a store with a log after its checkpoint, as a crash leaves it.
fn make(shape: &str) -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open(&device, options(shape)).unwrap();
    let mut content = content(&db, shape);
    content.before(shape);
    db.checkpoint().unwrap();
    content.behind(shape);
    db.flush().unwrap();
    content.check();
    device.after_crash(1, CrashMode::AllLost)
}

/// Returns the final content of the tables, from the same writes made to another store.
fn expected(shape: &str) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
    let db = open(&FaultyDevice::new(2), options("plain")).unwrap();
    let mut content = content(&db, shape);
    content.before(shape);
    content.behind(shape);
    content.model
}

fn verify(device: &FaultyDevice) -> VerifyReport {
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    report
}

/// Opens a copy of the store without a choice of compression: it has that of its pages.
fn check_compression(device: &FaultyDevice, shape: &str) {
    let expected = match shape {
        RECORDED | SWAPPED => Some(Compression::Lz4),
        WEIGHTED => Some(Compression::None),
        _ => None,
    };
    assert_eq!(verify(device).stat.compression, expected);
    let none_chosen = Db::builder().max_memory(2 << 20).frames(64);
    let copy = device.after_crash(1, CrashMode::AllSurvive);
    let db = open(&copy, none_chosen).unwrap();
    let expected = match shape {
        "plain" | LOADED | COUNTED | WEIGHTED => Compression::None,
        "lz4" | RECORDED | SWAPPED => Compression::Lz4,
        "snappy" => Compression::Snappy,
        _ => Compression::Zstd(3),
    };
    assert_eq!(db.report().compression, expected, "{shape}");
}

/// Opens the store, reads everything, writes to it, and opens it again.
fn check(device: &FaultyDevice, shape: &str) {
    let report = verify(device);
    assert!(report.stat.log_batches > 100, "{}", report.stat.log_batches);
    let model = expected(shape);
    for life in 0..2_u64 {
        let db = open(device, options(shape)).unwrap();
        if life == 0 {
            assert_eq!(db.report().recovery_batches, report.stat.log_batches);
        }
        let mut content = Content {
            model: model.clone(),
            ..content(&db, shape)
        };
        content.check();
        content.put("alpha", "chunks/1", value(life, 123_456));
        content.put("later", "key", value(life, 3000));
        db.drop_table("new").unwrap();
        content.model.remove("new");
        content.check();
        if life == 0 {
            // The value is restored for the next life.
            content.put(
                "alpha",
                "chunks/1",
                model["alpha"][&b"chunks/1"[..]].clone(),
            );
            db.drop_table("later").unwrap();
            for (key, value) in &model["new"] {
                content.put("new", str::from_utf8(key).unwrap(), value.clone());
            }
        }
        db.close().unwrap();
        verify(device);
    }
}

fn pack(device: &FaultyDevice) -> Vec<u8> {
    let mut bytes = Vec::new();
    let any = AnyDevice::from(device.clone());
    for name in any.list().unwrap() {
        let content = device.snapshot_file(&name);
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&content);
    }
    zstd::bulk::compress(&bytes, 19).unwrap()
}

fn unpack(packed: &[u8]) -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let bytes = zstd::bulk::decompress(packed, UNPACKED_BYTES_MAX).unwrap();
    let mut rest = &bytes[..];
    let mut take = |bytes: usize| {
        let (taken, left) = rest.split_at(bytes.min(rest.len()));
        rest = left;
        taken.to_vec()
    };
    while let [length] = take(1)[..] {
        let name = String::from_utf8(take(length.into())).unwrap();
        let bytes = u64::from_le_bytes(take(8).try_into().unwrap());
        let content = take(bytes as usize);
        let file = device
            .open(&name, OpenOptions::create(Create::New))
            .unwrap();
        let mut buffer = IoBuf::new(content.len());
        buffer.copy_from_slice(&content);
        file.write_at(&buffer, 0).unwrap();
        file.sync().unwrap();
    }
    device.sync_directory().unwrap();
    device
}

/// Returns the file of a shape.
fn path_of(shape: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let version = version_of(shape);
    golden.join(format!("v{version}/{shape}.zst"))
}

/// Writes the files that are missing, if the environment asks for that.
fn write_missing(shape: &str) {
    let path = path_of(shape);
    if std::env::var_os("PANDO_WRITE_GOLDEN").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, pack(&make(shape))).unwrap();
    }
}

#[test]
fn a_store_of_each_version_opens_verifies_replays_and_holds_all() {
    let mut bytes = 0;
    for shape in SHAPES {
        write_missing(shape);
        let path = path_of(shape);
        let packed = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        bytes += packed.len() as u64;
        let device = unpack(&packed);
        assert_eq!(versions(&device), [version_of(shape); 2]);
        check_compression(&device, shape);
        check(&device, shape);
    }
    let limit = GOLDEN_BYTES_MAX * u64::from(VERSION);
    assert!(bytes <= limit, "{bytes} bytes of golden files");
}

#[test]
fn what_is_written_now_is_like_the_golden_files() {
    for shape in SHAPES {
        check(&unpack(&pack(&make(shape))), shape);
    }
}

#[test]
fn who_opens_a_store_is_told_how_far_the_replay_of_its_log_is() {
    let device = make("plain");
    let batches = verify(&device).stat.log_batches;
    let told = Arc::new(Mutex::new(Rank::Leaf, Vec::new()));
    let steps = told.clone();
    let options = options("plain").on_recovery(move |now| steps.lock().push(now));
    let db = open(&device, options).unwrap();
    let steps: Vec<RecoveryProgress> = told.lock().clone();
    let last = steps.last().unwrap();
    assert_eq!(last.batches, batches);
    assert_eq!(last.replayed_bytes, last.log_bytes);
    assert_eq!(last.log_bytes, db.report().recovery_log_bytes);
    assert!(steps.is_sorted_by_key(|step| step.replayed_bytes));
}

/// Returns the versions of both slots.
fn versions(device: &FaultyDevice) -> [u32; 2] {
    let bytes = device.snapshot_file("superblock");
    [8, 4096 + 8].map(|at| u32::from_le_bytes(bytes[at..][..4].try_into().unwrap()))
}

/// Sets the version of these slots. The checksum does not cover it.
fn set_version(device: &FaultyDevice, slots: &[u64], version: u32) {
    for slot in slots {
        device.overwrite("superblock", slot * 4096 + 8, &version.to_le_bytes());
    }
}

#[test]
fn a_store_of_another_version_is_refused_by_name_and_left_alone() {
    for version in [0, VERSION + 1, u32::MAX] {
        let device = make("plain");
        set_version(&device, &[0, 1], version);
        let before = pack(&device);
        let any = AnyDevice::from(device.clone());
        let refused = [
            open(&device, options("plain")).map(drop).unwrap_err(),
            VerifyReport::of_device(&any).map(drop).unwrap_err(),
        ];
        for error in refused {
            let text = error.to_string();
            assert!(matches!(error, Error::Version { .. }), "{text}");
            let both = [version, VERSION].map(|number| text.contains(&format!("version {number}")));
            assert!(both == [true, true] && !error.is_corruption(), "{text}");
        }
        assert!(pack(&device) == before, "a refused store was changed");
        set_version(&device, &[0, 1], version_of("plain"));
        check(&device, "plain");
    }
}

#[test]
fn one_slot_of_another_version_leaves_the_other() {
    let device = make("plain");
    set_version(&device, &[1], VERSION + 1);
    check(&device, "plain");
}

/// The version is not under a checksum. A store never has trees that came later.
#[test]
fn a_tree_that_the_version_of_its_store_does_not_have_is_damage() {
    for (shape, older) in [(COUNTED, 1), (WEIGHTED, 2), (WEIGHTED, 1)] {
        let device = make(shape);
        set_version(&device, &[0, 1], older);
        let error = open(&device, options(shape)).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(error.is_corruption(), "{text}");
        assert!(text.contains("is not its own"), "{text}");
        set_version(&device, &[0, 1], version_of(shape));
        check(&device, shape);
    }
}
