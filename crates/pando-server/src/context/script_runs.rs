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
    /// Number of runs that have begun.
    runs: u32,
    /// Time that the runs of each script took, by its place in EXEC, in the order of places.
    spent: Vec<(Option<usize>, Duration)>,
}

impl ScriptRuns {
    /// What SCRIPT KILL ends; `begin` counts a script that begins.
    pub(crate) fn running(&mut self, begin: impl FnOnce() -> RunningScript) -> &RunningScript {
        self.running.get_or_insert_with(begin)
    }

    /// What FUNCTION KILL ends; `begin` names a function that begins.
    pub(crate) fn running_function(
        &mut self,
        begin: impl FnOnce() -> RunningFunction,
    ) -> &RunningFunction {
        self.function.get_or_insert_with(begin)
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
