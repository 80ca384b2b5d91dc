//! Reads of cached data by a growing number of threads.

use pando_bench::{Error, IsoLevel, IsoOptions, KvOptions, Record, iso};
use pandodb::IoBackend;

use crate::notes::Notes;

fn tiny() -> IsoOptions {
    IsoOptions {
        threads: vec![1, 3],
        rounds: 1,
        kv: KvOptions {
            num: 3000,
            max_memory: 16 << 20,
            io_backend: IoBackend::Memory,
            ..KvOptions::default()
        },
        ..IsoOptions::default()
    }
}

/// Each level runs the same transactions, and conflicts only where it has to.
#[test]
fn levels_have_turns_in_each_cell() {
    let options = IsoOptions {
        threads: vec![2],
        levels: IsoLevel::ALL.to_vec(),
        ops_per_transaction: vec![1, 7],
        writes: vec![0, 30],
        ..tiny()
    };
    let notes = Notes::of(|notes| iso::run(&options, notes));
    let cell = |one: &Record| {
        (
            one.ops_per_transaction.unwrap(),
            one.writes_percent.unwrap(),
        )
    };
    let turns = notes.records.iter().map(|one| (cell(one), one.variant));
    let levels = ["none", "read-committed", "snapshot", "serializable"];
    let cells = [(1, 0), (1, 30), (7, 0), (7, 30)];
    let expected = cells
        .iter()
        .flat_map(|cell| levels.map(|level| (*cell, level)));
    assert!(turns.eq(expected));
    for record in &notes.records {
        let (ops, writes) = cell(record);
        assert_eq!(record.workload, "transactions");
        assert!(
            (3000..3000 + 2 * ops).contains(&record.ops),
            "{}",
            record.ops
        );
        let gets = record.found.unwrap() as f64;
        let share = 100.0 * (1.0 - gets / record.ops as f64);
        assert!((share - writes as f64).abs() < 0.5, "{share} %");
        assert!(record.speed_to_first_level.is_some());
        let may_conflict = writes > 0 && ["snapshot", "serializable"].contains(&record.variant);
        assert!(may_conflict || record.conflicts_per_commit == Some(0.0));
    }
    let unknown = IsoLevel::from_name("dirty").unwrap_err().to_string();
    assert!(unknown.contains("serializable"), "{unknown}");
    for wrong in [
        IsoOptions {
            writes: vec![101],
            ..tiny()
        },
        IsoOptions {
            ops_per_transaction: vec![0],
            ..tiny()
        },
    ] {
        let mut notes = Notes::default();
        assert!(matches!(
            iso::run(&wrong, &mut notes),
            Err(Error::Option { .. })
        ));
    }
}

#[test]
fn both_variants_have_turns_with_each_number_of_threads() {
    let notes = Notes::of(|notes| iso::run(&tiny(), notes));
    let turns = notes.records.iter().map(|one| (one.variant, one.threads));
    let expected = [
        ("own-handle", 1),
        ("shared-handle", 1),
        ("own-handle", 3),
        ("shared-handle", 3),
    ];
    assert!(turns.eq(expected));
    for record in &notes.records {
        assert_eq!(record.workload, "readrandom");
        assert_eq!((record.ops, record.found), (3000, Some(3000)));
        assert_eq!(record.hits_per_op, Some(1.0));
        let of_one = notes
            .records
            .iter()
            .find(|one| one.variant == record.variant);
        let times = record.ops_per_s / of_one.unwrap().ops_per_s;
        assert_eq!(record.speed_to_one_thread, Some(times));
    }
    let page = pando_bench::html::page("iso", &[], &notes.records);
    assert!(page.contains("Operations a second by threads"));
    assert!(page.contains("readrandom own-handle x3"));
}

/// If the data do not fit in memory, a note for each record names the option that helps.
#[test]
fn reads_from_the_device_are_said() {
    let mut options = tiny();
    options.threads = vec![2];
    options.kv.num = 300_000;
    options.kv.ops = Some(20_000);
    let notes = Notes::of(|notes| iso::run(&options, notes));
    assert!(notes.records.iter().all(|one| one.hits_per_op < Some(1.0)));
    let says = |line: &String| line.contains("--max-memory");
    assert_eq!(notes.lines.iter().filter(|line| says(line)).count(), 2);
    assert!(notes.records[0].speed_to_one_thread.is_none());
}

#[test]
fn a_store_that_is_there_is_read_first_and_nonsense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = tiny();
    options.kv.dir = Some(directory.path().to_owned());
    options.kv.io_backend = IoBackend::Auto;
    Notes::of(|notes| iso::run(&options, notes));
    options.kv.use_existing_db = true;
    let notes = Notes::of(|notes| iso::run(&options, notes));
    assert!(notes.records.iter().all(|one| one.hits_per_op == Some(1.0)));
    for threads in [vec![], vec![1, 0], vec![2000]] {
        options.threads = threads;
        let error = iso::run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(
            error,
            Error::Option {
                flag: "threads",
                ..
            }
        ));
    }
}
