//! Profiles: where single operations spend their time, for callers that ask (decision 048).
//!
//! A thread inside [`profiled`] keeps a [`Profile`] in a thread-local. Operations check it only
//! where they wait and where they are timed: inside, the statistics time every operation of the
//! thread ([`pando_stats::Sampled::all`]). So an operation that nobody profiles does not even
//! check.

use std::cell::RefCell;
use std::fmt;

use pando_stats::Sampled;
use pando_sync::time::{self, Duration, Instant};

thread_local! {
    static OPEN: RefCell<Option<Profile>> = const { RefCell::new(None) };
}

/// What an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(usize)]
pub enum Wait {
    /// A page from the device, including one that another thread reads.
    Page,
    /// Another attempt, because a page was latched or has changed.
    Conflict,
    /// A free frame or a buffer for an image.
    Frames,
    /// The apply gate.
    Gate,
    /// The lock of a stripe of keys.
    Stripe,
    /// Room in the log.
    LogSpace,
    /// Blocks on disk.
    Blocks,
    /// Fewer dirty frames.
    Dirty,
    /// A pin share.
    Pins,
    /// A batch that is being applied.
    Applied,
    /// Room for values that snapshots still read.
    Versions,
    /// A lock of a key or a table that a transaction holds.
    Lock,
    /// A job of an engine thread.
    Job,
    /// The log, until the commit is durable.
    Durable,
}

impl Wait {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Page,
        Self::Conflict,
        Self::Frames,
        Self::Gate,
        Self::Stripe,
        Self::LogSpace,
        Self::Blocks,
        Self::Dirty,
        Self::Pins,
        Self::Applied,
        Self::Versions,
        Self::Lock,
        Self::Job,
        Self::Durable,
    ];

    /// Name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Conflict => "conflict",
            Self::Frames => "frames",
            Self::Gate => "gate",
            Self::Stripe => "stripe",
            Self::LogSpace => "log_space",
            Self::Blocks => "blocks",
            Self::Dirty => "dirty",
            Self::Pins => "pins",
            Self::Applied => "applied",
            Self::Versions => "versions",
            Self::Lock => "lock",
            Self::Job => "job",
            Self::Durable => "durable",
        }
    }
}

/// Steps of an attempt to commit, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(usize)]
pub enum CommitStep {
    /// Makes the record, takes reservations, finds the leaves.
    Prepare,
    /// Locks stripes, enters the gate.
    Lock,
    /// Checks that tables and everything that was read are unchanged.
    Check,
    /// Copies the record into the log's buffer.
    Append,
    /// Changes the pages, stamps the stripes, leaves the gate.
    Apply,
}

impl CommitStep {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Prepare,
        Self::Lock,
        Self::Check,
        Self::Append,
        Self::Apply,
    ];

    /// Name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Lock => "lock",
            Self::Check => "check",
            Self::Append => "append",
            Self::Apply => "apply",
        }
    }
}

/// A number of events and their time in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Spent {
    /// Number of events.
    pub count: u64,
    /// Their time in total.
    pub time: Duration,
}

impl Spent {
    /// Adds `count` events that took `time` together.
    fn add(&mut self, count: u64, time: Duration) {
        self.count += count;
        self.time += time;
    }
}

/// Where the operations inside one [`profiled`] call spent their time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    total: Duration,
    gets: u64,
    levels: u64,
    waits: [Spent; Wait::ALL.len()],
    steps: [Spent; CommitStep::ALL.len()],
}

impl Profile {
    /// Adds a get that visited `levels` levels.
    pub(crate) fn add_get(&mut self, levels: u8) {
        self.gets += 1;
        self.levels += u64::from(levels);
    }

    /// The time from the beginning of the call to its end.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Number of point reads that may block: `get`, `get_into`, `get_with`, `contains`.
    pub fn gets(&self) -> u64 {
        self.gets
    }

    /// Levels of the trees that the gets visited, leaves included.
    pub fn levels(&self) -> u64 {
        self.levels
    }

    /// How often and how long operations waited for `wait`.
    pub fn waited(&self, wait: Wait) -> Spent {
        self.waits[wait as usize]
    }

    /// How often a commit reached `step`, and how long these steps took together. Attempts that had
    /// to start again count, too.
    pub fn commit(&self, step: CommitStep) -> Spent {
        self.steps[step as usize]
    }

    /// Time that was not spent on waiting.
    pub fn busy(&self) -> Duration {
        let waited = self.waits.iter().map(|wait| wait.time).sum();
        self.total.saturating_sub(waited)
    }

    /// Adds a wait for `wait`.
    pub fn add_wait(&mut self, wait: Wait, time: Duration) {
        self.waits[wait as usize].add(1, time);
    }

    /// Adds the figures of `other`.
    pub fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.gets += other.gets;
        self.levels += other.levels;
        let waits = self.waits.iter_mut().zip(&other.waits);
        let steps = self.steps.iter_mut().zip(&other.steps);
        for (own, other) in waits.chain(steps) {
            own.add(other.count, other.time);
        }
    }
}

/// One line: `total_us=41 busy_us=9 gets=1 levels=3 page=2:32us`; figures of 0 are left out.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, busy) = (self.total.as_micros(), self.busy().as_micros());
        write!(f, "total_us={total} busy_us={busy}")?;
        if self.gets > 0 {
            write!(f, " gets={} levels={}", self.gets, self.levels)?;
        }
        let waits = Wait::ALL.map(|wait| ("", wait.name(), self.waited(wait)));
        let steps = CommitStep::ALL.map(|step| ("commit_", step.name(), self.commit(step)));
        for (kind, name, Spent { count, time }) in waits.into_iter().chain(steps) {
            if count > 0 {
                write!(f, " {kind}{name}={count}:{}us", time.as_micros())?;
            }
        }
        Ok(())
    }
}

/// Restores the thread's state before a [`profiled`] call, also if the call panics. Holds the outer
/// profile.
struct OuterProfile(Option<Profile>);

impl OuterProfile {
    fn new() -> Self {
        if Sampled::all(true) {
            return Self(OPEN.take());
        }
        Self(None)
    }
}

impl Drop for OuterProfile {
    fn drop(&mut self) {
        if self.0.is_none() {
            Sampled::all(false);
        }
        OPEN.set(self.0.take());
    }
}

/// Calls `f`, and returns with its result where the operations that it carried out on this thread
/// spent their time: gets, waits of all blocking calls, commits. Waits of futures and event loops
/// are not included. Calls may be nested. A thread outside pays nothing; inside, each operation
/// reads the clock a few times, and all of them are in the histograms that usually hold a sample.
///
/// ```
/// # fn main() -> Result<(), pandodb::Error> {
/// # let directory = tempfile::tempdir().map_err(|_| pandodb::Error::Closed)?;
/// let db = pandodb::Db::open(directory.path())?;
/// let fruit = db.table("fruit")?;
/// let (put, profile) = pandodb::profiled(|| fruit.put(b"apple", b"red"));
/// put?;
/// assert_eq!(profile.waited(pandodb::Wait::Durable).count, 1);
/// println!("{profile}");
/// # db.close()
/// # }
/// ```
pub fn profiled<R>(f: impl FnOnce() -> R) -> (R, Profile) {
    let mut opened = OuterProfile::new();
    OPEN.set(Some(Profile::default()));
    let begun = time::now();
    let result = f();
    let mut profile = OPEN.take().unwrap_or_default();
    profile.total = begun.elapsed();
    if let Some(outer) = &mut opened.0 {
        let total = outer.total;
        outer.add(&profile);
        outer.total = total;
    }
    drop(opened);
    (result, profile)
}

/// Returns the current time if this thread is being profiled.
pub(crate) fn begin() -> Option<Instant> {
    is_open().then(time::now)
}

/// Adds a wait for `wait` that began at `begun` and ends now.
pub(crate) fn end(begun: Option<Instant>, wait: Wait) {
    if let Some(begun) = begun {
        note(|profile| profile.add_wait(wait, begun.elapsed()));
    }
}

/// True if this thread is being profiled.
pub(crate) fn is_open() -> bool {
    OPEN.with_borrow(Option::is_some)
}

/// Calls `f` with the open profile, if there is one.
pub(crate) fn note(f: impl FnOnce(&mut Profile)) {
    OPEN.with_borrow_mut(|open| open.as_mut().map(f));
}

/// Times the steps of an attempt to commit, one after the other.
pub(crate) struct Steps(Option<Instant>);

impl Steps {
    /// Begins the first step of an operation that began at `begun`. Nothing is timed if that is
    /// None, or if nobody asks for the steps.
    pub(crate) fn new(begun: Option<Instant>) -> Self {
        Self(begun.filter(|_| is_open()))
    }

    /// Ends `step` and begins the next one.
    #[inline]
    pub(crate) fn end(&mut self, step: CommitStep) {
        if self.0.is_some() {
            self.end_timed(step);
        }
    }

    #[cold]
    fn end_timed(&mut self, step: CommitStep) {
        let now = time::now();
        if let Some(begun) = self.0.replace(now) {
            let spent = now.saturating_duration_since(begun);
            note(|profile| profile.steps[step as usize].add(1, spent));
        }
    }
}
