//! How many pages are read, and that nothing is left over.

use pando_sync::thread;
use pandodb::statistics::{Snapshot, Ticker};
use pandodb::{Batch, Builder, Db, Durability, Table, WriteOptions};

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const KEYS: u32 = 12_000;

fn key_of(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// A store of 4,000 leaves.
fn filled(options: Builder) -> (Db, Table) {
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut batch = Batch::new();
    for number in 0..KEYS {
        batch.put(&table, &key_of(number), &[number as u8; 1000]);
        if number % 50 == 49 {
            db.write(&mut batch, NONE).unwrap();
            batch.clear();
        }
    }
    db.checkpoint().unwrap();
    (db, table)
}

fn options(frames: usize) -> Builder {
    Db::builder().max_memory(64 << 20).frames(frames)
}

/// A sequence that looks random, the same each time.
fn numbers(seed: u32) -> impl Iterator<Item = u32> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % KEYS
    })
}

fn counted(db: &Db, gets: impl FnOnce()) -> Snapshot {
    let before = db.statistics();
    gets();
    db.statistics().since(&before)
}

/// At sixty times the memory, of blocking gets, `get_many` and futures.
#[test]
fn a_get_that_misses_reads_one_page() {
    let (db, table) = filled(options(64));
    let single = |count| {
        for number in numbers(1).take(count) {
            assert!(table.get_with(&key_of(number), |_| ()).unwrap().is_some());
        }
    };
    single(500);
    let many = || {
        let keys: Vec<[u8; 16]> = numbers(2).take(20_000).map(key_of).collect();
        for keys in keys.chunks(10) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            table.get_many_with(&keys, |_, _| ()).unwrap();
        }
    };
    let threads = || {
        thread::scope(|scope| {
            for seed in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for number in numbers(10 + seed).take(5_000) {
                        table.get_with(&key_of(number), |_| ()).unwrap();
                    }
                });
            }
        });
    };
    let each: [(&str, &dyn Fn()); 3] = [
        ("one thread", &|| single(20_000)),
        ("get_many", &many),
        ("threads", &threads),
    ];
    for (what, gets) in each {
        let counted = counted(&db, gets);
        let [gets, missed, reads] =
            [Ticker::Gets, Ticker::GetsMissed, Ticker::PageReads].map(|one| counted.get(one));
        assert_eq!(gets, 20_000, "{what}");
        assert!(missed > gets * 9 / 10, "{what}: {missed} misses");
        assert!(missed < gets, "{what}: no hits");
        // Four threads on so small a pool drive out a page now and then before it is used.
        let allowed = if what == "threads" { 15 } else { 5 };
        assert!(
            reads * 1000 <= missed * (1000 + allowed),
            "{what}: {reads} reads for {missed} misses"
        );
    }
}

#[test]
fn cached_gets_miss_nothing() {
    let (db, table) = filled(options(5_000));
    let counted = counted(&db, || {
        for number in numbers(3).take(1000) {
            table.get(&key_of(number)).unwrap();
        }
    });
    assert_eq!(counted.get(Ticker::Gets), 1000);
    assert_eq!(counted.get(Ticker::GetsMissed), 0);
}
