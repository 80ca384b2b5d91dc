//! CLIENT PAUSE: until when which commands wait.

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::{Duration, Instant};

/// A pause of all commands, or of those that write. It goes by a clock that nobody sets: one that
/// is over must not come back.
#[derive(Debug)]
pub(crate) struct Pause {
    /// From when on the end is counted.
    since: Instant,
    /// The end of the pause in milliseconds since then, times two, and 1 if all commands wait. 0:
    /// there is none.
    word: AtomicU64,
}

/// Latest end: what is left is not shifted out.
const UNTIL_MS_MAX: u64 = u64::MAX >> 1;

impl Pause {
    /// There is no pause yet. None begins before `since`.
    pub(crate) fn new(since: Instant) -> Self {
        Self {
            since,
            word: AtomicU64::new(0),
        }
    }

    /// Begins a pause of `time_ms`, or prolongs the one that lasts. It never becomes shorter or
    /// weaker.
    pub(crate) fn begin(&self, time_ms: u64, all: bool, now: Instant) {
        let now_ms = self.elapsed_ms(now);
        let until_ms = now_ms.saturating_add(time_ms);
        let new = until_ms.min(UNTIL_MS_MAX) << 1 | u64::from(all);
        let longer = |held: u64| {
            let lasts = held >> 1 > now_ms;
            let held = if lasts { held } else { 0 };
            Some((held >> 1).max(new >> 1) << 1 | (held | new) & 1)
        };
        // Relaxed: nothing else depends on it.
        let set = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
        debug_assert!(set.is_ok(), "there is always a new pause");
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Returns for how long commands wait from `now` on, and whether all do; `None` if none does.
    #[inline]
    pub(crate) fn get(&self, now: Instant) -> Option<(Duration, bool)> {
        let held = self.word.load(Ordering::Relaxed);
        if held == 0 {
            return None;
        }
        let left_ms = (held >> 1).saturating_sub(self.elapsed_ms(now));
        (left_ms > 0).then_some((Duration::from_millis(left_ms), held & 1 == 1))
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.since);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_becomes_longer_and_stronger_only() {
        let since = pando_sync::time::now();
        let at = |ms| since + Duration::from_millis(ms);
        let left = |ms, all| Some((Duration::from_millis(ms), all));
        let pause = Pause::new(since);
        assert_eq!(pause.get(at(0)), None);
        pause.begin(10, false, at(10));
        assert_eq!(
            (pause.get(at(10)), pause.get(at(20))),
            (left(10, false), None)
        );
        pause.begin(4, true, at(11));
        assert_eq!(pause.get(at(12)), left(8, true));
        pause.begin(u64::MAX, false, at(12));
        assert_eq!(pause.get(at(13)), left(UNTIL_MS_MAX - 13, true));
        pause.end();
        pause.begin(10, false, at(20));
        assert_eq!(pause.get(at(20)), left(10, false));
        // One that is over leaves nothing.
        pause.begin(10, false, at(40));
        assert_eq!(pause.get(at(40)), left(10, false));
    }
}
