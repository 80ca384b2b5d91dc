//! Faults injected over real files: each is reported as an error that names the file, and affects
//! nothing else.

use std::io;
use std::time::Duration;

use pando_device::faulty::{Fault, FaultPlan, Operation};
use pando_device::{
    AnyDevice, Backend, Channel, ChannelOptions, Completion, Create, Device, Error, File,
    InjectorDevice, IoBuf, OpenOptions,
};

use crate::places;

type Injected = InjectorDevice<AnyDevice>;

const DATA: OpenOptions = OpenOptions {
    create: Create::IfAbsent,
    direct: true,
    write: true,
};

/// Runs `case` over an injector over a directory, with each back end.
fn over_each(case: impl Fn(&Injected)) {
    for backend in Backend::ALL {
        places::with(backend, |device| case(&Injected::new(device.into(), 1)));
    }
}

fn filled(device: &Injected, blocks: u8) -> <Injected as Device>::File {
    let file = device.open("data", DATA).unwrap();
    for block in 0..blocks {
        let bytes = IoBuf::copy_of(&[block; 4096]);
        file.write_at(&bytes, u64::from(block) * 4096).unwrap();
    }
    file
}

fn kind_of(error: &Error) -> io::ErrorKind {
    match error {
        Error::Io { source, name, .. } => {
            assert_eq!(name, "data");
            source.kind()
        }
        other => panic!("{other}"),
    }
}

fn drain<C: Channel>(channel: &mut C) -> Vec<Completion> {
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(Some(Duration::from_secs(30)));
        channel.reap(&mut done);
    }
    done.sort_by_key(|one| one.tag);
    done
}

#[test]
fn a_refused_first_opening_is_an_error_and_the_next_one_works() {
    over_each(|device| {
        device.fail(FaultPlan::once(Operation::Open, "data", 1, Fault::Denied));
        let error = device.open("data", DATA).unwrap_err();
        assert_eq!(kind_of(&error), io::ErrorKind::PermissionDenied);
        let file = device.open("data", DATA).unwrap();
        file.write_at(&IoBuf::copy_of(&[1; 4096]), 0).unwrap();
    });
}

#[test]
fn a_full_disk_stops_growth_and_open_files_go_on() {
    over_each(|device| {
        let file = device.open("data", DATA).unwrap();
        file.allocate(0, 8192).unwrap();
        file.write_at(&IoBuf::copy_of(&[7; 4096]), 4096).unwrap();
        device.fail(FaultPlan::once(Operation::Allocate, "", 1, Fault::Full));
        assert!(file.allocate(8192, 1 << 20).unwrap_err().is_full());
        let mut channel = device.channel(ChannelOptions::new(2)).unwrap();
        channel
            .submit_read(&file, 4096, IoBuf::new(4096), 1)
            .unwrap();
        channel
            .submit_write(&file, 0, IoBuf::copy_of(&[8; 4096]), 2)
            .unwrap();
        for one in drain(&mut channel) {
            one.result.unwrap();
        }
        file.allocate(8192, 1 << 20).unwrap();
    });
}

#[test]
fn struck_requests_fail_alone() {
    over_each(|device| {
        let file = filled(device, 16);
        let mut channel = device.channel(ChannelOptions::new(16)).unwrap();
        for (nth, fault) in [
            (3, Fault::Io),
            (5, Fault::Short(512)),
            (6, Fault::Yield(9)),
            (7, Fault::Misdirected(4096)),
        ] {
            device.fail(FaultPlan::once(Operation::Read, "data", nth, fault));
        }
        for tag in 1..=16 {
            let offset = (tag - 1) * 4096;
            channel
                .submit_read(&file, offset, IoBuf::new(4096), tag)
                .unwrap();
        }
        assert_eq!(channel.in_flight(), 16);
        assert!(channel.submit_read(&file, 0, IoBuf::new(1), 0).is_err());
        let done = drain(&mut channel);
        assert_eq!(done.len(), 16);
        for one in done {
            match one.tag {
                3 => assert!(kind_of(&one.result.unwrap_err()) != io::ErrorKind::NotFound),
                5 => assert!(matches!(
                    one.result,
                    Err(Error::ShortRead {
                        got: 512,
                        wanted: 4096,
                        offset: 16384,
                        ..
                    })
                )),
                7 => assert_eq!(one.buffer[0], 1),
                tag => {
                    one.result.unwrap();
                    assert_eq!(one.buffer[4095], tag as u8 - 1);
                }
            }
        }
        assert_eq!(device.faults_struck(), 4);
    });
}

#[test]
fn writes_are_lost_cut_and_refused_as_planned() {
    over_each(|device| {
        let file = filled(device, 4);
        let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
        for (nth, fault) in [(1, Fault::Lost), (2, Fault::Full), (3, Fault::Short(100))] {
            device.fail(FaultPlan::once(Operation::Write, "", nth, fault));
        }
        for tag in 0..4 {
            let bytes = IoBuf::copy_of(&[99; 4096]);
            channel.submit_write(&file, tag * 4096, bytes, tag).unwrap();
        }
        let done = drain(&mut channel);
        let failed: Vec<bool> = done.iter().map(|one| one.result.is_err()).collect();
        assert_eq!(failed, [false, true, true, false]);
        assert!(done[1].result.as_ref().unwrap_err().is_full());
        let mut bytes = IoBuf::new(4 * 4096);
        file.read_at(&mut bytes, 0).unwrap();
        let firsts: Vec<u8> = bytes.chunks(4096).map(|block| block[4000]).collect();
        assert_eq!(firsts, [0, 1, 2, 99]);
    });
}

#[test]
fn a_sync_that_fails_is_an_error() {
    over_each(|device| {
        let file = filled(device, 1);
        device.fail(FaultPlan::once(Operation::Sync, "", 1, Fault::Io));
        assert!(file.sync().is_err());
        file.sync().unwrap();
        device.fail(FaultPlan::once(Operation::SyncDirectory, "", 1, Fault::Io));
        assert!(device.sync_directory().is_err());
        device.sync_directory().unwrap();
    });
}

#[test]
fn the_channel_that_cannot_be_made_is_an_error_and_the_others_serve() {
    over_each(|device| {
        let file = filled(device, 1);
        device.fail(FaultPlan::once(Operation::Channel, "", 3, Fault::Io));
        let made: Vec<_> = (0..4)
            .map(|_| device.channel(ChannelOptions::new(1)))
            .collect();
        let failed: Vec<bool> = made.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, false, true, false]);
        for channel in made.into_iter().flatten() {
            let mut channel = channel;
            channel.submit_read(&file, 0, IoBuf::new(4096), 0).unwrap();
            assert!(drain(&mut channel)[0].result.is_ok());
        }
    });
}

#[test]
fn a_seed_decides_what_chance_strikes() {
    let struck = |seed| {
        let mut struck = Vec::new();
        places::with(Backend::Pread, |device| {
            let device = Injected::new(device.into(), seed);
            let file = filled(&device, 1);
            device.fail_by_chance(Operation::Read, "data", 4, Fault::Io);
            device.fail_by_chance(Operation::Read, "other", 1, Fault::Io);
            let mut buffer = IoBuf::new(4096);
            struck = (0..100)
                .map(|_| file.read_at(&mut buffer, 0).is_err())
                .collect();
            device.clear_faults();
            assert!(file.read_at(&mut buffer, 0).is_ok());
        });
        struck
    };
    let first = struck(7);
    assert_eq!(first, struck(7));
    assert_ne!(first, struck(8));
    let count = first.iter().filter(|struck| **struck).count();
    assert!((10..45).contains(&count), "{count} of 100");
}

#[test]
fn late_completions_come_in_another_order_and_all_of_them() {
    over_each(|device| {
        let file = filled(device, 8);
        device.reorder();
        let mut channel = device.channel(ChannelOptions::new(64)).unwrap();
        let mut order = Vec::new();
        for tag in 0..64 {
            let offset = tag % 8 * 4096;
            channel
                .submit_read(&file, offset, IoBuf::new(4096), tag)
                .unwrap();
        }
        let mut done = Vec::new();
        while channel.in_flight() > 0 {
            channel.wait(Some(Duration::from_secs(30)));
            channel.reap(&mut done);
        }
        for one in done {
            one.result.unwrap();
            assert_eq!(u64::from(one.buffer[1]), one.tag % 8);
            order.push(one.tag);
        }
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..64));
    });
}
