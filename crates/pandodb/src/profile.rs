//! Where single operations spend their time, for who asks (decision 048).
//!
//! A thread that is inside [`profiled`] keeps a [`Profile`] in a place of its own. Operations look
//! there only where they wait, and where they are timed: inside, every operation of the thread is
//! one of those that statistics time ([`pando_stats::Sampled::all`]). So an operation of which
//! nobody asks does not even look.

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
    /// A page from the device, also one that somebody else reads.
    Page,
    /// Another try, since a page was latched or has changed.
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
    /// A job of an engine thread.
    Job,
    /// The log, until the commit is durable.
    Durable,
}

impl Wait {
    /// All of them.
    pub const ALL: [Self; 12] = [
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
        Self::Job,
        Self::Durable,
    ];

    /// Its name in texts.
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
            Self::Job => "job",
            Self::Durable => "durable",
        }
    }
}

/// What an attempt to commit does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(usize)]
pub enum CommitStep {
    /// Makes the record, takes reservations, finds the leaves and pins them.
    Prepare,
    /// Locks stripes, enters the gate.
    Lock,
    /// Checks that tables and what was read are unchanged.
    Check,
    /// Copies the record into the log's buffer.
    Append,
    /// Changes the pages, stamps the stripes, leaves.
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

    /// Its name in texts.
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

/// How often, and how long in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Spent {
    /// How often.
    pub count: u64,
    /// How long.
    pub time: Duration,
}

impl Spent {
    /// Once more, and so much longer.
    fn add(&mut self, count: u64, time: Duration) {
        self.count += count;
        self.time += time;
    }
}

/// Where the operations inside a [`profiled`] spent their time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    total: Duration,
    gets: u64,
    levels: u64,
    waits: [Spent; Wait::ALL.len()],
    steps: [Spent; CommitStep::ALL.len()],
}

impl Profile {
    /// A get that went down `levels`.
    pub(crate) fn add_get(&mut self, levels: u8) {
        self.gets += 1;
        self.levels += u64::from(levels);
    }

    /// All the time, from the beginning of the call to its end.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Point reads that block: `get`, `get_into`, `get_with`, `contains`.
    pub fn gets(&self) -> u64 {
        self.gets
    }

    /// Levels of the trees that these went down, the leaf included.
    pub fn levels(&self) -> u64 {
        self.levels
    }

    /// How often and how long there was a wait for `wait`.
    pub fn waited(&self, wait: Wait) -> Spent {
        self.waits[wait as usize]
    }

    /// How often a commit came to `step`, and how long all of these took. Attempts that had to
    /// begin again count, too.
    pub fn commit(&self, step: CommitStep) -> Spent {
        self.steps[step as usize]
    }

    /// Time that was not spent waiting.
    pub fn busy(&self) -> Duration {
        let waited = self.waits.iter().map(|wait| wait.time).sum();
        self.total.saturating_sub(waited)
    }

    /// Adds a wait for `wait`.
    pub fn add_wait(&mut self, wait: Wait, time: Duration) {
        self.waits[wait as usize].add(1, time);
    }

    /// Adds what another one has.
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

/// One line: `total_us=41 busy_us=9 gets=1 levels=3 page=2:32us`; what did not happen is left out.
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

/// Ends what [`profiled`] has begun, also when the call panics.
struct Opened(Option<Profile>);

impl Opened {
    fn new() -> Self {
        if Sampled::all(true) {
            return Self(OPEN.take());
        }
        Self(None)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.0.is_none() {
            Sampled::all(false);
        }
        OPEN.set(self.0.take());
    }
}

/// Calls `f`, and says where the operations that it carries out on this thread spend their time:
/// gets, waits of all blocking calls, commits. What futures and event loops wait for is not among
/// them. May be nested. A thread that is not inside pays nothing for it; inside, each operation
/// looks at the clock a few times, and all are in the histograms of those that are sampled.
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
    let mut opened = Opened::new();
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

/// The time, if this thread is asked where it spends it.
pub(crate) fn begin() -> Option<Instant> {
    is_open().then(time::now)
}

/// A wait for `wait` that has begun at `begun` is over.
pub(crate) fn end(begun: Option<Instant>, wait: Wait) {
    if let Some(begun) = begun {
        note(|profile| profile.add_wait(wait, begun.elapsed()));
    }
}

/// Somebody asks where this thread spends its time.
pub(crate) fn is_open() -> bool {
    OPEN.with_borrow(Option::is_some)
}

/// Tells the open profile, if there is one.
pub(crate) fn note(f: impl FnOnce(&mut Profile)) {
    OPEN.with_borrow_mut(|open| open.as_mut().map(f));
}

/// The steps of an attempt to commit, one after the other.
pub(crate) struct Steps(Option<Instant>);

impl Steps {
    /// The first step begins, of an attempt that is timed if it `begun`.
    pub(crate) fn new(begun: Option<Instant>) -> Self {
        Self(begun)
    }

    /// `step` ends, and the next one begins.
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
