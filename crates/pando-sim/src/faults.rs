//! Operations of the device that fail while a store is created, used or recovered.
//!
//! A failed read names its page, and has no other effect. A failed write or sync poisons the store:
//! nothing is acknowledged after it, reads still work, and what was acknowledged exists after the
//! next opening. A full disk refuses writes, loses nothing, and passes. Any other failure ends a
//! call, or has no effect. `fault_errors` has the errors that are right; `given_up` looks at a
//! store in which a page was given up.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation, Random};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Batch, Db, Durability, Error, WriteOptions};

use crate::crash::{MODES, limit};
use crate::failure::{Failure, Result, Unread, fail};
use crate::fault_errors::Struck;
use crate::given_up;
use crate::history;
use crate::state::State;
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan, Run};

/// Time for which a disk stays full.
pub(crate) const FULL_TIME: Duration = Duration::from_millis(150);
/// Number of times, 10 ms apart, that a refused write is tried again once there is room.
pub(crate) const RESUME_TRIES: u32 = 500;

/// When an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// While the store is created.
    Create,
    /// During a workload.
    Work,
    /// During the recovery from a crash.
    Recover,
}

/// Stages by name.
pub const STAGES: [(&str, Stage); 3] = [
    ("create", Stage::Create),
    ("work", Stage::Work),
    ("recover", Stage::Recover),
];
/// Operations by name.
pub const OPERATIONS: [(&str, Operation); 10] = [
    ("open", Operation::Open),
    ("remove", Operation::Remove),
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("sync", Operation::Sync),
    ("sync-directory", Operation::SyncDirectory),
    ("allocate", Operation::Allocate),
    ("set-len", Operation::SetLen),
    ("punch", Operation::Punch),
    ("channel", Operation::Channel),
];

/// One failing operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCase {
    /// Decides the workload.
    pub seed: u64,
    /// Stage in which the operation fails.
    pub stage: Stage,
    /// The operation that fails.
    pub operation: Operation,
    /// Fails with ENOSPC instead of EIO.
    pub full: bool,
    /// Every later operation of the kind fails, too.
    pub sticky: bool,
    /// Which operation of the kind fails, counted from 1.
    pub nth: u64,
}

/// `seed:stage:operation:full|io:sticky|once:nth`
impl fmt::Display for FaultCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn name<T: PartialEq>(all: &[(&'static str, T)], this: &T) -> &'static str {
            let found = all.iter().find(|(_, value)| value == this);
            found.map_or("?", |(name, _)| name)
        }
        write!(
            f,
            "{}:{}:{}:{}:{}:{}",
            self.seed,
            name(&STAGES, &self.stage),
            name(&OPERATIONS, &self.operation),
            if self.full { "full" } else { "io" },
            if self.sticky { "sticky" } else { "once" },
            self.nth
        )
    }
}

impl FromStr for FaultCase {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Failure::new(format!(
                "'{text}': seed:stage:operation:full|io:sticky|once:n"
            ))
        };
        let words: Vec<&str> = text.split(':').collect();
        let [seed, stage, operation, kind, times, nth] = words[..] else {
            return Err(wrong());
        };
        let stage = STAGES.iter().find(|(name, _)| *name == stage);
        let operation = OPERATIONS.iter().find(|(name, _)| *name == operation);
        Ok(Self {
            seed: seed.parse().map_err(|_| wrong())?,
            stage: stage.ok_or_else(wrong)?.1,
            operation: operation.ok_or_else(wrong)?.1,
            full: kind == "full",
            sticky: times == "sticky",
            nth: nth.parse().map_err(|_| wrong())?,
        })
    }
}

/// Counts of what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Cases.
    pub cases: u64,
    /// Operations that failed.
    pub struck: u64,
    /// Stores that were poisoned.
    pub poisoned: u64,
    /// Number of writes that were refused for lack of space.
    pub refused: u64,
    /// Number of threads that stopped at an error.
    pub errors: u64,
}

impl FaultCounts {
    /// Adds the counts of another case.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.struck += other.struck;
        self.poisoned += other.poisoned;
        self.refused += other.refused;
        self.errors += other.errors;
    }
}

impl FaultCase {
    /// Returns a random case.
    pub fn choose(random: &mut Random) -> Self {
        let (_, stage) = STAGES[random.index(6).saturating_sub(3)];
        let stage = if random.once_in(2) {
            Stage::Work
        } else {
            stage
        };
        Self {
            seed: random.below(1 << 20),
            stage,
            operation: OPERATIONS[random.index(OPERATIONS.len())].1,
            full: random.once_in(2),
            sticky: random.once_in(3),
            nth: 1 + random.below(match stage {
                Stage::Work => 80,
                Stage::Create | Stage::Recover => 16,
            }),
        }
    }

    /// Returns the command that repeats the case.
    pub fn command(&self) -> String {
        format!("cargo run -p pando-sim -- fault --case {self} --repeat 20")
    }

    /// Runs the case.
    ///
    /// # Errors
    /// What is wrong, with the command that repeats the case.
    pub fn run(&self) -> Result<FaultCounts> {
        let _watchdog = Watchdog::new(limit(), self.command());
        let mut counts = FaultCounts {
            cases: 1,
            ..FaultCounts::default()
        };
        match self.judge(&mut counts) {
            Ok(()) => Ok(counts),
            Err(failure) => Err(failure.within(format!("replay: {}\n ", self.command()))),
        }
    }

    fn plan(&self) -> Plan {
        Plan::of_seed(self.seed, 160)
    }

    fn arm(&self, device: &FaultyDevice) {
        let fault = if self.full { Fault::Full } else { Fault::Io };
        device.fail(if self.sticky {
            FaultPlan::sticky(self.operation, "", self.nth, fault)
        } else {
            FaultPlan::once(self.operation, "", self.nth, fault)
        });
    }

    fn judge(&self, counts: &mut FaultCounts) -> Result<()> {
        let device = FaultyDevice::new(self.seed);
        if self.stage == Stage::Create {
            self.arm(&device);
            let opened = store::open(self.seed, &device);
            counts.struck += device.faults_struck();
            self.check_opening(&device, opened.map(drop))?;
            device.clear_faults();
        }
        let db = open(self.seed, &device)?;
        let first = workload::run(&db, self.plan(), &[])?;
        no_errors(&first)?;
        let initial: Vec<_> = first.histories.iter().map(|h| h.now().clone()).collect();
        if self.stage != Stage::Work {
            device.crash_now();
            drop(db);
            return self.recover(&device, &first, counts);
        }
        db.flush().map_err(unexpected("flushing"))?;
        self.arm(&device);
        let relief = self.relieve_later(&device);
        let again = Plan {
            round: 1,
            ..self.plan()
        };
        let run = workload::run(&db, again, &initial);
        device.clear_faults();
        if let Some(relief) = relief {
            let _ = relief.join();
        }
        let run = run?;
        counts.struck += device.faults_struck();
        counts.refused += run.refused as u64;
        counts.errors += run.errors.len() as u64;
        let is_given_up = self.operation == Operation::Read && given_up::writes(&db) > 0;
        if is_given_up && db.report().poisoned.is_none() {
            return given_up::check(self.seed, db, &device, &run);
        }
        self.check_open(&db, &device, &run)?;
        let poisoned = db.report().poisoned;
        counts.poisoned += u64::from(poisoned.is_some());
        if let Some(cause) = poisoned {
            self.fault().check_poison(&cause)?;
        }
        self.check_afterwards(db, &device, &run)
    }

    /// Ends the fault while threads still wait for space.
    fn relieve_later(&self, device: &FaultyDevice) -> Option<thread::JoinHandle<()>> {
        let device = device.clone();
        (self.full && self.sticky).then(|| {
            thread::spawn(move || {
                thread::sleep(FULL_TIME);
                device.clear_faults();
            })
        })
    }

    /// Checks that opening failed only because of the fault, and with the right error.
    fn check_opening(
        &self,
        device: &FaultyDevice,
        opened: std::result::Result<(), Error>,
    ) -> Result<()> {
        match opened {
            Err(error) if device.faults_struck() == 0 => {
                fail(format!("opening failed without a fault: {error}"))
            }
            Err(error) => self.fault().check_opening(&error),
            Ok(()) => Ok(()),
        }
    }

    /// Checks the state of an open store after the fault.
    fn check_open(&self, db: &Db, device: &FaultyDevice, run: &Run) -> Result<()> {
        let struck = device.faults_struck() > 0;
        let poisoned = db.report().poisoned;
        for error in &run.errors {
            if !struck {
                return fail(format!("without a fault: {error}"));
            }
            self.fault().check_working(error, poisoned.as_deref())?;
        }
        if let Some(cause) = &poisoned {
            if !struck {
                return fail(format!("poisoned without a fault: {cause}"));
            }
            no_more_acknowledgements(db)?;
        }
        match self.check_served(db, run, poisoned.is_some()) {
            // A thread of the engine met the fault only now.
            Err(_) if poisoned.is_none() && db.report().poisoned.is_some() => {
                self.check_served(db, run, true)
            }
            served => served,
        }?;
        match probe_until_it_serves(db, struck) {
            Ok(()) if poisoned.is_none() => Ok(()),
            Ok(()) => fail("a poisoned store takes writes"),
            // A thread of the engine may have met the fault only now.
            Err(error) if struck && db.report().poisoned.is_some() => {
                let poisoned = db.report().poisoned;
                self.fault().check_working(&error, poisoned.as_deref())?;
                no_more_acknowledgements(db)
            }
            Err(error) => fail(format!("probing: {error}")),
        }
    }

    /// Checks that everything can be read, and is what was committed. There is one exception: if a
    /// batch could not be applied because a page could not be read, nobody may see half of it. Then
    /// the tables that this batch, or a commit concurrent with it, has changed may refuse reads,
    /// and no others.
    fn check_served(&self, db: &Db, run: &Run, poisoned: bool) -> Result<()> {
        if poisoned {
            // A durable store never shows what cannot become durable, so ask for what is there.
            db.set_durability(Durability::None);
        }
        let half_applied = poisoned && self.operation == Operation::Read;
        let may_refuse = match half_applied {
            true => history::changed_beside_failed(&run.histories),
            false => BTreeSet::new(),
        };
        if may_refuse.is_empty() && given_up::writes(db) == 0 {
            let found = store::read_all(db, run.histories.len())
                .map_err(|failure| failure.within("reading after the fault"))?;
            return history::check_live(&run.histories, &found)
                .map_err(|failure| failure.within("while open"));
        }
        for name in db.tables().iter().filter(|name| *name != store::PROBE) {
            match store::read_table(db, name) {
                Ok(entries) if !may_refuse.contains(name) => {
                    history::check_table(&run.histories, name, &entries)?;
                }
                Ok(_) => {}
                Err(Unread::Error(Error::Poisoned { .. })) if may_refuse.contains(name) => {}
                Err(Unread::Error(error)) if given_up::is_told(&error) => {}
                Err(unread) => return fail(format!("reading {name}: {unread:?}")),
            }
        }
        Ok(())
    }

    fn fault(&self) -> Struck {
        Struck {
            operation: self.operation,
            full: self.full,
        }
    }

    /// Closes or crashes, opens again, checks.
    fn check_afterwards(&self, db: Db, device: &FaultyDevice, run: &Run) -> Result<()> {
        let poisoned = db.report().poisoned.is_some();
        let mut random = Random::new(self.seed).part(self.nth);
        if !poisoned && random.once_in(2) {
            db.close().map_err(unexpected("closing"))?;
            store::verify(device)?;
            let db = open(self.seed, device)?;
            let found = store::read_all(&db, run.histories.len())?;
            return history::check_live(&run.histories, &found);
        }
        let crashes = random.once_in(2);
        if crashes {
            device.crash_now();
        }
        // Closing a poisoned store fails with an error that reports this.
        match db.close() {
            Ok(()) if poisoned => {
                return fail("a poisoned store closed as if nothing had happened");
            }
            Err(error) if !crashes => {
                self.fault()
                    .check_working(&error, Some(&error.to_string()))?;
            }
            _ => {}
        }
        // The next process finds what was written, durable or not, and works on top of it.
        let next = device.after_exit(random.number());
        let db = open(self.seed, &next)?;
        let found = store::read_all(&db, run.histories.len())?;
        history::check(&run.histories, &run.synced, &found)
            .map_err(|failure| failure.within("in the next process"))?;
        probe(&db).map_err(unexpected("probing in the next process"))?;
        next.crash_now();
        drop(db);
        self.check_survivors(&next, run, &mut random, &found)?;
        for mode in MODES {
            let after = device.after_crash(random.number(), mode);
            store::verify(&after).map_err(|failure| failure.within("before recovery"))?;
            let db = open(self.seed, &after)?;
            let found = store::read_all(&db, run.histories.len())?;
            history::check(&run.histories, &run.synced, &found)
                .map_err(|failure| failure.within(format!("after recovery, {mode:?}")))?;
            db.close().map_err(unexpected("closing"))?;
            store::verify(&after).map_err(|failure| failure.within("after recovery"))?;
        }
        Ok(())
    }

    /// Cuts the power under a process that has opened the store and found `found`, which must
    /// survive.
    fn check_survivors(
        &self,
        device: &FaultyDevice,
        run: &Run,
        random: &mut Random,
        found: &[State],
    ) -> Result<()> {
        for mode in MODES {
            let after = device.after_crash(random.number(), mode);
            store::verify(&after).map_err(|failure| failure.within("behind the next process"))?;
            let db = open(self.seed, &after)?;
            if store::read_all(&db, run.histories.len())? != found {
                return fail(format!(
                    "behind the next process, {mode:?}: not what it found"
                ));
            }
        }
        Ok(())
    }

    /// Runs a recovery that fails on the way, then one that does not.
    fn recover(&self, device: &FaultyDevice, run: &Run, counts: &mut FaultCounts) -> Result<()> {
        for mode in MODES {
            let mut random = Random::new(self.seed).part(self.nth);
            let after = device.after_crash(random.number(), mode);
            self.arm(&after);
            let opened = store::open(self.seed, &after);
            counts.struck += after.faults_struck();
            let open = opened.map(|db| {
                after.clear_faults();
                drop(db);
            });
            self.check_opening(&after, open)?;
            after.clear_faults();
            let again = after.after_crash(random.number(), MODES[random.index(MODES.len())]);
            let db = open_again(self.seed, &again)?;
            let found = store::read_all(&db, run.histories.len())?;
            history::check(&run.histories, &run.synced, &found)
                .map_err(|failure| failure.within(format!("after a failed recovery, {mode:?}")))?;
            db.close().map_err(unexpected("closing"))?;
            store::verify(&again)?;
        }
        Ok(())
    }
}

/// Probes the store, and repeats what a full disk refuses: the store must recover by itself.
fn probe_until_it_serves(db: &Db, struck: bool) -> pandodb::Result<()> {
    let mut tries = 0;
    loop {
        match probe(db) {
            Err(Error::Full { .. }) if struck && tries < RESUME_TRIES => tries += 1,
            other => return other,
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Does a little of everything.
fn probe(db: &Db) -> pandodb::Result<()> {
    let table = db.table(store::PROBE)?;
    table.put(b"key", b"value")?;
    db.checkpoint()?;
    drop(table);
    db.drop_table(store::PROBE)
}

/// Makes a failure of an error that must not happen while doing `what`.
pub(crate) fn unexpected(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// Opens the store of `seed` on `device`, which must work.
pub(crate) fn open(seed: u64, device: &FaultyDevice) -> Result<Db> {
    store::open(seed, device).map_err(unexpected("opening"))
}

fn open_again(seed: u64, device: &FaultyDevice) -> Result<Db> {
    store::open(seed, device).map_err(unexpected("opening after a failed recovery"))
}

/// Fails if a call of the run has failed: the runs before any fault must not.
pub(crate) fn no_errors(run: &Run) -> Result<()> {
    match run.errors.first() {
        Some(error) => fail(format!("before any fault: {error}")),
        None => Ok(()),
    }
}

/// Checks that no write to a poisoned store succeeds.
fn no_more_acknowledgements(db: &Db) -> Result<()> {
    let Some(table) = db.tables().first().and_then(|name| db.existing_table(name)) else {
        return Ok(());
    };
    let none = WriteOptions::durability(Durability::None);
    let mut batch = Batch::new();
    batch.put(&table, b"poisoned", b"1");
    let accepted = [
        ("put", table.put(b"poisoned", b"1").is_ok()),
        (
            "put without durability",
            table.put_with(b"poisoned", b"1", none).is_ok(),
        ),
        ("batch", db.write(&mut batch, none).is_ok()),
        ("flush", db.flush().is_ok()),
        ("checkpoint", db.checkpoint().is_ok()),
        ("clear", db.clear_tables(&[&table]).is_ok()),
    ];
    match accepted.iter().find(|(_, accepted)| *accepted) {
        Some((what, _)) => fail(format!("a poisoned store accepted: {what}")),
        None => Ok(()),
    }
}
