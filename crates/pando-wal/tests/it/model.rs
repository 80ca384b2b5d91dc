//! Random lives of a log compared with a vector: replay returns exactly the flushed records.

use pando_format::Lsn;
use pando_wal::Acknowledge;
use proptest::prelude::*;

use crate::support::{Records, TestDevice, append, open, options, read};

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Flush,
    /// Writes a checkpoint at the newest record.
    Checkpoint,
    /// Crashes, which loses unflushed records, and begins a new life.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_usize..600).prop_map(Step::Append),
        2 => (0_usize..20_480).prop_map(Step::Append),
        3 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..80)
}

fn check(steps: &[Step]) {
    let device = TestDevice::new();
    let (mut incarnation, mut checkpoint) = (1, 0);
    let mut log = open(&device, options(4, incarnation, 0));
    let (mut flushed, mut waiting): (Records, Records) = (Vec::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Append(bytes) => {
                let payload = vec![number as u8; *bytes];
                if log.try_reserve(*bytes).unwrap().is_none() {
                    log.flush_now().unwrap();
                    flushed.append(&mut waiting);
                    checkpoint = log.reserved_end().0;
                    log.truncate_below(Lsn(checkpoint));
                }
                let lsn = append(&log, &payload);
                waiting.push((lsn, payload));
            }
            Step::Flush | Step::Checkpoint => {
                log.flush_now().unwrap();
                flushed.append(&mut waiting);
                assert_eq!(log.durable(), log.reserved_end());
                if matches!(step, Step::Checkpoint) {
                    checkpoint = log.reserved_end().0;
                    log.truncate_below(Lsn(checkpoint));
                }
            }
            Step::Crash => {
                waiting.clear();
                let (records, end) = read(&device, incarnation, checkpoint).unwrap();
                let expected: Records = behind(&flushed, checkpoint);
                assert_eq!(records, expected);
                assert!(end.restart >= end.end);
                incarnation += 1;
                checkpoint = end.restart.0;
                log = open(&device, options(4, incarnation, checkpoint));
            }
        }
        assert_eq!(log.reserved_bytes(), 0);
        assert_eq!(log.applied(), log.reserved_end());
    }
    drop(log);
    let (records, _) = read(&device, incarnation, checkpoint).unwrap();
    assert_eq!(records, behind(&flushed, checkpoint));
}

fn behind(records: &Records, checkpoint: u64) -> Records {
    let behind = records.iter().filter(|(lsn, _)| lsn.0 > checkpoint);
    behind.cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn replay_returns_what_was_flushed_behind_the_checkpoint(steps in steps()) {
        check(&steps);
    }
}

#[test]
fn a_record_that_ends_its_segment_exactly_is_followed_by_the_next_segment() {
    for rest in 0..60 {
        let device = TestDevice::new();
        let log = open(&device, options(3, 1, 0));
        let mut expected = Vec::new();
        let mut push = |payload: Vec<u8>| expected.push((append(&log, &payload), payload));
        for number in 0..3 {
            push(vec![number; 15_000]);
        }
        log.flush_now().unwrap();
        let room = 65_536 - log.reserved_end().0.next_multiple_of(512);
        push(vec![3; room as usize - 40 - 8 * rest]);
        push(vec![4; 10]);
        log.flush_now().unwrap();
        push(vec![5; 10]);
        log.flush_now().unwrap();
        let (records, end) = read(&device, 1, 0).unwrap();
        assert_eq!(records, expected, "rest {rest}");
        assert_eq!(end.restart, Lsn(131_072));
        for (lsn, _) in &records {
            let (tail, _) = read(&device, 1, lsn.0).unwrap();
            assert_eq!(tail, behind(&expected, lsn.0));
        }
    }
}

#[test]
fn no_sector_is_written_twice() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    device.control.written.lock().clear();
    for bytes in [1, 300, 432, 440, 464, 472, 473, 500, 1000, 3, 20_000] {
        append(&log, &vec![7; bytes]);
        log.flush_now().unwrap();
        append(&log, b"second");
        append(&log, b"third");
        log.flush_now().unwrap();
    }
    for ranges in device.control.written.lock().values_mut() {
        ranges.sort_unstable();
        assert!(
            ranges
                .iter()
                .all(|(start, end)| start % 512 == 0 && end % 512 == 0)
        );
        assert!(
            ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "{ranges:?}"
        );
    }
}

/// A void record takes a place in the order of LSNs, and replay skips it.
#[test]
fn void_records_are_passed_over_and_ordered() {
    use pando_format::log::RecordKind;
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let first = append(&log, b"first");
    let reservation = log.try_reserve(0).unwrap().unwrap();
    let void = log.append(reservation, RecordKind::Void, Acknowledge::WhenDurable, b"");
    assert_eq!(log.applied(), first);
    log.mark_applied(void);
    log.flush_now().unwrap();
    let (records, end) = read(&device, 1, 0).unwrap();
    assert_eq!(records, [(first, b"first".to_vec())]);
    assert_eq!(end.end, void);
}
