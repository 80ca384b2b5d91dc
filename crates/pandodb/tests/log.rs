//! Events that the engine reports to `tracing`: that it was opened, poisoned and closed; and from
//! its threads, the beginning and the end of a full disk, of dumps and of compactions.
//!
//! The engine's threads have no subscriber but that of the process, so this is a program of its
//! own.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]

use std::fmt::{Debug, Write as _};
use std::ops::ControlFlow;

use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Mutex, thread};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, InjectorDevice, MemoryDevice};
use pandodb::{Db, Durability, Error, Table, WriteOptions};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that keeps the events of all threads as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// Returns the lines that begin with `level` and contain `part`.
    fn of(&self, level: &str, part: &str) -> Vec<String> {
        let lines = self.0.lock();
        let is_one = |line: &&String| line.starts_with(level) && line.contains(part);
        lines.iter().filter(is_one).cloned().collect()
    }

    /// Waits for a line that begins with `level` and contains `part`. Returns it.
    fn expect(&self, level: &str, part: &str) -> String {
        let deadline = time::now() + Duration::from_secs(30);
        loop {
            if let Some(line) = self.of(level, part).pop() {
                return line;
            }
            let told = self.0.lock();
            assert!(time::now() < deadline, "{level} {part}: {told:#?}");
            drop(told);
            thread::yield_now();
        }
    }
}

impl Lines {
    /// Waits until there are as many lines with `end` as with `begin`, which must alternate.
    fn expect_in_turn(&self, begin: &str, end: &str) {
        let deadline = time::now() + Duration::from_secs(30);
        loop {
            let lines = self.0.lock().clone();
            let is_either = |line: &&String| line.contains(begin) || line.contains(end);
            let both: Vec<_> = lines.iter().filter(is_either).collect();
            for (number, line) in both.iter().enumerate() {
                let expected = if number % 2 == 0 { begin } else { end };
                assert!(line.contains(expected), "{both:#?}");
            }
            if both.len() % 2 == 0 {
                return;
            }
            assert!(time::now() < deadline, "{both:#?}");
            thread::yield_now();
        }
    }
}

struct Rig {
    device: InjectorDevice<AnyDevice>,
    db: Db,
    table: Table,
    told: Lines,
    keys: u32,
}

impl Rig {
    fn put(&mut self) -> pandodb::Result<()> {
        self.keys += 1;
        let options = WriteOptions::durability(Durability::None);
        let key = self.keys.to_be_bytes();
        self.table.put_with(&key, &[7; 3000], options)
    }

    /// Puts until a put is refused because the disk is full.
    fn fill_up(&mut self) {
        let refused = (0..100_000).find_map(|_| self.put().err());
        let error = refused.expect("the disk is full");
        assert!(matches!(error, Error::Full { .. }), "{error}");
    }

    /// Puts until a put succeeds.
    fn go_on(&mut self) {
        self.device.clear_faults();
        let deadline = time::now() + Duration::from_secs(30);
        while let Err(error) = self.put() {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert!(time::now() < deadline, "there is room again");
            thread::yield_now();
        }
    }

    fn fail(&self, operation: Operation, name: &str, fault: Fault) {
        let plan = FaultPlan::sticky(operation, name, 1, fault);
        self.device.fail(plan);
    }
}

fn a_data_file_that_cannot_grow(rig: &mut Rig) {
    rig.fail(Operation::Allocate, "data", Fault::Full);
    rig.fill_up();
    rig.told.expect("WARN", "the data file cannot grow");
    // This is repeated, since blocks that are freed meanwhile also end the state.
    (0..5).for_each(|_| rig.fill_up());
    rig.go_on();
    let line = rig.told.expect("INFO", "the data file has room again");
    assert!(line.contains("data_bytes="), "{line}");
    rig.told.expect_in_turn("cannot grow", "has room again");
}

fn pages_that_cannot_be_written(rig: &mut Rig) {
    rig.fail(Operation::Write, "data", Fault::Full);
    rig.fill_up();
    let line = rig.told.expect("WARN", "pages wait for room");
    assert!(line.contains("puts are refused"), "{line}");
    rig.go_on();
    rig.told.expect("INFO", "pages wait for room no more");
    rig.told
        .expect_in_turn("puts are refused", "pages wait for room no more");
}

fn a_checkpoint_that_cannot_be_named(rig: &mut Rig) {
    rig.put().unwrap();
    rig.fail(Operation::Write, "journal", Fault::Full);
    let db = rig.db.clone();
    let checkpoint = thread::spawn(move || db.checkpoint());
    rig.told.expect("WARN", "a checkpoint waits for room");
    rig.device.clear_faults();
    checkpoint.join().unwrap().unwrap();
    rig.told
        .expect("INFO", "the checkpoint waits for room no more");
    assert_eq!(rig.told.of("WARN", "a checkpoint waits for room").len(), 1);
}

fn dumps(rig: &mut Rig) {
    let written = rig.db.dump_to_file(|_| ControlFlow::Continue(())).unwrap();
    let written = written.expect("it was not stopped");
    let line = rig.told.expect("INFO", "a dump begins");
    assert!(line.contains("store.dump"), "{line}");
    let line = rig.told.expect("INFO", "a dump is written");
    for part in [
        format!("rows={}", written.report.rows()),
        format!("bytes={}", written.bytes),
        "ms=".to_owned(),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
    let stopped = rig.db.dump_to_file(|_| ControlFlow::Break(()));
    assert_eq!(stopped.unwrap(), None);
    rig.told.expect("INFO", "a dump was told to end");
    rig.fail(Operation::Sync, "store.dump", Fault::Io);
    let error = rig
        .db
        .dump_to_file(|_| ControlFlow::Continue(()))
        .unwrap_err();
    let line = rig.told.expect("WARN", "no dump is written");
    assert!(line.contains(&error.to_string()), "{error}: {line}");
    rig.device.clear_faults();
}

fn compactions(rig: &mut Rig) {
    for key in 2..=rig.keys {
        rig.table.delete(&key.to_be_bytes()).unwrap();
    }
    let report = rig.db.compact(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(rig.told.of("INFO", "compaction begins").len(), 1);
    let line = rig.told.expect("INFO", "compaction ends");
    for part in [
        format!("before_bytes={}", report.data_bytes_before),
        format!("after_bytes={}", report.data_bytes_after),
        "finished=true".to_owned(),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
    rig.put().unwrap();
    rig.fail(Operation::Write, "data", Fault::Io);
    let error = rig.db.compact(|_| ControlFlow::Continue(())).unwrap_err();
    let line = rig.told.expect("WARN", "compaction failed");
    assert!(line.contains(&error.to_string()), "{error}: {line}");
    rig.told.expect("ERROR", "takes no writes until");
}

/// A failed log is reported once, with its cause.
fn a_log_that_fails(told: &Lines) {
    let device = FaultyDevice::new(1);
    let db = Db::open_device(Db::builder(), AnyDevice::from(device.clone())).unwrap();
    let table = db.table("t").unwrap();
    device.fail(FaultPlan::once(Operation::Sync, "log/", 1, Fault::Io));
    for _ in 0..3 {
        let refused = table.put(b"key", b"value");
        assert!(
            matches!(refused, Err(Error::Poisoned { .. })),
            "{refused:?}"
        );
    }
    db.close().unwrap_err();
    for (level, part) in [
        ("INFO", "message=store opened"),
        ("ERROR", "takes no writes until"),
        ("ERROR", "store closed without a checkpoint"),
    ] {
        assert_eq!(told.of(level, part).len(), 1, "{part}");
    }
    assert_eq!(told.of("ERROR", ""), told.of("ERROR", "sync"));
    told.0.lock().clear();
}

#[test]
fn what_a_store_meets_is_told_when_it_begins_and_when_it_ends() {
    let told = Lines::default();
    tracing::subscriber::set_global_default(told.clone()).unwrap();
    a_log_that_fails(&told);
    let device = InjectorDevice::new(MemoryDevice::new(1 << 30).into(), 1);
    let options = Db::builder().frames(256).max_memory(8 << 20);
    let db = Db::open_device(options, device.clone().into()).unwrap();
    let table = db.table("t").unwrap();
    let mut rig = Rig {
        device,
        db,
        table,
        told,
        keys: 0,
    };
    a_data_file_that_cannot_grow(&mut rig);
    pages_that_cannot_be_written(&mut rig);
    a_checkpoint_that_cannot_be_named(&mut rig);
    dumps(&mut rig);
    compactions(&mut rig);
}
