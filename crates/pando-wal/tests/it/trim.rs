//! What the log gives back, and that it loses nothing by it.

use pando_format::Lsn;

use pando_sync::atomic::Ordering;
use pando_sync::thread;

use crate::support::{SEGMENT, TestDevice, append, append_waiting, open, options, read};

/// Bytes of the log's files that are not zero.
fn content(device: &TestDevice) -> usize {
    let names: Vec<String> = (0..4).map(|slot| format!("log/{slot:016x}")).collect();
    let bytes = names.iter().flat_map(|name| device.bytes_of(name));
    bytes.filter(|byte| *byte != 0).count()
}

#[test]
fn what_lies_before_the_truncation_is_given_back_and_the_rest_replays() {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    log.prepare_segments().unwrap();
    let mut lsns = Vec::new();
    for number in 0_u8..100 {
        let payload = vec![number + 1; 1000];
        lsns.push(append_waiting(&log, &payload).unwrap());
        log.wait_durable(lsns[lsns.len() - 1]).unwrap();
        if number == 59 {
            log.truncate_below(lsns[49]);
        }
    }
    log.truncate_below(lsns[89]);
    let before = content(&device);
    let given = log.trim().unwrap();
    // Of four segments, two hold what is left at most.
    assert!((SEGMENT..=4 * SEGMENT).contains(&given), "{given}");
    assert!(content(&device) < before / 2, "{before}");
    let expected: Vec<(Lsn, Vec<u8>)> = (90_u8..100)
        .map(|number| (lsns[usize::from(number)], vec![number + 1; 1000]))
        .collect();
    assert_eq!(read(&device, 1, lsns[89].0).unwrap().0, expected);
    // It goes on over the holes.
    for number in 0_u8..200 {
        let lsn = append_waiting(&log, &vec![number; 1000]).unwrap();
        log.wait_durable(lsn).unwrap();
        log.truncate_below(lsn);
        lsns.push(lsn);
    }
    let last = append_waiting(&log, b"last").unwrap();
    log.wait_durable(last).unwrap();
    let newest = lsns[lsns.len() - 1];
    let found = read(&device, 1, newest.0).unwrap().0;
    assert_eq!(found, [(last, b"last".to_vec())]);
}

/// Only who leads writes to segments, or takes from them.
#[test]
fn nothing_is_given_back_while_a_flush_is_under_way() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.sync_us.store(50_000, Ordering::SeqCst);
    let lsn = append(&log, b"on its way");
    let leader = thread::spawn({
        let log = log.clone();
        move || log.wait_durable(lsn)
    });
    device.wait_for_sync();
    log.trim().unwrap();
    assert!(log.durable() >= lsn);
    leader.join().unwrap().unwrap();
}
