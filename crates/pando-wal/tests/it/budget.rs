//! Room in the log: reservations never exceed it, and room that is given back can be reserved
//! again.

use fastrand::Rng;
use pando_device::Device;
use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, Rank, thread};
use pando_wal::{Acknowledge, Error, Log};

use crate::support::{
    Report, SEGMENT, TestDevice, append, append_waiting, open, options, read, wait_until,
};

#[test]
fn sixteen_writers_share_two_segments_with_a_truncator() {
    const EACH: u64 = 150;
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let max = log.max_batch_bytes() as u64;
    let written = Arc::new(Mutex::new(Rank::Leaf, Vec::new()));
    let running = Arc::new(AtomicU64::new(16));
    let writers: Vec<_> = (0..16_u64)
        .map(|number| {
            let (log, written, running) = (log.clone(), written.clone(), running.clone());
            thread::spawn(move || {
                let mut random = Rng::with_seed(number + 1);
                for round in 0..EACH {
                    let bytes = if random.u64(..8) == 0 { max } else { 900 };
                    let payload = vec![round as u8; random.u64(..bytes) as usize + 1];
                    let lsn = append_waiting(&log, &payload).unwrap();
                    log.mark_applied(lsn);
                    written.lock().push((lsn, payload.len()));
                    if random.u64(..3) == 0 {
                        log.wait_durable(lsn).unwrap();
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(None)
    });
    let mut checkpoint = Lsn(0);
    while running.load(Ordering::SeqCst) > 0 {
        assert!(log.used_bytes() <= 2 * SEGMENT);
        log.flush_now().unwrap();
        checkpoint = log.applied().min(log.durable());
        log.truncate_below(checkpoint);
        thread::yield_now();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    log.flush_now().unwrap();
    log.stop();
    flusher.join().unwrap();
    assert_eq!(log.reserved_bytes(), 0);
    assert_eq!(log.applied(), log.reserved_end());
    let mut written: Vec<_> = written.lock().clone();
    written.sort_unstable();
    let expected: Vec<_> = written
        .iter()
        .filter(|(lsn, _)| *lsn > checkpoint)
        .copied()
        .collect();
    let (records, _) = read(&device, 1, checkpoint.0).unwrap();
    let found: Vec<_> = records
        .iter()
        .map(|(lsn, payload)| (*lsn, payload.len()))
        .collect();
    assert_eq!(found, expected);
}

/// Takes reservations of one range of sizes until there is no room, then uses them in random order.
fn burst<D: Device>(log: &Log<D>, random: &mut Rng) {
    let max = log.max_batch_bytes() as u64;
    let (largest, least) =
        [(1, 0), (600, 0), (max, max), (max, max - 3_000), (max, 0)][random.usize(..5)];
    // Takes all there is room for, or only a few.
    let most = [5, usize::MAX][random.usize(..2)];
    let flushes = random.u64(..3);
    let mut reservations = Vec::new();
    while reservations.len() < most {
        let bytes = (least + random.u64(..largest - least + 1)) as usize;
        match log.try_reserve(bytes).unwrap() {
            Some(reservation) => reservations.push((reservation, bytes)),
            None => break,
        }
    }
    while !reservations.is_empty() {
        let place = random.usize(..reservations.len());
        let (reservation, bytes) = reservations.swap_remove(place);
        if random.u64(..20) == 0 {
            continue;
        }
        let lsn = log.append(
            reservation,
            RecordKind::Batch,
            Acknowledge::WhenDurable,
            &vec![1; bytes],
        );
        log.mark_applied(lsn);
        if flushes == 0 || flushes == 1 && random.u64(..4) == 0 {
            log.flush_now().unwrap();
        }
    }
    assert_eq!(log.reserved_bytes(), 0);
}

/// Every reservation that was granted can be used, in any order.
#[test]
fn held_reservations_always_find_room() {
    for seed in 1..60 {
        let device = TestDevice::new();
        let mut options = options(2 + (seed % 2) as u32, 1, 0);
        options.buffer_bytes = [48 << 10, 512 << 10][(seed / 2 % 2) as usize];
        let log = open(&device, options);
        let mut random = Rng::with_seed(seed);
        for _ in 0..12 {
            burst(&log, &mut random);
            log.flush_now().unwrap();
            if random.u64(..2) == 0 {
                log.truncate_below(log.reserved_end());
                let largest = log.try_reserve(log.max_batch_bytes()).unwrap();
                assert!(
                    largest.is_some(),
                    "the largest batch fits after a checkpoint"
                );
            }
        }
    }
}

#[test]
fn a_batch_that_is_too_large_is_refused() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let max = log.max_batch_bytes();
    assert!(log.try_reserve(max).unwrap().is_some());
    assert!(matches!(
        log.try_reserve(max + 1),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn a_dropped_reservation_wakes_who_waits_for_room() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let mut reservations = Vec::new();
    while let Some(reservation) = log.try_reserve(log.max_batch_bytes()).unwrap() {
        reservations.push(reservation);
    }
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    assert!(!report.woken());
    drop(reservations);
    assert!(report.woken());
    append_waiting(&log, &[1; 100]).unwrap();
}

/// Fills all segments with durable records.
fn fill<D: Device>(log: &Log<D>) {
    while log.try_reserve(10_000).unwrap().is_some() {
        append(log, &[1; 10_000]);
        log.flush_now().unwrap();
    }
}

#[test]
fn a_truncation_and_a_new_segment_wake_who_waits_for_room() {
    let device = TestDevice::new();
    let log = Log::open(device, options(3, 1, 0), Default::default()).unwrap();
    fill(&log);
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    assert_eq!(log.make_all_files().unwrap(), 1);
    assert!(report.woken(), "the third segment makes room");
    fill(&log);
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    log.truncate_below(log.reserved_end());
    assert!(report.woken(), "the truncation makes room");
}

/// Less than half of the buffer is used, so that only the refusal asks the log thread for a flush.
#[test]
fn who_finds_no_room_in_the_buffer_asks_for_a_flush() {
    let device = TestDevice::new();
    let mut options = options(2, 1, 0);
    options.segment_bytes = 1 << 20;
    let log = open(&device, options);
    let flusher = thread::spawn({
        let log = log.clone();
        move || log.run_flusher(None)
    });
    let lsn = append(&log, &[1; 20_000]);
    thread::sleep(std::time::Duration::from_millis(30));
    assert!(log.durable() < lsn);
    assert!(log.try_reserve(40_000).unwrap().is_none());
    wait_until("a flush", || log.durable() >= lsn);
    assert!(log.try_reserve(40_000).unwrap().is_some());
    log.stop();
    flusher.join().unwrap();
}

#[test]
fn truncation_frees_only_what_is_durable() {
    let device = TestDevice::new();
    let mut options = options(2, 1, 0);
    options.buffer_bytes = 512 << 10;
    let log = open(&device, options);
    let mut count = 0;
    while let Some(reservation) = log.try_reserve(2_000).unwrap() {
        let lsn = log.append(
            reservation,
            RecordKind::Batch,
            Acknowledge::WhenDurable,
            &[3; 2_000],
        );
        log.mark_applied(lsn);
        // The record is not flushed, so a truncation up to it frees nothing.
        log.truncate_below(lsn);
        assert!(lsn.0 <= 2 * SEGMENT);
        count += 1;
    }
    log.flush_now().unwrap();
    assert_eq!(read(&device, 1, 0).unwrap().0.len(), count);
}

/// Records after a checkpoint are not overwritten before the next truncation.
#[test]
fn what_is_behind_a_checkpoint_stays_until_the_next() {
    for start in [1, 20, 35, 50] {
        let device = TestDevice::new();
        let log = open(&device, options(2, 1, 0));
        let append = |bytes: usize| {
            let reservation = log.try_reserve(bytes).unwrap()?;
            let lsn = log.append(
                reservation,
                RecordKind::Batch,
                Acknowledge::WhenDurable,
                &vec![3; bytes],
            );
            log.mark_applied(lsn);
            log.flush_now().unwrap();
            Some(lsn)
        };
        let mut checkpoint = Lsn(0);
        for _ in 0..start {
            checkpoint = append(1_000).unwrap();
        }
        log.truncate_below(checkpoint);
        let mut count = 0;
        while append(1_000).is_some() {
            count += 1;
        }
        assert_eq!(read(&device, 1, checkpoint.0).unwrap().0.len(), count);
    }
}

#[test]
fn who_waits_for_a_batch_is_told_when_all_before_it_are_applied() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let [first, second] = [b"first", b"other"].map(|payload| {
        let reservation = log.try_reserve(payload.len()).unwrap().unwrap();
        log.append(reservation, RecordKind::Batch, Acknowledge::AtOnce, payload)
    });
    let (report, waker) = Report::new();
    assert!(!log.request_applied(second, &waker).unwrap());
    log.mark_applied(second);
    assert!(!report.woken(), "the first one is not applied");
    log.mark_applied(first);
    assert!(report.woken());
    assert!(log.request_applied(second, &waker).unwrap());
}

#[test]
fn batches_are_applied_in_any_order_and_counted_in_lsn_order() {
    let device = TestDevice::new();
    let log = open(&device, options(8, 1, 0));
    let stop = Arc::new(AtomicBool::new(false));
    let watcher = thread::spawn({
        let (log, stop) = (log.clone(), stop.clone());
        move || {
            let mut last = log.applied();
            while !stop.load(Ordering::SeqCst) {
                let now = log.applied();
                assert!(now >= last, "applied only grows");
                assert!(now <= log.reserved_end());
                last = now;
                thread::yield_now();
            }
        }
    });
    let mut random = Rng::with_seed(5);
    for _ in 0..60 {
        let start = log.applied();
        let mut open: Vec<Lsn> = (0..20)
            .map(|_| {
                let reservation = log.try_reserve(8).unwrap().unwrap();
                log.append(
                    reservation,
                    RecordKind::Batch,
                    Acknowledge::WhenDurable,
                    &[0; 8],
                )
            })
            .collect();
        let all = open.clone();
        let mut done = Vec::new();
        assert_eq!(log.applied(), start);
        while !open.is_empty() {
            let lsn = open.swap_remove(random.usize(..open.len()));
            log.mark_applied(lsn);
            done.push(lsn);
            let gapless = all.iter().take_while(|lsn| done.contains(lsn)).last();
            assert_eq!(log.applied(), gapless.copied().unwrap_or(start));
        }
        log.flush_now().unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    watcher.join().unwrap();
}
