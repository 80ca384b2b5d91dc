//! A commit puts a key where a read of the same batch has found it, and a read finds it where it
//! was foreseen: batches read and write at random, go back and are used again, in two tables, and
//! somebody else changes leaves meanwhile.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use pandodb::nonblocking::{BatchSavepoint, Outcome, Reactor, ValidatedBatch};
use pandodb::{Db, Table, verify};

use crate::fixture::scattered_key;
use crate::nonblocking::run;

/// What two tables hold.
type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

struct Rig {
    tables: [Table; 2],
    reactor: Reactor,
    batch: ValidatedBatch,
    random: Rng,
    out: Vec<u8>,
    /// The table and keys that the batch has foreseen and that were not read since.
    foreseen: (usize, VecDeque<Vec<u8>>),
}

impl Rig {
    /// Makes the batch do one thing. `own` is what the tables hold for it.
    fn step(&mut self, own: &mut Model, points: &mut Vec<(BatchSavepoint, Model)>) {
        let (at, key) = self.next_key();
        match self.random.u32(..13) {
            12 => self.foresee(),
            0 => points.push((self.batch.savepoint(), own.clone())),
            1 if !points.is_empty() => {
                points.truncate(self.random.usize(..points.len()) + 1);
                let (point, then) = &points[points.len() - 1];
                self.batch.rollback_to(*point);
                own.clone_from(then);
            }
            2 => self.put(at, key, own),
            choice => {
                match self.random.bool() {
                    true => self.get(at, &key, own),
                    false => self.get_head(at, &key, own),
                }
                match choice {
                    3 => {}
                    4 => {
                        let other = scattered_key(self.random.u32(..2000)).to_vec();
                        self.put(at, other, own);
                        // Its look-up among the writes is of before.
                        if self.random.bool() {
                            self.put(at, key, own);
                        }
                    }
                    5 => {
                        self.batch.delete(&self.tables[at], &key);
                        own[at].remove(&key);
                    }
                    _ => self.put(at, key, own),
                }
            }
        }
    }

    fn get(&mut self, at: usize, key: &[u8], own: &Model) {
        let (batch, table, out) = (&mut self.batch, &self.tables[at], &mut self.out);
        let found = run(&mut self.reactor, |_| batch.get(table, key, out).unwrap());
        assert_eq!(found.then_some(&self.out), own[at].get(key));
    }

    /// Reads the beginning of a value, which is all of a short one.
    fn get_head(&mut self, at: usize, key: &[u8], own: &Model) {
        let most = self.random.usize(..2000);
        let (batch, table, out) = (&mut self.batch, &self.tables[at], &mut self.out);
        let read = |_: &mut Reactor| batch.get_head(table, key, most, out).unwrap();
        let found = run(&mut self.reactor, read);
        let value = own[at].get(key);
        assert_eq!(found, value.map(Vec::len));
        if let Some(value) = value {
            assert!(out.len() >= most.min(value.len()));
            assert!(value.starts_with(out));
        }
    }

    /// Returns one of the next keys that were foreseen, or any other one, and its table.
    fn next_key(&mut self) -> (usize, Vec<u8>) {
        if self.random.u32(..4) > 0 {
            // Some are left out.
            self.random.bool().then(|| self.foreseen.1.pop_front());
            if let Some(key) = self.foreseen.1.pop_front() {
                return (self.foreseen.0, key);
            }
        }
        let key = scattered_key(self.random.u32(..2000)).to_vec();
        (self.random.usize(..2), key)
    }

    fn foresee(&mut self) {
        let at = self.random.usize(..2);
        let count = self.random.usize(..=ValidatedBatch::FORESEEN_MAX);
        let keys = (0..count).map(|_| scattered_key(self.random.u32(..2000)).to_vec());
        self.foreseen = (at, keys.collect());
        let keys: Vec<&[u8]> = self.foreseen.1.iter().map(|key| &key[..]).collect();
        self.batch.foresee(&self.tables[at], &keys);
    }

    fn put(&mut self, at: usize, key: Vec<u8>, own: &mut Model) {
        // Some do not lie in their leaf.
        let most = [300, 300, 300, 6000][self.random.usize(..4)];
        let value = vec![self.random.u8(..); self.random.usize(..most)];
        let parts = value.split_at(self.random.usize(..=value.len()));
        let put = self.batch.put_joined(&self.tables[at], &key, parts);
        put.unwrap();
        own[at].insert(key, value);
    }

    /// Has somebody else change a leaf, and no key of the batch.
    fn interfere(&mut self, models: [&mut Model; 2]) {
        let at = self.random.usize(..2);
        let key = [&scattered_key(self.random.u32(..2000))[..], b"+"].concat();
        let value = vec![8; self.random.usize(..300)];
        self.tables[at].put(&key, &value).unwrap();
        for model in models {
            model[at].insert(key.clone(), value.clone());
        }
    }
}

#[test]
fn what_was_read_is_written_where_it_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().open(directory.path()).unwrap();
    let mut rig = Rig {
        tables: ["one", "other"].map(|name| db.table(name).unwrap()),
        reactor: Reactor::new(&db, pando_sync::thread_waker()).unwrap(),
        batch: ValidatedBatch::new(&db),
        random: Rng::with_seed(11),
        out: Vec::new(),
        foreseen: Default::default(),
    };
    let mut model = Model::default();
    let mut conflicts = 0;
    for round in 0..600 {
        let mut own = model.clone();
        let mut points = Vec::new();
        for _ in 0..rig.random.usize(1..40) {
            rig.step(&mut own, &mut points);
            if round % 3 == 0 && rig.random.u32(..10) == 0 {
                rig.interfere([&mut model, &mut own]);
                points.clear();
            }
        }
        let batch = &mut rig.batch;
        match run(&mut rig.reactor, |reactor| {
            batch.try_commit(reactor).unwrap()
        }) {
            Outcome::Committed(_) => model = own,
            Outcome::Conflict { .. } => conflicts += 1,
        }
        for (table, model) in rig.tables.iter().zip(&model) {
            let entries: BTreeMap<_, _> = table.iter().map(Result::unwrap).collect();
            assert_eq!(entries, *model, "round {round}");
        }
        rig.batch.reset();
    }
    assert!(conflicts < 20, "of keys that share a stripe: {conflicts}");
    db.close().unwrap();
    drop(rig);
    let report = verify(directory.path(), |_, _| ()).unwrap();
    assert_eq!(report.damages, []);
}

/// What the look-up of a key among the writes has told is of no use once something was written: a
/// value in chunks of the same key, too.
#[test]
fn a_key_that_was_read_is_written_once() {
    let db = Db::builder().chunk_size(4096).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut batch = ValidatedBatch::new(&db);
    // In descending order: keys are found by hash then, and more of them than are compared one by
    // one.
    for number in (0..40_u8).rev() {
        let mut out = Vec::new();
        let key = [number];
        let found = run(&mut reactor, |_| batch.get(&table, &key, &mut out).unwrap());
        assert!(!found);
        let mut writer = db.value_writer(20_000).unwrap();
        writer.write(&[7; 20_000]).unwrap();
        let large = writer.finish().unwrap();
        batch.put_large(&table, &key, large).unwrap();
        batch.put(&table, &key, b"last").unwrap();
    }
    let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    assert!(matches!(outcome, Outcome::Committed(Some(_))));
    let entries: Vec<_> = table.iter().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 40);
    assert_eq!(table.len(), 40);
    assert!(entries.iter().all(|(_, value)| value == b"last"));
}
