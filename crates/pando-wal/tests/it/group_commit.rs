//! Many committers with few flushes. Every committer that waits is acknowledged, and only after its
//! record is durable.

use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::Ordering;
use pando_sync::{Arc, thread};
use pando_wal::Log;

use crate::support::{TestDevice, append_waiting, options, read};

/// Each of `threads` commits `each` records and waits for each one. Returns the number of flushes.
fn check(threads: u64, each: u64, sync_us: u64) -> u64 {
    let device = TestDevice::new();
    let statistics = Arc::new(Statistics::new());
    let mut options = options(8, 1, 0);
    options.segment_bytes = 1 << 20;
    options.buffer_bytes = 256 << 10;
    let log = Log::open(device.clone(), options, statistics.clone()).unwrap();
    log.make_all_files().unwrap();
    let log = Arc::new(log);
    device.control.sync_us.store(sync_us, Ordering::SeqCst);
    let handles: Vec<_> = (0..threads)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || {
                for round in 0..each {
                    let payload = (number << 32 | round).to_le_bytes();
                    let lsn = append_waiting(&log, &payload).unwrap();
                    log.mark_applied(lsn);
                    log.wait_durable(lsn).unwrap();
                    assert!(log.durable() >= lsn);
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    let commits = threads * each;
    assert_eq!(log.durable(), log.reserved_end());
    assert_eq!(log.applied(), log.reserved_end());
    assert_eq!(log.reserved_bytes(), 0);
    assert_eq!(statistics.get(Ticker::LogBytes), commits * 48);
    assert_eq!(statistics.get(Ticker::LogFlushedRecords), commits);
    assert_eq!(commits, read_all(&device).len() as u64);
    statistics.get(Ticker::LogFlushes)
}

fn read_all(device: &TestDevice) -> std::collections::BTreeSet<u64> {
    let options = pando_wal::ReplayOptions {
        segment_bytes: 1 << 20,
        identity: crate::support::IDENTITY,
        incarnation: 1,
        signature: crate::support::signature_of(1),
        from: pando_format::Lsn(0),
        expects_files: false,
    };
    let mut found = std::collections::BTreeSet::new();
    pando_wal::replay(device, &options, |_, payload| {
        assert!(found.insert(u64::from_le_bytes(payload.try_into().unwrap())));
        Ok::<(), pando_wal::Error>(())
    })
    .unwrap();
    found
}

#[test]
fn one_committer_flushes_once_for_each_commit() {
    assert_eq!(check(1, 300, 20), 300);
}

/// Committers that wait at the same time share flushes. Whether they do depends on the scheduler,
/// so there are five tries.
fn share_flushes(threads: u64, each: u64, most: u64) {
    let tries: Vec<u64> = (0..5)
        .map(|_| check(threads, each, 60))
        .take_while(|flushes| *flushes >= most)
        .collect();
    let commits = threads * each;
    assert!(tries.len() < 5, "{tries:?} flushes for {commits} commits");
}

#[test]
fn two_committers_share_flushes() {
    share_flushes(2, 800, 1250);
}

#[test]
fn sixteen_committers_share_flushes() {
    share_flushes(16, 200, 1600);
}

#[test]
fn sixty_four_committers_share_flushes() {
    share_flushes(64, 100, 2100);
}

#[test]
fn committers_that_come_and_go_are_all_acknowledged() {
    for round in 0..40 {
        check(1 + round % 7, 20, round % 3);
    }
}

#[test]
fn what_is_not_waited_for_becomes_durable_with_the_next_flush() {
    let device = TestDevice::new();
    let log = crate::support::open(&device, options(2, 1, 0));
    let first = crate::support::append(&log, b"first");
    assert!(log.durable() < first);
    assert_eq!(read(&device, 1, 0).unwrap().0.len(), 0);
    let second = crate::support::append(&log, b"second");
    log.wait_durable(second).unwrap();
    assert_eq!(read(&device, 1, 0).unwrap().0.len(), 2);
}
