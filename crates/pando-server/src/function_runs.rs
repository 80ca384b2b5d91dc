//! The functions that run or wait, for FUNCTION STATS and FUNCTION KILL.
//!
//! Each loop has a list of its own, whose lock others take only for these two commands.

use std::collections::BTreeMap;

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, Mutex, Rank};

/// A function that runs, as others see it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) name: Vec<u8>,
    /// The command that has called it, cut to a bounded length.
    pub(crate) command: Vec<Vec<u8>>,
    began: Instant,
}

impl Shown {
    /// Returns for how long it has run.
    pub(crate) fn time(&self) -> Duration {
        now().duration_since(self.began)
    }
}

#[derive(Debug, Default)]
struct Running {
    /// By number, in the order in which they began.
    all: BTreeMap<u64, Shown>,
    /// Number of the next one.
    next: u64,
}

/// The functions of one loop.
#[derive(Debug)]
struct OfLoop {
    /// Guarded by its lock.
    running: Arc<Mutex<Running>>,
    /// Grows when those that run are to be ended.
    kills: Arc<AtomicU64>,
}

/// The functions of all loops.
#[derive(Debug)]
pub(crate) struct FunctionRuns {
    loops: Vec<OfLoop>,
}

/// A command that calls a function, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningFunction {
    number: u64,
    running: Arc<Mutex<Running>>,
    kills: Arc<AtomicU64>,
    kills_before: u64,
}

impl RunningFunction {
    /// Returns the count that grows when it is to be ended, and what it was when it began.
    pub(crate) fn kills(&self) -> (Arc<AtomicU64>, u64) {
        (self.kills.clone(), self.kills_before)
    }

    /// Returns it as one that began when the count was `kills_before`.
    pub(crate) fn since(mut self, kills_before: u64) -> Self {
        self.kills_before = kills_before;
        self
    }
}

impl Drop for RunningFunction {
    fn drop(&mut self) {
        self.running.lock().all.remove(&self.number);
    }
}

impl FunctionRuns {
    /// Returns the lists of so many loops.
    pub(crate) fn new(loops: usize) -> Self {
        let of_loop = |_| OfLoop {
            running: Arc::new(Mutex::new(Rank::Leaf, Running::default())),
            kills: Arc::new(AtomicU64::new(0)),
        };
        Self {
            loops: (0..loops.max(1)).map(of_loop).collect(),
        }
    }

    /// Notes that loop `number` calls a function, with `command`.
    pub(crate) fn begin(
        &self,
        number: usize,
        name: &[u8],
        command: Vec<Vec<u8>>,
    ) -> RunningFunction {
        let of = &self.loops[number % self.loops.len()];
        // Relaxed, and before it is in the list: a kill that finds it grows the count afterwards.
        // One that has found others may end this one, too, which begins at that moment.
        let kills_before = of.kills.load(Ordering::Relaxed);
        let mut running = of.running.lock();
        let number = running.next;
        running.next += 1;
        let shown = Shown {
            name: name.to_vec(),
            command,
            began: now(),
        };
        running.all.insert(number, shown);
        RunningFunction {
            number,
            running: of.running.clone(),
            kills: of.kills.clone(),
            kills_before,
        }
    }

    /// Returns true if any function runs.
    pub(crate) fn any(&self) -> bool {
        self.loops
            .iter()
            .any(|of| !of.running.lock().all.is_empty())
    }

    /// Returns the function that has run longest of those that run.
    pub(crate) fn oldest(&self) -> Option<Shown> {
        let first = |of: &OfLoop| of.running.lock().all.values().next().cloned();
        let firsts = self.loops.iter().filter_map(first);
        firsts.min_by_key(|shown| shown.began)
    }

    /// Ends all functions that run. Returns false if none does.
    pub(crate) fn kill(&self) -> bool {
        let mut found = false;
        for of in &self.loops {
            if !of.running.lock().all.is_empty() {
                of.kills.fetch_add(1, Ordering::Relaxed);
                found = true;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_while_they_run() {
        let runs = FunctionRuns::new(2);
        assert!(!runs.any() && !runs.kill() && runs.oldest().is_none());
        let first = runs.begin(1, b"first", vec![b"FCALL".to_vec()]);
        let second = runs.begin(0, b"second", Vec::new());
        assert!(runs.any());
        assert_eq!(runs.oldest().unwrap().name, b"first");
        drop(first);
        assert_eq!(runs.oldest().unwrap().name, b"second");
        let (kills, before) = second.kills();
        assert_eq!(kills.load(Ordering::Relaxed), before);
        assert!(runs.kill());
        assert_ne!(kills.load(Ordering::Relaxed), before);
        // What begins afterwards is not ended.
        let third = runs.begin(0, b"third", Vec::new());
        let (kills, before) = third.kills();
        assert_eq!(kills.load(Ordering::Relaxed), before);
        drop((second, third));
        assert!(!runs.any() && !runs.kill());
    }
}
