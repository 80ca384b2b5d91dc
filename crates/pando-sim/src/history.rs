//! What threads have committed, and whether the contents of a store can result from that.
//!
//! The log is one sequence, and a crash cuts it at one point. So a prefix of each thread's commits
//! exists; a commit that was acknowledged as durable exists; and if a commit exists that began
//! after another one had returned, the other one exists, too, whichever thread made it.

use std::collections::BTreeSet;

use crate::failure::{Result, fail};
use crate::order;
use crate::state::{Effect, Entry, State};

/// One commit.
#[derive(Debug, Clone)]
pub struct Step {
    /// All of its changes, which happen atomically.
    pub effects: Vec<Effect>,
    /// Stamp before the call.
    pub start: u64,
    /// Stamp after the call, if it succeeded.
    pub end: Option<u64>,
    /// Success promised that it survives.
    pub durable: bool,
}

/// The commits of one thread.
#[derive(Debug, Clone)]
pub struct History {
    /// The thread.
    pub thread: usize,
    initial: State,
    steps: Vec<Step>,
    /// Fingerprints after 0, 1, ... steps.
    prints: Vec<u64>,
    now: State,
}

impl History {
    /// Creates a history without commits, on top of `initial`.
    pub fn new(thread: usize, initial: State) -> Self {
        Self {
            thread,
            prints: vec![initial.print()],
            now: initial.clone(),
            initial,
            steps: Vec::new(),
        }
    }

    /// Returns the thread's entries if every commit has happened.
    pub fn now(&self) -> &State {
        &self.now
    }

    /// Returns the commits.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Records a commit, whose outcome may still be unknown.
    pub fn push(&mut self, step: Step) {
        for effect in &step.effects {
            self.now.apply(effect);
        }
        self.prints.push(self.now.print());
        self.steps.push(step);
    }

    fn after(&self, count: usize) -> State {
        let mut state = self.initial.clone();
        for effect in self.steps[..count].iter().flat_map(|step| &step.effects) {
            state.apply(effect);
        }
        state
    }

    /// Returns the number of first commits that must exist.
    fn floor(&self, synced: &[u64]) -> usize {
        let own = self.steps.iter().rposition(|step| step.durable);
        let synced = synced.iter().copied().max().unwrap_or(0);
        let before = |step: &Step| step.end.is_some_and(|end| end < synced);
        let others = self.steps.iter().rposition(before);
        own.max(others).map_or(0, |index| index + 1)
    }

    /// Returns the smallest and the largest number of first commits that lead to `found`.
    fn prefix(&self, found: &State, synced: &[u64]) -> Result<(usize, usize)> {
        let floor = self.floor(synced);
        let fits = |count: &usize| self.prints[*count] == found.print();
        let mut counts = (floor..self.prints.len()).filter(fits);
        if let Some(least) = counts.next() {
            return Ok((least, counts.next_back().unwrap_or(least)));
        }
        let what = match (0..floor).rev().find(fits) {
            Some(count) => format!(
                "only {count} commits survived, {floor} were acknowledged; lost: {}",
                summary(&self.steps[count].effects)
            ),
            None => format!(
                "no prefix of {} commits is there ({floor} were acknowledged);\n  against all \
                 acknowledged:\n  {}\n  against all:\n  {}",
                self.steps.len(),
                self.after(floor).differences(found),
                self.now.differences(found)
            ),
        };
        fail(format!("thread {}: {what}", self.thread))
    }
}

/// Checks that `found`, by thread, is what a store that never crashed holds: every commit that
/// returned, and of each thread, if its last commit did not return, that commit or not.
///
/// # Errors
/// Something is lost, or exists in part.
pub fn check_live(histories: &[History], found: &[State]) -> Result<()> {
    for (history, found) in histories.iter().zip(found) {
        // Every return comes before this stamp.
        history.prefix(found, &[u64::MAX])?;
    }
    Ok(())
}

/// Checks that `found`, by thread, is some prefix of the commits, whatever was acknowledged.
///
/// # Errors
/// Something exists in part.
pub fn check_any_prefix(histories: &[History], found: &[State]) -> Result<()> {
    order::check_found(found)?;
    for (history, found) in histories.iter().zip(found) {
        if !history.prints.contains(&found.print()) {
            let what = history.now.differences(found);
            return fail(format!("no prefix of the commits; against all:\n  {what}"));
        }
    }
    Ok(())
}

/// Returns the tables that were changed by commits without an outcome, or by commits that ended
/// after such a commit had begun.
pub fn changed_beside_failed(histories: &[History]) -> BTreeSet<String> {
    let steps = || histories.iter().flat_map(History::steps);
    let failed = steps().filter(|step| step.end.is_none());
    let Some(first) = failed.map(|step| step.start).min() else {
        return BTreeSet::new();
    };
    let beside = steps().filter(|step| step.end.is_none_or(|end| end > first));
    beside
        .flat_map(|step| &step.effects)
        .map(|effect| effect.table().to_owned())
        .collect()
}

/// Checks that `entries` are those of a table whose commits all have an outcome.
///
/// # Errors
/// They are not.
pub fn check_table(histories: &[History], table: &str, entries: &[Entry]) -> Result<()> {
    let mut expected: Vec<(&Vec<u8>, &Vec<u8>)> = histories
        .iter()
        .flat_map(|history| history.now.table(table))
        .map(|((_, key), value)| (key, value))
        .collect();
    expected.sort_unstable();
    match entries.iter().map(|(key, value)| (key, value)).eq(expected) {
        true => Ok(()),
        false => fail(format!(
            "{table}, which no failed commit has changed, differs"
        )),
    }
}

fn summary(effects: &[Effect]) -> String {
    let text = format!("{effects:?}");
    text.chars().take(200).collect()
}

/// Checks that `found`, by thread, is what a crash can leave of `histories`. `synced` has stamps at
/// which calls began that made everything before them durable.
///
/// # Errors
/// Something is lost, exists in part, or in the wrong order.
pub fn check(histories: &[History], synced: &[u64], found: &[State]) -> Result<()> {
    order::check_found(found)?;
    let mut prefixes = Vec::with_capacity(histories.len());
    for (history, found) in histories.iter().zip(found) {
        prefixes.push(history.prefix(found, synced)?);
    }
    for (lost, (_, most)) in histories.iter().zip(&prefixes) {
        let Some(Step { end: Some(end), .. }) = lost.steps.get(*most) else {
            continue;
        };
        for (kept, (least, _)) in histories.iter().zip(&prefixes) {
            if let Some(step) = least.checked_sub(1).map(|index| &kept.steps[index])
                && *end < step.start
            {
                return fail(format!(
                    "commit {least} of thread {} is there, but commit {} of thread {}, which had \
                     returned before, is not",
                    kept.thread,
                    most + 1,
                    lost.thread
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Place, own_table};

    fn place(thread: usize, key: &str) -> Place {
        (own_table(thread, 0), key.into())
    }

    fn step(thread: usize, keys: &[&str], start: u64, end: u64, durable: bool) -> Step {
        let put = |key: &&str| Effect::Put(place(thread, key), vec![start.to_le_bytes()[0]]);
        Step {
            effects: keys.iter().map(put).collect(),
            start,
            end: Some(end),
            durable,
        }
    }

    fn two_threads() -> Vec<History> {
        let mut first = History::new(0, State::default());
        first.push(step(0, &["a"], 1, 2, true));
        first.push(step(0, &["b", "c"], 3, 4, false));
        first.push(step(0, &["d"], 9, 10, false));
        let mut second = History::new(1, State::default());
        second.push(step(1, &["a"], 5, 6, false));
        vec![first, second]
    }

    fn judge(first: usize, second: usize, synced: &[u64]) -> Result<()> {
        let histories = two_threads();
        let found = [histories[0].after(first), histories[1].after(second)];
        check(&histories, synced, &found)
    }

    #[test]
    fn prefixes_in_order_are_fine() {
        for (first, second) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
            judge(first, second, &[]).unwrap();
        }
    }

    #[test]
    fn acknowledged_commits_must_be_there() {
        assert!(judge(0, 0, &[]).is_err());
        assert!(judge(1, 0, &[5]).is_err(), "a sync began after the second");
        judge(2, 0, &[5]).unwrap();
    }

    #[test]
    fn a_commit_without_an_earlier_one_of_another_thread_is_found() {
        let error = judge(1, 1, &[]).unwrap_err().to_string();
        assert!(error.contains("had returned before"), "{error}");
        assert!(judge(3, 0, &[]).is_err());
    }

    #[test]
    fn half_a_batch_is_found() {
        let histories = two_threads();
        let mut half = histories[0].after(1);
        half.apply(&Effect::Put(place(0, "b"), vec![3]));
        let error = check(&histories, &[], &[half, State::default()]).unwrap_err();
        assert!(error.to_string().contains("no prefix"), "{error}");
    }
}
