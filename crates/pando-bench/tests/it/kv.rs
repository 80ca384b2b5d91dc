//! Tests of the workloads of the engine.

use std::time::Duration;

use pando_bench::values::Values;
use pando_bench::{Distribution, Error, KeyKind, KvOptions, Record, ValueSizes, Workload};
use pandodb::{Db, IoBackend};

use crate::notes::Notes;

fn tiny(workloads: &[Workload]) -> KvOptions {
    KvOptions {
        workloads: workloads.to_vec(),
        num: 2000,
        max_memory: 16 << 20,
        io_backend: IoBackend::Memory,
        ..KvOptions::default()
    }
}

fn run(options: &KvOptions) -> Notes {
    let mut notes = Notes::default();
    pando_bench::run(options, &mut notes).unwrap();
    notes
}

#[test]
fn every_workload_does_what_it_is_asked_for() {
    let mut runs = 0;
    for key_kind in [KeyKind::Decimal, KeyKind::Binary, KeyKind::Random] {
        for distribution in [
            None,
            Some(Distribution::Zipf(0.99)),
            Some(Distribution::Latest),
        ] {
            // The number of distributions is odd, so each kind and each distribution runs with one
            // thread and with three.
            runs += 1;
            let threads = if runs % 2 == 0 { 1 } else { 3 };
            let has_bulk = threads == 1 && key_kind != KeyKind::Random;
            let workloads = Workload::ALL.iter().copied();
            let workloads = workloads.filter(|one| *one != Workload::Transactions);
            let needs_order = [Workload::FillBulk, Workload::Queue];
            let workloads = workloads.filter(|one| !needs_order.contains(one) || has_bulk);
            let options = KvOptions {
                threads,
                key_kind,
                distribution,
                ..tiny(&workloads.collect::<Vec<_>>())
            };
            let notes = run(&options);
            let names: Vec<_> = notes.records.iter().map(|record| record.workload).collect();
            let expected: Vec<_> = options.workloads.iter().map(|one| one.name()).collect();
            assert_eq!(names, expected);
            notes.records.iter().for_each(check);
        }
    }
}

/// Checks what holds for 2000 operations of any workload in memory.
fn check(record: &Record) {
    assert_eq!(record.ops, 2000, "{record:?}");
    assert!(record.ops_per_s > 0.0 && record.p50_us <= record.p999_us);
    let is_beside = record.workload.starts_with("readwhile");
    assert_eq!(record.beside_ops_per_s.is_some(), is_beside);
    let found = match record.workload {
        "readmissing" => Some(0),
        "fillseq" | "fillrandom" | "fillbulk" | "overwrite" | "deleterandom" => None,
        "seekrandom" => record.found,
        // Some keys were deleted before.
        name if name.starts_with("ycsb") => record.found,
        _ => Some(2000),
    };
    assert_eq!(record.found, found, "{record:?}");
    // All data fit in memory.
    let hits = record.hits_per_op;
    assert!(hits.is_none_or(|hits| hits == 1.0), "{record:?}");
}

#[test]
fn fills_write_each_key_once_on_any_number_of_threads() {
    let fills = [
        (Workload::FillSeq, 4),
        (Workload::FillRandom, 4),
        (Workload::FillBulk, 1),
    ];
    for (workload, threads) in fills {
        let directory = tempfile::tempdir().unwrap();
        let options = KvOptions {
            num: 777,
            threads,
            batch: 10,
            dir: Some(directory.path().to_owned()),
            io_backend: IoBackend::Auto,
            duration: Some(Duration::from_millis(1)),
            ..tiny(&[workload, workload])
        };
        assert_eq!(run(&options).records[1].ops, 777);
        let db = Db::open(directory.path()).unwrap();
        let table = db.existing_table("bench").unwrap();
        assert_eq!(table.len(), 777);
        let keys = table.iter().map(|entry| entry.unwrap().0);
        assert!(keys.eq((0..777).map(|number| format!("{number:016}").into_bytes())));
    }
}

#[test]
fn a_load_in_bulk_has_one_thread_and_keys_in_order() {
    let wrong: [fn(&mut KvOptions); 2] = [
        |options| options.threads = 2,
        |options| options.key_kind = KeyKind::Random,
    ];
    for change in wrong {
        let mut options = tiny(&[Workload::FillBulk]);
        change(&mut options);
        let error = pando_bench::run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}

#[test]
fn a_store_is_used_only_if_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = KvOptions {
        dir: Some(directory.path().to_owned()),
        io_backend: IoBackend::Auto,
        ..tiny(&[Workload::FillSeq])
    };
    options.use_existing_db = true;
    let refused = |options: &KvOptions| {
        let error = pando_bench::run(options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    };
    refused(&options);
    options.use_existing_db = false;
    run(&options);
    refused(&options);
    options.use_existing_db = true;
    options.workloads = vec![Workload::ReadRandom];
    assert_eq!(run(&options).records[0].found, Some(2000));
}

#[test]
fn values_of_another_run_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = KvOptions {
        dir: Some(directory.path().to_owned()),
        io_backend: IoBackend::Auto,
        ..tiny(&[Workload::FillSeq])
    };
    run(&options);
    options.use_existing_db = true;
    options.seed = 2;
    for workload in [
        Workload::ReadRandom,
        Workload::MultiReadRandom,
        Workload::ReadSeq,
        Workload::ReadReverse,
        Workload::SeekRandom,
        Workload::UpdateRandom,
        Workload::YcsbC,
        Workload::YcsbE,
        Workload::YcsbF,
    ] {
        options.workloads = vec![workload];
        let error = pando_bench::run(&options, &mut Notes::default()).unwrap_err();
        assert!(
            matches!(error, Error::Wrong { .. }),
            "{workload:?}: {error}"
        );
    }
}

#[test]
fn duration_warmup_rate_and_interval_count() {
    let options = KvOptions {
        duration: Some(Duration::from_millis(300)),
        warmup: Duration::from_millis(50),
        interval: Some(Duration::from_millis(50)),
        rate: Some(2000.0),
        threads: 2,
        ..tiny(&[Workload::FillSeq, Workload::ReadRandom])
    };
    let notes = run(&options);
    let record = &notes.records[1];
    assert!(record.elapsed_s >= 0.2, "{record:?}");
    assert!((100..=800).contains(&record.ops), "{record:?}");
    assert!(notes.steps >= 2);
    let json: serde_json::Value = serde_json::from_str(&record.json()).unwrap();
    assert_eq!(json["workload"], "readrandom");
    assert_eq!(json["max_memory"], 16 << 20);
    assert!(json["interval_ops_per_s"].as_array().unwrap().len() >= 2);
    assert_eq!(json["io_backend"], "memory");
    assert_eq!(json["page_reads_per_op"], 0.0);
    assert!(json.get("read_p50_us").is_none(), "the workload only reads");
    assert!(json.get("batch").is_none() && json.get("clients").is_none());
}

#[test]
fn same_seed_same_data() {
    let content = |seed: u64| {
        let directory = tempfile::tempdir().unwrap();
        let options = KvOptions {
            seed,
            num: 300,
            dir: Some(directory.path().to_owned()),
            io_backend: IoBackend::Auto,
            ..tiny(&[
                Workload::FillRandom,
                Workload::Overwrite,
                Workload::DeleteRandom,
            ])
        };
        run(&options);
        let db = Db::open(directory.path()).unwrap();
        let table = db.table("bench").unwrap();
        table.iter().map(|entry| entry.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(content(5), content(5));
    assert_ne!(content(5), content(6));
}

const YCSB: [Workload; 6] = [
    Workload::YcsbA,
    Workload::YcsbB,
    Workload::YcsbC,
    Workload::YcsbD,
    Workload::YcsbE,
    Workload::YcsbF,
];

#[test]
fn workloads_of_ycsb_find_all_keys() {
    for (threads, distribution) in [
        (1, None),
        (3, Some(Distribution::Uniform)),
        (2, Some(Distribution::Latest)),
    ] {
        let options = KvOptions {
            threads,
            distribution,
            ..tiny(&[&[Workload::FillRandom][..], &YCSB].concat())
        };
        for record in &run(&options).records[1..] {
            assert_eq!((record.ops, record.found), (2000, Some(2000)), "{record:?}");
            assert_eq!(record.write_p99_us.is_some(), record.workload != "ycsbc");
            let kinds = [record.read_p50_us, record.write_p50_us];
            let kinds = kinds.into_iter().flatten();
            let (low, high) =
                kinds.fold((f64::MAX, 0.0_f64), |(a, b), one| (a.min(one), b.max(one)));
            assert!(low <= record.p50_us && record.p50_us <= high, "{record:?}");
            let chosen = match (distribution, record.workload) {
                (Some(distribution), _) => distribution.name(),
                (None, "ycsbd") => "latest".to_owned(),
                (None, _) => "zipf:0.99".to_owned(),
            };
            assert_eq!(record.distribution, Some(chosen));
        }
    }
}

#[test]
fn inserts_are_a_share_and_go_on_behind_those_of_an_earlier_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = KvOptions {
        threads: 2,
        dir: Some(directory.path().to_owned()),
        io_backend: IoBackend::Auto,
        ..tiny(&[Workload::FillRandom, Workload::YcsbD, Workload::YcsbE])
    };
    run(&options);
    options.use_existing_db = true;
    options.workloads = vec![Workload::YcsbE];
    assert_eq!(run(&options).records[0].found, Some(2000));
    let db = Db::open(directory.path()).unwrap();
    let table = db.existing_table("bench").unwrap();
    let inserted = table.len() - 2000;
    assert!((180..=420).contains(&inserted), "{inserted} of 6000");
    let (values, mut scratch) = (Values::new(100, 1.0, 1), Vec::new());
    for entry in table.iter() {
        let (key, value) = entry.unwrap();
        let number = std::str::from_utf8(&key).unwrap().parse().unwrap();
        assert!(values.check(number, &value, &mut scratch).is_some());
    }
}

#[test]
fn inserts_end_where_keys_are_too_short_for_more() {
    let options = KvOptions {
        num: 1000,
        key_bytes: 3,
        ..tiny(&[Workload::FillSeq, Workload::YcsbD])
    };
    let error = pando_bench::run(&options, &mut Notes::default()).unwrap_err();
    assert!(error.to_string().contains("--key-size"), "{error}");
}

#[test]
fn values_may_have_many_sizes() {
    let (min, max) = (64, 700);
    for (value_sizes, law) in [
        (ValueSizes::Uniform { min, max }, "uniform"),
        (ValueSizes::Zipf { min, max }, "zipf:0.99"),
    ] {
        let options = KvOptions {
            value_sizes,
            ..tiny(&[
                Workload::FillRandom,
                Workload::Overwrite,
                Workload::UpdateRandom,
                Workload::YcsbF,
                Workload::ReadSeq,
                Workload::ReadRandom,
            ])
        };
        let record = run(&options).records.pop().unwrap();
        assert_eq!(record.found, Some(2000));
        let json: serde_json::Value = serde_json::from_str(&record.json()).unwrap();
        assert_eq!(json["value_sizes"], law);
        assert_eq!(json["value_size_bytes_max"], 700);
        assert!(json.get("value_size_bytes").is_none());
    }
}

#[test]
fn values_of_another_range_of_sizes_are_noticed() {
    let (min, max) = (64, 700);
    let directory = tempfile::tempdir().unwrap();
    let mut options = KvOptions {
        value_sizes: ValueSizes::Uniform { min, max },
        dir: Some(directory.path().to_owned()),
        io_backend: IoBackend::Auto,
        ..tiny(&[Workload::FillSeq])
    };
    run(&options);
    let db = Db::open(directory.path()).unwrap();
    let table = db.existing_table("bench").unwrap();
    let lengths = table.iter().map(|entry| entry.unwrap().1.len());
    let lengths: std::collections::BTreeSet<_> = lengths.collect();
    assert!(lengths.len() > 300, "{}", lengths.len());
    assert!(lengths.iter().all(|bytes| (min..=max).contains(bytes)));
    drop((table, db));
    options.use_existing_db = true;
    options.value_sizes = ValueSizes::Uniform { min, max: 701 };
    options.workloads = vec![Workload::ReadRandom];
    assert!(pando_bench::run(&options, &mut Notes::default()).is_err());
}

#[test]
fn calls_beside_checkpoints_are_told_from_the_others() {
    let options = KvOptions {
        duration: Some(Duration::from_millis(400)),
        checkpoint_interval: Some(Duration::from_millis(100)),
        batch: 1,
        threads: 2,
        distribution: Some(Distribution::Uniform),
        ..tiny(&[Workload::FillRandom, Workload::YcsbA, Workload::ReadRandom])
    };
    let records = run(&options).records;
    let mixed = &records[1];
    let (quiet, beside) = (mixed.quiet_calls.unwrap(), mixed.checkpoint_calls.unwrap());
    let caught = mixed.caught_calls.unwrap();
    assert_eq!(quiet + beside + caught, mixed.ops, "{mixed:?}");
    assert!(caught <= 2 * mixed.checkpoints.unwrap(), "{mixed:?}");
    assert!(mixed.checkpoints > Some(0) && beside > 0, "{mixed:?}");
    assert!(
        quiet > beside,
        "checkpoints of this small store are short: {mixed:?}"
    );
    for (quiet, beside) in [
        (mixed.quiet_p999_us, mixed.checkpoint_p999_us),
        (mixed.quiet_read_p999_us, mixed.checkpoint_read_p999_us),
        (mixed.quiet_write_p999_us, mixed.checkpoint_write_p999_us),
    ] {
        assert!(quiet > Some(0.0) && beside > Some(0.0), "{mixed:?}");
    }
    let all = [
        mixed.quiet_max_us,
        mixed.checkpoint_max_us,
        mixed.caught_max_us,
    ];
    assert!(all.contains(&Some(mixed.max_us)), "{mixed:?}");
    assert_eq!(
        records[2].quiet_read_p999_us, None,
        "the workload only reads"
    );
    let without = run(&tiny(&[Workload::FillSeq]));
    assert_eq!(without.records[0].quiet_calls, None);
}

fn queue() -> KvOptions {
    KvOptions {
        queue_length: 100,
        old_reader: true,
        ..tiny(&[Workload::Queue])
    }
}

#[test]
fn a_queue_is_measured_part_by_part() {
    let directory = tempfile::tempdir().unwrap();
    let options = KvOptions {
        dir: Some(directory.path().to_owned()),
        io_backend: IoBackend::Auto,
        workloads: vec![Workload::FillSeq, Workload::Queue, Workload::FillSeq],
        ..queue()
    };
    let records = run(&options).records;
    let record = &records[1];
    assert_eq!((record.ops, record.found), (2000, Some(2000)));
    assert_eq!(
        (record.queue_length, record.old_reader),
        (Some(100), Some(true))
    );
    let times = record.part_pop_mean_us.as_ref().unwrap();
    assert_eq!(times.len(), 10);
    assert!(times.iter().all(|us| *us > 0.0), "{times:?}");
    let mean = times.iter().sum::<f64>() / 10.0;
    assert!((mean / record.mean_us - 1.0).abs() < 0.01, "{record:?}");
    let fifth = |parts: &[f64]| parts.iter().sum::<f64>();
    let ratio = fifth(&times[8..]) / fifth(&times[..2]);
    assert!((record.pop_last_to_first.unwrap() - ratio).abs() < 1e-9);
    let (data, used, disk) = (
        record.part_data_bytes_max.as_ref().unwrap(),
        record.part_data_used_bytes_max.as_ref().unwrap(),
        record.part_disk_bytes_max.as_ref().unwrap(),
    );
    assert_eq!([data.len(), used.len(), disk.len()], [10; 3]);
    for part in 0..10 {
        // The old reader keeps its value all the time, and the log has a file.
        assert!(used[part] >= 4 << 20 && used[part] < data[part]);
        assert!(disk[part] > used[part], "{record:?}");
    }
    assert_eq!(records[2].queue_length, None);
    let db = Db::open(directory.path()).unwrap();
    assert_eq!(db.tables(), ["bench"]);
}

#[test]
fn a_queue_has_one_thread_and_keys_in_order_that_do_not_run_out() {
    let wrong: [fn(&mut KvOptions); 5] = [
        |options| options.threads = 2,
        |options| options.key_kind = KeyKind::Random,
        |options| options.queue_length = 0,
        // Keys of 4 bytes name at most 9,999 entries, and the last entry to be pushed has number
        // 10,049.
        |options| (options.key_bytes, options.num) = (4, 9950),
        |options| options.use_existing_db = true,
    ];
    for change in wrong {
        let mut options = queue();
        change(&mut options);
        let error = pando_bench::run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}
