//! Transactions of many keys, with writers that never pause.

use pandodb::nonblocking::{Outcome, Reactor, Reads, ValidatedBatch};
use pandodb::{Batch, Db, Durability, Table};

use crate::fixture::NONE;
use crate::nonblocking::run;

const KEYS: u32 = 120;
/// Number of keys of other writers, which meet nearly all stripes.
const OTHERS: u32 = 40_000;
const ATTEMPTS_MAX: u32 = 8;

struct Place {
    db: Db,
    table: Table,
    reactor: Reactor,
    round: u32,
}

impl Place {
    fn new() -> Self {
        // The transaction's pages fit in memory, and those of the other writers do not.
        let builder = Db::builder().max_memory(4 << 20).frames(128);
        let db = builder.durability(Durability::None).open_in_memory();
        let db = db.unwrap();
        let table = db.table("t").unwrap();
        let reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
        let mut place = Self {
            db,
            table,
            reactor,
            round: 0,
        };
        place.write_own();
        place.write_others();
        place
    }

    /// Writes the same value to all keys of the transaction at once.
    fn write_own(&mut self) {
        self.round += 1;
        let mut batch = Batch::new();
        for key in 0..KEYS {
            batch.put(&self.table, &key.to_be_bytes(), &self.round.to_le_bytes());
        }
        self.db.write(&mut batch, NONE).unwrap();
    }

    fn write_others(&self) {
        for first in (0..OTHERS).step_by(1000) {
            let mut batch = Batch::new();
            for key in first..first + 1000 {
                let value = [self.round as u8; 20];
                batch.put(&self.table, &(KEYS + key).to_be_bytes(), &value);
            }
            self.db.write(&mut batch, NONE).unwrap();
        }
    }

    /// Returns the values that the transaction finds at its keys.
    fn read(&mut self, transaction: &mut ValidatedBatch) -> Vec<Option<u32>> {
        let Self { table, reactor, .. } = self;
        let value_of = |key: u32| {
            let mut out = Vec::new();
            let found = run(reactor, |_| {
                transaction
                    .get(table, &key.to_be_bytes(), &mut out)
                    .unwrap()
            });
            found.then(|| u32::from_le_bytes(out.try_into().unwrap()))
        };
        (0..KEYS).map(value_of).collect()
    }

    fn commit(&mut self, transaction: &mut ValidatedBatch) -> Outcome {
        run(&mut self.reactor, |reactor| {
            transaction.try_commit(reactor).unwrap()
        })
    }
}

/// A run that is answered with what a commit has found may meet what came later. If it finds a
/// contradiction, the next one is to read anew.
#[test]
fn a_run_reads_what_is_there_if_the_refreshed_reads_are_forgotten() {
    let mut place = Place::new();
    let mut transaction = ValidatedBatch::new(&place.db);
    for _ in 0..ATTEMPTS_MAX {
        transaction.begin_again();
        let _values = place.read(&mut transaction);
        let table = place.table.clone();
        transaction.put(&table, b"sum", b"").unwrap();
        place.write_own();
        place.write_others();
        assert!(matches!(
            place.commit(&mut transaction),
            Outcome::Conflict { .. }
        ));
    }
    let refreshed = place.round;
    place.write_own();
    transaction.begin_again();
    assert_eq!(place.read(&mut transaction)[0], Some(refreshed));
    transaction.forget_refreshed();
    transaction.begin_again();
    assert_eq!(place.read(&mut transaction)[0], Some(refreshed + 1));
    assert!(matches!(
        place.commit(&mut transaction),
        Outcome::Committed(None)
    ));
}

/// Repeats the transaction until it commits. Returns what it has read then, and the number of
/// conflicts.
fn run_beside(
    place: &mut Place,
    writes: bool,
    mut between: impl FnMut(&mut Place),
) -> (Vec<Option<u32>>, u32) {
    let mut transaction = ValidatedBatch::new(&place.db);
    for conflicts in 0..ATTEMPTS_MAX {
        transaction.begin_again();
        let values = place.read(&mut transaction);
        if writes {
            let sum: u32 = values.iter().flatten().sum();
            let table = place.table.clone();
            transaction.put(&table, b"sum", &sum.to_le_bytes()).unwrap();
        }
        between(place);
        match place.commit(&mut transaction) {
            Outcome::Committed(lsn) => {
                assert_eq!(lsn.is_some(), writes);
                return (values, conflicts);
            }
            Outcome::Conflict { watched } => assert!(!watched),
        }
    }
    panic!("no end after {ATTEMPTS_MAX} conflicts");
}

/// After a few conflicts that is the key whose value differs, and none that shares a stripe.
#[test]
fn a_conflict_names_the_key_that_has_changed() {
    let mut place = Place::new();
    let other = place.db.table("other").unwrap();
    let mut transaction = ValidatedBatch::new(&place.db);
    let key = 77_u32.to_be_bytes();
    for round in 0..6_u32 {
        transaction.begin_again();
        assert_eq!(transaction.changed_key(&place.table), None, "it runs again");
        place.read(&mut transaction);
        transaction.put(&place.table, b"sum", b"1").unwrap();
        place.write_others();
        let value = (1 << 20 | round).to_le_bytes();
        place.table.put_with(&key, &value, NONE).unwrap();
        let conflict = Outcome::Conflict { watched: false };
        assert_eq!(place.commit(&mut transaction), conflict);
        let named = transaction.changed_key(&place.table);
        assert!(named.is_some(), "a key that it has read was written");
        if round >= 3 {
            assert_eq!(named, Some(&key[..]), "round {round}");
        }
        assert_eq!(transaction.changed_key(&other), None);
    }
}

/// Writers of other keys in the same stripes cannot delay a transaction forever.
#[test]
fn reads_of_keys_that_nobody_writes_end() {
    for writes in [false, true] {
        let mut place = Place::new();
        let (values, conflicts) = run_beside(&mut place, writes, |place| place.write_others());
        assert!(conflicts > 0, "other writers met no stripe");
        assert_eq!(values, [Some(place.round); KEYS as usize]);
    }
}

/// Of a long value, only the beginning is read, and only that counts, with the length of all of it:
/// without a conflict if another key of the stripe is written, with one if the value itself is.
#[test]
fn the_beginning_of_a_long_value_is_looked_at_again() {
    let mut place = Place::new();
    let old = vec![7; 200_000];
    // The other writers miss one stripe in twelve, but not those of all these.
    let keys: [&[u8]; 10] = [
        b"long", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i",
    ];
    for key in keys {
        place.table.put_with(key, &old, NONE).unwrap();
    }
    let mut batch = ValidatedBatch::new(&place.db);
    let read = |place: &mut Place, batch: &mut ValidatedBatch, key: &[u8]| {
        let mut out = Vec::new();
        let Place { table, reactor, .. } = place;
        let len = run(reactor, |_| {
            batch.get_head(table, key, 10, &mut out).unwrap()
        });
        let len = len.unwrap();
        assert!(out.len() >= len.min(10) && out.iter().all(|byte| *byte == out[0]));
        (len, out[0])
    };
    assert_eq!(batch.reads_repeated(), 0);
    let mut conflicts = 0;
    loop {
        for _ in 0..2 {
            batch.rewind();
            for key in keys {
                assert_eq!(read(&mut place, &mut batch, key), (200_000, 7));
            }
        }
        assert_eq!((batch.reads_done(), batch.reads_repeated()), (10, 0));
        place.write_others();
        match place.commit(&mut batch) {
            Outcome::Committed(_) => break,
            Outcome::Conflict { .. } => conflicts += 1,
        }
        assert!(conflicts <= ATTEMPTS_MAX, "no end");
        batch.begin_again();
    }
    assert!(conflicts > 0, "other writers met no stripe");
    // Another length is a difference, and another beginning.
    for new in [vec![7; 200_001], vec![8; 200_000], vec![9; 3]] {
        batch.reset();
        for value in [&old, &old, &old, &new] {
            batch.begin_again();
            read(&mut place, &mut batch, b"long");
            place.table.put_with(b"long", value, NONE).unwrap();
            let conflict = Outcome::Conflict { watched: false };
            assert_eq!(place.commit(&mut batch), conflict);
        }
        batch.begin_again();
        assert_eq!(read(&mut place, &mut batch, b"long"), (new.len(), new[0]));
        assert_eq!(place.commit(&mut batch), Outcome::Committed(None));
    }
    let mut out = Vec::new();
    let found = Reads::of(&place.table).get_head(b"long", 1, &mut out, &mut None);
    assert!(matches!(
        found,
        Ok(pandodb::nonblocking::Polled::Ready(Some(3)))
    ));
    assert_eq!(out, [9; 3]);
}

/// A transaction that only reads commits with values of one moment, though its keys are always
/// written.
#[test]
fn reads_of_keys_that_are_always_written_are_of_one_moment() {
    let mut place = Place::new();
    let (values, conflicts) = run_beside(&mut place, false, Place::write_own);
    assert!(conflicts > 0, "nothing has changed");
    let first = values[0].unwrap();
    assert!(first > 1 && first <= place.round);
    assert_eq!(values, [Some(first); KEYS as usize]);
}

/// A transaction that writes commits only with the current values of the keys it has read.
#[test]
fn a_transaction_that_writes_follows_from_what_there_is() {
    let mut place = Place::new();
    let mut left = 5;
    let (values, conflicts) = run_beside(&mut place, true, |place| {
        if left > 0 {
            left -= 1;
            place.write_own();
        }
        place.write_others();
    });
    assert_eq!((left, conflicts), (0, 5));
    assert_eq!(values, [Some(6); KEYS as usize]);
    let sum = place.table.get(b"sum").unwrap().unwrap();
    assert_eq!(sum, (6 * KEYS).to_le_bytes());
}

/// A table that was emptied has none of its old keys.
#[test]
fn a_table_that_is_emptied_meanwhile_is_a_conflict() {
    let mut place = Place::new();
    let mut left = 5;
    let (values, _) = run_beside(&mut place, true, |place| {
        if left > 0 {
            left -= 1;
            place.db.clear_tables(&[&place.table]).unwrap();
        }
        place.write_others();
    });
    assert_eq!(values, [None; KEYS as usize]);
}

/// A value whose first read was not kept may have changed, so it is read again.
#[test]
fn a_value_that_is_too_long_to_be_kept_is_read_again() {
    let mut place = Place::new();
    let mut transaction = ValidatedBatch::new(&place.db);
    transaction.keep_long_values(99_999);
    place.table.put(b"long", &[1; 100_000]).unwrap();
    for attempt in 0..6 {
        transaction.begin_again();
        let table = place.table.clone();
        let mut out = Vec::new();
        let found = run(&mut place.reactor, |_| {
            match transaction.get(&table, b"long", &mut out) {
                Ok(attempt) => attempt,
                Err(error) => panic!("{error}"),
            }
        });
        assert!(found && out == [attempt + 1; 100_000]);
        if attempt < 5 {
            place.table.put(b"long", &[attempt + 2; 100_000]).unwrap();
            let outcome = place.commit(&mut transaction);
            assert_eq!(outcome, Outcome::Conflict { watched: false });
        }
    }
    assert_eq!(place.commit(&mut transaction), Outcome::Committed(None));
}

/// Emptying a table changes no stripe, but reads of it are of a tree that the table no longer has.
/// A transaction that only reads may be placed before that.
#[test]
fn a_table_that_is_emptied_is_a_change_whatever_the_stripes_say() {
    let mut place = Place::new();
    let mut turn = 0;
    let (values, conflicts) = run_beside(&mut place, true, |place| {
        turn += 1;
        match turn {
            // These are enough attempts for a second look.
            1..5 => place.write_own(),
            5 => place.db.clear_tables(&[&place.table]).unwrap(),
            _ => {}
        }
    });
    assert_eq!(
        values,
        vec![None; KEYS as usize],
        "the reads saw emptied data"
    );
    assert_eq!(conflicts, 5);
}

#[test]
fn a_batch_whose_job_met_a_conflict_reads_afresh() {
    let mut place = Place::new();
    let other = place.db.table("other").unwrap();
    let mut batch = ValidatedBatch::new(&place.db);
    // This continues until a second look has found a change.
    for _ in 0..ATTEMPTS_MAX {
        batch.begin_again();
        place.read(&mut batch);
        batch.put(&other, b"key", b"value").unwrap();
        place.write_own();
        let outcome = place.commit(&mut batch);
        assert_eq!(outcome, Outcome::Conflict { watched: false });
    }
    batch.begin_again();
    place.read(&mut batch);
    // Because of this an engine thread must make the commit.
    batch.clear_table(&other);
    place.write_own();
    let outcome = place.commit(&mut batch);
    assert_eq!(outcome, Outcome::Conflict { watched: false });
    batch.begin_again();
    let found = place.read(&mut batch);
    assert!(found.iter().all(|value| *value == Some(place.round)));
    batch.clear_table(&other);
    assert!(matches!(
        place.commit(&mut batch),
        Outcome::Committed(Some(_))
    ));
}

/// A run that is repeated looks at a value in chunks again, and gets what it got before of other
/// keys: but not behind a value that is another one by now, as the two would not belong together.
#[test]
fn what_is_read_behind_a_value_in_chunks_belongs_to_it() {
    let builder = Db::builder().max_memory(16 << 20);
    let builder = builder.chunk_size(4096).chunk_values_over(6000);
    let db = builder.durability(Durability::None).open_in_memory();
    let db = db.unwrap();
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let put = |state: u8| {
        for (key, bytes) in [(&b"long"[..], 20_000), (b"part", 1)] {
            table.put_with(key, &vec![state; bytes], NONE).unwrap();
        }
    };
    put(1);
    let mut batch = ValidatedBatch::new(&db);
    for (round, state) in [1, 1, 2, 2].into_iter().enumerate() {
        if round == 2 {
            put(state);
        }
        batch.rewind();
        let mut out = Vec::new();
        run(&mut reactor, |_| {
            batch.open(&table, b"long", &mut out).unwrap()
        });
        let found = run(&mut reactor, |_| {
            batch.get(&table, b"part", &mut out).unwrap()
        });
        assert!(found && out == [state], "state {state}");
        // The second run gets what the first one got.
        assert!(round != 1 || batch.reads_repeated() == 1);
    }
}
