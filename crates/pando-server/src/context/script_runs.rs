//! What the runs of a command's scripts share: a script that waits runs again from its beginning.

use pando_sync::time::Duration;

use crate::function_runs::RunningFunction;
use crate::script_cache::RunningScript;

/// Number of scripts for whose times a connection keeps room between two commands.
const SPENT_KEPT: usize = 4;

/// The runs of the scripts of one command, which is EVAL or an EXEC around some.
#[derive(Debug, Default)]
pub(crate) struct ScriptRuns {
    /// When the first run began, since the beginning of Unix time; `None` before it.
    pub(crate) moment: Option<Duration>,
    /// SCRIPT KILL finds a script until a run of it has come to its end, also while it waits.
    running: Option<RunningScript>,
    /// FUNCTION KILL and FUNCTION STATS find a function likewise.
    function: Option<RunningFunction>,
    /// If it has left a pipeline run, to begin by itself: the count of kills with which it began
    /// there. Who killed it in between was told so.
    kills_before: Option<u64>,
    /// Number of runs that have begun.
    runs: u32,
    /// Time that the runs of each script took, by its place in EXEC, in the order of places.
    spent: Vec<(Option<usize>, Duration)>,
}

impl ScriptRuns {
    /// What SCRIPT KILL ends; `begin` counts a script that begins.
    pub(crate) fn running(&mut self, begin: impl FnOnce() -> RunningScript) -> &RunningScript {
        let before = self.kills_before.take();
        self.running.get_or_insert_with(|| match before {
            Some(before) => begin().since(before),
            None => begin(),
        })
    }

    /// What FUNCTION KILL ends; `begin` names a function that begins.
    pub(crate) fn running_function(
        &mut self,
        begin: impl FnOnce() -> RunningFunction,
    ) -> &RunningFunction {
        let before = self.kills_before.take();
        self.function.get_or_insert_with(|| match before {
            Some(before) => begin().since(before),
            None => begin(),
        })
    }

    /// Returns the count of kills with which the script or function began that has not come to its
    /// end, for [`ScriptRuns::begin_at`] when it begins by itself.
    pub(crate) fn kills_before(&self) -> Option<u64> {
        let of_script = self.running.as_ref().map(|of| of.kills().1);
        of_script.or_else(|| self.function.as_ref().map(|of| of.kills().1))
    }

    /// A script begins that has begun before, when the count of kills was `kills_before`.
    pub(crate) fn begin_at(&mut self, kills_before: u64) {
        self.kills_before = Some(kills_before);
    }

    /// A run has come to the end of its script, or its function: KILL ends that no more.
    pub(crate) fn returned(&mut self, is_function: bool) {
        match is_function {
            true => self.function = None,
            false => self.running = None,
        }
    }

    /// Returns the time that the runs of the script at `place` took so far.
    pub(crate) fn spent(&self, place: Option<usize>) -> Duration {
        match self.find(place) {
            Ok(at) => self.spent[at].1,
            Err(_) => Duration::ZERO,
        }
    }

    /// Adds the time that a run took.
    pub(crate) fn spend(&mut self, place: Option<usize>, time: Duration) {
        match self.find(place) {
            Ok(at) => self.spent[at].1 += time,
            Err(at) => self.spent.insert(at, (place, time)),
        }
    }

    /// Returns the time that the runs of all scripts took so far.
    pub(crate) fn spent_by_all(&self) -> Duration {
        self.spent.iter().map(|(_, time)| *time).sum()
    }

    /// Counts a run that begins.
    pub(crate) fn begin_run(&mut self) {
        self.runs = self.runs.saturating_add(1);
    }

    /// Returns the number of runs that have begun, of all scripts together.
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    fn find(&self, place: Option<usize>) -> Result<usize, usize> {
        self.spent.binary_search_by_key(&place, |(of, _)| *of)
    }

    /// Another command comes.
    pub(crate) fn reset(&mut self) {
        self.moment = None;
        (self.running, self.function) = (None, None);
        self.kills_before = None;
        self.runs = 0;
        self.spent.clear();
        self.spent.shrink_to(SPENT_KEPT);
    }

    /// The transaction begins again, at a new moment. What was spent stays.
    pub(crate) fn begin_again(&mut self) {
        self.moment = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function_runs::FunctionRuns;
    use crate::script_cache::ScriptCache;
    use pando_sync::atomic::Ordering;

    /// A script that leaves a pipeline run is not found for a moment; but who has found it before
    /// was told that it is killed.
    #[test]
    fn a_script_that_begins_by_itself_is_killed_if_it_was_before() {
        let (functions, scripts) = (FunctionRuns::new(1), ScriptCache::default());
        for is_killed in [false, true] {
            let mut runs = ScriptRuns::default();
            let was_killed = |runs: &mut ScriptRuns| {
                let (kills, before) = runs.running(|| scripts.begin()).kills();
                kills.load(Ordering::Relaxed) != before
            };
            assert!(!was_killed(&mut runs));
            assert!(!is_killed || scripts.kill());
            let before = runs.kills_before().unwrap();
            runs.reset();
            assert_eq!(runs.kills_before(), None);
            runs.begin_at(before);
            assert_eq!(was_killed(&mut runs), is_killed);
            runs.reset();
            assert!(!was_killed(&mut runs), "another script");
        }
        let mut runs = ScriptRuns::default();
        let begin = || functions.begin(0, b"f", Vec::new());
        let before = runs.running_function(begin).kills().1;
        assert_eq!(runs.kills_before(), Some(before));
        runs.reset();
        runs.begin_at(before + 1);
        assert_eq!(runs.running_function(begin).kills().1, before + 1);
    }

    #[test]
    fn a_script_that_returns_leaves_the_function_that_waits() {
        let (functions, scripts) = (FunctionRuns::new(1), ScriptCache::default());
        let mut runs = ScriptRuns::default();
        runs.running(|| scripts.begin());
        runs.running_function(|| functions.begin(0, b"f", Vec::new()));
        runs.returned(false);
        assert!(!scripts.any() && functions.any());
        runs.running(|| scripts.begin());
        runs.returned(true);
        assert!(scripts.any() && !functions.any());
    }
}
