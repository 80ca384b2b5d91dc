//! Reads of cached data by a growing number of threads.

use pando_bench::{Error, IsoLevel, IsoOptions, IsoSnapshots, KvOptions, Record, Workload, iso};
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

/// Each kind of snapshot is there during its turns, and only then.
#[test]
fn snapshots_have_turns_with_each_workload() {
    let reads = (
        vec![Workload::ReadRandom, Workload::ReadWhileWriting],
        IsoSnapshots::ALL.to_vec(),
    );
    let puts = (vec![Workload::Overwrite], IsoSnapshots::ALL[..3].to_vec());
    for (workloads, snapshots) in [reads, puts] {
        let mut options = IsoOptions {
            threads: vec![2],
            snapshots: snapshots.clone(),
            workloads: workloads.clone(),
            ..tiny()
        };
        options.kv.duration = Some(std::time::Duration::from_millis(250));
        options.kv.max_memory = 128 << 20;
        let notes = Notes::of(|notes| iso::run(&options, notes));
        let turns = notes.records.iter().map(|one| (one.workload, one.variant));
        let expected = workloads.iter().flat_map(|workload| {
            let kinds = snapshots.iter();
            kinds.map(|kind| (workload.name(), kind.name()))
        });
        assert!(turns.eq(expected));
        for record in &notes.records {
            let what = format!("{} {}", record.workload, record.variant);
            let has_writers = record.workload != "readrandom";
            let is = |variants: &[&str]| variants.contains(&record.variant);
            assert!(record.ops > 0 && record.speed_to_first_variant.is_some());
            let renewals = record.snapshot_renewals.unwrap();
            assert!(renewals == 0 || has_writers && is(&["young"]), "{what}");
            let saved = record.old_version_bytes_max.unwrap();
            assert_eq!(saved > 0, is(&["young", "each"]), "{what}: {saved}");
            let settled = record.settled_snapshots_max.unwrap();
            assert_eq!(settled > 0, is(&["settled"]), "{what}");
            // What a whole turn of puts replaces is more than one page of old versions.
            assert!(
                !(has_writers && is(&["young"])) || saved > 20_000,
                "{what}: {saved}"
            );
        }
        assert_eq!(notes.records[0].speed_to_first_variant, Some(1.0));
    }
    let unknown = IsoSnapshots::from_name("old").unwrap_err().to_string();
    assert!(unknown.contains("settled"), "{unknown}");
    let all = IsoSnapshots::ALL.to_vec();
    for (snapshots, workloads, levels) in [
        (all.clone(), vec![Workload::Overwrite], Vec::new()),
        (all.clone(), vec![Workload::SeekRandom], Vec::new()),
        (all, vec![Workload::ReadRandom], IsoLevel::ALL.to_vec()),
        (Vec::new(), vec![Workload::Overwrite], Vec::new()),
    ] {
        let wrong = IsoOptions {
            snapshots,
            workloads,
            levels,
            ..tiny()
        };
        let refused = iso::run(&wrong, &mut Notes::default());
        assert!(matches!(refused, Err(Error::Option { .. })));
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
