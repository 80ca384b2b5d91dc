//! A thread keeps little memory of large values and batches once its calls have returned: a program
//! may have a thousand threads, and no budget counts what they keep.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use pando_sync::thread;
use pandodb::{Batch, Db, WriteOptions};

use crate::counted::{ALLOCATOR, block_on};

/// Bytes of a value.
const LARGE: usize = 900_000;
/// Bytes that a thread may keep of all kinds of calls together.
const KEPT: u64 = 512 << 10;

pub(super) fn threads_keep_little_of_what_was_large() {
    let db = Db::builder()
        .max_memory(64 << 20)
        .give_back_after(None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    let value = vec![7; LARGE];
    table.put(b"large", &value).unwrap();
    table
        .put(b"larger", &[&value[..], &value].concat())
        .unwrap();
    let length = |found: &[u8]| assert!(found.len() >= LARGE);
    let calls: [(&str, &(dyn Fn() + Sync)); 7] = [
        ("put", &|| table.put(b"large", &value).unwrap()),
        ("batch", &|| {
            let mut batch = Batch::new();
            batch.put(&table, b"large", &value);
            db.write(&mut batch, WriteOptions::default()).unwrap();
        }),
        ("transact", &|| {
            db.transact(|transaction| transaction.put(&table, b"large", &value))
                .unwrap();
        }),
        ("get_with", &|| {
            table.get_with(b"large", length).unwrap().unwrap();
            table.get_with(b"larger", length).unwrap().unwrap();
        }),
        ("get_with_async", &|| {
            block_on(table.get_with_async(b"larger", length))
                .unwrap()
                .unwrap();
        }),
        ("get_many", &|| {
            let many = [&b"large"[..], b"larger", b"large"];
            table
                .get_many_with(&many, |_, found| length(found.unwrap()))
                .unwrap();
        }),
        ("update", &|| {
            let with_another = |old: Option<&[u8]>| old.map(<[u8]>::to_vec);
            table.update(b"large", with_another).unwrap().unwrap();
        }),
    ];
    // What the store itself keeps is there from the first time on; this thread is not.
    for (_, call) in calls {
        thread::scope(|scope| scope.spawn(call).join().unwrap());
    }
    for (what, call) in calls {
        let before = ALLOCATOR.bytes();
        call();
        let kept = ALLOCATOR.bytes().saturating_sub(before);
        assert!(kept <= KEPT, "{kept} bytes after {what}");
    }
    drop(table);
    db.close().unwrap();
}
