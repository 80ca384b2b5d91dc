//! Batches that free room may use what a full disk keeps for deletes (decision 058).

use pando_sync::time::Duration;
use pandodb::device::faulty::FaultyDevice;
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};
use pandodb::{Batch, Db, Error, Table, TableOptions, VerifyReport};

use crate::fixture::{NONE, open_on, scattered_key};
use crate::nonblocking::run;

/// A store on a full disk.
struct Full {
    device: FaultyDevice,
    db: Db,
    table: Table,
    notes: Table,
    /// Number of values in `table`.
    values: u32,
    reactor: Reactor,
    batch: ValidatedBatch,
}

impl Full {
    fn new() -> Self {
        let device = FaultyDevice::new(1);
        device.set_capacity(13 << 20);
        let options = Db::builder().max_memory(16 << 20).log_bytes(2 << 20);
        let options = options.checkpoint_interval(Duration::from_secs(3600));
        let db = open_on(&device, options);
        let table = db.table("t").unwrap();
        let counted = TableOptions::new().counted(true);
        let notes = db.table_with("notes", counted).unwrap();
        notes.put(b"first", b"").unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut values, mut refused) = (0, 0);
        // A checkpoint may make room for a few more.
        while refused < 3 {
            let value: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
            match table.put_with(&scattered_key(values), &value, NONE) {
                Ok(()) => (values, refused) = (values + 1, 0),
                Err(Error::Full { .. }) => {
                    refused += 1;
                    db.checkpoint().unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        let reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
        let batch = ValidatedBatch::new(&db);
        Self {
            device,
            db,
            table,
            notes,
            values,
            reactor,
            batch,
        }
    }

    /// Commits what the batch has, and empties it.
    fn commit(&mut self) -> Result<(), Error> {
        let batch = &mut self.batch;
        let outcome = run(&mut self.reactor, |reactor| {
            match batch.try_commit(reactor) {
                Ok(Polled::Pending(pending)) => Polled::Pending(pending),
                Ok(Polled::Ready(outcome)) => Polled::Ready(Ok(outcome)),
                Err(error) => Polled::Ready(Err(error)),
            }
        });
        batch.reset();
        assert!(
            !matches!(outcome, Ok(Outcome::Conflict { .. })),
            "nobody writes"
        );
        outcome.map(drop)
    }

    /// Closes the store, and has it verified.
    fn close(self) {
        let Self { device, db, .. } = self;
        drop((self.table, self.notes, self.batch, self.reactor));
        db.close().unwrap();
        let report = VerifyReport::of_device(&device.into()).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
}

#[test]
fn a_full_disk_takes_deletes_with_small_puts_that_go_with_them() {
    let mut full = Full::new();
    let values = full.values;
    assert!(values > 1000, "{values}");
    // Others are refused as ever, also beside those.
    full.batch.delete(&full.table, &scattered_key(0));
    full.batch.put(&full.notes, b"note", b"").unwrap();
    assert!(matches!(full.commit(), Err(Error::Full { .. })));
    full.batch.delete(&full.table, &scattered_key(0));
    let note = (&b""[..], &b""[..]);
    full.batch.put_freeing(&full.notes, b"note", note).unwrap();
    full.batch.put(&full.table, b"other", b"").unwrap();
    assert!(matches!(full.commit(), Err(Error::Full { .. })));
    // Each takes room before it gives some back.
    for number in 0..values {
        full.batch.delete(&full.table, &scattered_key(number));
        let key = number.to_be_bytes();
        full.batch.put_freeing(&full.notes, &key, note).unwrap();
        full.commit().unwrap();
    }
    assert!(full.table.is_empty());
    assert_eq!(full.notes.len(), 1 + u64::from(values));
    full.close();
}

/// If they free nothing after all, deletes still find what is left for them.
#[test]
fn puts_that_free_room_leave_some_of_it_to_deletes() {
    let mut full = Full::new();
    let (mut random, mut put) = (fastrand::Rng::with_seed(2), 0_u32);
    loop {
        let value: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
        let note = (&value[..], &b""[..]);
        let key = scattered_key(put);
        full.batch.put_freeing(&full.notes, &key, note).unwrap();
        match full.commit() {
            Ok(()) => put += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(put < 10_000, "they are never refused");
    }
    assert!(put > 0, "none was taken");
    // More pages than one more put would take.
    for first in (0..full.values).step_by(32) {
        let mut batch = Batch::new();
        for number in first..full.values.min(first + 32) {
            batch.delete(&full.table, &scattered_key(number));
        }
        full.db.write(&mut batch, NONE).unwrap();
    }
    assert!(full.table.is_empty());
    full.close();
}
