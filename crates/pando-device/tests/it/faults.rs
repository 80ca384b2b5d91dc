//! Planned faults: each one strikes the planned operation and has the planned effect.

use pando_device::faulty::{CrashMode, Fault, FaultPlan, Operation};
use pando_device::{
    Channel, ChannelOptions, Create, Device, Error, FaultyDevice, File, IoBuf, OpenOptions,
    faulty::FaultyFile,
};
use pando_sync::time::Duration;

fn make() -> (FaultyDevice, FaultyFile) {
    let device = FaultyDevice::new(5);
    let file = device
        .open("data", OpenOptions::create(Create::New))
        .unwrap();
    device.sync_directory().unwrap();
    (device, file)
}

fn is_io(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EIO))
}

#[test]
fn the_planned_operation_fails_once_or_for_good() {
    let (device, file) = make();
    device.fail(FaultPlan::once(Operation::Write, "da", 2, Fault::Io));
    device.fail(FaultPlan::sticky(Operation::Read, "", 1, Fault::Io));
    device.fail(FaultPlan::once(Operation::Write, "log/", 1, Fault::Io));
    file.write_at(b"one", 0).unwrap();
    assert!(is_io(file.write_at(b"two", 0)));
    file.write_at(b"tri", 3).unwrap();
    for _ in 0..3 {
        assert!(is_io(file.read_at(&mut [0; 3], 0)));
    }
    assert_eq!(device.faults_struck(), 4);
    device.clear_faults();
    let mut bytes = [0; 6];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"onetri");
}

#[test]
fn every_operation_can_fail() {
    for operation in [
        Operation::Open,
        Operation::Remove,
        Operation::Rename,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::SyncDirectory,
        Operation::Allocate,
        Operation::SetLen,
        Operation::Punch,
    ] {
        let (device, file) = make();
        device.fail(FaultPlan::sticky(operation, "", 1, Fault::Full));
        let results = [
            device.open("data", OpenOptions::read()).map(drop),
            device.rename("data", "data"),
            device.remove("data"),
            file.read_at(&mut [], 0),
            file.write_vectored_at(&[b"x"], 0),
            file.sync(),
            device.sync_directory(),
            file.allocate(0, 10),
            file.set_len(10),
            file.punch(0, 10),
        ];
        let failed: Vec<usize> = (0..10).filter(|index| results[*index].is_err()).collect();
        assert_eq!(failed.len(), 1, "{operation:?}");
        assert!(results[failed[0]].as_ref().unwrap_err().is_full());
        assert_eq!(device.faults_struck(), 1);
    }
}

#[test]
fn a_failed_sync_is_not_made_good_by_a_later_one() {
    let mut lost = 0;
    for seed in 0..50 {
        let device = FaultyDevice::new(seed);
        let file = device
            .open("data", OpenOptions::create(Create::New))
            .unwrap();
        device.sync_directory().unwrap();
        file.write_at(&[7; 512], 0).unwrap();
        device.fail(FaultPlan::once(Operation::Sync, "", 1, Fault::Io));
        assert!(is_io(file.sync()));
        file.sync().unwrap();
        assert_eq!(device.snapshot_file("data"), [7; 512]);
        let after = device.after_crash(0, CrashMode::AllSurvive);
        lost += u32::from(after.snapshot_file("data") != [7; 512]);
    }
    assert!((1..50).contains(&lost), "lost {lost} times");
}

#[test]
fn a_lost_write_reports_success() {
    let (device, file) = make();
    file.write_at(b"old old", 0).unwrap();
    device.lose_write(2, "data");
    file.write_at(b"n", 0).unwrap();
    file.write_at(b"NEW", 4).unwrap();
    file.sync().unwrap();
    assert_eq!(device.snapshot_file("data"), b"nld old");
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    let (device, file) = make();
    file.write_at(&[0; 12], 0).unwrap();
    device.fail(FaultPlan::once(
        Operation::Write,
        "",
        1,
        Fault::Misdirected(8),
    ));
    file.write_at(b"here", 0).unwrap();
    assert_eq!(device.snapshot_file("data"), b"\0\0\0\0\0\0\0\0here");
}

/// A short fault transfers some bytes and then reports an error.
#[test]
fn short_operations_do_a_part() {
    let (device, file) = make();
    device.fail(FaultPlan::once(Operation::Write, "", 1, Fault::Short(3)));
    device.fail(FaultPlan::once(Operation::Read, "", 1, Fault::Short(2)));
    assert!(is_io(file.write_at(b"abcdef", 0)));
    assert_eq!(device.snapshot_file("data"), b"abc");
    let mut bytes = [0; 3];
    assert!(matches!(
        file.read_at(&mut bytes, 0),
        Err(Error::ShortRead { got: 2, .. })
    ));
    assert_eq!(&bytes, b"ab\0");
    file.read_at(&mut bytes, 0).unwrap();
}

#[test]
fn a_planned_crash_and_a_delay_happen() {
    let (device, file) = make();
    device.fail(FaultPlan::once(Operation::Write, "", 1, Fault::Yield(3)));
    device.fail(FaultPlan::once(Operation::Write, "", 2, Fault::Crash));
    file.write_at(b"abc", 0).unwrap();
    assert!(file.write_at(b"def", 0).unwrap_err().is_crashed());
    assert_eq!(device.snapshot_file("data"), b"abc");
}

#[test]
fn damage_of_the_medium_is_seen_and_survives() {
    for synced in [false, true] {
        let (device, file) = make();
        file.write_at(b"abcdef", 0).unwrap();
        if synced {
            file.sync().unwrap();
        }
        device.flip_bit("data", 0, 1);
        device.overwrite("data", 4, b"XY");
        file.sync().unwrap();
        let after = device.after_crash(0, CrashMode::AllLost);
        for content in [device.snapshot_file("data"), after.snapshot_file("data")] {
            assert_eq!(content, b"cbcdXY");
        }
    }
}

#[test]
fn the_capacity_refuses_growth_only() {
    let (device, file) = make();
    device.set_capacity(100);
    file.write_at(&[1; 60], 0).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 40);
    assert!(file.allocate(0, 101).unwrap_err().is_full());
    assert!(file.write_at(&[1; 60], 50).unwrap_err().is_full());
    assert!(file.set_len(200).unwrap_err().is_full());
    file.write_at(&[2; 60], 0).unwrap();
    let other = device
        .open("other", OpenOptions::create(Create::New))
        .unwrap();
    other.allocate(0, 40).unwrap();
    assert!(other.write_at(&[0], 40).unwrap_err().is_full());
    device.remove("data").unwrap();
    other.write_at(&[0], 40).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 59);
    other.set_len(0).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 100);
    file.write_at(&[2; 90], 0).unwrap();
    assert_eq!(
        device.free_bytes().unwrap(),
        100,
        "a removed file has no charge"
    );
    let after = device.after_crash(0, CrashMode::AllSurvive);
    assert_eq!(after.free_bytes().unwrap(), 100);
}

#[test]
fn reads_of_a_channel_fail_as_planned_and_end_in_any_order() {
    let (device, file) = make();
    file.write_at(&[1; 4096], 0).unwrap();
    device.fail(FaultPlan::once(Operation::Read, "", 5, Fault::Io));
    let mut channel = device.channel(ChannelOptions::new(100)).unwrap();
    for tag in 0..100 {
        channel.submit_read(&file, 0, IoBuf::new(64), tag).unwrap();
    }
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(Some(Duration::ZERO));
        assert!(channel.reap(&mut done) > 0);
    }
    let failed = done.iter().filter(|read| read.result.is_err()).count();
    assert_eq!((done.len(), failed), (100, 1));
    assert!(!done.is_sorted_by_key(|read| read.tag));
    for tag in 0..9 {
        channel.submit_read(&file, 0, IoBuf::new(64), tag).unwrap();
    }
    device.crash_now();
    done.clear();
    while channel.in_flight() > 0 {
        channel.wait(None);
        channel.reap(&mut done);
    }
    let crashed = |read: &pando_device::Completion| matches!(read.result, Err(Error::Crashed));
    assert!(done.iter().any(crashed));
}
