//! Runs every ablation with tiny inputs.

use std::time::Duration;

use pando_bench::ablation::run;
use pando_bench::{Ablation, AblationOptions, Error, Record};
use pandodb::IoBackend;

use crate::notes::Notes;

fn tiny(ablation: Ablation) -> AblationOptions {
    AblationOptions {
        rounds: 2,
        num: Some(1000),
        size_bytes: 4 << 20,
        max_memory: 2 << 20,
        queue_depth: 16,
        batch: 100,
        io_backend: IoBackend::Memory,
        ..AblationOptions::new(ablation)
    }
}

fn records(options: &AblationOptions) -> Vec<Record> {
    Notes::of(|notes| run(options, notes)).records
}

/// Returns the names of the variants in their order, and checks that all have the same number of
/// operations.
fn variants(records: &[Record], ablation: Ablation) -> Vec<&'static str> {
    for record in records {
        assert_eq!(record.ablation, Some(ablation.name()));
        assert_eq!(record.ops, 1000, "{record:?}");
        assert_eq!(record.rounds, Some(2));
        assert!(record.ops_per_s_min <= Some(record.ops_per_s), "{record:?}");
        assert!(record.ops_per_s_max >= Some(record.ops_per_s), "{record:?}");
        let to_ours = record.speed_to_ours.unwrap();
        assert!(to_ours > 0.0, "{record:?}");
        assert!(record.is_ours == Some(false) || to_ours == 1.0);
    }
    records.iter().map(|record| record.variant).collect()
}

#[test]
fn each_ablation_runs_its_variants_and_says_which_is_the_product() {
    let expected: [(Ablation, &[&str]); 4] = [
        (Ablation::Pending, &["boxed", "pooled", "ours"]),
        (Ablation::Queue, &["always", "ours"]),
        (Ablation::PreadHandles, &["pool", "ours"]),
        (Ablation::ScatterGather, &["off", "on"]),
    ];
    for (ablation, names) in expected {
        let records = records(&tiny(ablation));
        assert_eq!(variants(&records, ablation), names);
        let ours: Vec<_> = records
            .iter()
            .map(|record| record.is_ours.unwrap())
            .collect();
        let last = names.len() - 1;
        assert!((0..names.len()).all(|index| ours[index] == (index == last)));
        assert!(
            records
                .iter()
                .all(|record| record.workload == records[0].workload)
        );
    }
}

#[test]
fn reads_of_a_tree_in_memory_run_each_variant_with_each_number_of_threads() {
    let expected: [(Ablation, &[&str]); 2] = [
        (
            Ablation::Descent,
            &[
                "latched",
                "snapshot-latched",
                "optimistic-snapshot",
                "root-hint",
                "ours",
            ],
        ),
        (Ablation::Cursor, &["shared", "core-local", "ours"]),
    ];
    for (ablation, names) in expected {
        assert_eq!(ablation.threads(), [1, 2]);
        let options = AblationOptions {
            threads: vec![1, 3],
            size_bytes: 1 << 20,
            ..tiny(ablation)
        };
        let records = records(&options);
        assert_eq!(variants(&records, ablation), names.repeat(2));
        let (one, three) = records.split_at(names.len());
        assert!(one.iter().all(|record| record.threads == 1));
        assert!(three.iter().all(|record| record.threads == 3));
        for record in &records {
            assert_eq!(record.is_ours, Some(record.variant == "ours"));
            assert_eq!((record.found, record.num), (Some(1000), Some(8192)));
        }
    }
}

#[test]
fn the_throttle_is_what_the_variant_says() {
    let records = records(&tiny(Ablation::Throttle));
    let names = variants(&records, Ablation::Throttle);
    assert_eq!(names, ["16", "64", "120", "512", "ours"]);
    let depths: Vec<_> = records.iter().map(|one| one.queue_depth.unwrap()).collect();
    assert_eq!(depths, [16, 64, 120, 512, 16]);
    assert!(
        records
            .iter()
            .all(|record| record.workload == "multireadrandom")
    );
    assert!(records.iter().all(|record| record.found == Some(1000)));
    assert!(
        records
            .iter()
            .any(|record| record.page_reads_per_op > Some(0.1))
    );
}

#[test]
fn a_context_is_built_for_each_read_or_once_for_each_thread() {
    let directory = tempfile::tempdir().unwrap();
    let options = AblationOptions {
        threads: vec![2],
        io_backend: IoBackend::Auto,
        dir: Some(directory.path().to_owned()),
        ..tiny(Ablation::Fetch)
    };
    let records = records(&options);
    let names = variants(&records, Ablation::Fetch);
    assert_eq!(names, ["built", "ours", "built", "ours"]);
    let workloads: Vec<_> = records.iter().map(|one| one.workload).collect();
    assert_eq!(
        workloads,
        [
            "readrandom",
            "readrandom",
            "readwhilewriting",
            "readwhilewriting"
        ]
    );
    for pair in records.chunks(2) {
        assert_eq!(pair[0].constructions_per_op, Some(1.0));
        assert_eq!(pair[0].allocations_per_op, Some(3.0));
        assert_eq!(pair[1].constructions_per_op, Some(2.0 / 1000.0));
    }
    assert_eq!(records[0].io_backend.as_deref(), Some("memory"));
    assert_ne!(records[2].io_backend.as_deref(), Some("memory"));
}

#[test]
fn ways_to_count_lose_nothing_and_say_what_an_addition_and_a_query_cost() {
    let mut options = AblationOptions {
        threads: vec![3],
        ..tiny(Ablation::Stats)
    };
    options.num = Some(96);
    let notes = Notes::of(|notes| run(&options, notes));
    let all = ["global", "thread-local", "core-local", "core-local-rseq"];
    let absent = notes.lines.len();
    assert!(absent <= 1, "{:?}", notes.lines);
    assert_eq!(absent == 1, notes.records.len() == 9, "a note says so");
    let names = &all[..4 - absent];
    let workloads: Vec<_> = notes.records.chunks(names.len()).collect();
    assert_eq!(workloads.len(), 3);
    for (workload, records) in ["tick", "measure", "query"].iter().zip(workloads) {
        for (record, name) in records.iter().zip(names) {
            assert_eq!((record.workload, record.variant), (*workload, *name));
            assert_eq!((record.ops, record.threads), (96, 3), "{record:?}");
            assert_eq!(
                record.is_ours,
                Some(record.variant == names[names.len() - 1])
            );
            let is_query = *workload == "query";
            assert_eq!(record.ns_per_op.is_some(), !is_query);
            let baselines = [record.plain_ns_per_op, record.lock_add_ns_per_op];
            assert!(
                baselines
                    .iter()
                    .all(|one| one.is_some() == (*workload == "tick"))
            );
            let wall = [
                record.wall_min_us,
                record.wall_mean_us,
                record.wall_max_us,
                record.wall_p95_us,
            ];
            assert!(wall.iter().all(|one| one.is_some() == is_query));
            let spin = [record.spin_p50_us, record.spin_mean_us, record.spin_max_us];
            assert!(spin.iter().all(|one| one.is_some() == is_query));
            assert!(spin[0] <= spin[2] && spin[1] <= spin[2]);
            assert!(wall[0] <= wall[1] && wall[1] <= wall[2] && wall[3] <= wall[2]);
        }
    }
}

#[test]
fn a_store_that_a_run_has_left_is_used_again_if_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = AblationOptions {
        rounds: 1,
        io_backend: IoBackend::Auto,
        dir: Some(directory.path().to_owned()),
        ..tiny(Ablation::ScatterGather)
    };
    records(&options);
    let error = run(&options, &mut Notes::default()).unwrap_err();
    assert!(matches!(error, Error::Option { .. }), "{error}");
    options.use_existing_db = true;
    assert_eq!(records(&options)[1].found, Some(1000));
    options.seed = 2;
    let error = run(&options, &mut Notes::default()).unwrap_err();
    assert!(matches!(error, Error::Wrong { .. }), "{error}");
}

#[test]
fn turns_may_end_by_time_and_nonsense_is_refused() {
    for ablation in [Ablation::Queue, Ablation::Pending] {
        let options = AblationOptions {
            duration: Some(Duration::from_millis(30)),
            ..tiny(ablation)
        };
        for record in records(&options) {
            assert!(record.ops > 0 && record.elapsed_s < 20.0, "{record:?}");
        }
    }
    let wrong: [fn(&mut AblationOptions); 3] = [
        |options| options.rounds = 0,
        |options| options.threads = vec![1, 0],
        |options| options.batch = 0,
    ];
    for change in wrong {
        let mut options = tiny(Ablation::Queue);
        change(&mut options);
        let error = run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}

/// Parsing the name of an ablation returns that ablation.
#[test]
fn names_come_back() {
    for ablation in Ablation::ALL {
        assert_eq!(Ablation::from_name(ablation.name()), Some(*ablation));
    }
    assert_eq!(Ablation::from_name("penting"), None);
}
