//! What most tests begin with: a store, keys and values that depend on a number, and waits for
//! background work.

use std::fs;
use std::path::Path;

use pando_sync::thread;
use pandodb::device::faulty::FaultyDevice;
use pandodb::{Batch, Builder, Db, Durability, Table, VerifyReport, WriteOptions};

/// Writes with these options become durable with the next checkpoint.
pub(crate) const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
/// Number of writes of a batch that fits into the smallest pools of these tests.
const BATCH: usize = 50;

/// Opens a store on `device`, which the test also inspects and damages.
pub(crate) fn open_on(device: &FaultyDevice, options: Builder) -> Db {
    Db::open_device(options, device.clone().into()).expect("the store opens")
}

/// Puts the pairs of `numbers` in batches, without durability.
pub(crate) fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    table: &Table,
    numbers: impl IntoIterator<Item = u32>,
    pair: impl Fn(u32) -> (K, V),
) {
    let mut batch = Batch::new();
    let mut numbers = numbers.into_iter().peekable();
    while numbers.peek().is_some() {
        for number in numbers.by_ref().take(BATCH) {
            let (key, value) = pair(number);
            batch.put(table, key.as_ref(), value.as_ref());
        }
        table.db().write(&mut batch, NONE).unwrap();
        batch.clear();
    }
}

/// Copies the files of `from` to the new directory `to`. That of an open store is, as a copy, the
/// store of a process that has ended, if nobody writes to it and its own threads have nothing to
/// do: after a load they may still write pages and remove files of the log.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&path, &copy);
        } else {
            fs::copy(&path, &copy).unwrap();
        }
    }
}

/// Returns a key that sorts by its number, and that can be found in the bytes of a page.
pub(crate) fn text_key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Returns a key of 16 bytes that sorts by its number.
pub(crate) fn padded_key(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns a key that sorts at a random place among others.
pub(crate) fn scattered_key(number: u32) -> [u8; 8] {
    u64::from(number)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_be_bytes()
}

/// Waits until all garbage has been freed.
pub(crate) fn wait_for_garbage(db: &Db) {
    while db.garbage_left() {
        thread::yield_now();
    }
}

/// Verifies the store at `path`, which must be sound. Returns the report.
#[track_caller]
pub(crate) fn verified(path: &Path) -> VerifyReport {
    let report = pandodb::verify(path, |_, _| ()).unwrap();
    assert_eq!(report.damages, []);
    report
}
