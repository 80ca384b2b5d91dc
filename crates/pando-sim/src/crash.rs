//! Lives of a store that end in crashes, and what recovery restores.
//!
//! ```text
//! workload -> crash -> survivors (by mode) -> recovery -> check -> workload -> crash -> ...
//!                                                `-> crash inside recovery -> survivors -> ...
//! ```
//!
//! After each recovery, everything acknowledged exists, what exists is a prefix of the commits,
//! counts agree with a scan, and every page and block has exactly one owner.

use std::fmt;
use std::str::FromStr;

use pando_device::FaultyDevice;
use pando_device::faulty::{CrashMode, Random};
use pando_sync::time::Duration;
use pandodb::Db;

use crate::failure::{Failure, Result, fail};
use crate::history;
use crate::state::State;
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan, Run};

/// What can survive of changes that were not synced: all modes that are known.
pub const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];
/// Maximum depth of crashes inside a recovery that follows a crash.
const DEPTH_MAX: u32 = 3;
/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the time after which a case counts as hanging.
pub(crate) fn limit() -> Duration {
    LIMIT
}

/// When a crash happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// When the n-th sync of the device's life begins.
    Sync(u64),
    /// After n writes.
    Write(u64),
    /// When the workload has finished.
    End,
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync(n) => write!(f, "sync:{n}"),
            Self::Write(n) => write!(f, "write:{n}"),
            Self::End => write!(f, "end"),
        }
    }
}

impl FromStr for CrashPoint {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let number = |n: &str| {
            n.parse()
                .map_err(|_| Failure::new(format!("'{n}' is no number")))
        };
        match text.split_once(':') {
            Some(("sync", n)) => Ok(Self::Sync(number(n)?)),
            Some(("write", n)) => Ok(Self::Write(number(n)?)),
            None if text == "end" => Ok(Self::End),
            _ => fail(format!("'{text}' is neither sync:N nor write:N nor end")),
        }
    }
}

/// One crash.
#[derive(Debug, Clone, Copy)]
pub struct CrashCase {
    /// Decides the workload, and what survives.
    pub seed: u64,
    /// When the first crash happens.
    pub point: CrashPoint,
    /// Number of steps of the workload, over all threads.
    pub steps: usize,
    /// Number of lives: workloads that end in a crash, each on top of what the previous life has
    /// left.
    pub lives: u32,
}

/// Counts of what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashCounts {
    /// Crashes.
    pub crashes: u64,
    /// Recoveries that were checked.
    pub recoveries: u64,
    /// Commits of workloads.
    pub commits: u64,
    /// Sync points of the first life.
    pub syncs: u64,
    /// Writes of the first life.
    pub writes: u64,
}

impl CrashCounts {
    /// Adds the counts of another case.
    pub fn add(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.recoveries += other.recoveries;
        self.commits += other.commits;
    }
}

impl CrashCase {
    /// Returns the command that repeats the case.
    pub fn command(&self) -> String {
        format!(
            "cargo run -p pando-sim -- crash --seed {} --at {} --steps {} --lives {} --repeat 20",
            self.seed, self.point, self.steps, self.lives
        )
    }

    /// Runs the case.
    ///
    /// # Errors
    /// What is wrong, with the command that repeats the case.
    pub fn run(&self) -> Result<CrashCounts> {
        let _watchdog = Watchdog::new(LIMIT, self.command());
        let mut lives = Lives {
            case: *self,
            counts: CrashCounts::default(),
        };
        match lives.all() {
            Ok(()) => Ok(lives.counts),
            Err(failure) => {
                Err(failure.within(format!("{}\n  replay: {}", self.point, self.command())))
            }
        }
    }
}

/// Crashes at up to `points` sync points of the workload of `case`, spread as evenly as possible,
/// and after half as many writes. Calls `done` after each crash.
///
/// # Errors
/// The failure of the first case that failed.
pub fn sweep(
    case: CrashCase,
    points: u64,
    mut done: impl FnMut(CrashPoint),
) -> Result<CrashCounts> {
    let mut counts = CrashCase {
        point: CrashPoint::End,
        ..case
    }
    .run()?;
    done(CrashPoint::End);
    let (syncs, writes) = (counts.syncs, counts.writes);
    let spread = |all: u64, points: u64| {
        let points = points.clamp(1, all.max(1));
        (0..points).map(move |index| 1 + index * all / points)
    };
    let at_syncs = spread(syncs, points).map(CrashPoint::Sync);
    let at_writes = spread(writes, points / 2).map(CrashPoint::Write);
    for point in at_syncs.chain(at_writes) {
        counts.add(CrashCase { point, ..case }.run()?);
        done(point);
    }
    Ok(counts)
}

struct Lives {
    case: CrashCase,
    counts: CrashCounts,
}

/// What a life leaves to be checked.
struct Remains {
    run: Run,
    /// The store was open: from then on it always has a sound checkpoint.
    opened: bool,
}

impl Lives {
    fn all(&mut self) -> Result<()> {
        let mut random = Random::new(self.case.seed).part(0xc4a5);
        let mut device = FaultyDevice::new(self.case.seed);
        match self.case.point {
            CrashPoint::Sync(n) => device.crash_at_sync(n),
            CrashPoint::Write(n) => device.crash_after_writes(n),
            CrashPoint::End => {}
        }
        let mut initial = Vec::new();
        let mut existed = false;
        for life in 0..self.case.lives.max(1) {
            let remains = self
                .live(&device, life, &initial, existed)
                .map_err(|failure| failure.within(format!("life {life}")))?;
            if life == 0 {
                self.counts.syncs = device.sync_points();
                self.counts.writes = device.writes();
            }
            existed |= remains.opened;
            for mode in MODES {
                let seed = random.number();
                self.recover(&device, mode, seed, &remains, existed, 0)
                    .map_err(|failure| failure.within(format!("life {life}, {mode:?}")))?;
            }
            let mode = MODES[random.index(MODES.len())];
            device = device.after_crash(random.number(), mode);
            initial = self.states_after(&device)?;
            existed = true;
            let syncs = device.sync_points() + random.below(120);
            device.crash_at_sync(syncs);
        }
        Ok(())
    }

    fn plan(&self, life: u32) -> Plan {
        let plan = Plan::of_seed(self.case.seed, self.case.steps);
        Plan {
            round: u64::from(life),
            steps: plan.steps >> life.min(4),
            ..plan
        }
    }

    /// Opens the store, runs a workload, and crashes.
    fn live(
        &mut self,
        device: &FaultyDevice,
        life: u32,
        initial: &[State],
        existed: bool,
    ) -> Result<Remains> {
        let plan = self.plan(life);
        let (run, opened) = match store::open(self.case.seed, device) {
            Ok(db) => {
                let run = workload::run(&db, plan, initial)?;
                if let Some(error) = run.errors.first()
                    && !device.is_crashed()
                {
                    return fail(format!("without a fault: {error}"));
                }
                device.crash_now();
                drop(db);
                (run, true)
            }
            Err(error) if !device.is_crashed() => return fail(format!("opening: {error}")),
            Err(_) => (untouched(plan.threads, initial), existed),
        };
        self.counts.crashes += 1;
        self.counts.commits += run
            .histories
            .iter()
            .map(|h| h.steps().len() as u64)
            .sum::<u64>();
        Ok(Remains { run, opened })
    }

    /// Returns what a store holds; closes it cleanly.
    fn states_after(&mut self, device: &FaultyDevice) -> Result<Vec<State>> {
        let db = self.open(device)?;
        let states = store::read_all(&db, self.plan(0).threads)?;
        close(db)?;
        store::verify(device)?;
        Ok(states)
    }

    fn open(&self, device: &FaultyDevice) -> Result<Db> {
        store::open(self.case.seed, device)
            .map_err(|error| Failure::new(format!("recovery: {error}")))
    }

    /// Recovers what a crash of `device` leaves, and checks it; then crashes inside that recovery.
    fn recover(
        &mut self,
        device: &FaultyDevice,
        mode: CrashMode,
        seed: u64,
        remains: &Remains,
        existed: bool,
        depth: u32,
    ) -> Result<()> {
        let mut random = Random::new(seed).part(u64::from(depth));
        let after = device.after_crash(seed, mode);
        if existed {
            store::verify(&after).map_err(|failure| failure.within("before recovery"))?;
        }
        let db = self.open(&after)?;
        let syncs = after.sync_points();
        let found = store::read_all(&db, remains.run.histories.len())?;
        history::check(&remains.run.histories, &remains.run.synced, &found)?;
        self.counts.recoveries += 1;
        if random.once_in(2) {
            close(db)?;
            store::verify(&after).map_err(|failure| failure.within("after recovery"))?;
            if random.once_in(4) && self.states_after(&after)? != found {
                return fail("a clean restart changed what is there");
            }
        } else {
            drop(db);
        }
        if depth < DEPTH_MAX && syncs > 0 && random.once_in(2) {
            let again = device.after_crash(seed, mode);
            again.crash_at_sync(1 + random.below(syncs));
            if let Ok(db) = store::open(self.case.seed, &again) {
                again.crash_now();
                drop(db);
            }
            let inner = MODES[random.index(MODES.len())];
            self.counts.crashes += 1;
            self.recover(&again, inner, random.number(), remains, existed, depth + 1)
                .map_err(|failure| {
                    failure.within(format!("crash {depth} in recovery, {inner:?}"))
                })?;
        }
        Ok(())
    }
}

fn close(db: Db) -> Result<()> {
    db.close()
        .map_err(|error| Failure::new(format!("closing: {error}")))
}

/// Returns the run of a life without a workload.
fn untouched(threads: usize, initial: &[State]) -> Run {
    let history = |thread| {
        let state = initial.get(thread).cloned().unwrap_or_default();
        history::History::new(thread, state)
    };
    Run {
        histories: (0..threads).map(history).collect(),
        synced: Vec::new(),
        errors: Vec::new(),
        refused: 0,
    }
}
