//! Interprets the input as operations on a table, in memory and on a tiny pool, and compares it
//! with a `BTreeMap`.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use pandodb::{Db, Durability};

fuzz_target!(|bytes: &[u8]| {
    let db = Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .durability(Durability::None)
        .open_in_memory()
        .expect("a store in memory opens");
    let table = db.table("t").expect("a table can be made");
    let mut twin = BTreeMap::new();
    for chunk in bytes.chunks(6) {
        let [operation, key, repeat, value, length, scale] = *chunk else { break };
        let key = vec![key; usize::from(repeat) * 4];
        match operation % 4 {
            0 | 1 => {
                let value = vec![value; usize::from(length) << (scale % 6)];
                table.put(&key, &value).expect("the entry fits");
                twin.insert(key, value);
            }
            2 => {
                let existed = table.delete(&key).expect("the entry can be deleted");
                assert_eq!(existed, twin.remove(&key).is_some());
            }
            _ => assert_eq!(table.get(&key).expect("a read succeeds").as_ref(), twin.get(&key)),
        }
    }
    let entries = table.iter().map(|entry| entry.expect("a read succeeds"));
    assert!(entries.eq(twin));
});
