//! Gets of keys in memory beside what a map and an array cost: the floor of a cached read.
//!
//! `cargo run --release -p pando-bench --example floor -- WAY KEYS GETS`, WAY = `pandodb`,
//! `group` (`get_many` of 128), `btree` (the standard library's map) or `array` (binary search of
//! a sorted array of keys, values in another). Run it under `valgrind --tool=callgrind` with two
//! numbers of gets: the difference are the instructions of gets, with the loop around them.

use std::collections::BTreeMap;
use std::io::Write;

use pando_bench::Result;
use pando_bench::keys::Keys;
use pando_bench::options::KeyKind;
use pando_bench::random::Random;
use pando_sync::time;
use pandodb::{Db, Durability, Table, WriteOptions};

const VALUE_BYTES: usize = 100;
const GROUP: usize = 128;

type Key = [u8; 16];

/// Keys that look random, by number.
struct Asked {
    keys: Vec<Key>,
    random: Random,
}

impl Asked {
    fn new(count: u64) -> Self {
        let keys = Keys::new(KeyKind::Random, 16, 1);
        let mut text = Vec::new();
        let mut key = |number| {
            keys.write(number, &mut text);
            Key::try_from(&text[..]).expect("16 bytes were asked for")
        };
        Self {
            keys: (0..count).map(&mut key).collect(),
            random: Random::new(2, 0),
        }
    }

    fn next(&mut self) -> Key {
        let at = self.random.below(self.keys.len() as u64);
        self.keys[pando_format::cast::usize_of(at)]
    }
}

fn value(key: &Key) -> [u8; VALUE_BYTES] {
    [key[0]; VALUE_BYTES]
}

fn table(keys: &[Key]) -> Result<Table> {
    let memory = (keys.len() as u64 * 300).max(64 << 20);
    let db = Db::builder().max_memory(memory).open_in_memory()?;
    let table = db.table("floor")?;
    let none = WriteOptions::durability(Durability::None);
    for key in keys {
        table.put_with(key, &value(key), none)?;
    }
    Ok(table)
}

/// Runs `get`, which copies the value of a key to a buffer, so many times.
fn run(asked: &mut Asked, gets: u64, mut get: impl FnMut(&Key, &mut Vec<u8>)) {
    let mut out = Vec::with_capacity(2 * VALUE_BYTES);
    for _ in 0..gets {
        let key = asked.next();
        out.clear();
        get(&key, &mut out);
        assert_eq!(out.len(), VALUE_BYTES);
    }
}

fn run_groups(table: &Table, asked: &mut Asked, gets: u64) -> Result<()> {
    let mut found = 0;
    while found < gets {
        let keys: [Key; GROUP] = std::array::from_fn(|_| asked.next());
        let keys = keys.each_ref().map(|key| &key[..]);
        table.get_many_with(&keys, |_, value| {
            assert_eq!(value.map(<[u8]>::len), Some(VALUE_BYTES));
            found += 1;
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(way), Some(count), Some(gets)) = (words.first(), number(1), number(2)) else {
        let _ = writeln!(
            std::io::stderr(),
            "floor pandodb|group|btree|array KEYS GETS"
        );
        std::process::exit(1);
    };
    let mut asked = Asked::new(count.max(1));
    let keys = asked.keys.clone();
    let start;
    match &way[..] {
        "btree" => {
            let map: BTreeMap<Key, _> = keys.iter().map(|key| (*key, value(key))).collect();
            start = time::now();
            run(&mut asked, gets, |key, out| {
                out.extend_from_slice(&map[key]);
            });
        }
        "array" => {
            let mut sorted = keys;
            sorted.sort_unstable();
            let values: Vec<_> = sorted.iter().map(value).collect();
            start = time::now();
            run(&mut asked, gets, |key, out| {
                let at = sorted.binary_search(key).expect("each key is there");
                out.extend_from_slice(&values[at]);
            });
        }
        "group" => {
            let table = table(&keys)?;
            start = time::now();
            run_groups(&table, &mut asked, gets)?;
        }
        _ => {
            let table = table(&keys)?;
            start = time::now();
            run(&mut asked, gets, |key, out| {
                let found = table.get_into(key, out).expect("a store in memory");
                assert!(found, "each key is there");
            });
        }
    }
    let ns = (time::now() - start).as_nanos() as f64 / gets.max(1) as f64;
    let _ = writeln!(std::io::stdout(), "{way}: {ns:.0} ns a get of {count} keys");
    Ok(())
}
