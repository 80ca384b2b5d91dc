//! Failures of rings and contexts, and how their channels continue.

use std::time::Duration;

use pando_device::directory::DirectoryChannel;
use pando_device::{
    Backend, Channel, ChannelOptions, Completion, Create, Device, DirectoryDevice,
    DirectoryOptions, Error, File, IoBuf, OpenOptions,
};
use pando_sync::thread;

use crate::places;
use crate::refusal::with_refused;

fn new_file(device: &DirectoryDevice, blocks: usize) -> pando_device::directory::DirectoryFile {
    let how = OpenOptions::create(Create::New).direct();
    let file = device.open("data", how).unwrap();
    let mut bytes = IoBuf::new(blocks * 4096);
    for (block, part) in bytes.chunks_mut(4096).enumerate() {
        part.fill(block as u8);
    }
    file.write_at(&bytes, 0).unwrap();
    file
}

fn drain<C: Channel>(channel: &mut C) -> Vec<Completion> {
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(Some(Duration::from_secs(30)));
        channel.reap(&mut done);
    }
    done
}

/// Opens a directory with the best back end that is available.
fn auto(path: &std::path::Path) -> DirectoryDevice {
    DirectoryDevice::open_with(path, DirectoryOptions::default()).unwrap()
}

fn reads_work(device: &DirectoryDevice, expected: Backend) {
    let file = new_file(device, 8);
    let mut channel = device.channel(ChannelOptions::new(8)).unwrap();
    assert_eq!(channel.backend(), expected);
    for tag in 0..8 {
        channel
            .submit_read(&file, tag * 4096, IoBuf::new(4096), tag)
            .unwrap();
    }
    for completion in drain(&mut channel) {
        completion.result.unwrap();
        assert_eq!(completion.buffer[7], completion.tag as u8);
    }
    device.remove("data").unwrap();
}

#[test]
fn a_kernel_without_rings_or_contexts_reads_with_threads_and_says_why() {
    let place = tempfile::tempdir().unwrap();
    with_refused(&[(libc::SYS_io_uring_setup, libc::ENOSYS)], || {
        let device = auto(place.path());
        assert_eq!(device.backend(), "libaio");
        let choice = device.choice();
        assert_eq!(choice.used, Backend::Libaio);
        assert_eq!(choice.passed_over.len(), 1);
        let why = choice.passed_over[0].to_string();
        assert!(
            why.starts_with("not uring: cannot set up uring: Function not"),
            "{why}"
        );
        reads_work(&device, Backend::Libaio);
    });
    let both = [
        (libc::SYS_io_uring_setup, libc::EPERM),
        (libc::SYS_io_setup, libc::EAGAIN),
    ];
    with_refused(&both, || {
        let device = auto(place.path());
        let choice = device.choice();
        assert_eq!(choice.used, Backend::Pread);
        let why = choice.passed_over[1].to_string();
        assert!(why.contains("fs.aio-max-nr allows (6"), "{why}");
        reads_work(&device, Backend::Pread);
    });
}

#[test]
fn who_insists_gets_an_error_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    with_refused(&[(libc::SYS_io_uring_setup, libc::EPERM)], || {
        let insisting = DirectoryOptions {
            backend: Some(Backend::Uring),
            strict: true,
            ..DirectoryOptions::default()
        };
        let error = DirectoryDevice::open_with(place.path(), insisting).unwrap_err();
        assert!(matches!(
            error,
            Error::Unavailable {
                backend: Backend::Uring,
                ..
            }
        ));
        let text = error.to_string();
        assert!(text.starts_with("uring cannot be had: "), "{text}");
        assert!(text.contains("not permitted"), "{text}");
        // The failed opening leaves no lock behind.
        let wishing = DirectoryOptions {
            strict: false,
            ..insisting
        };
        let device = DirectoryDevice::open_with(place.path(), wishing).unwrap();
        assert_eq!(device.choice().used, Backend::Libaio);
    });
}

#[test]
fn a_later_ring_that_fails_is_replaced_unless_forbidden() {
    for (strict, refused, backend, next) in [
        (
            false,
            libc::SYS_io_uring_setup,
            Backend::Uring,
            Some(Backend::Libaio),
        ),
        (true, libc::SYS_io_uring_setup, Backend::Uring, None),
        (
            false,
            libc::SYS_io_setup,
            Backend::Libaio,
            Some(Backend::Pread),
        ),
        (true, libc::SYS_io_setup, Backend::Libaio, None),
    ] {
        let place = tempfile::tempdir().unwrap();
        let options = DirectoryOptions {
            backend: Some(backend),
            strict,
            ..DirectoryOptions::default()
        };
        let device = DirectoryDevice::open_with(place.path(), options).unwrap();
        let file = new_file(&device, 1);
        let mut first = device.channel(ChannelOptions::new(4)).unwrap();
        assert_eq!(first.backend(), backend);
        with_refused(&[(refused, libc::EMFILE)], || {
            let second = device.channel(ChannelOptions::new(4));
            match next {
                Some(next) => assert_eq!(second.unwrap().backend(), next),
                None => {
                    let error = second.unwrap_err().to_string();
                    assert!(error.contains("Too many open files"), "{error}");
                }
            }
        });
        assert_eq!(device.choice().passed_over.len(), usize::from(!strict));
        first.submit_read(&file, 0, IoBuf::new(4096), 1).unwrap();
        assert_eq!(drain(&mut first).len(), 1);
    }
}

#[test]
fn buffers_that_cannot_be_registered_are_plain_and_a_note_says_so() {
    places::with(Backend::Uring, |device| {
        let file = new_file(&device, 4);
        let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
        with_refused(&[(libc::SYS_io_uring_register, libc::ENOMEM)], || {
            let buffers = channel.buffers(4, 4096);
            assert_eq!(buffers.len(), 4);
            for (tag, buffer) in buffers.into_iter().enumerate() {
                let offset = tag as u64 * 4096;
                channel
                    .submit_read(&file, offset, buffer, tag as u64)
                    .unwrap();
            }
            for completion in drain(&mut channel) {
                completion.result.unwrap();
                assert_eq!(completion.buffer[9], completion.tag as u8);
            }
            channel.buffers(4, 4096);
        });
        let notes = device.choice().notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("locked memory (ulimit -l)"), "{notes:?}");
    });
}

#[test]
fn a_ring_that_cannot_be_entered_fails_its_requests_and_hangs_nobody() {
    places::with(Backend::Uring, |device| {
        let file = new_file(&device, 1);
        let mut channel = device.channel(ChannelOptions::new(16)).unwrap();
        with_refused(&[(libc::SYS_io_uring_enter, libc::EPERM)], || {
            for tag in 0..11 {
                channel
                    .submit_read(&file, 0, IoBuf::new(4096), tag)
                    .unwrap();
            }
            let done = drain(&mut channel);
            assert_eq!(done.len(), 11);
            assert!(done.iter().all(|one| one.result.is_err()));
        });
        assert_eq!(channel.in_flight(), 0);
    });
}

#[test]
fn a_channel_deeper_than_any_ring_is_as_deep_as_one_can_be() {
    for backend in Backend::ALL {
        places::with(backend, |device| {
            let file = new_file(&device, 1);
            // The depth is as large as an existing libaio context allows, or larger than any ring.
            let depth = if backend == Backend::Libaio {
                2_000
            } else {
                40_000
            };
            let mut channel = device.channel(ChannelOptions::new(depth)).unwrap();
            let mut taken = 0;
            let mut refused = 0;
            for tag in 0..depth as u64 {
                match channel.submit_read(&file, 0, IoBuf::new(4096), tag) {
                    Ok(()) => taken += 1,
                    Err(buffer) => {
                        assert_eq!(buffer.len(), 4096);
                        refused += 1;
                    }
                }
                if tag == 35_000 || tag == 1_500 {
                    assert_eq!(drain(&mut channel).len(), taken);
                    taken = 0;
                }
            }
            assert_eq!(channel.in_flight(), taken);
            assert_eq!(drain(&mut channel).len(), taken);
            assert_eq!(channel.in_flight(), 0);
            let is_ring = backend == Backend::Uring;
            assert_eq!(refused > 0, is_ring, "{backend} refused {refused}");
        });
    }
}

#[test]
fn requests_of_a_thread_that_ends_are_reaped_by_another() {
    for backend in Backend::ALL {
        let case = |device: DirectoryDevice| {
            let file = new_file(&device, 16);
            let mut channel = device.channel(ChannelOptions::new(16)).unwrap();
            for round in 0..20 {
                let waker = channel.waker();
                let part = &mut channel;
                let file = &file;
                thread::scope(|scope| {
                    scope.spawn(move || {
                        for tag in 0..16 {
                            let buffer = IoBuf::new(4096);
                            part.submit_read(file, tag * 4096, buffer, tag).unwrap();
                        }
                        part.flush();
                        if round % 2 == 0 {
                            waker.wake();
                            part.wait(None);
                        }
                    });
                });
                let done = drain(&mut channel);
                assert_eq!(done.len(), 16);
                for one in done {
                    one.result.unwrap();
                    assert_eq!(one.buffer[4095], one.tag as u8);
                }
            }
        };
        places::with(backend, case);
        places::with_tmpfs(backend, case);
    }
}

/// Returns how many descriptors this process has of files whose names begin with `prefix`.
fn descriptors(prefix: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let names = paths.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
    names.filter(|name| name.starts_with(prefix)).count()
}

/// There are more files than a channel keeps open for later requests.
#[test]
fn a_channel_lets_go_of_files_that_nobody_reads() {
    for backend in [Backend::Uring, Backend::Libaio] {
        places::with(backend, |device| {
            let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
            for number in 0..40u8 {
                let how = OpenOptions::create(Create::New).direct();
                let file = device.open(&format!("left-{number}"), how).unwrap();
                file.write_at(&IoBuf::copy_of(&[number; 4096]), 0).unwrap();
                channel.submit_read(&file, 0, IoBuf::new(4096), 1).unwrap();
                drop(file);
                let one = drain(&mut channel).remove(0);
                one.result.unwrap();
                assert_eq!(one.buffer[11], number);
            }
            assert_eq!(descriptors("left-"), 16, "{backend}");
            drop(channel);
            assert_eq!(descriptors("left-"), 0, "{backend}");
        });
    }
}

/// There are more files than a ring keeps registered.
#[test]
fn more_files_than_the_ring_knows_are_read() {
    for backend in [Backend::Uring, Backend::Libaio] {
        places::with(backend, |device| {
            let mut channel = device.channel(ChannelOptions::new(64)).unwrap();
            let files: Vec<_> = (0..40u8)
                .map(|number| {
                    let how = OpenOptions::create(Create::New).direct();
                    let file = device.open(&format!("file-{number}"), how).unwrap();
                    file.write_at(&IoBuf::copy_of(&[number; 4096]), 0).unwrap();
                    file
                })
                .collect();
            for _ in 0..3 {
                for (number, file) in files.iter().enumerate() {
                    let tag = number as u64;
                    channel.submit_read(file, 0, IoBuf::new(4096), tag).unwrap();
                }
                for one in drain(&mut channel) {
                    one.result.unwrap();
                    assert_eq!(one.buffer[11], one.tag as u8);
                }
                // Reads the files one at a time, in the opposite order.
                for number in (0..40).rev() {
                    let file = &files[number];
                    let tag = number as u64;
                    channel.submit_read(file, 0, IoBuf::new(4096), tag).unwrap();
                    let one = drain(&mut channel).remove(0);
                    one.result.unwrap();
                    assert_eq!(one.buffer[11], number as u8);
                }
            }
        });
    }
}

#[test]
fn a_full_disk_refuses_growth_and_leaves_open_files_usable() {
    for backend in Backend::ALL {
        places::with(backend, |device| {
            let file = new_file(&device, 4);
            let before = file.len().unwrap();
            with_refused(&[(libc::SYS_fallocate, libc::ENOSPC)], || {
                let error = file.allocate(before, 1 << 20).unwrap_err();
                assert!(error.is_full(), "{error}");
                assert!(error.to_string().contains("data"), "{error}");
            });
            assert_eq!(file.len().unwrap(), before);
            let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
            for block in 0..4 {
                channel
                    .submit_read(&file, block * 4096, IoBuf::new(4096), block)
                    .unwrap();
            }
            for one in drain(&mut channel) {
                one.result.unwrap();
                assert_eq!(one.buffer[0], one.tag as u8);
            }
            file.allocate(before, 1 << 20).unwrap();
        });
    }
}

#[test]
fn devices_of_different_depths_are_used_by_the_same_threads() {
    for backend in Backend::ALL {
        let case = |one: DirectoryDevice| {
            places::with(backend, |two| {
                let files = [new_file(&one, 8), new_file(&two, 8)];
                thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            let mut channels = [
                                one.channel(ChannelOptions::new(3)).unwrap(),
                                two.channel(ChannelOptions::new(32)).unwrap(),
                            ];
                            for round in 0..50 {
                                let taken: Vec<usize> = channels
                                    .iter_mut()
                                    .zip(&files)
                                    .map(|(channel, file)| fill(channel, file))
                                    .collect();
                                assert_eq!(taken, [3, 32], "round {round}");
                                for channel in &mut channels {
                                    for one in drain(channel) {
                                        one.result.unwrap();
                                        assert_eq!(one.buffer[1], one.tag as u8);
                                    }
                                }
                            }
                        });
                    }
                });
            });
        };
        places::with(backend, case);
    }
}

fn fill(channel: &mut DirectoryChannel, file: &pando_device::directory::DirectoryFile) -> usize {
    let mut taken = 0;
    loop {
        let block = taken as u64 % 8;
        match channel.submit_read(file, block * 4096, IoBuf::new(4096), block) {
            Ok(()) => taken += 1,
            Err(_) => return taken,
        }
    }
}

#[test]
fn auto_takes_no_ring_where_reads_go_to_workers() {
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no tmpfs");
        return;
    };
    let device = auto(place.path());
    let choice = device.choice();
    assert_ne!(choice.used, Backend::Uring, "{choice:?}");
    let why = &choice.passed_over[0].reason;
    assert!(why.contains("worker"), "{why}");
    // A ring on tmpfs does use a worker thread.
    places::with_tmpfs(Backend::Uring, |device| {
        let file = new_file(&device, 1);
        let mut channel = device.channel(ChannelOptions::new(1)).unwrap();
        channel.submit_read(&file, 0, IoBuf::new(4096), 0).unwrap();
        drain(&mut channel);
        assert!(ring_workers() > 0, "tmpfs reads without a worker");
    });
}

/// Returns the number of worker threads of this process's rings.
fn ring_workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("iou-wrk"))
        .count()
}

#[test]
fn the_alignment_is_known_before_the_first_file() {
    let place = tempfile::tempdir().unwrap();
    let device = auto(place.path());
    assert!(device.list().unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the directory has only the lock file");
    let how = OpenOptions::create(Create::New).direct();
    let file = device.open("data", how).unwrap();
    match device.direct().alignment() {
        Some(bytes) => assert_eq!((file.alignment(), file.is_direct()), (bytes, true)),
        None => assert!(!file.is_direct()),
    }
}

/// A request that is in flight when its channel is dropped must not write into memory that is used
/// again.
#[test]
fn the_device_writes_to_no_memory_of_a_channel_that_has_gone() {
    for backend in Backend::ALL {
        places::with(backend, |device| {
            let file = new_file(&device, 64);
            for _ in 0..20 {
                let mut channel = device.channel(ChannelOptions::new(64)).unwrap();
                for block in 0..64 {
                    let buffer = IoBuf::new(4096);
                    channel.submit_read(&file, block * 4096, buffer, 0).unwrap();
                }
                channel.flush();
                drop(channel);
                // These buffers probably use the memory of the dropped reads.
                let buffers: Vec<IoBuf> = (0..64).map(|_| IoBuf::new(4096)).collect();
                let mut other = IoBuf::new(4096);
                for _ in 0..3 {
                    file.read_at(&mut other, 0).unwrap();
                }
                assert!(buffers.iter().all(|one| one.iter().all(|byte| *byte == 0)));
            }
        });
    }
}

/// Offsets that do not fit the system's type are refused, not wrapped.
#[test]
fn an_offset_that_no_file_has_is_an_error_and_no_place() {
    for backend in Backend::ALL {
        places::with(backend, |device| {
            let how = OpenOptions::create(Create::New);
            let file = device.open("data", how).unwrap();
            file.write_at(&[7; 4096], 0).unwrap();
            let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
            for (tag, offset) in [u64::MAX, i64::MAX as u64, 0].into_iter().enumerate() {
                let tag = tag as u64;
                channel
                    .submit_read(&file, offset, IoBuf::new(1), tag)
                    .unwrap();
            }
            let mut done = drain(&mut channel);
            done.sort_by_key(|one| one.tag);
            let failed: Vec<bool> = done.iter().map(|one| one.result.is_err()).collect();
            assert_eq!(failed, [true, true, false], "{backend}");
            assert!(file.read_at(&mut [0], u64::MAX).is_err());
            assert!(file.write_at(&[0], u64::MAX).is_err());
        });
    }
}
