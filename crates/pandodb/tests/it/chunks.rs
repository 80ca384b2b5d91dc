//! Values in chunks: they are put, read, changed in part, deleted and recovered, and their extents
//! are freed.

use std::io::Read;

use fastrand::Rng;
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::device::faulty::{Fault, FaultPlan, Operation};
use pandodb::device::{AnyDevice, InjectorDevice, MemoryDevice};
use pandodb::nonblocking::{
    EditOld, NewBytes, Opened, Outcome, PendingEdit, Polled, Reactor, ValidatedBatch, ValueSink,
    ValueSource,
};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Db, Durability, Error, LargeValue, Table, VerifyReport};

use crate::fixture::{NONE, verified, wait_for_garbage};

pub(crate) const CHUNK: usize = 4096;

pub(crate) fn builder() -> pandodb::Builder {
    Db::builder()
        .max_memory(8 << 20)
        .durability(Durability::None)
        .chunk_size(CHUNK as u64)
        .chunk_values_over(6000)
}

/// Returns `bytes` bytes that depend on their position and on `seed`.
pub(crate) fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Rng::with_seed(seed).fill(&mut value);
    value
}

fn read_all(table: &Table, key: &[u8]) -> Option<Vec<u8>> {
    let mut reader = table.get_reader(key).unwrap()?;
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u64, reader.len());
    Some(all)
}

pub(crate) fn check(table: &Table, key: &[u8], expected: Option<&[u8]>) {
    assert_eq!(table.get(key).unwrap().as_deref(), expected);
    assert_eq!(read_all(table, key).as_deref(), expected);
    let found = table.iter().find(|entry| entry.as_ref().unwrap().0 == key);
    assert_eq!(found.map(|entry| entry.unwrap().1).as_deref(), expected);
    let many = table.get_many(&[key, b"nothing"]).unwrap();
    assert_eq!(many[0].as_deref(), expected);
    assert_eq!(table.contains(key).unwrap(), expected.is_some());
    let len = expected.map(|value| value.len() as u64);
    assert_eq!(table.value_len(key).unwrap(), len);
}

#[test]
fn values_of_all_lengths_come_back_before_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let lengths = [
        0,
        1,
        6000,
        6001,
        CHUNK * 2,
        CHUNK * 2 + 1,
        CHUNK * 50 - 1,
        CHUNK * 700,
    ];
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    for (seed, bytes) in lengths.into_iter().enumerate() {
        let value = value(seed as u64, bytes);
        table.put(&[seed as u8], &value).unwrap();
        check(&table, &[seed as u8], Some(&value));
        // The value is replaced by a large one, then by a short one, and then put again.
        table
            .put_streamed(&[seed as u8], bytes as u64, &value[..])
            .unwrap();
        table.put(&[seed as u8], b"short").unwrap();
        check(&table, &[seed as u8], Some(b"short"));
        table.put(&[seed as u8], &value).unwrap();
    }
    assert_eq!(table.len(), lengths.len() as u64);
    wait_for_garbage(&db);
    drop(table);
    db.close().unwrap();
    let report = verified(directory.path());
    let chunks: usize = lengths
        .iter()
        .filter(|bytes| **bytes > 6000)
        .map(|bytes| bytes.div_ceil(CHUNK))
        .sum();
    assert_eq!(report.stat.chunks, chunks as u64);
    assert_eq!(report.stat.tables[0].chunks, chunks as u64);
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    for (seed, bytes) in lengths.into_iter().enumerate() {
        check(&table, &[seed as u8], Some(&value(seed as u64, bytes)));
    }
    for seed in 0..lengths.len() {
        assert!(table.delete(&[seed as u8]).unwrap());
        check(&table, &[seed as u8], None);
    }
    wait_for_garbage(&db);
    assert_eq!(db.occupancy(), pandodb::Occupancy::default());
    drop(table);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 0);
}

/// Makes the same changes to a store and to a vector.
#[test]
fn parts_of_a_value_are_changed_as_in_a_vector() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let mut twin: Vec<u8> = Vec::new();
    let mut random = Rng::with_seed(7);
    for round in 0..120_u64 {
        let bytes = value(round, random.usize(..3 * CHUNK));
        if random.usize(..3) == 0 {
            let len = table.append(b"k", &bytes).unwrap();
            twin.extend_from_slice(&bytes);
            assert_eq!(len, twin.len() as u64);
        } else {
            let offset = random.usize(..twin.len() + 2 * CHUNK);
            let len = table.put_range(b"k", offset as u64, &bytes).unwrap();
            if !bytes.is_empty() {
                twin.resize(twin.len().max(offset + bytes.len()), 0);
                twin[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            assert_eq!(len, twin.len() as u64);
        }
        let from = random.usize(..twin.len() + 10);
        let mut part = vec![0; random.usize(..2 * CHUNK)];
        let found = table.get_range(b"k", from as u64, &mut part).unwrap();
        let count = twin.len().saturating_sub(from).min(part.len());
        assert_eq!(found, Some(count));
        assert_eq!(part[..count], twin[from.min(twin.len())..][..count]);
        if round % 20 == 7 {
            check(&table, b"k", Some(&twin));
        }
        if round % 40 == 11 {
            db.checkpoint().unwrap();
        }
        if random.usize(..30) == 0 {
            twin = value(round, random.usize(..20 * CHUNK));
            table.put(b"k", &twin).unwrap();
        }
    }
    check(&table, b"k", Some(&twin));
    wait_for_garbage(&db);
    drop(table);
    db.close().unwrap();
    verified(directory.path());
}

#[test]
fn a_change_of_a_part_writes_the_chunks_that_it_touches() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let mut twin = value(1, 1000 * CHUNK + 5);
    table.put(b"k", &twin).unwrap();
    let written = |db: &Db| db.statistics().get(Ticker::ChunkWrites);
    let before = written(&db);
    table
        .put_range(b"k", 500 * CHUNK as u64 - 2, b"four")
        .unwrap();
    twin[500 * CHUNK - 2..500 * CHUNK + 2].copy_from_slice(b"four");
    assert_eq!(written(&db) - before, 2);
    table.append(b"k", b"more").unwrap();
    twin.extend_from_slice(b"more");
    assert_eq!(written(&db) - before, 3);
    check(&table, b"k", Some(&twin));
}

#[test]
fn a_slow_reader_sees_the_value_that_it_opened() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let dropped = db.table("dropped").unwrap();
    let old = value(1, 60 * CHUNK);
    table.put(b"k", &old).unwrap();
    dropped.put(b"k", &old).unwrap();
    let mut readers = [
        table.get_reader(b"k").unwrap().unwrap(),
        dropped.get_reader(b"k").unwrap().unwrap(),
    ];
    let mut seen = [vec![0; 100], vec![0; 100]];
    for (reader, seen) in readers.iter_mut().zip(&mut seen) {
        reader.read_exact(seen).unwrap();
    }
    db.drop_table("dropped").unwrap();
    for round in 2..12 {
        table.put(b"k", &value(round, 60 * CHUNK)).unwrap();
        db.checkpoint().unwrap();
    }
    table.delete(b"k").unwrap();
    for _ in 0..3 {
        db.checkpoint().unwrap();
        thread::yield_now();
    }
    assert!(db.garbage_left());
    for (mut reader, mut seen) in readers.into_iter().zip(seen) {
        reader.read_to_end(&mut seen).unwrap();
        assert!(seen == old);
    }
    wait_for_garbage(&db);
    drop((table, dropped));
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 0);
}

/// Waits until at most `most` bytes of the data file are in use.
fn wait_for_use(db: &Db, most: u64) {
    let limit = time::now() + Duration::from_secs(20);
    loop {
        db.checkpoint().unwrap();
        let report = db.report();
        let used = report.data_bytes - report.data_free_bytes;
        if used <= most {
            return;
        }
        assert!(time::now() < limit, "{used} bytes are used, {most} at most");
        thread::yield_now();
    }
}

#[test]
fn a_reader_that_stops_keeps_what_it_reads_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    const BYTES: usize = 200 * CHUNK;
    let old = value(1, BYTES);
    table.put(b"k", &old).unwrap();
    let mut reader = table.get_reader(b"k").unwrap().unwrap();
    let mut seen = vec![0; 100];
    reader.read_exact(&mut seen).unwrap();
    // The value is changed in part and then replaced. Other values follow, also under other keys.
    let part = value(2, CHUNK);
    for chunk in [3, 60, 61, 199] {
        table
            .put_range(b"k", (chunk * CHUNK) as u64, &part)
            .unwrap();
    }
    for round in 10..40 {
        table.put(b"k", &value(round, BYTES)).unwrap();
        table.put(b"other", &value(round, BYTES)).unwrap();
    }
    // These are two current values and the one that is being read.
    wait_for_use(&db, 3 * BYTES as u64 + (1 << 20));
    assert!(db.garbage_left());
    reader.read_to_end(&mut seen).unwrap();
    assert!(seen == old);
    drop(reader);
    wait_for_garbage(&db);
    wait_for_use(&db, 2 * BYTES as u64 + (1 << 20));
    drop(table);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).damages, []);
}

/// Rows that wait for one reader do not delay others, and each is freed when its reader ends.
#[test]
fn each_reader_that_goes_frees_what_only_it_has_read() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    const BYTES: usize = 500 * CHUNK;
    let mut readers = Vec::new();
    for round in 0..10 {
        table.put(b"k", &value(round, BYTES)).unwrap();
        readers.push(table.get_reader(b"k").unwrap().unwrap());
    }
    table.delete(b"k").unwrap();
    for left in (0..10_u64).rev() {
        // Readers end from both ends of the list.
        let at = if left % 2 == 0 { 0 } else { readers.len() - 1 };
        let mut reader = readers.remove(at);
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(seen.len(), BYTES);
        drop(reader);
        wait_for_use(&db, left * BYTES as u64 + (1 << 20));
        assert!(db.garbage_left() || left == 0);
    }
    wait_for_garbage(&db);
    drop(table);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 0);
}

#[test]
fn readers_and_writers_of_one_key_never_mix_values() {
    const ROUNDS: u64 = 150;
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    table.put(b"k", &value(0, 9 * CHUNK)).unwrap();
    let reader = |table: Table| {
        move || {
            let mut last = 0;
            while last + 1 < ROUNDS {
                let found = match last % 2 {
                    0 => table.get(b"k").unwrap().unwrap(),
                    _ => read_all(&table, b"k").unwrap(),
                };
                let seed = (last..ROUNDS)
                    .find(|seed| value(*seed, 9 * CHUNK + *seed as usize)[..16] == found[..16])
                    .expect("a value that was put, and no older one");
                assert!(found == value(seed, 9 * CHUNK + seed as usize));
                last = seed;
            }
        }
    };
    let readers: Vec<_> = (0..2)
        .map(|_| thread::spawn(reader(table.clone())))
        .collect();
    for seed in 0..ROUNDS {
        let value = value(seed, 9 * CHUNK + seed as usize);
        table.put(b"k", &value).unwrap();
        if seed % 16 == 3 {
            db.checkpoint().unwrap();
        }
    }
    for reader in readers {
        reader.join().unwrap();
    }
    wait_for_garbage(&db);
    drop(table);
    db.close().unwrap();
    verified(directory.path());
}

/// Values that are dropped or refused before they are put free their blocks.
#[test]
fn what_is_given_up_leaves_no_blocks_behind() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    db.checkpoint().unwrap();
    let free = |db: &Db| db.report().data_bytes - db.report().data_free_bytes;
    let before = free(&db);
    let mut writer = db.value_writer(100 * CHUNK as u64).unwrap();
    writer.write(&value(1, 50 * CHUNK + 7)).unwrap();
    assert_eq!(writer.missing(), 50 * CHUNK as u64 - 7);
    drop(writer);
    let mut writer = db.value_writer(10 * CHUNK as u64).unwrap();
    writer.write(&value(1, 10 * CHUNK)).unwrap();
    drop(writer.finish().unwrap());
    assert_eq!(free(&db), before);
    let mut writer = db.value_writer(10).unwrap();
    let too_long = writer.write(&[0; 11]);
    assert!(matches!(too_long, Err(Error::ValueTooLong { .. })));
    assert!(matches!(writer.finish(), Err(Error::InvalidValue { .. })));
    let ends_early = table.put_streamed(b"k", 9 * CHUNK as u64, &[0; 100][..]);
    assert!(matches!(ends_early, Err(Error::InvalidValue { .. })));
    let too_long = db.value_writer((512 << 20) + 1);
    assert!(matches!(too_long, Err(Error::ValueTooLong { .. })));
    let refused = db.value_writer(0).unwrap_err();
    assert!(refused.to_string().contains("no bytes"), "{refused}");
    assert_eq!(free(&db), before);
}

#[test]
fn batches_futures_and_closures_take_large_values() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    let large = value(3, 30 * CHUNK);
    let mut batch = Batch::new();
    batch.put(&one, b"a", &large);
    batch.put(&two, b"b", b"short");
    let mut writer = db.value_writer(large.len() as u64).unwrap();
    writer.write(&large).unwrap();
    batch.put_large(&two, b"c", writer.finish().unwrap());
    db.write(&mut batch, NONE).unwrap();
    check(&one, b"a", Some(&large));
    check(&two, b"c", Some(&large));
    let mut seen = None;
    let longer = one.update(b"a", |old| {
        seen = old.map(<[u8]>::to_vec);
        Some([old.unwrap(), b"more"].concat())
    });
    assert!(seen.unwrap() == large);
    let longer = longer.unwrap().unwrap();
    check(&one, b"a", Some(&longer));
    assert!(
        one.compare_and_put(b"a", Some(&longer), Some(&large))
            .unwrap()
    );
    assert!(!one.compare_and_put(b"a", Some(&longer), None).unwrap());
    let got = pollster(one.get_async(b"a")).unwrap();
    assert!(got.unwrap() == large);
    pollster(one.put_async(b"a", &longer)).unwrap();
    check(&one, b"a", Some(&longer));
    assert!(pollster(one.delete_async(b"a")).unwrap());
    drop(batch);
    db.drop_table("two").unwrap();
    wait_for_garbage(&db);
    drop((one, two));
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 0);
}

/// Runs a future on this thread.
fn pollster<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = pando_sync::thread_waker();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        pando_sync::park();
    }
}

#[test]
fn a_store_without_room_for_a_value_says_so_and_goes_on() {
    let device = MemoryDevice::new(24 << 20);
    let device = AnyDevice::from(device);
    let options = builder().log_bytes(1 << 20);
    let db = Db::open_device(options, device.clone()).unwrap();
    let table = db.table("t").unwrap();
    let five = value(5, 5 << 20);
    let refused = table.put(b"big", &value(1, 40 << 20));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    // There is room for little more than two such values, so the blocks of replaced values are used
    // again.
    for round in 0..12 {
        let put = table.put(b"k", &five);
        assert!(
            put.is_ok(),
            "{round}: {put:?} {:?} {}",
            db.report(),
            db.garbage_left()
        );
    }
    assert!(table.get(b"k").unwrap().unwrap() == five);
    drop(table);
    db.close().unwrap();
    let report = VerifyReport::of_device(&device).unwrap();
    assert_eq!(report.damages, []);
}

/// A transaction and its reactor, parked by this thread.
struct Loop {
    reactor: Reactor,
    transaction: ValidatedBatch,
}

impl Loop {
    fn new(db: &Db) -> Self {
        Self {
            reactor: Reactor::new(db, pando_sync::thread_waker()).unwrap(),
            transaction: ValidatedBatch::new(db),
        }
    }

    fn drive<T>(
        &mut self,
        mut step: impl FnMut(&mut ValidatedBatch, &mut Reactor) -> pandodb::Result<Polled<T>>,
    ) -> T {
        let waker = pando_sync::thread_waker();
        loop {
            match step(&mut self.transaction, &mut self.reactor).unwrap() {
                Polled::Ready(value) => return value,
                Polled::Pending(pending) => {
                    self.reactor.park(pending, &waker).unwrap();
                    self.reactor.flush();
                    thread::yield_now();
                    self.reactor.poll().unwrap();
                }
            }
        }
    }

    fn open(&mut self, table: &Table, key: &[u8]) -> (Opened, Vec<u8>) {
        let mut out = Vec::new();
        let opened = self.drive(|transaction, _| transaction.open(table, key, &mut out));
        (opened, out)
    }

    fn commit(&mut self) -> Outcome {
        let outcome = self.drive(|transaction, reactor| transaction.try_commit(reactor));
        self.transaction.reset();
        outcome
    }
}

pub(crate) fn pour(db: &Db, bytes: &[u8]) -> LargeValue {
    let waker = pando_sync::thread_waker();
    let mut sink = ValueSink::new(db, bytes.len() as u64).unwrap();
    let mut done = 0;
    while done < bytes.len() {
        let piece = &bytes[done..bytes.len().min(done + 1000)];
        match sink.write(piece, &waker).unwrap() {
            0 => pando_sync::park(),
            count => done += count,
        }
    }
    loop {
        match sink.finish(&waker).unwrap() {
            Some(value) => return value,
            None => pando_sync::park(),
        }
    }
}

fn drain(mut source: ValueSource) -> Vec<u8> {
    let waker = pando_sync::thread_waker();
    let mut all = Vec::new();
    while source.left() > 0 {
        let piece = source.piece(&waker).unwrap();
        let count = piece.len().min(777);
        all.extend_from_slice(&piece[..count]);
        source.consume(count);
        if count == 0 {
            pando_sync::park();
        }
    }
    all
}

/// One engine thread serves all of these requests. If a value waited for a checkpoint that waits
/// for room, the others would wait as long.
#[test]
fn a_value_that_finds_the_disk_full_does_not_keep_readers_waiting() {
    let device = InjectorDevice::new(MemoryDevice::new(1 << 28).into(), 1);
    let db = Db::open_device(builder(), device.clone().into()).unwrap();
    let table = db.table("t").unwrap();
    let bytes = value(1, 9 * CHUNK);
    table.put(b"read", &bytes).unwrap();
    for (operation, file) in [
        (Operation::Allocate, "data"),
        (Operation::Write, "superblock"),
    ] {
        device.fail(FaultPlan::sticky(operation, file, 1, Fault::Full));
    }
    let waker = pando_sync::thread_waker();
    let mut sink = ValueSink::new(&db, 64 << 20).unwrap();
    let piece = vec![7; CHUNK];
    let deadline = time::now() + Duration::from_secs(20);
    let error = loop {
        match sink.write(&piece, &waker) {
            Ok(0) => thread::park_timeout(Duration::from_millis(100)),
            Ok(_) => {}
            Err(error) => break error,
        }
        assert!(time::now() < deadline, "the sink neither goes on nor fails");
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let stream = table.get_reader(b"read").unwrap().unwrap();
    assert!(drain(ValueSource::new(stream, 0..u64::MAX)) == bytes);
    device.clear_faults();
    assert_eq!(pour(&db, &value(2, 99 * CHUNK)).len(), 99 * CHUNK as u64);
    db.close().unwrap();
}

#[test]
fn event_loops_stream_change_and_put_behind_another_head() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let mut event_loop = Loop::new(&db);
    let bytes = value(9, 25 * CHUNK + 3);
    let large = pour(&db, &bytes).with_head(b"head".to_vec()).unwrap();
    event_loop
        .transaction
        .put_large(&table, b"k", large.clone())
        .unwrap();
    assert!(matches!(event_loop.commit(), Outcome::Committed(Some(_))));
    // A second key for the same value is refused.
    event_loop
        .transaction
        .put_large(&table, b"other", large)
        .unwrap();
    let again = event_loop.transaction.try_commit(&mut event_loop.reactor);
    assert!(matches!(again, Err(Error::InvalidValue { .. })));
    event_loop.transaction.reset();
    check(&table, b"k", Some(&[b"head", &bytes[..]].concat()));

    let (opened, head) = event_loop.open(&table, b"k");
    let Opened::Large(stream) = opened else {
        panic!("{opened:?}");
    };
    assert_eq!(head, b"head");
    let fingerprint = stream.fingerprint();
    let renamed = stream.with_head(b"longer head".to_vec()).unwrap();
    let source = ValueSource::new(stream, 2..5 * CHUNK as u64);
    let whole = [b"head", &bytes[..]].concat();
    assert!(drain(source) == whole[2..5 * CHUNK]);
    event_loop
        .transaction
        .put_large(&table, b"k", renamed)
        .unwrap();
    event_loop.commit();
    check(&table, b"k", Some(&[b"longer head", &bytes[..]].concat()));

    // A value that was streamed earlier replaces bytes in the middle.
    let (opened, _) = event_loop.open(&table, b"k");
    let Opened::Large(stream) = opened else {
        panic!("{opened:?}");
    };
    assert_eq!(stream.fingerprint(), fingerprint);
    let inner = pour(&db, &value(10, 3 * CHUNK));
    let edit = PendingEdit::new(&db, EditOld::Large(stream), 100, NewBytes::Large(inner));
    let waker = pando_sync::thread_waker();
    let edited = loop {
        match edit.poll(&waker) {
            std::task::Poll::Ready(edited) => break edited.unwrap(),
            std::task::Poll::Pending => pando_sync::park(),
        }
    };
    event_loop
        .transaction
        .put_large(&table, b"k", edited)
        .unwrap();
    event_loop.commit();
    let mut expected = bytes;
    expected[100..100 + 3 * CHUNK].copy_from_slice(&value(10, 3 * CHUNK));
    check(&table, b"k", Some(&expected));
    let (opened, _) = event_loop.open(&table, b"nothing");
    assert!(matches!(opened, Opened::Absent));
    drop((event_loop, fingerprint, table));
    wait_for_garbage(&db);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 26);
}

/// Lets an engine thread make a value from `old` with `new` at `offset`.
fn edited(db: &Db, old: EditOld, offset: u64, new: &[u8]) -> LargeValue {
    made(db, (old, offset), NewBytes::Bytes(new.to_vec())).unwrap()
}

pub(crate) fn made(
    db: &Db,
    (old, offset): (EditOld, u64),
    new: NewBytes,
) -> pandodb::Result<LargeValue> {
    let edit = PendingEdit::new(db, old, offset, new);
    let waker = pando_sync::thread_waker();
    loop {
        match edit.poll(&waker) {
            std::task::Poll::Ready(edited) => return edited,
            std::task::Poll::Pending => pando_sync::park(),
        }
    }
}

#[test]
fn a_transaction_reads_and_changes_the_large_value_that_it_puts() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let mut event_loop = Loop::new(&db);
    let large = |opened| match opened {
        Opened::Large(stream) => stream,
        other => panic!("{other:?}"),
    };
    let mut expected = value(3, 10 * CHUNK);
    let poured = pour(&db, &expected).with_head(b"head".to_vec()).unwrap();
    let transaction = &mut event_loop.transaction;
    transaction.put_large(&table, b"k", poured).unwrap();
    let (opened, head) = event_loop.open(&table, b"k");
    assert_eq!(head, b"head");
    let first = large(opened);
    let kept = ValueSource::new(first.reopen(), 4..u64::MAX);
    // The value is changed twice before it is put. The same chunks with another head count as the
    // same value.
    for (round, offset) in [(7, 5 * CHUNK as u64), (8, 5 * CHUNK as u64 + 10)] {
        let (opened, _) = event_loop.open(&table, b"k");
        let stream = large(opened);
        assert_eq!(stream.fingerprint() == first.fingerprint(), round == 7);
        let bytes = value(round, 100);
        let made = edited(&db, EditOld::Large(stream), offset, &bytes);
        expected[offset as usize..offset as usize + 100].copy_from_slice(&bytes);
        let made = made.with_head(b"other".to_vec()).unwrap();
        let transaction = &mut event_loop.transaction;
        transaction.put_large(&table, b"k", made).unwrap();
    }
    let (opened, _) = event_loop.open(&table, b"k");
    let last = ValueSource::new(large(opened), 0..u64::MAX);
    event_loop.commit();
    check(&table, b"k", Some(&[b"other", &expected[..]].concat()));

    table.put(b"k", b"short").unwrap();
    churn(&db);
    assert!(drain(kept) == value(3, 10 * CHUNK));
    assert!(drain(last) == [b"other", &expected[..]].concat());
    drop((first, event_loop, table));
    wait_for_garbage(&db);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 10);
}

/// Allocates free blocks over and over.
fn churn(db: &Db) {
    let table = db.table("churn").unwrap();
    for number in 0..50 {
        table
            .put(b"other", &value(100 + number, 10 * CHUNK))
            .unwrap();
        db.checkpoint().unwrap();
    }
}

#[test]
fn what_a_value_keeps_of_another_one_can_be_read_after_that_was_replaced() {
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut expected = value(3, 10 * CHUNK);
    table.put(b"k", &expected).unwrap();
    let mut event_loop = Loop::new(&db);
    let (opened, _) = event_loop.open(&table, b"k");
    let Opened::Large(stream) = opened else {
        panic!("{opened:?}");
    };
    let renamed = stream.with_head(b"head".to_vec()).unwrap();
    let made = edited(&db, EditOld::Large(stream), 0, b"x");
    expected[0] = b'x';
    table.put(b"k", b"short").unwrap();
    churn(&db);
    for (value, head) in [(made, &b""[..]), (renamed, &b"head"[..])] {
        let transaction = &mut event_loop.transaction;
        transaction.put_large(&table, b"k", value).unwrap();
        let (opened, _) = event_loop.open(&table, b"k");
        let Opened::Large(stream) = opened else {
            panic!("{opened:?}");
        };
        let read = drain(ValueSource::new(stream, head.len() as u64..u64::MAX));
        assert!(read[1..] == expected[1..]);
    }
    // The value can only replace the value that it was made from.
    let step = event_loop.transaction.try_commit(&mut event_loop.reactor);
    let conflict = Outcome::Conflict { watched: false };
    assert!(matches!(step, Ok(Polled::Ready(outcome)) if outcome == conflict));
}

/// Compaction does not move chunks that a reader reads by place.
#[test]
fn what_is_read_where_it_was_written_is_not_moved() {
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    // These values lie before the other one, which can move when they are gone.
    for number in 0..16 {
        table.put(&[number], &value(2, 128 * CHUNK)).unwrap();
    }
    let bytes = value(3, 10 * CHUNK);
    let large = pour(&db, &bytes);
    for number in 0..16 {
        assert!(table.delete(&[number]).unwrap());
    }
    wait_for_garbage(&db);
    let mut event_loop = Loop::new(&db);
    let transaction = &mut event_loop.transaction;
    transaction.put_large(&table, b"k", large).unwrap();
    let (opened, _) = event_loop.open(&table, b"k");
    let Opened::Large(stream) = opened else {
        panic!("{opened:?}");
    };
    assert!(matches!(event_loop.commit(), Outcome::Committed(Some(_))));
    let compact = || {
        let report = db.compact(|_| std::ops::ControlFlow::Continue(()));
        report.unwrap().chunks_moved
    };
    let again = stream.reopen();
    assert_eq!(compact(), 0);
    drop(stream);
    assert_eq!(compact(), 0);
    assert!(drain(ValueSource::new(again, 0..u64::MAX)) == bytes);
    assert_eq!(compact(), 10);
    check(&table, b"k", Some(&bytes));
}

/// Returns a device that injects faults over memory.
fn faulty() -> InjectorDevice<AnyDevice> {
    InjectorDevice::new(MemoryDevice::new(1 << 30).into(), 3)
}

#[test]
fn a_value_of_which_a_part_was_not_written_is_lost_and_its_blocks_are_free() {
    let device = faulty();
    let db = Db::open_device(builder(), device.clone().into()).unwrap();
    let table = db.table("t").unwrap();
    db.checkpoint().unwrap();
    let used = |db: &Db| db.report().data_bytes - db.report().data_free_bytes;
    let before = used(&db);
    let bytes = value(1, 3 * CHUNK);
    for at in 0..3 {
        let mut writer = db.value_writer(bytes.len() as u64).unwrap();
        writer.write(&bytes[..at * CHUNK]).unwrap();
        let plan = FaultPlan::once(Operation::Write, "data", 1, Fault::Io);
        device.fail(plan);
        let failed = writer.write(&bytes[at * CHUNK..(at + 1) * CHUNK]);
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        // The writer does not continue without the bytes that are lost.
        let again = writer.write(&bytes[(at + 1) * CHUNK..]);
        assert!(matches!(again, Err(Error::InvalidValue { .. })));
        let finished = writer.finish();
        assert!(matches!(finished, Err(Error::InvalidValue { .. })));
        device.clear_faults();
        assert_eq!(used(&db), before);
    }
    table.put(b"k", &bytes).unwrap();
    check(&table, b"k", Some(&bytes));
}

#[test]
fn a_value_that_cannot_be_what_its_record_says_is_refused_and_the_store_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let whole = value(1, 5 * CHUNK);
    table.put(b"k", &whole).unwrap();
    table.put(b"same shape", &value(2, 5 * CHUNK)).unwrap();
    let stream = || table.get_reader(b"k").unwrap().unwrap();
    let put = |key: &[u8], value: LargeValue| {
        let mut batch = Batch::new();
        batch.put(&table, b"beside", b"it");
        batch.put_large(&table, key, value);
        db.write(&mut batch, NONE)
    };
    let headed = |head: &[u8]| stream().with_head(head.to_vec()).unwrap();
    // The value keeps chunks of a value that its key does not have, or no longer has.
    for key in [&b"same shape"[..], b"absent"] {
        let refused = put(key, headed(b"head"));
        assert!(
            matches!(refused, Err(Error::InvalidValue { .. })),
            "{refused:?}"
        );
    }
    let late = headed(b"late");
    table.put(b"k", &value(3, 5 * CHUNK)).unwrap();
    let refused = put(b"k", late);
    assert!(
        matches!(refused, Err(Error::InvalidValue { .. })),
        "{refused:?}"
    );
    put(b"k", headed(b"head")).unwrap();
    // Its chunks are those of another store.
    let elsewhere = Db::open_device(builder(), MemoryDevice::new(1 << 30).into()).unwrap();
    let refused = put(b"k", pour(&elsewhere, &whole));
    assert!(
        matches!(refused, Err(Error::InvalidValue { .. })),
        "{refused:?}"
    );
    wait_for_garbage(&db);
    db.flush().unwrap();
    let expected = [b"head", &value(3, 5 * CHUNK)[..]].concat();
    check(&table, b"k", Some(&expected));
    check(&table, b"same shape", Some(&value(2, 5 * CHUNK)));
    check(&table, b"absent", None);
    drop(table);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 10);
}

#[test]
fn one_of_many_puts_of_the_same_value_at_once_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    for round in 0..20_u8 {
        let large = pour(&db, &value(round.into(), 2 * CHUNK));
        let put = |thread: u8| {
            let mut batch = Batch::new();
            let own = pour(&db, &value(u64::from(thread) + 100, 2 * CHUNK));
            batch.put_large(&table, &[0, round, thread], own);
            batch.put_large(&table, &[1, round, thread], large.clone());
            match db.write(&mut batch, NONE) {
                Ok(()) => true,
                Err(Error::InvalidValue { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let done: usize = thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| scope.spawn(move || put(thread)));
            let ends = threads.map(|thread| usize::from(thread.join().unwrap()));
            ends.into_iter().sum()
        });
        assert_eq!(done, 1);
    }
    assert_eq!(table.len(), 40);
    drop(table);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 80);
}

#[test]
fn ten_thousand_values_on_their_way_keep_to_the_budget() {
    const SINKS: usize = 10_000;
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let (bytes, waker) = (value(1, 3 * CHUNK), pando_sync::thread_waker());
    let used = || db.memory().chunk_buffers.used_bytes;
    let budget = db.memory().chunk_buffers.budget_bytes;
    assert!(budget > 0 && used() == 0);
    let mut sinks: Vec<_> = (0..SINKS)
        .map(|_| ValueSink::new(&db, bytes.len() as u64).unwrap())
        .collect();
    assert_eq!(used(), 0, "nothing has arrived");
    let taken = sinks
        .iter_mut()
        .map(|sink| sink.write(&bytes[..100], &waker).unwrap());
    let taken = taken.filter(|taken| *taken > 0).count();
    assert!((1..SINKS / 10).contains(&taken), "{taken} have a buffer");
    assert!(used() <= budget, "{} of {budget}", used());
    // Readers have room of their own.
    table.put(b"k", &bytes).unwrap();
    let mut sources: Vec<_> = (0..SINKS)
        .map(|_| table.get_reader(b"k").unwrap().unwrap())
        .map(|stream| ValueSource::new(stream, 0..u64::MAX))
        .collect();
    let deadline = time::now() + Duration::from_secs(60);
    let mut last = sources.pop().unwrap();
    // Returns the number of sources with a chunk in memory. Sources that ask first get a chunk
    // first.
    let mut loaded = || {
        let mut pieces = sources.iter_mut().map(|source| source.piece(&waker));
        pieces.try_fold(0, |sum, piece| {
            Ok::<_, Error>(sum + u64::from(!piece?.is_empty()))
        })
    };
    let most = budget / 2 / CHUNK as u64;
    while loaded().unwrap() < most {
        assert!(time::now() < deadline, "the chunks are not read");
    }
    for _ in 0..30 {
        assert_eq!(loaded().unwrap(), most);
    }
    assert!(used() <= budget, "{} of {budget}", used());
    assert!(
        last.piece(&waker).unwrap().is_empty(),
        "other sources asked before"
    );
    drop(sources);
    assert!(drain(last) == bytes);
    // A sink that is dropped makes room, so the last sink has its turn as well.
    let mut last = sinks.pop().unwrap();
    assert_eq!(last.write(&bytes[..100], &waker).unwrap(), 0);
    drop(sinks);
    let mut done = 0;
    while done < bytes.len() {
        assert!(time::now() < deadline, "the sink gets no turn");
        match last.write(&bytes[done..], &waker).unwrap() {
            0 => thread::park_timeout(Duration::from_millis(10)),
            count => done += count,
        }
    }
    let stored = loop {
        match last.finish(&waker).unwrap() {
            Some(value) => break value,
            None => thread::park_timeout(Duration::from_millis(10)),
        }
    };
    let mut batch = Batch::new();
    batch.put_large(&table, b"last", stored);
    db.write(&mut batch, NONE).unwrap();
    assert!(read_all(&table, b"last").unwrap() == bytes);
    assert_eq!(used(), 0);
    db.close().unwrap();
}
