//! Writes that stay in memory: what is below them stays as it is.

use std::collections::BTreeMap;

use pando_device::faulty::{Fault, Operation};
use pando_device::{
    AnyDevice, Channel, ChannelOptions, Create, Device, File, InjectorDevice, IoBuf, MemoryDevice,
    OpenOptions, OverlayDevice,
};
use pando_sync::thread;

type Injected = InjectorDevice<AnyDevice>;
type Overlay = OverlayDevice<AnyDevice>;

const CHANGES: [Operation; 8] = [
    Operation::Write,
    Operation::Sync,
    Operation::SyncDirectory,
    Operation::SetLen,
    Operation::Allocate,
    Operation::Punch,
    Operation::Remove,
    Operation::Rename,
];

/// An overlay over a device with `files` on which every change would fail, and that device.
fn over(files: &[(&str, &[u8])], limit: u64) -> (Overlay, Injected) {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    for (name, bytes) in files {
        let file = device.open(name, OpenOptions::create(Create::New)).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
    let below = InjectorDevice::new(device, 1);
    for change in CHANGES {
        below.fail_by_chance(change, "", 1, Fault::Io);
    }
    let overlay = OverlayDevice::new(AnyDevice::from(below.clone()), limit);
    (overlay, below)
}

fn contents<D: Device>(device: &D) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let file = device.open(&name, OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    device.list().unwrap().into_iter().map(read).collect()
}

fn random_bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // Zeros are kept in another way.
    if random.u32(0..4) > 0 {
        random.fill(&mut bytes);
    }
    bytes
}

/// Reads a random part of the file in both ways.
fn check_part(device: &Overlay, random: &mut fastrand::Rng, name: &str, twin: &[u8]) {
    let file = device.open(name, OpenOptions::read()).unwrap();
    assert_eq!(file.len().unwrap(), twin.len() as u64);
    let from = random.usize(0..=twin.len());
    let part = &twin[from..random.usize(from..=twin.len())];
    let mut bytes = vec![0xaa; part.len()];
    file.read_at(&mut bytes, from as u64).unwrap();
    assert!(bytes == part, "{name} from {from}, {} bytes", part.len());
    let mut channel = device.channel(ChannelOptions::new(1)).unwrap();
    let buffer = IoBuf::new(part.len());
    channel.submit_read(&file, from as u64, buffer, 7).unwrap();
    let mut done = Vec::new();
    while channel.reap(&mut done) == 0 {
        channel.wait(None);
    }
    done[0].result.as_ref().unwrap();
    assert!(&*done[0].buffer == part, "through a channel");
    let beyond = file.read_at(
        &mut vec![0; part.len() + 1],
        (twin.len() - part.len()) as u64,
    );
    assert!(beyond.is_err(), "the end of {name} is passed");
}

/// Does one random change to both.
fn change(device: &Overlay, random: &mut fastrand::Rng, name: &str, twin: &mut Vec<u8>) {
    let file = device.open(name, OpenOptions::write()).unwrap();
    let offset = random.usize(0..=twin.len() + 5000);
    let len = random.usize(0..20_000);
    let end = offset + len;
    match random.u32(0..6) {
        0 => {
            file.set_len(offset as u64).unwrap();
            twin.resize(offset, 0);
        }
        1 => {
            file.allocate(offset as u64, len as u64).unwrap();
            let end = if len > 0 { end } else { 0 };
            twin.resize(twin.len().max(end), 0);
        }
        2 => {
            file.punch(offset as u64, len as u64).unwrap();
            let holes = offset.min(twin.len())..end.min(twin.len());
            twin[holes].fill(0);
        }
        _ => {
            let bytes = random_bytes(random, len);
            file.write_at(&bytes, offset as u64).unwrap();
            if len > 0 {
                twin.resize(twin.len().max(end), 0);
                twin[offset..end].copy_from_slice(&bytes);
            }
        }
    }
    file.sync().unwrap();
}

/// After any changes the files are those of a twin, and the device below has seen none of them.
#[test]
fn any_changes_are_seen_and_stay_above() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let lengths = [random.usize(0..60_000), random.usize(0..3) * 4096];
        let files = lengths.map(|len| random_bytes(&mut random, len));
        let (device, below) = over(&[("data", &files[0]), ("log/1", &files[1])], 1 << 30);
        let before = contents(&below);
        let mut twins = before.clone();
        for _ in 0..30 {
            let index = random.usize(0..twins.len());
            let name = twins.keys().nth(index).unwrap().clone();
            let twin = twins.get_mut(&name).unwrap();
            change(&device, &mut random, &name, twin);
            check_part(&device, &mut random, &name, twin);
        }
        assert!(contents(&device) == twins, "seed {seed}");
        assert!(contents(&below) == before, "seed {seed}");
        assert_eq!(below.faults_struck(), 0, "seed {seed}");
        for name in twins.keys() {
            device.remove(name).unwrap();
        }
        assert_eq!(device.kept_bytes(), 0, "all memory is given back");
    }
}

#[test]
fn names_are_made_moved_and_removed_above() {
    let (device, below) = over(&[("a", b"1"), ("b", b"2"), ("log/c", b"3")], 1 << 20);
    let before = contents(&below);
    device.rename("a", "b").unwrap();
    assert!(device.rename("a", "d").unwrap_err().is_not_found());
    device.remove("log/c").unwrap();
    assert!(device.remove("log/c").unwrap_err().is_not_found());
    let refused = device.open("log/c", OpenOptions::write()).unwrap_err();
    assert!(refused.is_not_found());
    let new = OpenOptions::create(Create::New);
    device.open("b", new).unwrap_err();
    let made = device.open("log/c", new).unwrap();
    made.write_at(b"new", 0).unwrap();
    device.sync_directory().unwrap();
    let expected = [("b", &b"1"[..]), ("log/c", b"new")];
    let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    assert_eq!(contents(&device), BTreeMap::from(expected));
    assert_eq!(contents(&below), before);
    assert_eq!(below.faults_struck(), 0);
    // Another overlay begins with what is below.
    let other = OverlayDevice::new(AnyDevice::from(below), 1 << 20);
    assert_eq!(contents(&other), before);
}

/// Zeros take no memory, the rest is kept up to the limit, and what has no room is refused.
#[test]
fn the_limit_of_memory_is_kept_to() {
    let limit = 10 << 12;
    let (device, _) = over(&[("data", &[7; 1 << 20])], limit);
    let file = device.open("data", OpenOptions::write()).unwrap();
    file.allocate(0, 1 << 40).unwrap();
    file.write_at(&vec![0; 1 << 20], 0).unwrap();
    file.punch(0, 1 << 30).unwrap();
    assert_eq!(device.kept_bytes(), 0);
    assert!(!device.ran_out());
    let mut written = 0;
    while file.write_at(&[1; 4096], written * 4096).is_ok() {
        written += 1;
    }
    assert_eq!(written, 9, "and what the map takes");
    assert!(device.ran_out() && device.kept_bytes() <= limit);
    assert!(device.free_bytes().unwrap() < 4096 + 64);
    file.set_len(0).unwrap();
    assert_eq!(device.kept_bytes(), 0);
    file.write_at(&[1; 4096], 0).unwrap();
}

/// Threads that open a file for the first time, remove it and list, in any order.
#[test]
fn names_are_shared_by_threads() {
    for _ in 0..200 {
        let (device, _) = over(&[("a", b"1"), ("b", b"2")], 1 << 20);
        thread::scope(|scope| {
            for turn in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let file = device.open("a", OpenOptions::write()).unwrap();
                    file.write_at(&[turn], u64::from(turn)).unwrap();
                    let _gone = device.remove("b");
                    let _ = device.open("b", OpenOptions::read());
                    assert!(device.list().unwrap().len() < 3);
                });
            }
        });
        let expected = ("a".to_owned(), vec![0, 1, 2, 3]);
        assert_eq!(contents(&device), BTreeMap::from([expected]));
    }
}
