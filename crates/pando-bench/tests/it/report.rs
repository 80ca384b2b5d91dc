//! Scans beside writers.

use std::time::Duration;

use pando_bench::{Error, KvOptions, ReportOptions, report};
use pandodb::IoBackend;

use crate::notes::Notes;

fn tiny() -> ReportOptions {
    ReportOptions {
        settled: false,
        kv: KvOptions {
            num: 20_000,
            threads: 2,
            duration: Some(Duration::from_millis(1500)),
            max_memory: 32 << 20,
            io_backend: IoBackend::Memory,
            ..KvOptions::default()
        },
    }
}

/// Whole passes find what was there, in a snapshot that goes on on disk, too.
#[test]
fn every_pass_has_the_entries_of_its_snapshot() {
    for (settled, age) in [(true, None), (false, Some(Duration::from_millis(200)))] {
        let mut options = tiny();
        options.settled = settled;
        options.kv.settle_snapshots_after = age;
        // On a machine that has other things to do, it may be settled too late to be seen.
        let mut runs = (0..5).map(|_| Notes::of(|notes| report::run(&options, notes)));
        let seen = |notes: &Notes| notes.records[2].settled_after_s.is_some();
        let notes = runs.find(seen).unwrap();
        let variants: Vec<_> = notes.records.iter().map(|one| one.variant).collect();
        let last = if settled { "settled" } else { "young" };
        assert_eq!(variants, ["alone", "scan-alone", last]);
        for record in &notes.records {
            assert_eq!(record.workload, "report");
            assert!(record.ops > 0 && record.ops_per_s > 0.0);
            assert!(
                record
                    .resident_bytes_max
                    .is_some_and(|bytes| bytes > 1 << 20)
            );
        }
        assert_eq!(notes.records[1].ops, 20_000);
        let beside = &notes.records[2];
        assert!(beside.scan_entries >= Some(beside.scan_passes.unwrap() * 20_000));
        assert!(beside.scan_entries_per_s > Some(0.0));
        assert!(beside.speed_to_first_variant > Some(0.0));
        let says = |line: &String| line.ends_with("passes had the entries of the snapshot");
        assert_eq!(notes.lines.iter().filter(|line| says(line)).count(), 1);
    }
}

#[test]
fn data_are_ten_times_memory_and_a_duration_is_needed() {
    assert_eq!(ReportOptions::num(116 << 20, 16, 100), 10 << 20);
    let mut options = tiny();
    options.kv.duration = None;
    let refused = report::run(&options, &mut Notes::default());
    assert!(matches!(
        refused,
        Err(Error::Option {
            flag: "duration",
            ..
        })
    ));
}
