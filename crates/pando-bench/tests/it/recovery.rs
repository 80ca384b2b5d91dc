//! Writes a log, takes the device away, and replays the log.

use pando_bench::{Error, KvOptions, RecoveryOptions, recovery};
use pandodb::IoBackend;

use crate::notes::Notes;

fn tiny() -> RecoveryOptions {
    RecoveryOptions {
        log_bytes: 2 << 20,
        kv: KvOptions {
            num: 2000,
            max_memory: 16 << 20,
            io_backend: IoBackend::Memory,
            ..KvOptions::default()
        },
    }
}

#[test]
fn what_was_written_last_is_read_first_after_a_recovery() {
    let notes = Notes::of(|notes| recovery::run(&tiny(), notes));
    let [record] = &notes.records[..] else {
        panic!("{} records", notes.records.len());
    };
    assert_eq!((record.workload, record.variant), ("recovery", "ours"));
    let bytes = record.log_bytes.unwrap();
    assert!((2 << 20..4 << 20).contains(&bytes), "{bytes}");
    assert!(record.replayed_mb_per_s.unwrap() > 0.0 && record.ops > 500);
    assert!(record.first_read_ms.unwrap() > 0.0);
}

#[test]
fn a_log_that_is_too_short_is_refused() {
    let options = RecoveryOptions {
        log_bytes: 1000,
        ..tiny()
    };
    let mut notes = Notes::default();
    let refused = recovery::run(&options, &mut notes);
    assert!(matches!(refused, Err(Error::Option { .. })));
}
