//! A tail that a crash has torn off is not replayed. Damage before an acknowledged record is
//! reported.

use pando_format::Lsn;
use pando_format::checksum::crc32c;
use pando_format::log::{RECORD_HEADER_BYTES, RecordHeader, RecordKind};

use crate::support::{Records, SEGMENT, TestDevice, append, open, options, read, signature_of};

const FILE: &str = "log/0000000000000000";

/// Makes a log of `count` flushes with one record each.
fn flushes(count: usize) -> (TestDevice, Records) {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let mut records = Vec::new();
    for number in 0..count {
        let payload = vec![number as u8 + 1; 100 + 50 * number];
        records.push((append(&log, &payload), payload));
        log.flush_now().unwrap();
    }
    (device, records)
}

#[test]
fn a_tail_torn_at_any_byte_ends_the_log_before_it() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let mut expected = vec![(append(&log, b"acknowledged"), b"acknowledged".to_vec())];
    log.flush_now().unwrap();
    let before = device.copy();
    for number in 0..5_u8 {
        let payload = vec![number + 1; 90 + number as usize];
        expected.push((append(&log, &payload), payload));
    }
    log.flush_now().unwrap();
    let after = device.bytes_of(FILE);
    let (first, end) = (expected[0].0.0 as usize, expected[5].0.0 as usize);
    for cut in first.next_multiple_of(512)..=end {
        // Bytes up to the cut are new, and the others are old.
        let torn = before.copy();
        torn.overwrite(FILE, 0, &after[..cut]);
        let (records, found) = read(&torn, 1, 0).unwrap();
        // The padding of a record to 8 bytes may be missing, since it has no meaning.
        let whole = expected.iter().filter(|(lsn, payload)| {
            let padding = payload.len().next_multiple_of(8) - payload.len();
            lsn.0 as usize - padding <= cut
        });
        let whole: Records = whole.cloned().collect();
        assert_eq!(records, whole, "cut at {cut}");
        assert_eq!(found.end, whole.last().unwrap().0);
        // Bytes from the cut on are new, and the others are old: a later part of a flush was
        // written first.
        let holed = before.copy();
        holed.overwrite(FILE, cut as u64, &after[cut..]);
        let (records, _) = read(&holed, 1, 0).unwrap();
        if cut > first.next_multiple_of(512) {
            assert_eq!(records, expected[..1], "hole up to {cut}");
        }
    }
}

#[test]
fn every_sector_of_a_flush_may_be_lost_alone() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let before = device.copy();
    let mut expected = Vec::new();
    for number in 0..40_u8 {
        let payload = vec![number; 60];
        expected.push((append(&log, &payload), payload));
    }
    log.flush_now().unwrap();
    let after = device.bytes_of(FILE);
    let end = expected.last().unwrap().0.0.next_multiple_of(512) as usize;
    for sector in (0..end).step_by(512) {
        let torn = before.copy();
        torn.overwrite(FILE, 0, &after[..sector]);
        torn.overwrite(FILE, sector as u64 + 512, &after[sector + 512..]);
        let (records, _) = read(&torn, 1, 0).unwrap();
        let prefix = if sector < 4096 { 0 } else { sector };
        let kept = expected
            .iter()
            .take_while(|(lsn, _)| lsn.0 <= prefix as u64);
        let kept: Records = kept.cloned().collect();
        // Of the sectors of the segment header only the first has content. The others are zeros
        // before and after.
        if sector == 0 || sector >= 4096 {
            assert_eq!(records, kept, "sector at {sector}");
        }
    }
}

#[test]
fn a_rotten_record_before_an_acknowledged_one_is_damage_at_any_bit() {
    let (device, records) = flushes(4);
    let bytes = device.bytes_of(FILE);
    // Checks bits from the start of a record to the end of its payload, in every flush but the
    // last: only the next record says that it was durable.
    for (lsn, payload) in &records[..3] {
        let start = lsn.0 - (40 + payload.len() as u64).next_multiple_of(8);
        for bit in (0..(40 + payload.len() as u64) * 8).step_by(5) {
            let rotten = device.copy();
            let place = (start + bit / 8) as usize;
            rotten.overwrite(FILE, place as u64, &[bytes[place] ^ 1 << (bit % 8)]);
            let error = read(&rotten, 1, 0).unwrap_err();
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains(&format!("{start}")), "{error}");
        }
    }
}

#[test]
fn rotten_padding_before_an_acknowledged_record_is_damage() {
    let (device, records) = flushes(2);
    let padding = records[0].0.0;
    device.overwrite(FILE, padding + 20, &[0xff]);
    let error = read(&device, 1, 0).unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn a_lost_segment_before_an_acknowledged_one_is_damage() {
    let device = TestDevice::new();
    let log = open(&device, options(4, 1, 0));
    let mut last = Lsn(0);
    while last.0 < 2 * SEGMENT + 10_000 {
        last = append(&log, &[5; 10_000]);
        log.flush_now().unwrap();
    }
    let whole = read(&device, 1, 0).unwrap();
    assert_eq!(whole.1.end, last);
    for lost in 0..2 {
        let broken = device.copy();
        broken.overwrite(&format!("log/{lost:016x}"), 100, &[1]);
        assert!(read(&broken, 1, 0).unwrap_err().is_corruption());
    }
    // Replay from a checkpoint after the damage does not need the damaged segment.
    let broken = device.copy();
    broken.overwrite("log/0000000000000000", 100, &[1]);
    let from = whole.0.iter().find(|(lsn, _)| lsn.0 > SEGMENT).unwrap().0;
    assert_eq!(read(&broken, 1, from.0).unwrap().1.end, last);
}

#[test]
fn a_file_cut_short_is_damage_or_the_end_but_no_panic() {
    use pando_device::{Device, File, OpenOptions};
    let (device, records) = flushes(4);
    for length in [0, 100, 4096, 4100, 4700, 5200, 5900, 7000] {
        let cut = device.copy();
        let file = cut.memory.open(FILE, OpenOptions::write()).unwrap();
        file.set_len(length).unwrap();
        let (found, _) = read(&cut, 1, 0).unwrap();
        assert!(found.len() < records.len() || length == 7000);
        assert_eq!(found, records[..found.len()]);
    }
}

/// The log was written by a program without a signature. A program that has one must read it.
#[test]
fn damage_in_a_life_without_a_signature_is_damage() {
    let device = TestDevice::new();
    let mut unsigned = options(2, 1, 0);
    unsigned.signature = 0;
    let log = open(&device, unsigned);
    let lsns = [1_u8, 2, 3].map(|number| {
        let lsn = append(&log, &[number; 100]);
        log.flush_now().unwrap();
        lsn
    });
    assert_eq!(read(&device, 1, 0).unwrap().1.end, lsns[2]);
    device.overwrite(FILE, lsns[1].0 - 20, &[0xff]);
    assert!(read(&device, 1, 0).unwrap_err().is_corruption());
}

/// A client writes a value that looks like a record. It lies after a torn tail and claims that the
/// tail was durable.
#[test]
fn a_record_inside_of_a_value_proves_nothing() {
    for signature in [0, signature_of(2), u64::MAX >> 16] {
        let device = TestDevice::new();
        let log = open(&device, options(2, 1, 0));
        let kept = (append(&log, b"acknowledged"), b"acknowledged".to_vec());
        log.flush_now().unwrap();
        // A client can guess where its record begins: at the sector after the previous record.
        let torn = kept.0.0.next_multiple_of(512);
        let place = torn + RECORD_HEADER_BYTES as u64 + 472;
        let header = RecordHeader {
            length: 0,
            kind: RecordKind::Batch,
            flags: 0,
            lsn: Lsn(place + RECORD_HEADER_BYTES as u64),
            incarnation: 1,
            durable: Lsn(torn + 8),
            signature,
        };
        let mut value = vec![0; 2000];
        value[472..472 + RECORD_HEADER_BYTES].copy_from_slice(&header.encode(crc32c(&[])));
        append(&log, &value);
        log.flush_now().unwrap();
        assert_eq!(
            read(&device, 1, 0).unwrap().0.len(),
            2,
            "the guess is right"
        );
        // The first sector of the record is lost, and the others are there.
        device.overwrite(FILE, torn, &[0; 512]);
        let (records, _) = read(&device, 1, 0).expect("a torn tail");
        assert_eq!(records, [kept]);
    }
}
