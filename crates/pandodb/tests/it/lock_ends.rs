//! How long a transaction has a lock that precedence took for it, for a time, once it asks for it.

use pandodb::{Db, Isolation, Occupancy, Table, Transaction};

use crate::locks::{SHORT, assert_timeout, at, begin, open};

/// Runs `call` in a transaction for which precedence has locked the key `k`, until SHORT from then.
fn with_precedence(
    (db, table): &(Db, Table),
    mut call: impl FnMut(&mut Transaction) -> pandodb::Result<()>,
) {
    let mut runs = 0;
    let options = at(Isolation::Serializable);
    let end = db.transact_with(options, |transaction| {
        runs += 1;
        if runs <= 5 {
            transaction.get(table, b"k")?;
            table.put(b"k", b"conflict")?;
            return transaction.put(table, b"k", b"lost");
        }
        assert_eq!(runs, 6, "nobody is in its way any longer");
        call(transaction)
    });
    end.unwrap();
}

/// That precedence has locked a key for a time does not shorten the lock that is asked for.
#[test]
fn a_lock_lasts_although_precedence_had_locked_the_key() {
    let place = open(SHORT);
    let (_, table) = &place;
    with_precedence(&place, |transaction| {
        transaction.lock(table, &[b"k"])?;
        // It gives up later than the lock of precedence would end.
        assert_timeout(table.put(b"k", b"other"), Some(b"k"));
        transaction.put(table, b"k", b"mine")
    });
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"mine");
}

/// What precedence has locked was taken away before it is asked for.
#[test]
fn a_lock_that_precedence_has_lost_is_taken_again() {
    let place = open(SHORT);
    let (db, table) = &place;
    with_precedence(&place, |transaction| {
        table.put(b"k", b"other")?;
        let found = transaction.get_for_update(table, b"k")?;
        assert_eq!(found.unwrap(), b"other");
        assert_timeout(table.put(b"k", b"late"), Some(b"k"));
        transaction.put(table, b"k", b"mine")
    });
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"mine");
    with_precedence(&place, |transaction| {
        table.put(b"k", b"other")?;
        let mut holder = begin(db);
        holder.lock(table, &[b"k"])?;
        assert_timeout(transaction.lock(table, &[b"k"]), Some(b"k"));
        drop(holder);
        transaction.lock(table, &[b"k"])?;
        assert_timeout(table.put(b"k", b"late"), Some(b"k"));
        transaction.put(table, b"k", b"last")
    });
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"last");
    assert_eq!(db.occupancy(), Occupancy::default());
}
