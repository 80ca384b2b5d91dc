//! The turns of snapshots: the same gets and puts with no snapshot, and with one of each kind.
//!
//! While there are writers, a young snapshot is renewed now and then, so that what commits save for
//! it stays bounded; the next one is open before the one before it ends.

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::{self, Duration, Instant};
use pando_sync::{Arc, Rank, RwLock, thread};
use pandodb::Snapshot;

use super::options::IsoSnapshots;
use crate::error::{Error, Result};
use crate::kv::CallWay;
use crate::operations::{KvPlan, Operations, check_value};
use crate::options::Workload;
use crate::phase::{Calls, Done};
use crate::store::Store;

/// How long a young snapshot beside writers is open until the next one.
const RENEWAL: Duration = Duration::from_millis(100);
/// How often the watching thread looks.
const LOOK: Duration = Duration::from_millis(5);
/// How long a store may take to forget the snapshots of an earlier turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of keys that must be in a snapshot at its end as they were at its beginning.
const PROBES: u64 = 64;

/// What was seen of the snapshots of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Number of young snapshots that took the place of another one.
    pub(super) renewals: u64,
    /// Most bytes that commits had saved for snapshots.
    pub(super) old_version_bytes_max: u64,
    /// Most settled snapshots that were open.
    pub(super) settled: u64,
    /// Most bytes of the data file that only settled snapshots used.
    pub(super) held_bytes_max: u64,
}

/// A snapshot, and what a few keys were when it began.
struct Held {
    snapshot: Snapshot,
    probes: Vec<Option<Vec<u8>>>,
}

/// The snapshots of a turn, for its threads.
pub(super) struct Turn<'a> {
    plan: &'a KvPlan<'a>,
    kind: IsoSnapshots,
    /// The one that is open; none if the kind has none.
    held: RwLock<Option<Arc<Held>>>,
    /// Its number, from 1 on.
    number: AtomicU64,
    is_over: AtomicBool,
}

impl<'a> Turn<'a> {
    /// Opens the snapshot of a turn in which `plan` runs.
    pub(super) fn begin(plan: &'a KvPlan<'a>, kind: IsoSnapshots) -> Result<Self> {
        let held = Held::open(plan, kind)?.map(Arc::new);
        Ok(Self {
            plan,
            kind,
            held: RwLock::new(Rank::Caller, held),
            number: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
        })
    }

    /// Renews the snapshot if it has to be, until the turn is over, and notes what it sees.
    fn watch(&self) -> Result<Seen> {
        let db = self.plan.table.db();
        let has_writers = self.plan.workload != Workload::ReadRandom;
        let renews = has_writers && self.kind == IsoSnapshots::Young;
        let mut seen = Seen::default();
        let mut last = time::now();
        loop {
            let stat = db.snapshot_stat();
            let saved = db.memory().old_versions.used_bytes;
            seen.old_version_bytes_max = seen.old_version_bytes_max.max(saved);
            seen.settled = seen.settled.max(stat.settled);
            seen.held_bytes_max = seen.held_bytes_max.max(stat.held_bytes);
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            if renews && last.elapsed() >= RENEWAL {
                self.renew()?;
                seen.renewals += 1;
                last = time::now();
            }
            thread::sleep(LOOK);
        }
        let held = self.held.read().clone();
        held.map_or(Ok(()), |held| held.check(self.plan, self.kind))?;
        Ok(seen)
    }

    /// Puts a new snapshot in the place of the one that is open, and checks that one.
    fn renew(&self) -> Result<()> {
        let next = Held::open(self.plan, self.kind)?.map(Arc::new);
        let before = std::mem::replace(&mut *self.held.write(), next);
        // Relaxed: who sees it late reads in the snapshot before for one call more.
        self.number.fetch_add(1, Ordering::Relaxed);
        before.map_or(Ok(()), |held| held.check(self.plan, self.kind))
    }

    /// Runs `run` with the snapshot open; returns what was seen meanwhile, too.
    pub(super) fn during<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<(R, Seen)> {
        thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch());
            let ran = {
                let _over = Over(&self.is_over);
                run()
            };
            let seen = watching.join().expect("the watching thread panicked");
            Ok((ran?, seen?))
        })
    }
}

/// Ends a turn on drop.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Held {
    /// Opens a snapshot of `kind`, if that has one that stays open.
    fn open(plan: &KvPlan<'_>, kind: IsoSnapshots) -> Result<Option<Self>> {
        let db = plan.table.db();
        let snapshot = match kind {
            IsoSnapshots::None | IsoSnapshots::Each => return Ok(None),
            IsoSnapshots::Young => db.snapshot()?,
            IsoSnapshots::Settled => db.snapshot_settled()?,
        };
        let probes = probe(plan, &snapshot)?;
        Ok(Some(Self { snapshot, probes }))
    }

    /// Checks that it can still be read, and is of the same moment and kind as when it began.
    fn check(&self, plan: &KvPlan<'_>, kind: IsoSnapshots) -> Result<()> {
        if kind == IsoSnapshots::Young && self.snapshot.is_settled() {
            return Err(ended());
        }
        match probe(plan, &self.snapshot)? == self.probes {
            true => Ok(()),
            false => Err(plan.wrong("a snapshot has changed while it was open".to_owned())),
        }
    }
}

/// Makes the error for a young snapshot that did not stay what it was.
fn ended() -> Error {
    let what = "a young snapshot was ended or settled, since what commits saved for it took too \
                much memory: a larger one keeps it";
    Error::option("max-memory", what)
}

/// Reads a few keys, which lie everywhere, in `snapshot`.
fn probe(plan: &KvPlan<'_>, snapshot: &Snapshot) -> Result<Vec<Option<Vec<u8>>>> {
    let mut key = Vec::new();
    let count = PROBES.min(plan.options.num);
    let values = (0..count).map(|at| {
        plan.keys.write(at * (plan.options.num / count), &mut key);
        snapshot.get(plan.table, &key).map_err(|error| match error {
            pandodb::Error::SnapshotEnded => ended(),
            other => other.into(),
        })
    });
    values.collect()
}

/// Waits until the store has forgotten the snapshots of earlier turns: commits go on to save what
/// they replace for a while after the last one has ended.
///
/// # Errors
/// It does not forget them.
pub(super) fn forget(store: &Store) -> Result<()> {
    let began: Instant = time::now();
    loop {
        let stat = store.db.snapshot_stat();
        let saved = store.db.memory().old_versions.used_bytes;
        if saved == 0 && stat.settled == 0 && stat.held_bytes == 0 {
            break;
        }
        if began.elapsed() > PATIENCE {
            return Err(Error::Wrong {
                workload: "iso",
                what: format!(
                    "no snapshot is open, but {saved} bytes are saved for some, {stat:?}"
                ),
            });
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// What a thread keeps from call to call: the snapshot that it reads in, and its number.
#[derive(Default)]
pub(super) struct Reading {
    held: Option<Arc<Held>>,
    number: u64,
}

impl CallWay for Turn<'_> {
    type State = Reading;

    fn call(
        &self,
        reading: &mut Reading,
        operations: &mut Operations<'_>,
        limit: u64,
    ) -> Result<Option<Done>> {
        if self.plan.workload == Workload::Overwrite {
            return operations.put_chosen().map(Some);
        }
        // The writer beside readers goes the plain way, too.
        if self.kind == IsoSnapshots::None || !operations.is_counted() {
            return operations.call(limit);
        }
        if self.kind == IsoSnapshots::Each {
            let snapshot = self.plan.table.db().snapshot()?;
            return get(operations, &snapshot).map(Some);
        }
        let number = self.number.load(Ordering::Relaxed);
        if reading.number != number {
            reading.held = self.held.read().clone();
            reading.number = number;
        }
        let held = reading.held.as_ref().expect("this kind has a snapshot");
        get(operations, &held.snapshot).map(Some)
    }
}

/// As a plain get of a random key, in `snapshot`.
fn get(operations: &mut Operations<'_>, snapshot: &Snapshot) -> Result<Done> {
    let plan = operations.plan;
    let number = plan.choose(&mut operations.random);
    plan.keys.write(number, &mut operations.key);
    let found = snapshot
        .get_into(plan.table, &operations.key, &mut operations.value)
        .map_err(|error| match error {
            pandodb::Error::SnapshotEnded => ended(),
            other => other.into(),
        })?;
    if found {
        check_value(plan, number, &operations.value, &mut operations.scratch)?;
    }
    Ok(Done {
        ops: 1,
        found: found.into(),
    })
}

#[cfg(test)]
mod tests {
    use pandodb::IoBackend;

    use super::{IsoSnapshots, Operations, Ordering, Reading, Turn, forget, thread, time};
    use crate::error::Error;
    use crate::kv::{self, CallWay, Plainly};
    use crate::operations::KvPlan;
    use crate::options::{KvOptions, Workload};
    use crate::phase::Observer;
    use crate::record::Record;
    use crate::store::Store;
    use crate::values::Values;
    use pando_sync::time::Duration;

    const KEYS: u64 = 200;

    struct Silent;

    impl Observer for Silent {
        fn progress(&mut self, _workload: &str, _share: f64, _ops_per_s: f64) {}
        fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}
        fn record(&mut self, _record: &Record) -> crate::error::Result<()> {
            Ok(())
        }
    }

    fn with_plan(workload: Workload, run: impl FnOnce(&KvPlan<'_>, &Store)) {
        let options = KvOptions {
            num: KEYS,
            max_memory: 16 << 20,
            io_backend: IoBackend::Memory,
            settle_snapshots_after: Some(Duration::MAX),
            ..KvOptions::default()
        };
        let store = Store::open(&options).unwrap();
        let values = Values::sized(options.value_sizes, 1.0, options.seed);
        let fill = Workload::FillSeq;
        kv::run_one(&options, fill, &store, &values, &Plainly, &mut Silent).unwrap();
        let plan = KvPlan::new(&options, workload, &store.table, &values, KEYS);
        run(&plan, &store);
    }

    /// Puts all keys in `version`.
    fn put_all(plan: &KvPlan<'_>, version: u32) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in 0..KEYS {
            plan.keys.write(number, &mut key);
            plan.values.write(number, version, &mut value);
            plan.table.put(&key, &value).unwrap();
        }
    }

    /// Gets in an open snapshot see its moment, whatever is put since; others see what was put.
    #[test]
    fn gets_read_in_the_snapshot_of_their_kind() {
        with_plan(Workload::ReadRandom, |plan, store| {
            let mut version = 0;
            for kind in IsoSnapshots::ALL {
                forget(store).unwrap();
                let turn = Turn::begin(plan, kind).unwrap();
                let at_begin = version;
                version += 1;
                put_all(plan, version);
                let mut operations = Operations::new(plan, 0);
                let mut reading = Reading::default();
                let is_open = matches!(kind, IsoSnapshots::Young | IsoSnapshots::Settled);
                let expected = if is_open { at_begin } else { version };
                for _ in 0..50 {
                    turn.call(&mut reading, &mut operations, 1).unwrap();
                    let written = &operations.value[8..12];
                    assert_eq!(written, expected.to_le_bytes(), "{kind:?}");
                }
                let stat = store.db.snapshot_stat();
                let settled = u64::from(kind == IsoSnapshots::Settled);
                assert_eq!(stat.settled, settled, "{kind:?}");
                let saves = matches!(kind, IsoSnapshots::Young | IsoSnapshots::Each);
                let saved = store.db.memory().old_versions.used_bytes;
                assert_eq!(saved > 0, saves, "{kind:?}: {saved} bytes");
            }
        });
    }

    /// A renewed snapshot is the one that threads read in from then on.
    #[test]
    fn threads_go_over_to_a_renewed_snapshot() {
        with_plan(Workload::ReadWhileWriting, |plan, _| {
            let turn = Turn::begin(plan, IsoSnapshots::Young).unwrap();
            let mut operations = Operations::new(plan, 0);
            let mut reading = Reading::default();
            for (renews, expected) in [(false, 0_u32), (true, 1)] {
                put_all(plan, expected + u32::from(!renews));
                if renews {
                    turn.renew().unwrap();
                }
                turn.call(&mut reading, &mut operations, 1).unwrap();
                assert_eq!(operations.value[8..12], expected.to_le_bytes());
            }
        });
    }

    /// Beside writers young snapshots are renewed for as long as a turn lasts.
    #[test]
    fn young_snapshots_are_renewed() {
        with_plan(Workload::Overwrite, |plan, _| {
            let turn = Turn::begin(plan, IsoSnapshots::Young).unwrap();
            let began = time::now();
            let waited = turn.during(|| {
                while turn.number.load(Ordering::Relaxed) < 3 {
                    assert!(
                        began.elapsed() < Duration::from_secs(20),
                        "no third snapshot"
                    );
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            assert!(waited.unwrap().1.renewals >= 2);
        });
    }

    /// If memory is too small for what is saved, the run says so instead of measuring something
    /// else.
    #[test]
    fn a_young_snapshot_that_was_ended_fails_the_turn() {
        with_plan(Workload::Overwrite, |plan, store| {
            let value = vec![7; 1000];
            for number in 0..2000_u32 {
                plan.table.put(&number.to_be_bytes(), &value).unwrap();
            }
            let turn = Turn::begin(plan, IsoSnapshots::Young).unwrap();
            let failed = turn.during(|| {
                for number in 0..2000_u32 {
                    plan.table.put(&number.to_be_bytes(), b"short")?;
                }
                Ok(())
            });
            let failed = failed.unwrap_err();
            assert!(
                matches!(
                    &failed,
                    Error::Option {
                        flag: "max-memory",
                        ..
                    }
                ),
                "{failed}"
            );
            drop(turn);
            forget(store).unwrap();
        });
    }
}
