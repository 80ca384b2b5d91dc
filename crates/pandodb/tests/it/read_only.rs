//! Stores that are opened for reading only: what is read is what a writer would find, and nothing
//! changes.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastrand::Rng;
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::device::faulty::{CrashMode, Fault, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Device, File, InjectorDevice, OpenOptions};
use pandodb::nonblocking::{Polled, Reactor, Reads, ValidatedBatch};
use pandodb::statistics::Ticker;
use pandodb::{
    Batch, Builder, Compression, Db, Durability, Error, IoBackend, TableOptions, Transaction,
    TransactionOptions, VerifyReport, WriteOptions,
};

use crate::fixture::{NONE, copy_directory, fill, scattered_key};
use crate::futures::block_on;
use crate::nonblocking::run;

/// Operations that change something.
const CHANGES: [Operation; 8] = [
    Operation::Write,
    Operation::Sync,
    Operation::SyncDirectory,
    Operation::SetLen,
    Operation::Allocate,
    Operation::Punch,
    Operation::Remove,
    Operation::Rename,
];

/// All that is in a store, as text.
fn text_of(db: &Db) -> String {
    let mut text = Vec::new();
    let snapshot = db.snapshot().unwrap();
    snapshot.dump(&mut text, |_, _| ()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let tables = db.tables();
    let kinds = tables.iter().map(|name| {
        let table = db.existing_table(name).unwrap();
        let (counted, weighted) = (table.is_counted(), table.is_weighted());
        format!("{name}: {} {counted} {weighted}\n", table.len())
    });
    text + &kinds.collect::<String>() + &db.newest_lsn().to_string()
}

/// Content, rights and times of everything in a directory.
fn all_of(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64, u64)> {
    let mut all = BTreeMap::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let meta = fs::metadata(&path).unwrap();
        let bytes = match meta.is_dir() {
            true => {
                let entries = fs::read_dir(&path).unwrap();
                paths.extend(entries.map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            false => fs::read(&path).unwrap(),
        };
        let (seconds, part) = (meta.ctime(), meta.ctime_nsec());
        all.insert(path, (bytes, meta.mode(), seconds, part, meta.blocks()));
    }
    all
}

fn options() -> Builder {
    Db::builder()
        .max_memory(4 << 20)
        .give_back_after(None)
        .chunk_size(4096)
        .chunk_values_over(6000)
}

/// A directory with the store of a process that has ended without closing it, with all that
/// recovery has to do: pages, chunks, a dropped table, empty leaves, a counted table.
fn left_open(place: &Path) -> PathBuf {
    let (path, copy) = (place.join("store"), place.join("copy"));
    let db = options().open(&path).unwrap();
    let (table, gone) = (db.table("t").unwrap(), db.table("gone").unwrap());
    fill(&table, 0..3000, |n| (n.to_be_bytes(), [n as u8; 100]));
    fill(&gone, 0..3000, |n| (n.to_be_bytes(), [n as u8; 100]));
    let counted = db
        .table_with("counted", TableOptions::new().counted(true))
        .unwrap();
    db.checkpoint().unwrap();
    fill(&counted, 0..100, |n| (n.to_be_bytes(), b"c"));
    for number in (1000..1500_u32).chain(2000..2010) {
        table.delete_with(&number.to_be_bytes(), NONE).unwrap();
    }
    for number in 0..5_u32 {
        let long = vec![number as u8; 50_000];
        table
            .put(
                &[b"long", &number.to_be_bytes()[..]].concat(),
                &long[..3000],
            )
            .unwrap();
        table
            .put_streamed(&[200, number as u8], 50_000, &long[..])
            .unwrap();
    }
    db.drop_table("gone").unwrap();
    table.put(b"last", b"of all").unwrap();
    copy_directory(&path, &copy);
    db.close().unwrap();
    copy
}

/// Reads everything in several ways.
fn read_all(db: &Db) {
    let table = db.existing_table("t").unwrap();
    let entries = table.len() as usize;
    assert_eq!(table.get(b"last").unwrap().unwrap(), b"of all");
    assert_eq!(table.get(&1200_u32.to_be_bytes()).unwrap(), None);
    let (mut forward, mut backward) = (table.iter(), table.iter());
    let mut counts = [0, 0];
    while let Some(key) = forward.next_key() {
        key.unwrap();
        counts[0] += 1;
    }
    while let Some(key) = backward.next_back_key() {
        key.unwrap();
        counts[1] += 1;
    }
    assert_eq!(counts, [entries; 2]);
    let counted = db.existing_table("counted").unwrap();
    assert_eq!(counted.rank(&50_u32.to_be_bytes()).unwrap(), 50);
    let mut value = vec![0; 50_000];
    let read = table.get_range(&[200, 3], 0, &mut value).unwrap();
    assert_eq!((read, value), (Some(50_000), vec![3; 50_000]));
    for snapshot in [db.snapshot().unwrap(), db.snapshot_settled().unwrap()] {
        assert_eq!(snapshot.get(&table, b"last").unwrap().unwrap(), b"of all");
        assert_eq!(snapshot.tables().unwrap(), ["counted", "t"]);
    }
    let mut transaction = db.begin(TransactionOptions::default()).unwrap();
    let seen = transaction.get_for_update(&table, b"last").unwrap();
    assert_eq!(seen.unwrap(), b"of all");
    assert_eq!(transaction.commit().unwrap(), None);
}

#[test]
fn nothing_in_the_directory_changes() {
    let place = tempfile::tempdir().unwrap();
    let path = left_open(place.path());
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(path.join("LOCK")).unwrap();
        }
        let before = all_of(&path);
        let one = options().open_read_only(&path).unwrap();
        let two = options()
            .io_backend(IoBackend::Uring)
            .give_back_after(Some(Duration::ZERO))
            .checkpoint_interval(Duration::ZERO)
            .discard(true)
            .open_read_only(&path)
            .unwrap();
        assert!(one.is_read_only() && two.is_read_only());
        read_all(&one);
        read_all(&two);
        assert_eq!(text_of(&one), text_of(&two));
        two.request_checkpoint();
        // Background work would have begun by then.
        thread::sleep(Duration::from_millis(300));
        for db in [one, two] {
            let statistics = db.statistics();
            // The gate is closed by a checkpoint, also by one that would stay in memory.
            for changed in [
                Ticker::DeviceWriteBytes,
                Ticker::PagesRemoved,
                Ticker::GateCloses,
            ] {
                assert_eq!(statistics.get(changed), 0, "{changed:?}");
            }
            db.close().unwrap();
        }
        assert!(all_of(&path) == before, "with a lock file: {has_lock}");
    }
    let read = options().open_read_only(&path).unwrap();
    let text = text_of(&read);
    drop(read);
    let db = options().open(&path).unwrap();
    assert!(!db.is_read_only());
    assert_eq!(text_of(&db), text);
    db.close().unwrap();
    // And of a store that was closed.
    let before = all_of(&path);
    let read = options().open_read_only(&path).unwrap();
    assert_eq!(text_of(&read), text);
    drop(read);
    assert!(all_of(&path) == before);
}

const CHILD: &str = "PANDO_TEST_READS";

/// Runs the test `name` of `program` once more, by itself, to read the store at `path` there.
fn run_again(mut child: Command, name: &str, path: &Path) {
    child
        .args(["--exact", "--nocapture"])
        .arg(format!("read_only::{name}"))
        .current_dir("/")
        .env(CHILD, path);
    let output = child.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("read by another"), "{told}{errors}");
}

/// Returns true in a process of [`run_again`], after reading the store where nothing can be
/// written.
fn has_read_again() -> bool {
    let Some(path) = std::env::var_os(CHILD) else {
        return false;
    };
    let path = Path::new(&path);
    let refused = fs::write(path.join("new"), b"").unwrap_err();
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    assert!(kinds.contains(&refused.kind()), "{refused}");
    let refused = options().open(path).unwrap_err();
    assert!(
        !refused.is_corruption() && !refused.is_in_use(),
        "{refused}"
    );
    read_all(&options().open_read_only(path).unwrap());
    eprintln!("read by another");
    true
}

/// Another user, who may not write there, reads it in another process, beside a reader in this one.
#[test]
fn a_directory_without_the_right_to_write_is_read() {
    const NOBODY: u32 = 65_534;
    if has_read_again() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let rights = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let path = left_open(place.path());
    let program = place.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    rights(&program, 0o755);
    let all = all_of(&path);
    for entry in all.keys() {
        rights(entry, if entry.is_dir() { 0o555 } else { 0o444 });
    }
    rights(place.path(), 0o755);
    let before = all_of(&path);
    let reader = options().open_read_only(&path).unwrap();
    let mut child = Command::new(program);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        child.uid(NOBODY).gid(NOBODY);
    }
    run_again(
        child,
        "a_directory_without_the_right_to_write_is_read",
        &path,
    );
    read_all(&reader);
    drop(reader);
    assert!(all_of(&path) == before);
    for entry in all.keys() {
        rights(entry, 0o755);
    }
}

#[test]
fn a_file_system_that_is_mounted_for_reading_is_read() {
    const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    if has_read_again() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = left_open(place.path());
    let in_namespace = |script: &str| {
        let mut shell = Command::new("unshare");
        let script = format!("{READ_ONLY} && {script}");
        shell
            .args(["-U", "-r", "-m", "sh", "-c", &script])
            .arg(&path);
        shell
    };
    let can_mount = in_namespace("true")
        .output()
        .is_ok_and(|done| done.status.success());
    if !can_mount {
        eprintln!("SKIPPED: nothing can be mounted");
        return;
    }
    let before = all_of(&path);
    let mut child = in_namespace("exec \"$@\"");
    child.arg(std::env::current_exe().unwrap());
    run_again(
        child,
        "a_file_system_that_is_mounted_for_reading_is_read",
        &path,
    );
    assert!(all_of(&path) == before);
}

#[test]
fn readers_keep_writers_out_and_the_other_way_round() {
    let place = tempfile::tempdir().unwrap();
    let path = left_open(place.path());
    let by_readers = |refused: pandodb::Result<Db>| match refused {
        Err(Error::InUse { by_readers, .. }) => by_readers,
        other => panic!("{other:?}"),
    };
    let reader = options().open_read_only(&path).unwrap();
    assert!(by_readers(options().open(&path)));
    let text = options().open(&path).unwrap_err().to_string();
    assert!(text.contains("open for reading only"), "{text}");
    // A handle is enough.
    let table = reader.existing_table("t").unwrap();
    reader.close().unwrap();
    assert!(by_readers(options().open(&path)));
    drop(table);
    let writer = options().open(&path).unwrap();
    assert!(!by_readers(options().open_read_only(&path)));
    assert!(!by_readers(options().open(&path)));
    writer.close().unwrap();
}

/// The results of calls that would change something, with their names.
type Refused = Vec<(&'static str, pandodb::Result<()>)>;

fn writes_of_tables(db: &Db) -> Refused {
    let table = db.existing_table("t").unwrap();
    let other = db.existing_table("other").unwrap();
    let weighted = TableOptions::new().weighted(true);
    let compacted = db.compact(|_| ControlFlow::Continue(()));
    let rewritten = db.rewrite(|_| ControlFlow::Continue(()));
    let dumped = db.dump_to_file(|_| ControlFlow::Continue(()));
    vec![
        ("table", db.table("new").map(drop)),
        ("table_with", db.table_with("new", weighted).map(drop)),
        ("drop_table", db.drop_table("t")),
        ("clear_tables", db.clear_tables(&[&table])),
        ("swap_tables", db.swap_tables(&[(&table, &other)])),
        ("checkpoint", db.checkpoint()),
        ("compact", compacted.map(drop)),
        ("rewrite", rewritten.map(drop)),
        ("dump_to_file", dumped.map(drop)),
    ]
}

fn writes_of_batches(db: &Db) -> Refused {
    let table = db.existing_table("t").unwrap();
    let weak = WriteOptions::durability(Durability::None);
    let in_batch = || {
        let mut batch = Batch::new();
        batch.put(&table, b"k", b"v");
        batch
    };
    let in_transaction = |change: &dyn Fn(&mut Transaction) -> pandodb::Result<()>| {
        let mut transaction = db.begin(TransactionOptions::default())?;
        change(&mut transaction)?;
        transaction.commit().map(drop)
    };
    let put = in_transaction(&|one| one.put(&table, b"k", b"v"));
    let removed = in_transaction(&|one| one.delete_range(&table, ..).map(drop));
    let of_loop = || {
        let mut reactor = Reactor::new(db, std::task::Waker::noop().clone())?;
        let mut batch = ValidatedBatch::new(db);
        batch.put(&table, b"k", b"v")?;
        match batch.try_commit(&mut reactor)? {
            Polled::Ready(_) => Ok(()),
            Polled::Pending(_) => panic!("it waits"),
        }
    };
    vec![
        ("write", db.write(&mut in_batch(), weak)),
        ("write_async", block_on(db.write_async(in_batch(), weak))),
        ("transaction", put),
        ("transaction that deletes a range", removed),
        ("transact", db.transact(|one| one.delete(&table, b"last"))),
        ("batch of an event loop", of_loop()),
    ]
}

fn writes_of_rows(db: &Db) -> Refused {
    let table = db.existing_table("t").unwrap();
    let counted = db.existing_table("counted").unwrap();
    let weak = WriteOptions::durability(Durability::None);
    let compared = table.compare_and_put(b"new", None, Some(b"v"));
    let streamed = table.put_streamed(b"k", 9000, &[7; 9000][..]);
    let deleted = block_on(table.delete_async(b"last"));
    vec![
        ("put", table.put(b"k", b"v")),
        ("put of what is there", table.put(b"last", b"of all")),
        ("put_with", table.put_with(b"k", b"v", weak)),
        ("put of a counted table", counted.put(b"k", b"v")),
        ("put of 100 KB", table.put(b"k", &[7; 100_000])),
        ("put_async", block_on(table.put_async(b"k", b"v"))),
        ("delete", table.delete(b"last").map(drop)),
        ("delete_async", deleted.map(drop)),
        ("delete_range", table.delete_range(..).map(drop)),
        ("update", table.update(b"last", |_| None).map(drop)),
        ("compare_and_put", compared.map(drop)),
        ("put_streamed", streamed),
        ("value_writer", db.value_writer(9000).map(drop)),
        ("put_range", table.put_range(&[200, 3], 5, b"new").map(drop)),
        ("append", table.append(&[200, 3], b"new").map(drop)),
    ]
}

#[test]
fn every_write_is_refused_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = left_open(place.path());
    let db = options().open(&path).unwrap();
    db.table("other").unwrap();
    db.table("empty").unwrap();
    db.close().unwrap();
    let before = all_of(&path);
    let db = options().open_read_only(&path).unwrap();
    let text = text_of(&db);
    let refused = [writes_of_tables, writes_of_batches, writes_of_rows];
    for (what, result) in refused.into_iter().flat_map(|writes| writes(&db)) {
        assert!(matches!(result, Err(Error::ReadOnly)), "{what}: {result:?}");
    }
    let empty = db.existing_table("empty").unwrap();
    let refused = empty.load_sorted([(b"k", b"v")]);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert_eq!(db.report().poisoned, None);
    // What changes nothing works.
    db.flush().unwrap();
    db.write(&mut Batch::new(), WriteOptions::default())
        .unwrap();
    db.set_durability(Durability::None);
    db.set_max_memory(*db.max_memory_range().start()).unwrap();
    assert!(!empty.compare_and_put(b"k", Some(b"v"), None).unwrap());
    assert_eq!(empty.delete_range(..).unwrap(), 0);
    assert_eq!(text_of(&db), text);
    drop(empty);
    db.close().unwrap();
    assert!(all_of(&path) == before);
}

/// The content of all files of a device.
fn files_of(device: &AnyDevice) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let file = device.open(&name, OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    device.list().unwrap().into_iter().map(read).collect()
}

/// Opens a store for reading on a device on which each change would fail, and returns what is in
/// it.
fn read_untouched(device: &FaultyDevice, options: Builder) -> pandodb::Result<String> {
    let below = InjectorDevice::new(AnyDevice::from(device.clone()), 1);
    for change in CHANGES {
        below.fail_by_chance(change, "", 1, Fault::Io);
    }
    let before = files_of(&device.clone().into());
    let text = Db::open_device_read_only(options, below.clone().into()).map(|db| {
        let text = text_of(&db);
        db.close().unwrap();
        text
    });
    assert_eq!(below.faults_struck(), 0, "nothing is tried");
    assert!(files_of(&device.clone().into()) == before);
    text
}

/// One random step of a history; fails when the device has crashed.
fn step(db: &Db, random: &mut Rng) -> pandodb::Result<()> {
    let name = ["a", "b", "c"][random.usize(0..3)];
    let durability = [Durability::Durable, Durability::Periodic, Durability::None];
    let how = WriteOptions::durability(durability[random.usize(0..3)]);
    let key = |random: &mut Rng| scattered_key(random.u32(0..1500));
    match random.u32(0..100) {
        0 => match db.existing_table(name) {
            Some(_) => db.drop_table(name),
            None => Ok(()),
        },
        1 => {
            let counted = TableOptions::new().counted(true);
            db.table_with(&format!("{name} counted"), counted).map(drop)
        }
        2 => db.clear_tables(&[&db.table(name)?]),
        3..6 => db.checkpoint(),
        6 => db.compact(|_| ControlFlow::Continue(())).map(drop),
        7..12 => {
            let value = vec![random.u8(..); random.usize(6001..40_000)];
            let key = key(random);
            db.table(name)?
                .put_streamed(&key, value.len() as u64, &value[..])
        }
        12..40 => {
            let table = db.table(name)?;
            let mut batch = Batch::new();
            for _ in 0..random.usize(0..60) {
                batch.put(
                    &table,
                    &key(random),
                    &vec![random.u8(..); random.usize(0..600)],
                );
            }
            db.write(&mut batch, how)
        }
        40..60 => {
            let table = db.table(name)?;
            let from = key(random);
            table
                .delete_range_with(&from[..]..&[from[0].saturating_add(9)][..], how)
                .map(drop)
        }
        _ => db
            .table(name)?
            .put_with(&key(random), &[random.u8(..); 100], how),
    }
}

/// After random histories and crashes, also of openings, what is read is what a writer finds.
#[test]
fn a_reader_finds_what_a_writer_finds_after_any_crash() {
    let modes = [
        CrashMode::AllLost,
        CrashMode::AllSurvive,
        CrashMode::RandomSubset,
        CrashMode::TornSectors,
    ];
    let mut rows = 0;
    for seed in 0..48 {
        let mut random = Rng::with_seed(seed);
        let compression = match seed % 3 {
            0 => Compression::Lz4,
            _ => Compression::None,
        };
        let options = || options().compression(compression);
        let mut device = FaultyDevice::new(seed);
        for life in 0..3 {
            device.crash_at_change(device.changes() + random.u64(20..1500));
            if let Ok(db) = Db::open_device(options(), device.clone().into()) {
                // The crash ends it, if nothing else does.
                while step(&db, &mut random).is_ok() && !random.u32(0..400).eq(&0) {}
                device.crash_now();
                drop(db);
            }
            let (after, mode) = (random.u64(..), modes[random.usize(0..4)]);
            let copy = || device.after_crash(after, mode);
            let case = format!("seed {seed}, life {life}, {mode:?}");
            let read = read_untouched(&copy(), options());
            let written = copy();
            let opened = Db::open_device(options(), written.clone().into());
            match (read, opened) {
                (Ok(text), Ok(db)) => {
                    assert!(text == text_of(&db), "{case}");
                    rows += text.lines().count();
                    db.close().unwrap();
                }
                (Err(read), Err(written)) => {
                    assert_eq!(read.to_string(), written.to_string(), "{case}");
                }
                // It had not been created yet, and the writer has done that.
                (Err(Error::InvalidOption { option: "dir", .. }), Ok(db)) => {
                    assert_eq!(db.tables(), Vec::<String>::new(), "{case}");
                }
                (read, written) => panic!("{case}: {read:?}, {written:?}"),
            }
            device = copy();
        }
        let report = VerifyReport::of_device(&device.clone().into());
        assert!(
            report.is_ok_and(|report| report.damages.is_empty()),
            "seed {seed}"
        );
    }
    assert!(rows > 10_000, "the histories have {rows} rows");
}

/// Pages that recovery has changed and others are read from where they are, in all three ways.
#[test]
fn a_store_larger_than_memory_is_read_by_event_loops_and_futures() {
    let place = tempfile::tempdir().unwrap();
    let (path, copy) = (place.path().join("store"), place.path().join("copy"));
    let options = || options().io_backend(IoBackend::Uring);
    let db = options().open(&path).unwrap();
    let table = db.table("t").unwrap();
    let value = |n: u32| [n as u8; 300];
    fill(&table, 0..40_000, |n| (scattered_key(n), value(n)));
    drop(table);
    db.close().unwrap();
    // So little is written by this one that its own threads leave the files alone meanwhile.
    let db = options().open(&path).unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..100, |n| (scattered_key(n), value(n + 1)));
    db.flush().unwrap();
    copy_directory(&path, &copy);
    let db = options().open_read_only(&copy).unwrap();
    let table = db.existing_table("t").unwrap();
    let expected = |n: u32| value(if n < 100 { n + 1 } else { n }).to_vec();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut out = Vec::new();
    for n in 0..40_000 {
        let key = scattered_key(n);
        let found = match n % 3 {
            0 => table.get(&key).unwrap(),
            1 => block_on(table.get_async(&key)).unwrap(),
            _ => {
                let reads = Reads::of(&table);
                let get = |_: &mut Reactor| reads.get(&key, &mut out, &mut None).unwrap();
                run(&mut reactor, get).then(|| out.clone())
            }
        };
        assert!(found == Some(expected(n)), "{n}");
    }
    let statistics = db.statistics();
    assert!(statistics.get(Ticker::DeviceReadBytes) > 20_000 * 4096);
    assert_eq!(statistics.get(Ticker::DeviceWriteBytes), 0);
    assert_eq!(statistics.get(Ticker::DeviceErrors), 0);
}

/// Recovery changes more pages than there is room for: that is said, and no state is shown.
#[test]
fn a_log_that_needs_more_memory_is_refused_with_what_helps() {
    let device = FaultyDevice::new(1);
    let db = Db::open_device(options().max_memory(16 << 20), device.clone().into()).unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..20_000, |n| (scattered_key(n), [7; 200]));
    db.flush().unwrap();
    let crashed = device.after_crash(1, CrashMode::AllLost);
    let refused = read_untouched(&crashed, options().max_memory(6 << 20)).unwrap_err();
    let Error::InvalidOption { option, what } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(*option, "max_memory");
    assert!(what.contains("for writing once"), "{what}");
    let text = read_untouched(&crashed, options().max_memory(64 << 20)).unwrap();
    // What helps, too.
    let db = Db::open_device(options().max_memory(6 << 20), crashed.clone().into()).unwrap();
    assert!(text == text_of(&db));
    db.close().unwrap();
    read_untouched(&crashed, options().max_memory(6 << 20)).unwrap();
}

type Harm = fn(&Path);

/// Whatever keeps a writer from opening a store keeps a reader from it, for the same reason.
#[test]
fn damage_is_named_as_otherwise() {
    let place = tempfile::tempdir().unwrap();
    let path = left_open(place.path());
    let harms: [(&str, Harm); 5] = [
        ("no log", |path| {
            fs::remove_dir_all(path.join("log")).unwrap()
        }),
        ("no data", |path| {
            fs::remove_file(path.join("data")).unwrap()
        }),
        ("superblock", |path| {
            fs::write(path.join("superblock"), [7; 8192]).unwrap()
        }),
        ("not finished", |path| {
            fs::write(path.join("creating"), b"").unwrap()
        }),
        ("no store", |path| {
            fs::remove_dir_all(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (number, (what, harm)) in harms.into_iter().enumerate() {
        let copy = place.path().join(number.to_string());
        copy_directory(&path, &copy);
        harm(&copy);
        let before = all_of(&copy);
        let read = options().open_read_only(&copy).unwrap_err().to_string();
        assert!(all_of(&copy) == before, "{what}");
        let written = options().open_existing(&copy).unwrap_err().to_string();
        assert_eq!(read, written, "{what}");
    }
    let absent = place.path().join("absent");
    let refused = options().open_read_only(&absent).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidOption { option: "dir", .. }),
        "{refused}"
    );
    assert!(!absent.exists());
    let refused = options()
        .io_backend(IoBackend::Memory)
        .open_read_only(&path);
    assert!(matches!(
        refused,
        Err(Error::InvalidOption {
            option: "io_backend",
            ..
        })
    ));
}
