//! Devices that fail, that are full, or whose sync panics.

use pando_device::Device;
use pando_format::log::RecordKind;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, thread, thread_waker};
use pando_wal::{Acknowledge, Error, Log};

use crate::support::{Report, TestDevice, append, append_waiting, open, options, read, wait_until};

/// Runs 16 committers until the device fails. No commit is acknowledged that was not durable
/// before.
fn poisoned_by(plan: impl Fn(&TestDevice)) {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    device.control.sync_us.store(20, Ordering::SeqCst);
    plan(&device);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let handles: Vec<_> = (0..16)
        .map(|_| {
            let (log, acknowledged) = (log.clone(), acknowledged.clone());
            thread::spawn(move || {
                loop {
                    let lsn = match append_waiting(&log, &[1; 20]) {
                        Ok(lsn) => lsn,
                        Err(error) => return error,
                    };
                    log.mark_applied(lsn);
                    match log.wait_durable(lsn) {
                        Ok(()) => acknowledged.fetch_max(lsn.0, Ordering::SeqCst),
                        Err(error) => return error,
                    };
                }
            })
        })
        .collect();
    for handle in handles {
        assert!(matches!(handle.join().unwrap(), Error::Device(_)));
    }
    let durable = log.durable().0;
    assert!(acknowledged.load(Ordering::SeqCst) <= durable);
    assert!(durable < log.reserved_end().0);
    // The device works again, but the log does not.
    assert!(log.flush_now().is_err());
    assert!(log.wait_durable(log.reserved_end()).is_err());
    assert!(log.try_reserve(1).is_err());
    assert!(
        log.request_durable(log.reserved_end(), &thread_waker())
            .is_err()
    );
    assert!(log.poisoned().is_some());
    assert_eq!(log.durable().0, durable);
    let (_, end) = read(&device, 1, 0).unwrap();
    assert!(end.end.0 >= durable);
    log.run_flusher(None);
}

#[test]
fn a_failed_sync_poisons_the_log_and_acknowledges_nobody() {
    for nth in [1, 7] {
        poisoned_by(|device| device.control.fail_sync.store(nth, Ordering::SeqCst));
    }
}

#[test]
fn a_failed_write_poisons_the_log_and_acknowledges_nobody() {
    for nth in [1, 7] {
        poisoned_by(|device| device.control.fail_write.store(nth, Ordering::SeqCst));
    }
}

/// A poisoned log keeps its first reason.
#[test]
fn the_first_reason_stays() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.fail_sync.store(1, Ordering::SeqCst);
    append(&log, b"lost");
    assert!(matches!(log.flush_now(), Err(Error::Device(_))));
    log.poison(Error::Abandoned);
    assert!(matches!(log.poisoned(), Some(Error::Device(_))));
}

#[test]
fn a_leader_that_panics_poisons_the_log() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.panic_sync.store(1, Ordering::SeqCst);
    device.control.sync_us.store(50, Ordering::SeqCst);
    let handles: Vec<_> = [
        append(&log, b"lost"),
        append(&log, b"lost"),
        append(&log, b"lost"),
    ]
    .into_iter()
    .map(|lsn| {
        let log = log.clone();
        thread::spawn(move || log.wait_durable(lsn))
    })
    .collect();
    let ends: Vec<_> = handles.into_iter().map(thread::JoinHandle::join).collect();
    assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
    for end in ends.into_iter().flatten() {
        assert!(matches!(end, Err(Error::Abandoned)));
    }
}

/// A caller that waits for room or for a batch sleeps elsewhere and takes no part in the flush.
#[test]
fn a_leader_that_panics_wakes_those_that_wait_for_something_else() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.panic_sync.store(1, Ordering::SeqCst);
    device.control.sync_us.store(50_000, Ordering::SeqCst);
    let lsn = append(&log, b"lost");
    let leader = thread::spawn({
        let log = log.clone();
        move || log.wait_durable(lsn)
    });
    device.wait_for_sync();
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    assert!(leader.join().is_err());
    assert!(report.woken());
}

#[test]
fn a_flush_under_way_acknowledges_nobody_once_the_log_is_poisoned() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.sync_us.store(50_000, Ordering::SeqCst);
    let before = log.durable();
    let lsn = append(&log, b"nobody knows");
    let leader = thread::spawn({
        let log = log.clone();
        move || log.wait_durable(lsn)
    });
    device.wait_for_sync();
    log.poison(Error::Abandoned);
    assert!(matches!(leader.join().unwrap(), Err(Error::Abandoned)));
    assert_eq!(log.durable(), before);
}

#[test]
fn poison_ends_a_log_thread_that_sleeps() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(None)
    });
    // One flush is done first, so that the log thread then goes to sleep.
    let lsn = append(&log, b"asked for");
    log.request_durable(lsn, &thread_waker()).unwrap();
    wait_until("a flush", || log.durable() >= lsn);
    thread::sleep(std::time::Duration::from_millis(30));
    log.poison(Error::Abandoned);
    wait_until("the end of the log thread", || flusher.is_finished());
}

#[test]
fn a_full_device_delays_and_refuses_but_does_not_poison() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let lsn = append(&log, b"first");
    device.control.full.store(true, Ordering::SeqCst);
    let waiter = thread::spawn({
        let log = log.clone();
        move || log.wait_durable(lsn)
    });
    while !log.is_full() {
        thread::yield_now();
    }
    assert!(matches!(log.try_reserve(10), Err(Error::Full)));
    assert!(!waiter.is_finished());
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    device.control.full.store(false, Ordering::SeqCst);
    waiter.join().unwrap().unwrap();
    assert!(!log.is_full());
    assert!(report.woken(), "refused callers may try again");
    append(&log, b"second");
    log.flush_now().unwrap();
    assert_eq!(read(&device, 1, 0).unwrap().0.len(), 2);
}

/// A caller finds the buffer full, and waits for the flush that is under way. Only then does that
/// find the device full: the caller has to be told, since nothing else wakes it.
#[test]
fn whoever_waits_for_the_buffer_is_told_that_the_device_is_full() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let lsn = append(&log, b"first");
    device.control.full.store(true, Ordering::SeqCst);
    device.control.held.store(true, Ordering::SeqCst);
    let flush = thread::spawn({
        let log = log.clone();
        move || log.wait_durable(lsn)
    });
    while device.control.refused.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert!(!log.is_full(), "the write has not returned");
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    device.control.held.store(false, Ordering::SeqCst);
    // The second try of the write comes after all that the first one has to tell.
    while device.control.refused.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    assert!(report.woken());
    assert!(matches!(log.try_reserve(10), Err(Error::Full)));
    device.control.full.store(false, Ordering::SeqCst);
    flush.join().unwrap().unwrap();
}

/// A flush on a full device waits for space; stopping the log ends that wait with an error.
#[test]
fn a_stop_ends_the_wait_for_space() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    append(&log, b"first");
    device.control.full.store(true, Ordering::SeqCst);
    log.stop();
    assert!(log.flush_now().unwrap_err().is_full());
    assert!(log.poisoned().is_some());
}

#[test]
fn segments_that_cannot_be_made_leave_the_budget_as_it_is() {
    let device = TestDevice::new();
    let log = Log::open(device.clone(), options(4, 1, 0), Default::default()).unwrap();
    device.control.full.store(true, Ordering::SeqCst);
    let capacity = log.capacity_bytes();
    assert!(log.make_all_files().unwrap_err().is_full());
    assert_eq!(device.list().unwrap().len(), 2, "the third file is removed");
    assert_eq!(log.capacity_bytes(), capacity);
    assert!(log.poisoned().is_none());
    device.control.full.store(false, Ordering::SeqCst);
    append(&log, b"works");
    assert_eq!(log.make_all_files().unwrap(), 2);
    log.flush_now().unwrap();
}

#[test]
fn poison_wakes_those_that_wait_for_applied_and_for_space() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let reservation = log.try_reserve(5).unwrap().unwrap();
    let lsn = log.append(
        reservation,
        RecordKind::Batch,
        Acknowledge::WhenDurable,
        b"never",
    );
    let (applied, waker) = Report::new();
    assert!(!log.request_applied(lsn, &waker).unwrap());
    let (space, waker) = Report::new();
    log.space_waiters().register(&waker);
    let blocked = thread::spawn({
        let log = log.clone();
        move || log.wait_applied(lsn)
    });
    log.poison(Error::Abandoned);
    assert!(applied.woken());
    assert!(space.woken());
    assert!(matches!(blocked.join().unwrap(), Err(Error::Abandoned)));
}
