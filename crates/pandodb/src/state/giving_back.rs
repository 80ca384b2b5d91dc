//! When free space of the data file goes back by itself (decision 082), and who may stop that.

use pando_format::Lsn;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread::{self, Thread};
use pando_sync::time::{Duration, Instant};
use pando_sync::{Mutex, Rank};

/// Of an idle store, what is free beyond what is kept goes back when it is at least this fraction
/// of the file.
const IDLE_SHARE: u64 = 16;
/// The same beside writers, who may need it again.
const BUSY_SHARE: u64 = 4;
/// Less than this is not worth a checkpoint.
const IDLE_BYTES: u64 = 1 << 20;
/// Less than this is not worth it beside writers.
const BUSY_BYTES: u64 = 16 << 20;
/// Beside writers it must have been free for so many times the wait of an idle store.
const BUSY_WAITS: u32 = 12;
/// A wait that is doubled begins with this at least.
const DOUBLED_MIN: Duration = Duration::from_millis(100);
/// The wait is doubled so many times at most.
const DOUBLINGS_MAX: u32 = 7;

/// The run that gives space back and the compaction that somebody has asked for, as others see
/// them: hints, all of them relaxed. `Engine::compacting` keeps two from running at once.
#[derive(Debug)]
pub(crate) struct GivingBack {
    /// Somebody wants to compact, and waits for the end of a run.
    unwanted: AtomicBool,
    /// Somebody compacts.
    by_hand: AtomicBool,
    /// The thread that does.
    compactor: Mutex<Option<Thread>>,
}

impl Default for GivingBack {
    fn default() -> Self {
        Self {
            unwanted: AtomicBool::new(false),
            by_hand: AtomicBool::new(false),
            compactor: Mutex::new(Rank::Leaf, None),
        }
    }
}

/// A compaction that somebody has asked for; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct ByHand<'a>(&'a GivingBack);

impl Drop for ByHand<'_> {
    fn drop(&mut self) {
        *self.0.compactor.lock() = None;
        self.0.by_hand.store(false, Ordering::Relaxed);
    }
}

impl GivingBack {
    /// Notes that a run begins. The caller has `Engine::compacting`.
    pub(crate) fn begin(&self) {
        self.unwanted.store(false, Ordering::Relaxed);
    }

    /// Notes that somebody compacts. The caller has `Engine::compacting` for longer.
    pub(crate) fn begin_by_hand(&self) -> ByHand<'_> {
        *self.compactor.lock() = Some(thread::current());
        self.by_hand.store(true, Ordering::Relaxed);
        ByHand(self)
    }

    /// True if it is this thread that compacts, which calls a function of its caller then.
    pub(crate) fn is_by_hand_here(&self) -> bool {
        let compactor = self.compactor.lock();
        let this = thread::current().id();
        compactor.as_ref().is_some_and(|thread| thread.id() == this)
    }

    /// True while somebody compacts. It may be noted a moment late, and is never noted once that
    /// is over.
    pub(crate) fn is_by_hand(&self) -> bool {
        self.by_hand.load(Ordering::Relaxed)
    }

    /// Asks a run to end; the caller tries again then, and asks again.
    pub(crate) fn ask_to_end(&self) {
        self.unwanted.store(true, Ordering::Relaxed);
    }

    /// True once somebody has asked the run to end.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.unwanted.load(Ordering::Relaxed)
    }
}

/// What is seen of the data file at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    /// Length of the file.
    pub(crate) file: u64,
    /// What is free beyond what is kept, as if no page were dirty.
    pub(crate) spare: u64,
    /// The least that was free beyond what is kept at the end of a checkpoint since the last look,
    /// before it freed what it had replaced; None if there was no checkpoint.
    pub(crate) trough: Option<u64>,
    /// The end of the log.
    pub(crate) log_end: Lsn,
}

/// Decides from one look to the next.
///
/// Space that only waits for the next checkpoint is needed again: what is free falls while a
/// checkpoint writes, and is least before it frees what it has replaced. So beside writers only
/// what was free all the time, at a checkpoint too, goes back. A store that is idle gives
/// back more, and sooner; if its file grows again afterwards, it waits twice as long the next time.
#[derive(Debug)]
pub(crate) struct Watch {
    wait: Duration,
    /// The end of the log, and since when it has been there.
    quiet: (Lsn, Instant),
    /// Since when enough has been free beside writers, and whether a checkpoint was among that.
    spare_since: Option<Instant>,
    checkpoint_seen: bool,
    /// When the last run ended, and the length of the file then.
    ended: Option<(Instant, u64)>,
    /// How often the wait is doubled.
    doublings: u32,
}

impl Watch {
    /// Returns a watch that lets a store be idle for `wait` before space goes back.
    pub(crate) fn new(wait: Duration, now: Instant) -> Self {
        Self {
            wait,
            quiet: (Lsn(0), now),
            spare_since: None,
            checkpoint_seen: false,
            ended: None,
            doublings: 0,
        }
    }

    /// Returns true if space is to be given back now.
    pub(crate) fn look(&mut self, now: Instant, sight: Sight) -> bool {
        if sight.log_end != self.quiet.0 {
            self.quiet = (sight.log_end, now);
        }
        let least = sight.spare.min(sight.trough.unwrap_or(u64::MAX));
        if least >= BUSY_BYTES.max(sight.file / BUSY_SHARE) {
            self.spare_since.get_or_insert(now);
            self.checkpoint_seen |= sight.trough.is_some();
        } else {
            self.spare_since = None;
            self.checkpoint_seen = false;
        }
        let wait = match self.doublings {
            0 => self.wait,
            doublings => self
                .wait
                .max(DOUBLED_MIN)
                .saturating_mul(2_u32.pow(doublings)),
        };
        let passed = |since: Instant, wait: Duration| now.saturating_duration_since(since) >= wait;
        if self.ended.is_some_and(|(ended, _)| !passed(ended, wait)) {
            return false;
        }
        let is_idle =
            passed(self.quiet.1, wait) && sight.spare >= IDLE_BYTES.max(sight.file / IDLE_SHARE);
        let is_free = self.checkpoint_seen
            && self
                .spare_since
                .is_some_and(|since| passed(since, wait.saturating_mul(BUSY_WAITS)));
        is_idle || is_free
    }

    /// Notes that a run has ended, which began with a file of `before` bytes and left `after`.
    pub(crate) fn ran(&mut self, now: Instant, (before, after): (u64, u64)) {
        // In vain, or the file has grown again since the last run.
        let in_vain = after + after / IDLE_SHARE > before;
        let grew = self
            .ended
            .is_some_and(|(_, left)| before > left + left / IDLE_SHARE);
        self.doublings = match in_vain || grew {
            true => (self.doublings + 1).min(DOUBLINGS_MAX),
            false => 0,
        };
        self.ended = Some((now, after));
        self.spare_since = None;
        self.checkpoint_seen = false;
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::time;

    use super::*;

    const MIB: u64 = 1 << 20;
    const WAIT: Duration = Duration::from_secs(5);

    fn sight(spare_mib: u64, trough_mib: Option<u64>, log_end: u64) -> Sight {
        Sight {
            file: 100 * MIB,
            spare: spare_mib * MIB,
            trough: trough_mib.map(|mib| mib * MIB),
            log_end: Lsn(log_end),
        }
    }

    /// Looks once a second; returns the second of the first run.
    fn first_run(watch: &mut Watch, from: Instant, sight: impl Fn(u64) -> Sight) -> Option<u64> {
        (0..400).find(|second| watch.look(from + Duration::from_secs(*second), sight(*second)))
    }

    #[test]
    fn an_idle_store_gives_back_what_is_free() {
        let now = time::now();
        let run = |sight: &dyn Fn(u64) -> Sight| first_run(&mut Watch::new(WAIT, now), now, sight);
        assert_eq!(run(&|_| sight(10, None, 0)), Some(5));
        assert_eq!(run(&|_| sight(5, None, 0)), None, "less than a 16th");
        // Commits until the tenth second.
        assert_eq!(run(&|second| sight(10, None, second.min(10))), Some(15));
    }

    #[test]
    fn what_each_checkpoint_needs_stays_beside_writers() {
        let now = time::now();
        let run = |sight: &dyn Fn(u64) -> Sight| first_run(&mut Watch::new(WAIT, now), now, sight);
        let trough = |second: u64, mib| second.is_multiple_of(30).then_some(mib);
        let needed = |second| sight(50, trough(second, 3), second);
        assert_eq!(run(&needed), None);
        let spare = |second| sight(50, trough(second, 30), second);
        assert_eq!(run(&spare), Some(60));
        let no_checkpoint = |second| sight(50, None, second);
        assert_eq!(run(&no_checkpoint), None);
    }

    #[test]
    fn a_file_that_grows_again_is_left_longer() {
        let now = time::now();
        let mut watch = Watch::new(WAIT, now);
        let mut at = now;
        let mut waits = Vec::new();
        for _ in 0..4 {
            let second = first_run(&mut watch, at, |_| sight(50, None, 0)).unwrap();
            waits.push(second);
            at += Duration::from_secs(second);
            watch.ran(at, (100 * MIB, 50 * MIB));
        }
        assert_eq!(waits, [5, 5, 10, 20]);
        // In vain.
        watch.ran(at, (100 * MIB, 99 * MIB));
        assert_eq!(first_run(&mut watch, at, |_| sight(50, None, 0)), Some(80));
    }

    #[test]
    fn what_is_tried_in_vain_waits_however_short_the_wait_is() {
        let now = time::now();
        let mut watch = Watch::new(Duration::ZERO, now);
        for doublings in 1..20 {
            assert!(watch.look(
                now + Duration::from_secs(60 * doublings),
                sight(50, None, 0)
            ));
            let ended = now + Duration::from_secs(60 * doublings);
            watch.ran(ended, (100 * MIB, 100 * MIB));
            let early = ended + DOUBLED_MIN;
            assert!(!watch.look(early, sight(50, None, 0)), "{doublings}");
        }
    }
}
