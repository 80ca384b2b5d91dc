//! CLIENT PAUSE: until when which commands wait.

use pando_sync::atomic::{AtomicU64, Ordering};

/// A pause of all commands, or of those that write. In one word: the end of the pause in Unix
/// milliseconds, times two, and 1 if all commands wait. 0: there is none.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

/// Latest end: what is left is not shifted out.
const UNTIL_MS_MAX: u64 = u64::MAX >> 1;

impl Pause {
    /// Begins a pause, or prolongs the one that lasts. It never becomes shorter or weaker.
    pub(crate) fn begin(&self, until_ms: u64, all: bool, now_ms: u64) {
        let new = until_ms.min(UNTIL_MS_MAX) << 1 | u64::from(all);
        let longer = |held: u64| {
            let lasts = held >> 1 > now_ms;
            let held = if lasts { held } else { 0 };
            Some((held >> 1).max(new >> 1) << 1 | (held | new) & 1)
        };
        // Relaxed: nothing else depends on it.
        let set = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
        debug_assert!(set.is_ok(), "there is always a new pause");
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns until when commands wait, in Unix milliseconds, and whether all do; `None` if none
    /// does.
    #[inline]
    pub(crate) fn get(&self, now_ms: u64) -> Option<(u64, bool)> {
        let held = self.0.load(Ordering::Relaxed);
        (held != 0 && held >> 1 > now_ms).then_some((held >> 1, held & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_becomes_longer_and_stronger_only() {
        let pause = Pause::default();
        assert_eq!(pause.get(0), None);
        pause.begin(20, false, 10);
        assert_eq!((pause.get(10), pause.get(20)), (Some((20, false)), None));
        pause.begin(15, true, 11);
        assert_eq!(pause.get(12), Some((20, true)));
        pause.begin(u64::MAX, false, 12);
        assert_eq!(pause.get(13), Some((UNTIL_MS_MAX, true)));
        pause.end();
        pause.begin(30, false, 20);
        assert_eq!(pause.get(20), Some((30, false)));
        // One that is over leaves nothing.
        pause.begin(50, false, 40);
        assert_eq!(pause.get(40), Some((50, false)));
    }
}
