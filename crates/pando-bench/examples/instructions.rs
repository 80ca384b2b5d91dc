//! One kind of operation on keys in memory, for `cargo xtask instructions`, which runs it under
//! callgrind with two counts and divides the difference.
//!
//! `cargo run --release -p pando-bench --example instructions -- CASE COUNT`, CASE = `get`, `put`,
//! `insert` (a put of a key that is not there), `save` (a put that saves what it replaces for a
//! snapshot), `snapshot` (a get in a snapshot of its own), `committed` and `serializable` (one of
//! ten gets and a put of a transaction at that level), `batch` (a row of a batch of 100),
//! `get_many` (a key of 128), `scan` (an entry of 100); in a counted table `rank`, `key_at` and
//! `counted` (a put of a key that is not there).

use std::io::Write;

use pando_bench::Result;
use pando_bench::keys::Keys;
use pando_bench::options::KeyKind;
use pando_bench::random::Random;
use pando_sync::time::Duration;
use pandodb::{
    Batch, Db, Durability, Isolation, Table, TableOptions, TransactionOptions, WriteOptions,
};

const KEYS: u64 = 20_000;
const NEW_MAX: u64 = 20_000;
const VALUE_BYTES: usize = 100;
const ROWS: u64 = 100;
const GROUP: usize = 128;
const GETS: u64 = 10;

type Key = [u8; 16];

/// A store in memory, and keys of it in an order that looks random.
struct Rig {
    db: Db,
    table: Table,
    keys: Vec<Key>,
    /// Keys that it does not have, as many as are ever put: however many are, it takes the same to
    /// make them.
    new_keys: Vec<Key>,
    random: Random,
}

impl Rig {
    fn new(options: TableOptions) -> Result<Self> {
        // Nothing is written back, no checkpoint comes in between, and no snapshot goes on on disk.
        let db = Db::builder()
            .max_memory(256 << 20)
            .settle_snapshots_after(Duration::MAX)
            .checkpoint_interval(Duration::from_secs(24 * 3600))
            .open_in_memory()?;
        let table = db.table_with("instructions", options)?;
        let writer = Keys::new(KeyKind::Random, 16, 1);
        let mut text = Vec::new();
        let mut key = |number| {
            writer.write(number, &mut text);
            Key::try_from(&text[..]).expect("16 bytes were asked for")
        };
        let keys: Vec<_> = (0..KEYS).map(&mut key).collect();
        for key in &keys {
            table.put_with(key, &[key[0]; VALUE_BYTES], unsynced())?;
        }
        let new_keys = (KEYS..KEYS + NEW_MAX).map(key).collect();
        let random = Random::new(2, 0);
        Ok(Self {
            db,
            table,
            keys,
            new_keys,
            random,
        })
    }

    fn key(&mut self) -> Key {
        let at = self.random.below(KEYS);
        self.keys[pando_format::cast::usize_of(at)]
    }

    fn gets(&mut self, count: u64) -> Result<()> {
        let mut out = Vec::with_capacity(2 * VALUE_BYTES);
        for _ in 0..count {
            let key = self.key();
            out.clear();
            assert!(self.table.get_into(&key, &mut out)?, "each key is there");
            assert_eq!(out.len(), VALUE_BYTES);
        }
        Ok(())
    }

    fn puts(&mut self, count: u64) -> Result<()> {
        for number in 0..count {
            let key = self.key();
            self.table
                .put_with(&key, &[number.to_le_bytes()[0]; VALUE_BYTES], unsynced())?;
        }
        Ok(())
    }

    /// Puts of keys that are not there.
    fn inserts(&mut self, count: u64) -> Result<()> {
        assert!(count <= NEW_MAX, "{count} new keys, not {NEW_MAX}");
        for (number, key) in (0..count).zip(&self.new_keys) {
            self.table
                .put_with(key, &[number.to_le_bytes()[0]; VALUE_BYTES], unsynced())?;
        }
        Ok(())
    }

    /// Numbers of keys that are smaller than one.
    fn ranks(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let key = self.key();
            assert!(
                self.table.rank(&key)? < KEYS,
                "a key has too many smaller ones"
            );
        }
        Ok(())
    }

    /// Keys of random ranks.
    fn keys_at(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let rank = self.random.below(KEYS);
            assert!(self.table.key_at(rank)?.is_some(), "a key is missing");
        }
        Ok(())
    }

    /// Puts that each save what they replace: a snapshot is renewed before a key is put again.
    fn saving_puts(&mut self, count: u64) -> Result<()> {
        let mut snapshot = None;
        for number in 0..count {
            let at = pando_format::cast::usize_of(number % KEYS);
            if at == 0 {
                // The next one is open before the one before it ends.
                snapshot = Some(self.db.snapshot()?);
            }
            let key = self.keys[at];
            self.table
                .put_with(&key, &[number.to_le_bytes()[0]; VALUE_BYTES], unsynced())?;
        }
        drop(snapshot);
        Ok(())
    }

    /// A snapshot for each get.
    fn snapshots(&mut self, count: u64) -> Result<()> {
        let mut out = Vec::with_capacity(2 * VALUE_BYTES);
        for _ in 0..count {
            let key = self.key();
            let snapshot = self.db.snapshot()?;
            let found = snapshot.get_into(&self.table, &key, &mut out)?;
            assert!(found, "each key is there");
        }
        Ok(())
    }

    /// Operations of transactions of ten gets and a put.
    fn transactions(&mut self, isolation: Isolation, count: u64) -> Result<()> {
        let mut out = Vec::with_capacity(2 * VALUE_BYTES);
        let options = TransactionOptions::default()
            .isolation(isolation)
            .durability(Durability::None);
        for number in 0..count / (GETS + 1) {
            let mut transaction = self.db.begin(options)?;
            for _ in 0..GETS {
                let key = self.key();
                let found = transaction.get_into(&self.table, &key, &mut out)?;
                assert!(found, "each key is there");
            }
            let key = self.key();
            transaction.put(&self.table, &key, &[number.to_le_bytes()[0]; VALUE_BYTES])?;
            transaction.commit()?;
        }
        Ok(())
    }

    fn batches(&mut self, count: u64) -> Result<()> {
        let mut batch = Batch::new();
        for number in 0..count / ROWS {
            batch.clear();
            for _ in 0..ROWS {
                let key = self.key();
                batch.put(&self.table, &key, &[number.to_le_bytes()[0]; VALUE_BYTES]);
            }
            self.db.write(&mut batch, unsynced())?;
        }
        Ok(())
    }

    fn groups(&mut self, count: u64) -> Result<()> {
        let mut found = 0;
        while found < count {
            let keys: [Key; GROUP] = std::array::from_fn(|_| self.key());
            let keys = keys.each_ref().map(|key| &key[..]);
            self.table.get_many_with(&keys, |_, value| {
                assert_eq!(value.map(<[u8]>::len), Some(VALUE_BYTES));
                found += 1;
            })?;
        }
        Ok(())
    }

    fn scans(&mut self, count: u64) -> Result<()> {
        let mut seen = 0;
        while seen < count {
            let from = self.key();
            let mut entries = self.table.range(&from[..]..);
            for _ in 0..ROWS {
                let bytes = entries.next_with(|_, value| value.len());
                let Some(bytes) = bytes.transpose()? else {
                    break;
                };
                assert_eq!(bytes, VALUE_BYTES);
                seen += 1;
            }
        }
        Ok(())
    }
}

fn unsynced() -> WriteOptions {
    WriteOptions::durability(Durability::None)
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.get(1).and_then(|word| word.parse().ok());
    let (Some(case), Some(count)) = (words.first(), count) else {
        let _ = writeln!(
            std::io::stderr(),
            "instructions get|put|insert|save|snapshot|committed|serializable|batch|get_many|scan|\
             rank|key_at|counted COUNT"
        );
        std::process::exit(1);
    };
    let is_counted = ["rank", "key_at", "counted"].contains(&&case[..]);
    let mut rig = Rig::new(TableOptions::new().counted(is_counted))?;
    match &case[..] {
        "get" => rig.gets(count),
        "put" => rig.puts(count),
        "insert" | "counted" => rig.inserts(count),
        "rank" => rig.ranks(count),
        "key_at" => rig.keys_at(count),
        "save" => rig.saving_puts(count),
        "snapshot" => rig.snapshots(count),
        "committed" => rig.transactions(Isolation::ReadCommitted, count),
        "serializable" => rig.transactions(Isolation::Serializable, count),
        "batch" => rig.batches(count),
        "get_many" => rig.groups(count),
        "scan" => rig.scans(count),
        other => panic!("unknown case '{other}'"),
    }?;
    // What it takes to close depends on how much there is, which is not what is counted here.
    std::process::exit(0)
}
