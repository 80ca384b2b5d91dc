//! Lives of a log: records of an earlier life are never taken for records of the current one.

use pando_device::Device as _;
use pando_format::Lsn;
use pando_stats::Statistics;
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_wal::{Error, Log, ReplayOptions, replay};

use crate::support::{IDENTITY, SEGMENT, TestDevice, append, open, options, read};

#[test]
fn records_of_an_earlier_life_at_the_same_place_are_not_replayed() {
    let device = TestDevice::new();
    // Records take 64 bytes. One begins at every sector boundary, where the second life continues
    // after its padding.
    let log = open(&device, options(2, 1, 0));
    for _ in 0..20 {
        append(&log, b"payload of the 1st life!");
    }
    log.flush_now().unwrap();
    // The second life writes records of equal length to the same positions, over the first two.
    let log = open(&device, options(2, 2, 0));
    let payload = b"payload of the 2nd life!".to_vec();
    let first = append(&log, &payload);
    let second = append(&log, &payload);
    log.flush_now().unwrap();
    assert_eq!(second.0, 4096 + 128);
    let (records, end) = read(&device, 2, 0).unwrap();
    assert_eq!(records, [(first, payload.clone()), (second, payload)]);
    assert_eq!(end.end, second);
}

#[test]
fn a_second_crash_does_not_bring_the_first_tail_back() {
    let device = TestDevice::new();
    let log = open(&device, options(3, 1, 0));
    append(&log, b"one");
    log.flush_now().unwrap();
    let kept = append(&log, b"two");
    append(&log, b"never acknowledged");
    append(&log, b"never acknowledged");
    log.flush_now().unwrap();
    // The crash tears the third record. The fourth one survives whole after it.
    device.overwrite("log/0000000000000000", kept.0 + 50, &[0; 8]);
    let (records, end) = read(&device, 1, 0).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!((end.end, end.restart), (kept, Lsn(SEGMENT)));
    // Recovery writes a checkpoint at the restart position, with a new incarnation, and is then
    // killed. This happens twice.
    for incarnation in [2, 3] {
        let (records, again) = read(&device, incarnation, end.restart.0).unwrap();
        assert_eq!(records, []);
        assert_eq!(again.restart, end.restart);
        drop(open(&device, options(3, incarnation, again.restart.0)));
    }
    let log = open(&device, options(3, 4, end.restart.0));
    let lsn = append(&log, b"a new life");
    log.flush_now().unwrap();
    let (records, _) = read(&device, 4, end.restart.0).unwrap();
    assert_eq!(records, [(lsn, b"a new life".to_vec())]);
}

#[test]
fn recycled_segments_of_the_same_life_are_not_replayed() {
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    let mut checkpoint = Lsn(0);
    for round in 0..60_u8 {
        checkpoint = append(&log, &[round; 8_000]);
        log.flush_now().unwrap();
        log.truncate_below(checkpoint);
    }
    let lsn = append(&log, &[99; 8_000]);
    log.flush_now().unwrap();
    let (records, _) = read(&device, 1, checkpoint.0).unwrap();
    assert_eq!(records, [(lsn, vec![99; 8_000])]);
    // After another store has made its log in these files, no record of this store is found.
    let mut foreign = options(2, 1, 0);
    foreign.identity = *b"another identity";
    drop(open(&device, foreign));
    let (records, _) = read(&device, 1, checkpoint.0).unwrap();
    assert_eq!(records, []);
    assert_ne!(foreign.identity, IDENTITY);
}

#[test]
fn files_beyond_the_options_are_removed_and_missing_ones_made() {
    use pando_device::Device;
    let device = TestDevice::new();
    drop(open(&device, options(5, 1, 0)));
    assert_eq!(device.list().unwrap().len(), 5);
    let log = open(&device, options(3, 2, 0));
    assert_eq!(device.list().unwrap().len(), 3);
    assert_eq!(log.capacity_bytes(), 3 * SEGMENT);
    drop(log);
    // A file whose preparation was interrupted is prepared again.
    device.overwrite("log/0000000000000001", 0, &[0; 4096]);
    let log = Log::open(device, options(3, 3, 0), Default::default()).unwrap();
    assert_eq!(log.capacity_bytes(), 2 * SEGMENT);
    assert_eq!(log.make_all_files().unwrap(), 1);
}

#[test]
fn a_file_that_was_cut_short_is_made_again() {
    use pando_device::{Device, File, OpenOptions};
    const CUT: &str = "log/0000000000000001";
    let device = TestDevice::new();
    drop(open(&device, options(2, 1, 0)));
    let file = device.memory.open(CUT, OpenOptions::write()).unwrap();
    file.set_len(SEGMENT / 2).unwrap();
    drop(open(&device, options(2, 2, 0)));
    assert_eq!(device.bytes_of(CUT).len() as u64, SEGMENT);
}

/// What lies behind the end of a segment belongs to no segment: it is not searched, whatever it
/// holds.
#[test]
fn a_file_that_is_longer_than_its_segment_is_read_to_the_end_of_the_segment() {
    use pando_device::{Device, File, OpenOptions};
    const FILE: &str = "log/0000000000000000";
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    append(&log, b"record");
    log.flush_now().unwrap();
    let file = device.memory.open(FILE, OpenOptions::write()).unwrap();
    file.set_len(3 << 20).unwrap();
    let (records, end) = read(&device, 1, 0).unwrap();
    assert_eq!((records.len(), end.restart), (1, Lsn(SEGMENT)));
    // Words that look like the incarnation of a record.
    device.overwrite(FILE, SEGMENT, &1_u64.to_le_bytes().repeat(1 << 17));
    let (records, end) = read(&device, 1, 0).unwrap();
    assert_eq!((records.len(), end.restart), (1, Lsn(SEGMENT)));
}

/// Stamps of keys have no more bits. An earlier life that came so far is none that there was.
#[test]
fn positions_beyond_those_of_any_log_are_damage() {
    use pando_format::log::SegmentHeader;
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    append(&log, b"record");
    log.flush_now().unwrap();
    for from in [u64::MAX, u64::MAX - 7, Lsn::LIMIT.0] {
        assert!(read(&device, 1, from).unwrap_err().is_corruption());
    }
    for (number, fine) in [
        (Lsn::LIMIT.0 / SEGMENT, false),
        (Lsn::LIMIT.0 / SEGMENT - 1, false),
        (Lsn::LIMIT.0 / SEGMENT - 2, true),
    ] {
        let header = SegmentHeader {
            segment: Some(number),
            incarnation: 0,
            identity: IDENTITY,
            segment_bytes: SEGMENT as u32,
        };
        let mut bytes = vec![0; 4096];
        header.encode_into(&mut bytes);
        device.overwrite("log/0000000000000001", 0, &bytes);
        assert_eq!(read(&device, 1, 0).is_ok(), fine, "{number}");
    }
}

/// The size comes from a superblock.
#[test]
fn segments_of_an_impossible_size_are_damage() {
    let device = TestDevice::new();
    drop(open(&device, options(2, 1, 0)));
    for segment_bytes in [0, 1, 4096, 70_000, u32::MAX] {
        let how = ReplayOptions {
            segment_bytes,
            identity: IDENTITY,
            incarnation: 1,
            signature: 0,
            from: Lsn(0),
            expects_files: false,
        };
        let replayed = replay(&device, &how, |_, _| Ok::<(), Error>(()));
        assert!(replayed.unwrap_err().is_corruption(), "{segment_bytes}");
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let device = TestDevice::new();
    let open = |change: &dyn Fn(&mut pando_wal::LogOptions)| {
        let mut changed = options(2, 1, 0);
        change(&mut changed);
        Log::open(device.clone(), changed, Default::default()).map(|_| ())
    };
    assert!(open(&|_| ()).is_ok());
    assert!(matches!(
        open(&|o| o.segments = 1),
        Err(Error::Options { .. })
    ));
    assert!(matches!(
        open(&|o| o.segment_bytes = 4096),
        Err(Error::Options { .. })
    ));
    assert!(matches!(
        open(&|o| o.segment_bytes = 70_000),
        Err(Error::Options { .. })
    ));
    assert!(matches!(
        open(&|o| o.buffer_bytes = 100),
        Err(Error::Options { .. })
    ));
    assert!(matches!(
        open(&|o| o.start = Lsn(4096)),
        Err(Error::Options { .. })
    ));
}

#[test]
fn damaged_headers_are_reported_or_ignored_without_a_panic() {
    use pando_format::log::SegmentHeader;
    let device = TestDevice::new();
    let log = open(&device, options(2, 1, 0));
    append(&log, b"record");
    log.flush_now().unwrap();
    let mut header = SegmentHeader {
        segment: Some(u64::MAX - 1),
        incarnation: 1,
        identity: IDENTITY,
        segment_bytes: SEGMENT as u32,
    };
    let put = |header: &SegmentHeader| {
        let mut bytes = vec![0; 4096];
        header.encode_into(&mut bytes);
        device.overwrite("log/0000000000000001", 0, &bytes);
        read(&device, 1, 0)
    };
    assert!(put(&header).unwrap_err().is_corruption());
    header.segment = Some(0);
    assert!(put(&header).unwrap_err().is_corruption(), "twice");
    header.incarnation = 0;
    assert_eq!(
        put(&header).unwrap().0.len(),
        1,
        "a header of an earlier life is ignored"
    );
    header.incarnation = 1;
    header.segment = Some(1);
    let (records, end) = put(&header).unwrap();
    assert_eq!((records.len(), end.restart), (1, Lsn(2 * SEGMENT)));
    header.identity = *b"of another store";
    let (records, end) = put(&header).unwrap();
    assert_eq!((records.len(), end.restart), (1, Lsn(SEGMENT)));
    header.identity = IDENTITY;
    header.segment_bytes *= 2;
    assert!(put(&header).unwrap_err().is_corruption());
}

/// Files of which none can be used are replaced one by one: a log that has no file is one that was
/// lost.
#[test]
fn an_opening_leaves_a_file_at_every_moment() {
    let device = TestDevice::new();
    drop(open(&device, options(2, 1, 0)));
    let files = || device.list().unwrap();
    assert_eq!(files().len(), 2);
    for name in files() {
        device.overwrite(&name, 0, &[0x55; 64]);
    }
    device.control.no_files.store(true, Ordering::SeqCst);
    let opened = |incarnation| {
        let statistics = Arc::new(Statistics::new());
        Log::open(device.clone(), options(2, incarnation, 0), statistics)
    };
    assert!(opened(2).is_err(), "there is no space");
    assert_eq!(files().len(), 1);
    device.control.no_files.store(false, Ordering::SeqCst);
    drop(opened(3).unwrap());
    assert_eq!(files().len(), 2);
    let (records, _) = read(&device, 3, 0).unwrap();
    assert!(records.is_empty());
}
