//! Parts of the log that are given back to the file system, without a loss of records.

use pando_format::Lsn;

use pando_sync::atomic::Ordering;
use pando_sync::thread;

use crate::support::{SEGMENT, TestDevice, append, append_waiting, open, options, read};

/// Returns the number of bytes of the log's files that are not zero.
fn content(device: &TestDevice) -> usize {
    let names: Vec<String> = (0..4).map(|slot| format!("log/{slot:016x}")).collect();
    let bytes = names.iter().flat_map(|name| device.bytes_of(name));
    bytes.filter(|byte| *byte != 0).count()
}

#[test]
fn what_lies_before_the_truncation_is_given_back_and_the_rest_replays() {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    log.make_all_files().unwrap();
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
    // Of the four segments, two hold records that are needed, and one of these is nearly empty.
    assert!((SEGMENT / 2..2 * SEGMENT).contains(&given), "{given}");
    assert!(content(&device) < before, "{before}");
    let expected: Vec<(Lsn, Vec<u8>)> = (90_u8..100)
        .map(|number| (lsns[usize::from(number)], vec![number + 1; 1000]))
        .collect();
    assert_eq!(read(&device, 1, lsns[89].0).unwrap().0, expected);
    // The log continues over the holes.
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

/// Only the leader of a flush writes to segments or gives parts of them back, so a trim waits for
/// the flush.
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
