//! Threads of a test that go on until it ends.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{Duration, now};

/// What such threads look at.
#[derive(Default)]
pub(crate) struct End(AtomicBool);

impl End {
    /// Returns true if the threads are to stop.
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns what brings it when it is dropped: so also if a check fails, which would wait for
    /// the threads of its scope for ever. A thread that others wait for has one, too.
    #[must_use]
    pub(crate) fn brought(&self) -> Bring<'_> {
        Bring(self)
    }
}

/// See [`End::brought`].
pub(crate) struct Bring<'e>(&'e End);

impl Drop for Bring<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_check_that_fails_ends_the_threads_beside_it() {
    let end = End::default();
    let failed = std::panic::catch_unwind(|| {
        pando_sync::thread::scope(|scope| {
            let _bring = end.brought();
            scope.spawn(|| {
                let begun = now();
                while !end.is_there() && begun.elapsed() < Duration::from_secs(20) {
                    pando_sync::thread::yield_now();
                }
            });
            assert!(end.is_there(), "nobody has brought it yet");
        });
    });
    assert!(failed.is_err());
    assert!(end.is_there(), "the thread was left alone");
}
