//! Callers that cannot block: the log thread flushes for them and wakes them.

use pando_sync::atomic::Ordering;
use pando_sync::time::Duration;
use pando_sync::{park, thread, thread_waker};

use crate::support::{Report, TestDevice, append, open, options, read};

#[test]
fn the_log_thread_flushes_for_event_loops() {
    let device = TestDevice::new();
    // Each record may need a sector of its own, since records need not share flushes.
    let log = open(&device, options(16, 1, 0));
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(None)
    });
    let loops: Vec<_> = (0..3)
        .map(|_| {
            let log = log.clone();
            thread::spawn(move || {
                for _ in 0..200 {
                    let lsn = append(&log, b"from a loop");
                    while !log.request_durable(lsn, &thread_waker()).unwrap() {
                        park();
                    }
                    assert!(log.durable() >= lsn);
                }
            })
        })
        .collect();
    let committer = thread::spawn({
        let log = log.clone();
        move || {
            for _ in 0..200 {
                log.wait_durable(append(&log, b"from a thread")).unwrap();
            }
        }
    });
    for handle in loops {
        handle.join().unwrap();
    }
    committer.join().unwrap();
    log.stop();
    flusher.join().unwrap();
    assert_eq!(read(&device, 1, 0).unwrap().0.len(), 800);
}

#[test]
fn the_interval_makes_durable_what_nobody_waits_for() {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(Some(Duration::from_millis(2)))
    });
    for _ in 0..5 {
        let lsn = append(&log, b"nobody waits");
        while log.durable() < lsn {
            thread::yield_now();
        }
    }
    log.stop();
    flusher.join().unwrap();
}

#[test]
fn a_half_full_buffer_is_flushed_without_being_asked_for() {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(None)
    });
    let first = append(&log, &[1; 15_000]);
    append(&log, &[1; 15_000]);
    while log.durable() < first {
        thread::yield_now();
    }
    log.stop();
    flusher.join().unwrap();
}

#[test]
fn poison_wakes_event_loops() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let (report, waker) = Report::new();
    let lsn = append(&log, b"lost");
    device.control.fail_sync.store(1, Ordering::SeqCst);
    assert!(!log.request_durable(lsn, &waker).unwrap());
    log.run_flusher(None);
    assert!(report.woken());
    assert!(log.request_durable(lsn, &waker).is_err());
}
