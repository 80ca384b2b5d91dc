//! The contract that all back ends share. Each case runs over all of them, and through `AnyDevice`.

use std::collections::BTreeMap;
use std::task::Waker;

use pando_device::{
    AnyDevice, Channel, ChannelOptions, Completion, Create, Device, Error, FaultyDevice, File,
    IO_ALIGNMENT, InjectorDevice, IoBuf, MemoryDevice, OpenOptions, OverlayDevice, REAP_MAX,
};
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, thread};
use proptest::prelude::*;

use crate::edges::Edges;

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    direct: false,
    write: true,
};

/// Runs each case over an empty device of each back end.
macro_rules! conformance {
    ($($name:ident),+ $(,)?) => {
        mod pread {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Pread, super::$name);
            })+
        }
        mod uring {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Uring, super::$name);
            })+
        }
        mod libaio {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Libaio, super::$name);
            })+
        }
        mod uring_on_tmpfs {
            $(#[test] fn $name() {
                crate::places::with_tmpfs(pando_device::Backend::Uring, super::$name);
            })+
        }
        mod memory {
            $(#[test] fn $name() { super::$name(super::MemoryDevice::new(1 << 30)); })+
        }
        mod faulty {
            $(#[test] fn $name() { super::$name(super::FaultyDevice::new(7)); })+
        }
        mod injector {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Uring, |device| {
                    let device = super::InjectorDevice::new(super::AnyDevice::from(device), 5);
                    device.reorder();
                    super::$name(super::AnyDevice::from(device));
                });
            })+
        }
        mod timed {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Uring, |device| {
                    let statistics = super::Arc::new(pando_stats::Statistics::new());
                    super::$name(super::AnyDevice::from(device).timed(statistics));
                });
            })+
        }
        mod overlay {
            $(#[test] fn $name() {
                crate::places::with(pando_device::Backend::Uring, |device| {
                    let below = super::AnyDevice::from(device);
                    let device = super::OverlayDevice::new(below, 1 << 30);
                    super::$name(super::AnyDevice::from(device));
                });
            })+
        }
        mod any {
            $(#[test] fn $name() {
                super::$name(super::AnyDevice::from(super::FaultyDevice::new(3)));
            })+
        }
    };
}

conformance!(
    what_is_written_is_read,
    names_are_listed_made_and_removed,
    a_name_moves_to_another_file,
    opening_respects_create,
    names_stay_in_the_directory,
    a_removed_file_works_through_its_handles,
    reading_past_the_end_is_short,
    a_file_opened_for_reading_is_not_written,
    vectored_writes_lie_one_behind_the_other,
    lengths_change_with_zeros,
    allocation_keeps_bytes_and_extends,
    holes_read_as_zeros,
    direct_files_want_alignment_only_if_direct,
    a_channel_gives_every_read_back_once,
    a_channel_writes_every_buffer_once,
    a_write_that_fails_is_a_completion,
    a_full_channel_gives_the_buffer_back,
    the_waker_ends_a_wait_and_outlives_the_channel,
    buffers_of_a_channel_work_with_others_and_outlive_it,
    no_byte_of_an_earlier_read_reaches_the_file,
    a_failed_read_is_a_completion,
    a_reap_is_bounded_and_wakes_for_the_rest,
    waiting_returns_when_nothing_is_in_flight,
    a_channel_may_go_with_reads_in_flight,
    a_parked_loop_is_woken,
    a_loop_is_told_of_what_a_reap_leaves_behind,
    many_threads_write_and_read_apart,
    channels_outlive_the_device_handle,
    operations_equal_those_on_a_vector,
);

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn read<F: File>(file: &F, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    file.read_at(&mut bytes, offset).unwrap();
    bytes
}

fn what_is_written_is_read<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    assert!(file.is_empty().unwrap());
    // The range spans several chunks of the memory device.
    let bytes = pattern((3 << 20) + 17, 1);
    file.write_at(&bytes, 5).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64 + 5);
    assert_eq!(read(&file, 5, bytes.len()), bytes);
    assert_eq!(read(&file, 0, 5), [0; 5]);
    let again = device.open("data", OpenOptions::read()).unwrap();
    assert_eq!(read(&again, 1 << 20, 100), bytes[(1 << 20) - 5..][..100]);
    assert!(!device.backend().is_empty());
    assert!(device.free_bytes().unwrap() > 0);
}

fn names_are_listed_made_and_removed<D: Device>(device: D) {
    assert!(device.list().unwrap().is_empty());
    for name in ["log/0000000002", "data", "log/0000000001", "log/c_d.e"] {
        device.open(name, NEW).unwrap();
    }
    device.sync_directory().unwrap();
    let names = device.list().unwrap();
    assert_eq!(
        names,
        ["data", "log/0000000001", "log/0000000002", "log/c_d.e"]
    );
    device.remove("log/0000000001").unwrap();
    device.sync_directory().unwrap();
    assert_eq!(
        device.list().unwrap(),
        ["data", "log/0000000002", "log/c_d.e"]
    );
    assert!(device.remove("log/0000000001").unwrap_err().is_not_found());
}

fn a_name_moves_to_another_file<D: Device>(device: D) {
    let new = device.open("new", NEW).unwrap();
    new.write_at(b"new", 0).unwrap();
    device.rename("new", "log-1").unwrap();
    assert_eq!(device.list().unwrap(), ["log-1"]);
    let other = device.open("new", NEW).unwrap();
    other.write_at(b"newer", 0).unwrap();
    device.rename("new", "log-1").unwrap();
    device.sync_directory().unwrap();
    assert_eq!(device.list().unwrap(), ["log-1"]);
    let named = device.open("log-1", OpenOptions::read()).unwrap();
    assert_eq!(read(&named, 0, 5), b"newer");
    // Handles are those of files, not of names.
    assert_eq!(read(&new, 0, 3), b"new");
    other.write_at(b"!", 5).unwrap();
    assert_eq!(read(&named, 0, 6), b"newer!");
    assert!(device.rename("new", "log-1").unwrap_err().is_not_found());
    for (name, to) in [
        ("log-1", "../x"),
        ("LOCK", "x"),
        ("log-1", "LOCK"),
        ("log-1", "log/1"),
    ] {
        assert!(device.rename(name, to).is_err(), "{name} {to}");
    }
    assert_eq!(device.list().unwrap(), ["log-1"]);
    device.rename("log-1", "log-1").unwrap();
    assert_eq!(device.list().unwrap(), ["log-1"]);
}

fn opening_respects_create<D: Device>(device: D) {
    let missing = device.open("data", OpenOptions::write()).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let missing = device
        .open("no/such", OpenOptions::read().direct())
        .unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let made = device
        .open("data", OpenOptions::create(Create::IfAbsent))
        .unwrap();
    made.write_at(b"kept", 0).unwrap();
    let again = device
        .open("data", OpenOptions::create(Create::IfAbsent))
        .unwrap();
    assert_eq!(read(&again, 0, 4), b"kept");
    assert!(device.open("data", NEW).is_err());
    let unwritable = OpenOptions {
        create: Create::IfAbsent,
        ..OpenOptions::read()
    };
    assert!(device.open("other", unwritable).is_err());
    assert_eq!(device.list().unwrap(), ["data"]);
}

fn names_stay_in_the_directory<D: Device>(device: D) {
    for name in ["../data", "/data", "a/b/c", "", "LOCK", "a/../b"] {
        assert!(device.open(name, NEW).is_err(), "{name}");
        assert!(device.remove(name).is_err(), "{name}");
    }
}

fn a_removed_file_works_through_its_handles<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    device.remove("data").unwrap();
    file.write_at(b"bytes", 0).unwrap();
    assert_eq!(read(&file, 0, 5), b"bytes");
    let fresh = device.open("data", NEW).unwrap();
    assert_eq!(fresh.len().unwrap(), 0);
}

fn reading_past_the_end_is_short<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[1; 10], 0).unwrap();
    let mut buffer = [0; 4];
    match file.read_at(&mut buffer, 8).unwrap_err() {
        Error::ShortRead {
            name,
            offset,
            wanted,
            got,
        } => {
            assert_eq!((name.as_str(), offset, wanted, got), ("data", 8, 4, 2));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        file.read_at(&mut buffer, 1 << 40).unwrap_err(),
        Error::ShortRead { got: 0, .. }
    ));
    file.read_at(&mut [], 10).unwrap();
}

fn a_file_opened_for_reading_is_not_written<D: Device>(device: D) {
    device.open("data", NEW).unwrap().write_at(b"x", 0).unwrap();
    let file = device.open("data", OpenOptions::read()).unwrap();
    assert!(file.write_at(b"y", 0).is_err());
    assert!(file.write_vectored_at(&[b"y"], 0).is_err());
    assert!(file.set_len(0).is_err());
    assert!(file.allocate(0, 10).is_err());
    assert!(file.punch(0, 1).is_err());
    assert_eq!(read(&file, 0, 1), b"x");
}

fn vectored_writes_lie_one_behind_the_other<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_vectored_at(&[], 7).unwrap();
    assert_eq!(file.len().unwrap(), 0);
    let parts: Vec<Vec<u8>> = (0..3000)
        .map(|part| pattern(part % 7, part as u64))
        .collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    file.write_vectored_at(&slices, 3).unwrap();
    let whole = parts.concat();
    assert_eq!(read(&file, 3, whole.len()), whole);
    assert_eq!(file.len().unwrap(), 3 + whole.len() as u64);
}

fn lengths_change_with_zeros<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[7; 100], 0).unwrap();
    file.set_len(50).unwrap();
    file.set_len(3 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 3 << 20);
    assert_eq!(read(&file, 0, 50), [7; 50]);
    assert!(
        read(&file, 50, (3 << 20) - 50)
            .iter()
            .all(|byte| *byte == 0)
    );
    file.set_len(0).unwrap();
    assert!(file.is_empty().unwrap());
}

fn allocation_keeps_bytes_and_extends<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[7; 100], 0).unwrap();
    file.allocate(0, 10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert_eq!(read(&file, 0, 100), [7; 100]);
    assert_eq!(read(&file, 100, 9_900), [0; 9_900]);
    file.allocate(0, 10).unwrap();
    file.allocate(10, 0).unwrap();
    file.allocate(20_000, 0).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
}

fn holes_read_as_zeros<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    let bytes = pattern(3 * 65_536, 4);
    file.write_at(&bytes, 0).unwrap();
    match file.punch(65_536, 65_536) {
        Err(Error::Unsupported { .. }) => return,
        other => other.unwrap(),
    }
    assert_eq!(read(&file, 0, 65_536), bytes[..65_536]);
    assert!(read(&file, 65_536, 65_536).iter().all(|byte| *byte == 0));
    assert_eq!(read(&file, 131_072, 65_536), bytes[131_072..]);
    file.punch(131_072, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64);
}

fn direct_files_want_alignment_only_if_direct<D: Device>(device: D) {
    let file = device.open("data", NEW.direct()).unwrap();
    let alignment = file.alignment();
    assert!(alignment.is_power_of_two());
    assert!(alignment <= IO_ALIGNMENT);
    assert_eq!(file.is_direct(), alignment > 1);
    let bytes = IoBuf::copy_of(&pattern(4 * IO_ALIGNMENT, 9));
    file.write_at(&bytes, IO_ALIGNMENT as u64).unwrap();
    let (front, back) = bytes.split_at(IO_ALIGNMENT);
    file.write_vectored_at(&[back, front], 8 * IO_ALIGNMENT as u64)
        .unwrap();
    file.sync().unwrap();
    let mut buffer = IoBuf::new(4 * IO_ALIGNMENT);
    file.read_at(&mut buffer, IO_ALIGNMENT as u64).unwrap();
    assert_eq!(*buffer, *bytes);
    file.read_at(&mut buffer, 8 * IO_ALIGNMENT as u64).unwrap();
    assert_eq!(buffer[..3 * IO_ALIGNMENT], *back);
    if file.is_direct() {
        let unaligned = |result| matches!(result, Err(Error::Unaligned { .. }));
        assert!(unaligned(file.read_at(&mut buffer, 1)));
        assert!(unaligned(file.read_at(&mut buffer[1..], 0)));
        assert!(unaligned(file.write_at(&bytes[..100], 0)));
        assert!(unaligned(file.write_vectored_at(&[front, &back[..9]], 0)));
    }
    // These reads extend past the end of the file.
    let end = 12 * IO_ALIGNMENT as u64;
    assert_eq!(file.len().unwrap(), end);
    assert!(matches!(
        file.read_at(&mut buffer, end - IO_ALIGNMENT as u64),
        Err(Error::ShortRead { got, .. }) if got == IO_ALIGNMENT
    ));
    file.set_len(end - 100).unwrap();
    assert!(matches!(
        file.read_at(&mut buffer, end - IO_ALIGNMENT as u64),
        Err(Error::ShortRead { got, .. }) if got == IO_ALIGNMENT - 100
    ));
}

/// Reaps until there are `count` completions. Returns them.
fn reap_all<C: Channel>(channel: &mut C, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        channel.wait(Some(Duration::from_secs(30)));
        assert!(channel.reap(&mut done) > 0, "nothing after half a minute");
    }
    assert_eq!(done.len(), count);
    done
}

fn a_channel_gives_every_read_back_once<D: Device>(device: D) {
    let file = device.open("data", NEW.direct()).unwrap();
    let bytes = IoBuf::copy_of(&pattern(64 * 4096, 3));
    file.write_at(&bytes, 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(200)).unwrap();
    for round in 0..5u64 {
        for tag in 0..200u64 {
            let block = (tag * 7 + round) % 64;
            channel
                .submit_read(&file, block * 4096, IoBuf::new(4096), tag)
                .unwrap();
        }
        assert_eq!(channel.in_flight(), 200);
        let mut seen = BTreeMap::new();
        for completion in reap_all(&mut channel, 200) {
            completion.result.unwrap();
            let block = (completion.tag * 7 + round) % 64;
            let at = block as usize * 4096;
            assert_eq!(completion.buffer[..], bytes[at..at + 4096]);
            assert!(seen.insert(completion.tag, ()).is_none());
        }
        assert_eq!(channel.in_flight(), 0);
        assert_eq!(channel.reap(&mut Vec::new()), 0);
    }
}

fn a_channel_writes_every_buffer_once<D: Device>(device: D) {
    let file = device.open("data", NEW.direct()).unwrap();
    let bytes = pattern(100 * 4096, 11);
    let mut channel = device.channel(ChannelOptions::new(100)).unwrap();
    for tag in 0..100u64 {
        let block = tag * 37 % 100;
        let part = &bytes[block as usize * 4096..][..4096];
        channel
            .submit_write(&file, block * 4096, IoBuf::copy_of(part), tag)
            .unwrap();
    }
    assert!(
        channel
            .submit_write(&file, 0, IoBuf::new(4096), 100)
            .is_err()
    );
    assert_eq!(channel.in_flight(), 100);
    channel.flush();
    for completion in reap_all(&mut channel, 100) {
        completion.result.unwrap();
        let block = completion.tag as usize * 37 % 100;
        assert_eq!(completion.buffer[..], bytes[block * 4096..][..4096]);
    }
    assert_eq!(channel.in_flight(), 0);
    let mut whole = IoBuf::new(bytes.len());
    file.read_at(&mut whole, 0).unwrap();
    assert!(whole[..] == bytes[..]);
}

fn a_write_that_fails_is_a_completion<D: Device>(device: D) {
    device.open("data", NEW).unwrap();
    let file = device.open("data", OpenOptions::read()).unwrap();
    let mut channel = device.channel(ChannelOptions::new(3)).unwrap();
    channel
        .submit_write(&file, 0, IoBuf::copy_of(b"bytes"), 5)
        .unwrap();
    let done = reap_all(&mut channel, 1);
    assert_eq!((done[0].tag, &done[0].buffer[..]), (5, &b"bytes"[..]));
    assert!(done[0].result.is_err());
    assert_eq!(channel.in_flight(), 0);
    assert!(file.is_empty().unwrap());
}

fn the_waker_ends_a_wait_and_outlives_the_channel<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 4096], 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
    let waker = channel.waker();
    waker.wake_by_ref();
    channel.wait(None);
    let mut done = Vec::new();
    thread::scope(|scope| {
        let stop = Arc::new(AtomicUsize::new(0));
        scope.spawn({
            let (stop, waker) = (stop.clone(), waker.clone());
            move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    waker.wake_by_ref();
                    thread::yield_now();
                }
            }
        });
        for tag in 0..300 {
            channel
                .submit_read(&file, 0, IoBuf::new(4096), tag)
                .unwrap();
            while channel.in_flight() > 0 {
                channel.wait(None);
                channel.reap(&mut done);
            }
        }
        stop.store(1, Ordering::Relaxed);
    });
    assert_eq!(done.len(), 300);
    drop(channel);
    waker.wake();
}

fn buffers_of_a_channel_work_with_others_and_outlive_it<D: Device>(device: D) {
    let file = device.open("data", NEW.direct()).unwrap();
    file.write_at(&IoBuf::copy_of(&[5; 8192]), 0).unwrap();
    let mut first = device.channel(ChannelOptions::new(8)).unwrap();
    let mut second = device.channel(ChannelOptions::new(8)).unwrap();
    let mut buffers = first.buffers(8, 4096);
    assert_eq!(buffers.len(), 8);
    for channel in [&mut first, &mut second] {
        for (tag, buffer) in buffers.drain(..).enumerate() {
            assert_eq!(buffer.len(), 4096);
            channel
                .submit_read(&file, 4096, buffer, tag as u64)
                .unwrap();
        }
        for completion in reap_all(channel, 8) {
            completion.result.unwrap();
            assert!(completion.buffer.iter().all(|byte| *byte == 5));
            buffers.push(completion.buffer);
        }
    }
    drop((first, second, device));
    for mut buffer in buffers {
        buffer.fill(6);
        assert_eq!(buffer[4095], 6);
    }
}

fn no_byte_of_an_earlier_read_reaches_the_file<D: Device>(device: D) {
    let secret = device.open("secret", NEW.direct()).unwrap();
    secret.write_at(&IoBuf::copy_of(&[0x5e; 8192]), 0).unwrap();
    let file = device.open("data", NEW.direct()).unwrap();
    let mut channel = device.channel(ChannelOptions::new(2)).unwrap();
    let mut buffer = channel.buffers(1, 8192).remove(0);
    for round in 0..20usize {
        // The read goes through the channel, is a blocking call, or fills only a part of the
        // buffer.
        buffer.set_len(if round % 3 == 2 { 4096 } else { 8192 });
        if round % 3 == 0 {
            secret.read_at(&mut buffer, 0).unwrap();
        } else {
            channel.submit_read(&secret, 0, buffer, 0).unwrap();
            buffer = reap_all(&mut channel, 1).remove(0).buffer;
        }
        assert_eq!(buffer[4095], 0x5e, "the buffer was read into");
        let record = pattern(100 + round, 7);
        buffer.set_len(8192);
        buffer.prefix_mut(record.len()).copy_from_slice(&record);
        buffer.pad_zeros(record.len());
        let offset = round as u64 * 8192;
        channel.submit_write(&file, offset, buffer, 1).unwrap();
        let written = reap_all(&mut channel, 1).remove(0);
        written.result.unwrap();
        buffer = written.buffer;
        let mut content = IoBuf::new(8192);
        file.read_at(&mut content, offset).unwrap();
        assert_eq!(content[..record.len()], record[..]);
        assert!(content[record.len()..].iter().all(|byte| *byte == 0));
    }
}

fn a_full_channel_gives_the_buffer_back<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 100], 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(3)).unwrap();
    for tag in 0..3 {
        channel.submit_read(&file, 0, IoBuf::new(100), tag).unwrap();
    }
    let mine = IoBuf::copy_of(b"mine");
    let back = channel.submit_read(&file, 0, mine, 3).unwrap_err();
    assert_eq!(&*back, b"mine");
    assert_eq!(channel.in_flight(), 3);
    reap_all(&mut channel, 3);
    channel.submit_read(&file, 0, back, 4).unwrap();
    assert_eq!(reap_all(&mut channel, 1)[0].tag, 4);
}

fn a_failed_read_is_a_completion<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    let mut channel = device.channel(ChannelOptions::new(3)).unwrap();
    channel.submit_read(&file, 0, IoBuf::new(10), 77).unwrap();
    let done = reap_all(&mut channel, 1);
    assert_eq!(done[0].tag, 77);
    assert_eq!(done[0].buffer.len(), 10);
    assert!(matches!(
        done[0].result,
        Err(Error::ShortRead { got: 0, .. })
    ));
    assert_eq!(channel.in_flight(), 0);
}

struct Count(AtomicUsize, Waker);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.wake_by_ref();
    }
}

fn a_reap_is_bounded_and_wakes_for_the_rest<D: Device>(device: D) {
    let count = REAP_MAX * 2 + 10;
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 10], 0).unwrap();
    let wakes = Arc::new(Count(AtomicUsize::new(0), Waker::noop().clone()));
    let mut channel = device
        .channel(ChannelOptions::new(count).notify(Waker::from(wakes.clone())))
        .unwrap();
    for tag in 0..count as u64 {
        channel.submit_read(&file, 0, IoBuf::new(10), tag).unwrap();
    }
    let mut done = Vec::new();
    while done.len() < count {
        let before = done.len();
        let woken = wakes.0.load(Ordering::SeqCst);
        channel.wait(Some(Duration::from_secs(30)));
        let got = channel.reap(&mut done);
        assert!(got <= REAP_MAX);
        assert_eq!(done.len(), before + got);
        assert_eq!(channel.in_flight(), count - done.len());
        let all_done = device.backend() == "memory";
        if got == REAP_MAX && before == 0 && all_done {
            assert!(wakes.0.load(Ordering::SeqCst) > woken);
        }
    }
    let told = channel.completion_fd().is_some() || wakes.0.load(Ordering::SeqCst) > 0;
    assert!(told);
}

fn waiting_returns_when_nothing_is_in_flight<D: Device>(device: D) {
    let mut channel = device.channel(ChannelOptions::new(3)).unwrap();
    channel.wait(None);
    channel.wait(Some(Duration::MAX));
    assert_eq!(channel.reap(&mut Vec::new()), 0);
}

fn a_channel_may_go_with_reads_in_flight<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 1 << 20], 0).unwrap();
    for _ in 0..20 {
        let mut channel = device.channel(ChannelOptions::new(16)).unwrap();
        for tag in 0..16 {
            channel
                .submit_read(&file, 0, IoBuf::new(1 << 18), tag)
                .unwrap();
        }
    }
    assert_eq!(read(&file, 0, 1), [5]);
}

/// Waits as an event loop does: for the descriptor if there is one, otherwise for `notify`.
struct Loop {
    wakes: Arc<Count>,
    seen: usize,
    edges: Option<Edges>,
}

impl Loop {
    fn channel<D: Device>(device: &D, depth: usize) -> (D::Channel, Self) {
        let wakes = Arc::new(Count(AtomicUsize::new(0), pando_sync::thread_waker()));
        let options = ChannelOptions::new(depth).notify(Waker::from(wakes.clone()));
        let channel = device.channel(options).unwrap();
        let edges = channel.completion_fd().map(Edges::of);
        let parked = Self {
            wakes,
            seen: 0,
            edges,
        };
        (channel, parked)
    }

    fn park(&mut self) {
        let wakes = self.wakes.0.load(Ordering::SeqCst);
        if wakes > self.seen {
            self.seen = wakes;
            return;
        }
        match &self.edges {
            Some(edges) => edges.wait(),
            None => pando_sync::park(),
        }
    }
}

fn a_parked_loop_is_woken<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 4096], 0).unwrap();
    let (mut channel, mut parked) = Loop::channel(&device, 4);
    let mut done = Vec::new();
    for tag in 0..500 {
        channel
            .submit_read(&file, 0, IoBuf::new(4096), tag)
            .unwrap();
        channel.flush();
        while channel.reap(&mut done) == 0 {
            parked.park();
        }
    }
    assert_eq!(done.len(), 500);
    // A request that ends without the device is reported like any other.
    channel
        .submit_read(&file, 5000, IoBuf::new(1), 500)
        .unwrap();
    channel.flush();
    while channel.reap(&mut done) == 0 {
        parked.park();
    }
    assert!(done[500].result.is_err());
}

fn a_loop_is_told_of_what_a_reap_leaves_behind<D: Device>(device: D) {
    const COUNT: usize = 3 * REAP_MAX;
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 4096], 0).unwrap();
    let (mut channel, mut parked) = Loop::channel(&device, COUNT);
    let mut done = Vec::new();
    for round in 0..5 {
        for tag in 0..COUNT as u64 {
            channel
                .submit_read(&file, 0, IoBuf::new(4096), tag)
                .unwrap();
        }
        channel.flush();
        done.clear();
        while done.len() < COUNT {
            // The loop reaps only once after each wake.
            parked.park();
            channel.reap(&mut done);
        }
        assert_eq!(channel.in_flight(), 0, "round {round}");
    }
}

fn many_threads_write_and_read_apart<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    thread::scope(|scope| {
        for writer in 0..8u64 {
            let file = file.clone();
            scope.spawn(move || {
                for step in 0..50 {
                    let bytes = pattern(3000, writer * 1000 + step);
                    let offset = (step * 8 + writer) * 3000;
                    file.write_at(&bytes, offset).unwrap();
                    assert_eq!(read(&file, offset, 3000), bytes);
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), 400 * 3000);
    for writer in 0..8 {
        let expected = pattern(3000, writer * 1000 + 49);
        assert_eq!(read(&file, (49 * 8 + writer) * 3000, 3000), expected);
    }
}

fn channels_outlive_the_device_handle<D: Device>(device: D) {
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[5; 4096], 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(4)).unwrap();
    drop(device);
    channel.submit_read(&file, 0, IoBuf::new(4096), 1).unwrap();
    drop(file);
    assert!(reap_all(&mut channel, 1)[0].result.is_ok());
}

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, len: usize, seed: u64 },
    Read { offset: u64, len: usize },
    SetLen(u64),
    Allocate { offset: u64, len: u64 },
    Punch { offset: u64, len: u64 },
    Sync,
}

/// Offsets at the beginning, and near the boundary of two chunks of the memory device.
fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5000, ((1 << 20) - 3000u64)..((1 << 20) + 3000)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (offsets(), 0usize..4000, any::<u64>())
            .prop_map(|(offset, len, seed)| Step::Write { offset, len, seed }),
        3 => (offsets(), 0usize..4000).prop_map(|(offset, len)| Step::Read { offset, len }),
        1 => offsets().prop_map(Step::SetLen),
        1 => (offsets(), 0u64..4000).prop_map(|(offset, len)| Step::Allocate { offset, len }),
        1 => (offsets(), 0u64..4000).prop_map(|(offset, len)| Step::Punch { offset, len }),
        1 => Just(Step::Sync),
    ];
    proptest::collection::vec(step, 1..40)
}

fn apply<F: File>(step: &Step, file: &F, twin: &mut Vec<u8>) {
    match *step {
        Step::Write { offset, len, seed } => {
            let bytes = pattern(len, seed);
            file.write_at(&bytes, offset).unwrap();
            let end = offset as usize + len;
            if len > 0 {
                twin.resize(twin.len().max(end), 0);
                twin[offset as usize..end].copy_from_slice(&bytes);
            }
        }
        Step::Read { offset, len } => {
            let mut buffer = vec![0; len];
            let result = file.read_at(&mut buffer, offset);
            match twin.get(offset as usize..offset as usize + len) {
                Some(expected) => {
                    result.unwrap();
                    assert!(buffer == expected, "read of {len} at {offset}");
                }
                None if len == 0 => result.unwrap(),
                None => assert!(matches!(result, Err(Error::ShortRead { .. }))),
            }
        }
        Step::SetLen(len) => {
            file.set_len(len).unwrap();
            twin.resize(len as usize, 0);
        }
        Step::Allocate { offset, len } => {
            file.allocate(offset, len).unwrap();
            if len > 0 {
                twin.resize(twin.len().max((offset + len) as usize), 0);
            }
        }
        Step::Punch { offset, len } => {
            if file.punch(offset, len).is_ok() {
                let end = twin.len().min((offset + len) as usize);
                let start = end.min(offset as usize);
                twin[start..end].fill(0);
            }
        }
        Step::Sync => file.sync().unwrap(),
    }
    assert_eq!(file.len().unwrap(), twin.len() as u64);
}

fn operations_equal_those_on_a_vector<D: Device>(device: D) {
    let number = AtomicUsize::new(0);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(48)
    };
    proptest!(config, |(steps in steps())| {
        let name = format!("data{}", number.fetch_add(1, Ordering::Relaxed));
        let file = device.open(&name, NEW).unwrap();
        let mut twin = Vec::new();
        for step in &steps {
            apply(step, &file, &mut twin);
        }
        prop_assert!(read(&file, 0, twin.len()) == twin);
        device.remove(&name).unwrap();
    });
}
