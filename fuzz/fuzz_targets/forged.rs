//! Stores that nobody wrote: superblock, journal and pages of a sound one are changed and sealed
//! again. Each is verified, salvaged, opened, read, written to and opened again: nothing panics,
//! hangs, or takes memory because a number on the disk says so.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use pando_device::faulty::FaultyDevice;
use pando_format::{Compression, PageId, StoredKind};
use pandodb::{Builder, Db, Durability, SalvageReport, TableOptions, VerifyReport, WriteOptions};

#[path = "../../crates/pandodb/tests/it/seals.rs"]
mod seals;

const NAMES: [&str; 4] = ["plain", "counted", "weighted", "values"];

fn options() -> Builder {
    Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .log_bytes(1 << 20)
        .compression(Compression::None)
        .chunk_size(8192)
        .chunk_values_over(20_000)
        .durability(Durability::None)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Returns a store with tables of all kinds, a dropped one, values of all lengths, and garbage.
fn filled() -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = Db::open_device(options(), device.clone().into()).expect("it opens");
    let kinds = [
        TableOptions::new(),
        TableOptions::new().counted(true),
        TableOptions::new().weighted(true),
        TableOptions::new().weighted(true),
    ];
    for (name, kind) in NAMES.into_iter().chain(["gone"]).zip(kinds.into_iter().cycle()) {
        let table = db.table_with(name, kind).expect("a table can be made");
        for number in 0..200_u32 {
            let value = [&[number.to_le_bytes()[0]], &key(number)[..], &[7; 60]].concat();
            table.put(&key(number), &value).expect("the entry fits");
        }
    }
    let values = db.table("values").expect("it is there");
    for (number, bytes) in (0..).zip([3000, 9_000, 60_000, 30_000]) {
        values.put(&key(number), &vec![0x85; bytes]).expect("the value fits");
    }
    let snapshot = db.snapshot().expect("there is one");
    values.put(&key(1), b"new").expect("the value fits");
    values.put(&key(2), b"new").expect("the value fits");
    db.drop_table("gone").expect("it is there");
    db.checkpoint().expect("there is room");
    let durable = WriteOptions::durability(Durability::Durable);
    values.put_with(&key(300), b"newest", durable).expect("the value fits");
    let left = seals::copy(&device);
    drop(snapshot);
    left
}

/// A change of bytes that are as long as a page or a slot.
#[derive(Clone, Copy)]
struct Change<'i>(&'i [u8; 8]);

impl Change<'_> {
    fn which(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[1], self.0[2]]))
    }

    /// Returns a number that is small, near the end of numbers, or has one bit.
    fn number(self) -> u64 {
        let [.., how, one, two] = *self.0;
        let small = u64::from(u16::from_le_bytes([one, two]));
        match how >> 4 {
            0..8 => small,
            8..10 => small.wrapping_neg(),
            10..12 => 1 << (small % 64),
            12..14 => (1 << 31) + small,
            _ => 1 << 32 | small,
        }
    }

    fn apply(self, bytes: &mut [u8], from: usize) {
        let at = usize::from(u16::from_le_bytes([self.0[3], self.0[4]]));
        let width = 1 << (self.0[5] & 3);
        let at = from + at % (bytes.len() - from - 8);
        let old = &mut bytes[at..at + width];
        let mut word = [0; 8];
        word[..width].copy_from_slice(old);
        let before = u64::from_le_bytes(word);
        let new = match self.0[5] >> 2 & 3 {
            0 => self.number(),
            1 => before.wrapping_add(self.number()),
            2 => before.wrapping_sub(self.number()),
            _ => before ^ self.number(),
        };
        old.copy_from_slice(&new.to_le_bytes()[..width]);
    }
}

fn forge(device: &FaultyDevice, changes: &[Change<'_>]) {
    let kinds = |least: u8, most: u8| {
        let all = changes.iter().copied();
        all.filter(move |change| (least..most).contains(&(change.0[0] % 8)))
    };
    for change in kinds(3, 8) {
        let pages = seals::stored(device).into_iter();
        let pages = pages.filter(|(_, stored)| stored.kind == StoredKind::Page);
        let ids: Vec<PageId> = pages.map(|(id, _)| id).collect();
        // Not its checksum.
        seals::forge_page(device, ids[change.which() % ids.len()], |page| {
            change.apply(page, 4);
        });
    }
    for change in kinds(1, 3) {
        let mut before = change.which() % 128;
        seals::forge_journal(device, |group| {
            let mut words: Vec<(&mut u32, &mut u64)> = Vec::new();
            words.extend(group.pairs.iter_mut().map(|(page, word)| (&mut page.0, word)));
            words.extend(group.counts.iter_mut().map(|(tree, count)| (&mut tree.0, count)));
            match words.get_mut(before) {
                Some((id, word)) => {
                    let mut bytes = [0; 24];
                    bytes[..4].copy_from_slice(&id.to_le_bytes());
                    bytes[4..12].copy_from_slice(&word.to_le_bytes());
                    change.apply(&mut bytes, 0);
                    **id = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                    **word = u64::from_le_bytes(bytes[4..12].try_into().expect("eight bytes"));
                    before = usize::MAX;
                }
                None => before = before.saturating_sub(words.len()),
            }
        });
    }
    let all: Vec<_> = kinds(0, 1).collect();
    if !all.is_empty() {
        seals::forge_superblock(device, |slot| {
            for change in &all {
                // All of its fields, and not the checksum.
                change.apply(&mut slot[..136], 16);
            }
        });
    }
}

/// Does everything that may be done to a store, and takes any answer.
fn use_all(db: &Db) {
    for name in NAMES {
        let Some(table) = db.existing_table(name) else {
            continue;
        };
        let _ = table.iter().map_while(Result::ok).count();
        let _ = table.iter().rev().map_while(Result::ok).count();
        let all = table.count(..).unwrap_or(0);
        for number in [0, 1, all / 2, all.saturating_sub(1), all] {
            let _ = table.unit_at(number);
            let _ = table.unit_from(&key(100), number);
        }
        for number in (0..210).step_by(15) {
            let _ = table.rank(&key(number));
            let _ = table.get(&key(number));
            match number % 2 {
                0 => drop(table.put(&key(number), &[0x90; 40])),
                _ => drop(table.delete(&key(number))),
            }
        }
        let _ = table.put_range(&key(2), 100, &[1; 50]);
        let _ = table.put(&key(400), &[0x81; 9000]);
    }
    let _ = db.drop_table("plain");
    let _ = db.compact(|_| ControlFlow::Continue(()));
    let _ = db.checkpoint();
}

fn check_threads(db: &Db) {
    let cause = db.report().poisoned.unwrap_or_default();
    assert!(!cause.contains("panicked"), "{cause}");
}

fuzz_target!(|bytes: &[u8]| {
    thread_local!(static STORE: FaultyDevice = filled());
    let changes: Vec<Change<'_>> = bytes.as_chunks().0.iter().take(6).map(Change).collect();
    let device = STORE.with(seals::copy);
    forge(&device, &changes);
    let _ = VerifyReport::of_device(&device.clone().into());
    let into = FaultyDevice::new(2);
    let saved = SalvageReport::of_devices(&device.clone().into(), into.clone().into(), options());
    if saved.is_ok() {
        let report = VerifyReport::of_device(&into.clone().into()).expect("it is a store");
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
    for _ in 0..2 {
        let Ok(db) = Db::open_device(options(), device.clone().into()) else {
            return;
        };
        use_all(&db);
        check_threads(&db);
        let _ = db.close();
    }
});
