//! What a file holds after a crash, compared with a twin that keeps every state the file ever had.

use pando_device::faulty::{CrashMode, Fault, FaultPlan, Operation, SECTOR_BYTES};
use pando_device::{Create, Device, Error, FaultyDevice, File, OpenOptions};
use proptest::prelude::*;

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    direct: false,
    write: true,
};
const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];
const FILE_BYTES_MAX: u64 = 6 * SECTOR_BYTES;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Allocate(u64),
    Punch(u64, u64),
    Sync,
}

fn steps(cuts: bool) -> impl Strategy<Value = Vec<Step>> {
    let offset = 0..FILE_BYTES_MAX / 2;
    let write = (offset.clone(), 1usize..1500, any::<u8>()).prop_map(|(offset, len, first)| {
        let bytes = (0..len).map(|index| first.wrapping_add(index as u8) | 1);
        Step::Write(offset, bytes.collect())
    });
    let step = prop_oneof![
        6 => write,
        u32::from(cuts) => (0..FILE_BYTES_MAX).prop_map(Step::SetLen),
        1 => (0..FILE_BYTES_MAX).prop_map(Step::Allocate),
        1 => (offset, 1..1500u64).prop_map(|(offset, len)| Step::Punch(offset, len)),
        2 => Just(Step::Sync),
    ];
    proptest::collection::vec(step, 1..14)
}

/// Performs `steps` on a file. Returns its states since the last sync, the synced one first.
fn perform(device: &FaultyDevice, steps: &[Step]) -> Vec<Vec<u8>> {
    let file = device.open("data", NEW).unwrap();
    device.sync_directory().unwrap();
    let mut states: Vec<Vec<u8>> = vec![Vec::new()];
    for step in steps {
        let mut state = states.last().unwrap().clone();
        match step {
            Step::Write(offset, bytes) => {
                file.write_at(bytes, *offset).unwrap();
                let end = *offset as usize + bytes.len();
                state.resize(state.len().max(end), 0);
                state[*offset as usize..end].copy_from_slice(bytes);
            }
            Step::SetLen(len) => {
                file.set_len(*len).unwrap();
                state.resize(*len as usize, 0);
            }
            Step::Allocate(len) => {
                file.allocate(0, *len).unwrap();
                state.resize(state.len().max(*len as usize), 0);
            }
            Step::Punch(offset, len) => {
                file.punch(*offset, *len).unwrap();
                let end = state.len().min((offset + len) as usize);
                let start = end.min(*offset as usize);
                state[start..end].fill(0);
            }
            Step::Sync => {
                file.sync().unwrap();
                states.clear();
            }
        }
        states.push(state);
    }
    states
}

fn survivor(device: &FaultyDevice, seed: u64, mode: CrashMode) -> Vec<u8> {
    let after = device.after_crash(seed, mode);
    assert_eq!(after.list().unwrap(), ["data"]);
    let content = after.snapshot_file("data");
    assert_eq!(content, after.durable_file("data"));
    content
}

/// Returns byte `index`, or zero past the end.
fn byte(state: &[u8], index: usize) -> u8 {
    state.get(index).copied().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn every_sector_is_one_that_was_there_since_the_sync(
        steps in steps(false), seed in any::<u64>()
    ) {
        let device = FaultyDevice::new(1);
        let states = perform(&device, &steps);
        let content = survivor(&device, seed, CrashMode::RandomSubset);
        let (first, last) = (&states[0], states.last().unwrap());
        prop_assert!((first.len()..=last.len()).contains(&content.len()));
        for start in (0..content.len()).step_by(SECTOR_BYTES as usize) {
            let sector = start..content.len().min(start + SECTOR_BYTES as usize);
            let known = states.iter().any(|state| {
                sector.clone().all(|index| byte(state, index) == content[index])
            });
            prop_assert!(known, "sector at {start} was never so");
        }
    }

    #[test]
    fn every_byte_is_one_that_was_there_since_the_sync(
        steps in steps(true), seed in any::<u64>()
    ) {
        let device = FaultyDevice::new(1);
        let states = perform(&device, &steps);
        for mode in MODES {
            let content = survivor(&device, seed, mode);
            let longest = states.iter().map(Vec::len).max().unwrap();
            prop_assert!(content.len() <= longest);
            for (index, value) in content.iter().enumerate() {
                prop_assert!(
                    *value == 0 || states.iter().any(|state| byte(state, index) == *value),
                    "byte {index} was never {value}, {mode:?}"
                );
            }
        }
        prop_assert_eq!(&survivor(&device, seed, CrashMode::AllLost), &states[0]);
        let last = states.last().unwrap();
        prop_assert_eq!(&survivor(&device, seed, CrashMode::AllSurvive), last);
        prop_assert_eq!(&device.snapshot_file("data"), last);
        prop_assert_eq!(&device.durable_file("data"), &states[0]);
    }
}

#[test]
fn what_is_synced_survives_every_crash() {
    let device = FaultyDevice::new(1);
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[7; 3000], 0).unwrap();
    file.sync().unwrap();
    device.sync_directory().unwrap();
    file.write_at(&[8; 1000], 3000).unwrap();
    for seed in 0..200 {
        for mode in MODES {
            assert_eq!(survivor(&device, seed, mode)[..3000], [7; 3000]);
        }
    }
}

/// Over many seeds each outcome that a mode permits occurs.
#[test]
fn a_crash_gives_all_that_it_may() {
    let device = FaultyDevice::new(1);
    let file = device.open("data", NEW).unwrap();
    device.sync_directory().unwrap();
    file.write_at(&[7; 2048], 0).unwrap();
    let seen =
        |mode, is: &dyn Fn(&[u8]) -> bool| (0..300).any(|seed| is(&survivor(&device, seed, mode)));
    let count = |content: &[u8]| content.iter().filter(|byte| **byte == 7).count();
    let subset = CrashMode::RandomSubset;
    assert!(seen(subset, &|content| content.is_empty()));
    assert!(seen(subset, &|content| count(content) == 2048));
    assert!(seen(subset, &|content| content.len() == 2048
        && count(content) == 0));
    assert!(seen(subset, &|content| (1..2048).contains(&content.len())));
    assert!(seen(subset, &|content| {
        content.len() == 2048 && content[..512] == [0; 512] && content[512..1024] == [7; 512]
    }));
    let torn = |content: &[u8]| !count(content).is_multiple_of(512);
    assert!(!seen(subset, &torn));
    assert!(seen(CrashMode::TornSectors, &torn));
}

#[test]
fn the_same_seed_leaves_the_same() {
    let make = || {
        let device = FaultyDevice::new(1);
        let file = device.open("data", NEW).unwrap();
        device.sync_directory().unwrap();
        for step in 0..20u8 {
            file.write_at(&[step; 700], u64::from(step) * 300).unwrap();
        }
        device
    };
    let (one, two) = (make(), make());
    let mut different = 0;
    for seed in 0..20 {
        let content = survivor(&one, seed, CrashMode::RandomSubset);
        assert_eq!(content, survivor(&two, seed, CrashMode::RandomSubset));
        different += u32::from(content != survivor(&one, seed + 1, CrashMode::RandomSubset));
    }
    assert!(different > 10);
}

#[test]
fn names_survive_only_with_the_directory() {
    let device = FaultyDevice::new(1);
    let old = device.open("log/old", NEW).unwrap();
    old.write_at(b"old", 0).unwrap();
    old.sync().unwrap();
    device.sync_directory().unwrap();
    device.remove("log/old").unwrap();
    let new = device.open("log/new", NEW).unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync().unwrap();
    let names = |seed, mode| device.after_crash(seed, mode).list().unwrap();
    assert_eq!(names(0, CrashMode::AllLost), ["log/old"]);
    assert_eq!(names(0, CrashMode::AllSurvive), ["log/new"]);
    let lost = device.after_crash(0, CrashMode::AllLost);
    assert_eq!(lost.snapshot_file("log/old"), b"old");
    let mut kinds: Vec<_> = (0..100)
        .map(|seed| names(seed, CrashMode::RandomSubset))
        .collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 4, "both, either, none");
    device.sync_directory().unwrap();
    for seed in 0..50 {
        assert_eq!(names(seed, CrashMode::RandomSubset), ["log/new"]);
    }
}

#[test]
fn a_replaced_name_holds_one_of_its_files() {
    let device = FaultyDevice::new(1);
    let old = device.open("data", NEW).unwrap();
    old.write_at(b"old", 0).unwrap();
    old.sync().unwrap();
    device.sync_directory().unwrap();
    device.remove("data").unwrap();
    drop(old);
    let new = device.open("data", NEW).unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync().unwrap();
    let mut kinds: Vec<_> = (0..50)
        .map(|seed| survivor(&device, seed, CrashMode::RandomSubset))
        .collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, [b"new", b"old"]);
}

#[test]
fn a_crash_at_a_sync_comes_before_its_effect() {
    for crash_at in 1..=4 {
        let device = FaultyDevice::new(1);
        device.crash_at_sync(crash_at);
        let run = || {
            let file = device.open("data", NEW)?;
            device.sync_directory()?;
            for step in 0..3u8 {
                file.write_at(&[step + 1; 10], u64::from(step) * 10)?;
                file.sync()?;
            }
            Ok::<(), Error>(())
        };
        assert!(run().unwrap_err().is_crashed());
        assert_eq!(device.sync_points(), crash_at);
        let after = device.after_crash(0, CrashMode::AllLost);
        let len = after.snapshot_file("data").len() as u64;
        assert_eq!(len, crash_at.saturating_sub(2) * 10);
        assert_eq!(after.list().unwrap().len(), usize::from(crash_at > 1));
    }
}

#[test]
fn a_crash_after_writes_keeps_the_last_in_doubt() {
    let device = FaultyDevice::new(1);
    let file = device.open("data", NEW).unwrap();
    device.sync_directory().unwrap();
    device.crash_after_writes(2);
    file.write_at(&[1; 10], 0).unwrap();
    assert!(file.write_at(&[2; 10], 10).unwrap_err().is_crashed());
    assert_eq!(device.writes(), 2);
    assert_eq!(survivor(&device, 0, CrashMode::AllSurvive).len(), 20);
    assert_eq!(survivor(&device, 0, CrashMode::AllLost).len(), 0);
}

/// The new name leads to the one file or to the other, whatever else a crash leaves.
#[test]
fn a_new_name_is_durable_with_its_directory() {
    let device = FaultyDevice::new(1);
    for (name, byte) in [("old", 1), ("new", 2)] {
        let file = device.open(name, NEW).unwrap();
        file.write_at(&[byte; 10], 0).unwrap();
        file.sync().unwrap();
    }
    device.sync_directory().unwrap();
    device.rename("new", "old").unwrap();
    let found = |device: &FaultyDevice, seed, mode| {
        let after = device.after_crash(seed, mode);
        (after.list().unwrap().len(), after.snapshot_file("old")[0])
    };
    assert_eq!(found(&device, 0, CrashMode::AllLost), (2, 1));
    assert_eq!(found(&device, 0, CrashMode::AllSurvive), (1, 2));
    let mut seen = [0; 3];
    for seed in 0..100 {
        let (_, byte) = found(&device, seed, CrashMode::RandomSubset);
        seen[usize::from(byte)] += 1;
    }
    assert!(seen[1] > 0 && seen[2] > 0 && seen[0] == 0, "{seen:?}");
    device.sync_directory().unwrap();
    assert_eq!(found(&device, 0, CrashMode::AllLost), (1, 2));
    assert_eq!(device.free_bytes().unwrap(), (1 << 30) - 10);
}

#[test]
fn nothing_works_after_a_crash() {
    let device = FaultyDevice::new(1);
    let file = device.open("data", NEW).unwrap();
    file.write_at(&[1; 10], 0).unwrap();
    device.crash_now();
    assert!(device.is_crashed());
    let crashed = [
        device.open("data", NEW).map(drop),
        device.remove("data"),
        device.rename("data", "other"),
        device.list().map(drop),
        device.sync_directory(),
        device.free_bytes().map(drop),
        device
            .channel(pando_device::ChannelOptions::new(1))
            .map(drop),
        file.read_at(&mut [0; 1], 0),
        file.write_at(&[0; 1], 0),
        file.write_vectored_at(&[&[0; 1]], 0),
        file.sync(),
        file.len().map(drop),
        file.set_len(1),
        file.allocate(0, 1),
        file.punch(0, 1),
    ];
    for (index, result) in crashed.into_iter().enumerate() {
        assert!(result.unwrap_err().is_crashed(), "operation {index}");
    }
    assert_eq!(device.snapshot_file("data"), [1; 10]);
}

/// Returns a device with a file `data` that was synced with content `old` and then overwritten with
/// `new`, and both contents.
fn half_durable() -> (FaultyDevice, Vec<u8>, Vec<u8>) {
    let (old, new) = (vec![1; 1024], vec![2; 1024]);
    let device = FaultyDevice::new(1);
    let file = device.open("data", NEW).unwrap();
    device.sync_directory().unwrap();
    file.write_at(&old, 0).unwrap();
    file.sync().unwrap();
    file.write_at(&new, 0).unwrap();
    (device, old, new)
}

#[test]
fn the_next_process_sees_all_that_was_written_and_a_crash_takes_what_was_not_synced() {
    let (device, old, new) = half_durable();
    device.open("made", NEW).unwrap();
    device.crash_now();
    let next = device.after_exit(7);
    assert!(!next.is_crashed());
    assert_eq!(next.list().unwrap(), ["data", "made"]);
    assert_eq!(next.snapshot_file("data"), new);
    assert_eq!(next.durable_file("data"), old);
    let after = next.after_crash(7, CrashMode::AllLost);
    assert_eq!(after.list().unwrap(), ["data"]);
    assert_eq!(after.snapshot_file("data"), old);
    // A sync by the next process makes the writes of the previous one durable.
    next.open("data", OpenOptions::read())
        .unwrap()
        .sync()
        .unwrap();
    next.sync_directory().unwrap();
    let after = next.after_crash(7, CrashMode::AllLost);
    assert_eq!(after.list().unwrap(), ["data", "made"]);
    assert_eq!(after.snapshot_file("data"), new);
    assert_eq!(
        device.durable_file("data"),
        old,
        "the earlier device is unchanged"
    );
}

#[test]
fn what_a_failed_sync_has_lost_is_seen_until_the_kernel_drops_it_and_has_to_be_written_again() {
    let (device, old, new) = half_durable();
    let file = device.open("data", OpenOptions::write()).unwrap();
    let (mut lost, mut dropped) = (0, 0);
    device.fail(FaultPlan::once(Operation::Sync, "data", 1, Fault::Io));
    file.sync().unwrap_err();
    for seed in 0..40 {
        let next = device.after_exit(seed);
        let file = next.open("data", OpenOptions::write()).unwrap();
        dropped += u32::from(next.snapshot_file("data") != new);
        file.sync().unwrap();
        lost += u32::from(next.durable_file("data") != new);
        file.write_at(&new, 0).unwrap();
        file.sync().unwrap();
        let after = next.after_crash(seed, CrashMode::AllLost);
        assert_eq!(after.snapshot_file("data"), new);
    }
    assert_eq!(lost, 40, "{:?}", device.durable_file("data") == old);
    assert!((1..40).contains(&dropped), "{dropped}");
}

#[test]
fn a_crash_comes_before_any_operation_that_changes_something() {
    let device = FaultyDevice::new(1);
    device.crash_at_change(4);
    let file = device.open("data", NEW).unwrap();
    file.write_at(b"1", 0).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    file.sync().unwrap();
    assert_eq!(device.changes(), 3);
    assert!(matches!(file.allocate(0, 9), Err(Error::Crashed)));
    assert_eq!(device.snapshot_file("data"), b"1");
    let next = device.after_exit(1);
    assert!(next.clear_crashes() && !device.clear_crashes());
    next.fail(FaultPlan::once(Operation::Sync, "", 1, Fault::Crash));
    assert!(next.clear_crashes());
    next.sync_directory().unwrap();
    let file = next.open("data", OpenOptions::write()).unwrap();
    file.sync().unwrap();
}
