//! Processes that end, one after the other, while the kernel keeps running; and then a power cut.
//!
//! ```text
//! process -> ends at any operation -> the next one, in the page cache -> ... -> power cut
//!    |             or closes                                                       |
//!    `-> one operation fails                            check <- recovery, by mode <'
//! ```
//!
//! What a process has written and not synced is read by the next process, and gone after the power
//! cut. So is what a failed sync should have written, whichever process syncs next. So an opening
//! must itself make durable everything that it has found and relies on (decision 055).

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation, Random};
use pandodb::{Db, Durability, WriteOptions};

use crate::crash::{MODES, limit};
use crate::failure::{Failure, Result, fail};
use crate::faults::unexpected;
use crate::history::{self, History};
use crate::state::State;
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan, Run};

/// Maximum number of processes between two power cuts.
const PROCESSES_MAX: u64 = 4;
/// Fills most of the 8 MiB of a new data file.
const BALLAST_VALUES: u64 = 90;
const BALLAST_BYTES: u64 = 60_000;
/// How long other threads continue while the last operation of a process is in flight: many commits
/// then come after a checkpoint that has not finished.
const UNDER_WAY: Fault = Fault::CrashLater {
    changes: 80,
    turns: 300,
};
/// The operations before which a process ends, or that fail under it, if not a random one.
const PLACES: [(Operation, &str); 12] = [
    (Operation::Sync, "superblock"),
    (Operation::Write, "superblock"),
    (Operation::Sync, "journal"),
    (Operation::Write, "journal"),
    (Operation::Sync, "data"),
    (Operation::Write, "data"),
    (Operation::Sync, "log/"),
    (Operation::Write, "log/"),
    (Operation::Sync, ""),
    (Operation::SyncDirectory, ""),
    (Operation::Open, ""),
    (Operation::Remove, ""),
];

/// A sequence of processes and power cuts.
#[derive(Debug, Clone, Copy)]
pub struct RestartCase {
    /// Decides everything except the schedule of threads.
    pub seed: u64,
    /// Number of power cuts, each on top of what the previous one has left.
    pub cuts: u32,
    /// Number of steps of a process's workload, over all threads.
    pub steps: usize,
}

/// Counts of what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestartCounts {
    /// Processes that ended while the kernel kept running, or closed their store.
    pub processes: u64,
    /// Number of these that ended while they opened the store.
    pub openings: u64,
    /// Operations that failed.
    pub struck: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Recoveries that were checked: every power cut is recovered in every mode.
    pub recoveries: u64,
}

impl RestartCounts {
    /// Adds the counts of another case.
    pub fn add(&mut self, other: Self) {
        self.processes += other.processes;
        self.openings += other.openings;
        self.struck += other.struck;
        self.cuts += other.cuts;
        self.recoveries += other.recoveries;
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Before an operation, while it opens the store.
    Opening,
    /// Before an operation of its workload, or after the last one.
    Working,
    /// By itself, after closing its store.
    Closed,
}

/// What is known of a store: the commits of the last process that had it open, on top of what that
/// process found.
#[derive(Debug)]
struct KnownStore {
    run: Run,
    /// Some process has had it open.
    existed: bool,
}

impl RestartCase {
    /// Returns the command that repeats the case.
    pub fn command(&self) -> String {
        format!(
            "cargo run -p pando-sim -- restart --seed {} --cuts {} --steps {} --repeat 20",
            self.seed, self.cuts, self.steps
        )
    }

    /// Runs the case.
    ///
    /// # Errors
    /// What is wrong, with the command that repeats the case.
    pub fn run(&self) -> Result<RestartCounts> {
        let mut machine = Machine {
            case: *self,
            random: Random::new(self.seed).part(0x2e57),
            round: 0,
            around_superblock: false,
            counts: RestartCounts::default(),
            story: Vec::new(),
        };
        match machine.all() {
            Ok(()) => Ok(machine.counts),
            Err(failure) => {
                let story = machine.story.join("\n  ");
                let command = self.command();
                Err(failure.within(format!("{story}\n  replay: {command}\n ")))
            }
        }
    }
}

struct Machine {
    case: RestartCase,
    random: Random,
    /// Number of workloads so far.
    round: u64,
    /// All processes end near the write that makes a checkpoint valid: the least certain place.
    around_superblock: bool,
    counts: RestartCounts,
    /// What has happened since the last power cut.
    story: Vec<String>,
}

impl Machine {
    /// Returns what watches one process, or one recovery: on a busy machine, all of a case may take
    /// longer than anything that does not hang.
    fn watchdog(&self) -> Watchdog {
        Watchdog::new(limit(), self.case.command())
    }

    fn plan(&self) -> Plan {
        let threads = 2 + (self.case.seed % 2) as usize;
        Plan {
            round: self.round,
            threads,
            steps: self.case.steps / threads,
            ..Plan::of_seed(self.case.seed, self.case.steps)
        }
    }

    fn all(&mut self) -> Result<()> {
        let mut device = FaultyDevice::new(self.case.seed);
        let mut known = KnownStore {
            run: untouched(&vec![State::default(); self.plan().threads]),
            existed: false,
        };
        for _ in 0..self.case.cuts.max(1) {
            self.story.clear();
            self.around_superblock = self.random.once_in(2);
            for _ in 0..=self.random.below(PROCESSES_MAX) {
                device = self.process(&device, &mut known)?;
            }
            // The last process ends with the machine.
            self.counts.cuts += 1;
            for mode in MODES {
                let after = device.after_crash(self.random.number(), mode);
                self.recover(&after, &known)
                    .map_err(|failure| failure.within(format!("power cut, {mode:?}")))?;
            }
            let mode = MODES[self.random.index(MODES.len())];
            device = device.after_crash(self.random.number(), mode);
            known.run = untouched(&self.recover(&device, &known)?);
            known.existed = true;
        }
        Ok(())
    }

    /// Runs one process on `device`; returns what the next one finds.
    fn process(&mut self, device: &FaultyDevice, known: &mut KnownStore) -> Result<FaultyDevice> {
        let _watchdog = self.watchdog();
        let end = match self.random.below(8) {
            0..4 => End::Opening,
            4..7 => End::Working,
            _ => End::Closed,
        };
        self.counts.processes += 1;
        if end == End::Opening {
            self.arm(device, 60);
        }
        let opened = store::open(self.case.seed, device);
        // Threads of the store may also run into the end of the process after the opening.
        let lives = device.clear_crashes();
        match opened {
            Ok(db) if lives => {
                device.clear_faults();
                self.work(device, db, known, end)?;
            }
            Ok(db) => {
                known.existed = true;
                drop(db);
            }
            Err(error) if lives && device.faults_struck() == 0 => {
                return fail(format!("opening: {error}"));
            }
            Err(_) => self.counts.openings += 1,
        }
        self.counts.struck += device.faults_struck();
        Ok(device.after_exit(self.random.number()))
    }

    /// Decides before which of the next `changes` operations or so the process ends, or which of
    /// them fails.
    fn arm(&mut self, device: &FaultyDevice, changes: u64) {
        let places = if self.around_superblock {
            &PLACES[..2]
        } else {
            &PLACES[..]
        };
        let (operation, prefix) = places[self.random.index(places.len())];
        let nth = 1 + self.random.below(3) / 2;
        let at = 1 + self.random.below(changes);
        match self.random.below(4) {
            0 if !self.around_superblock => {
                self.story.push(format!("ends before change {at}"));
                device.crash_at_change(device.changes() + at);
            }
            0..3 => {
                let what = format!("ends before {operation:?} {nth} of '{prefix}'");
                self.story.push(what);
                device.fail(FaultPlan::once(operation, prefix, nth, UNDER_WAY));
            }
            _ => {
                let what = format!("{operation:?} {nth} of '{prefix}' fails, ends {at} changes on");
                self.story.push(what);
                device.fail(FaultPlan::once(operation, prefix, nth, Fault::Io));
                device.crash_at_change(device.changes() + 20 + at);
            }
        }
    }

    /// Checks what the process has found, and works on top of it.
    fn work(
        &mut self,
        device: &FaultyDevice,
        db: Db,
        known: &mut KnownStore,
        end: End,
    ) -> Result<()> {
        let found = store::read_all(&db, known.run.histories.len())?;
        history::check(&known.run.histories, &known.run.synced, &found)
            .map_err(|failure| failure.within("behind a restart"))?;
        known.existed = true;
        if self.round == 0 {
            fill(&db).map_err(unexpected("filling"))?;
        }
        if end == End::Working {
            self.arm(device, 200);
        }
        let struck = device.faults_struck();
        let run = workload::run(&db, self.plan(), &found)?;
        self.round += 1;
        let failed = device.is_crashed() || device.faults_struck() > struck;
        if let Some(error) = run.errors.first().filter(|_| !failed) {
            return fail(format!("without a fault: {error}"));
        }
        known.run = run;
        if end == End::Closed || self.random.once_in(3) {
            self.story.push("closes".to_owned());
            match db.close() {
                Ok(()) => known.run.synced.push(u64::MAX),
                Err(_) if device.is_crashed() || device.faults_struck() > struck => {}
                Err(error) => return fail(format!("closing: {error}")),
            }
        } else {
            device.crash_now();
            drop(db);
        }
        Ok(())
    }

    /// Opens and checks what a power cut has left; returns what exists.
    fn recover(&mut self, device: &FaultyDevice, known: &KnownStore) -> Result<Vec<State>> {
        let _watchdog = self.watchdog();
        if known.existed {
            store::verify(device).map_err(|failure| failure.within("before recovery"))?;
        }
        let db = store::open(self.case.seed, device)
            .map_err(|error| Failure::new(format!("recovery: {error}")))?;
        let found = store::read_all(&db, known.run.histories.len())?;
        history::check(&known.run.histories, &known.run.synced, &found)?;
        self.counts.recoveries += 1;
        db.close().map_err(unexpected("closing"))?;
        store::verify(device).map_err(|failure| failure.within("after recovery"))?;
        Ok(found)
    }
}

/// Leaves little of the data file free, so that blocks which no checkpoint names are reused soon.
fn fill(db: &Db) -> pandodb::Result<()> {
    let table = db.table(store::PROBE)?;
    let none = WriteOptions::durability(Durability::None);
    let mut random = Random::new(1);
    for number in 0..BALLAST_VALUES {
        let value: Vec<u8> = (0..BALLAST_BYTES / 8)
            .flat_map(|_| random.number().to_le_bytes())
            .collect();
        table.put_with(&number.to_be_bytes(), &value, none)?;
    }
    db.checkpoint()
}

/// Returns a run that has done nothing on top of `found`.
fn untouched(found: &[State]) -> Run {
    let histories = found.iter().enumerate();
    Run {
        histories: histories
            .map(|(thread, state)| History::new(thread, state.clone()))
            .collect(),
        synced: Vec::new(),
        errors: Vec::new(),
        refused: 0,
    }
}
