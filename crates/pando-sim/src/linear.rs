//! Linearizability of histories: is there an order of the operations, one after the other, that
//! agrees with what each returned, and with which operation ended before which began?
//!
//! The search is that of Wing and Gong, with a memo of configurations (Lowe): a configuration is
//! the set of operations done so far, and the state that they led to. Keys that no operation joins
//! are checked separately (a history is linearizable if each of its objects is); a batch joins all
//! of its keys into one object. An operation whose outcome is unknown may have happened at any time
//! after it began, or never.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A key.
pub type Key = u32;
/// A value; `None` if the key has none.
pub type Value = Option<u64>;

/// What an operation does and what it returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read these values, atomically.
    Read(Vec<(Key, Value)>),
    /// Wrote these values, atomically.
    Write(Vec<(Key, Value)>),
    /// Added 1 to a number (0 if there was none); has the result, if known.
    Add(Key, Option<u64>),
    /// Replaced the first value by the second one (true), or found another value (false).
    Swap(Key, Value, Value, bool),
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What it did.
    pub action: Action,
    /// Stamp before the call.
    pub start: u64,
    /// Stamp after the call; `None` if it is unknown whether it happened.
    pub end: Option<u64>,
}

impl Action {
    fn keys(&self) -> Vec<Key> {
        match self {
            Self::Read(pairs) | Self::Write(pairs) => pairs.iter().map(|(key, _)| *key).collect(),
            Self::Add(key, _) | Self::Swap(key, ..) => vec![*key],
        }
    }
}

/// The values of one object's keys.
type Values = BTreeMap<Key, u64>;

/// Returns `values` after `action`; `None` if the action cannot have happened to them.
fn apply(action: &Action, values: &Values) -> Option<Values> {
    let mut after = values.clone();
    let mut set = |key: Key, value: Value| match value {
        Some(value) => after.insert(key, value),
        None => after.remove(&key),
    };
    match action {
        Action::Read(pairs) => {
            let agrees = |(key, value): &(Key, Value)| values.get(key).copied() == *value;
            return pairs.iter().all(agrees).then_some(after);
        }
        Action::Write(pairs) => {
            for (key, value) in pairs {
                set(*key, *value);
            }
        }
        Action::Add(key, result) => {
            let sum = values.get(key).copied().unwrap_or(0) + 1;
            if result.is_some_and(|result| result != sum) {
                return None;
            }
            set(*key, Some(sum));
        }
        Action::Swap(key, old, new, done) => {
            if (values.get(key).copied() == *old) != *done {
                return None;
            }
            if *done {
                set(*key, *new);
            }
        }
    }
    Some(after)
}

/// A set of operations, by index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

/// Why a history is not linearizable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The keys of the object.
    pub keys: Vec<Key>,
    /// The longest order that was found, and what could not come next.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys {:?}: {}", self.keys, self.what)
    }
}

impl std::error::Error for Violation {}

/// Checks a history that began with `initial` values; keys that are missing there had none.
///
/// # Errors
/// The first object without an order.
pub fn check(history: &[Call], initial: &BTreeMap<Key, u64>) -> Result<(), Violation> {
    for (keys, calls) in objects(history) {
        let values = initial
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(key, value)| (*key, *value))
            .collect();
        check_object(&calls, values).map_err(|what| Violation {
            keys: keys.into_iter().collect(),
            what,
        })?;
    }
    Ok(())
}

/// Divides the calls into objects, by the keys that they join.
fn objects(history: &[Call]) -> Vec<(BTreeSet<Key>, Vec<Call>)> {
    let mut parent: BTreeMap<Key, Key> = BTreeMap::new();
    fn root(parent: &BTreeMap<Key, Key>, mut key: Key) -> Key {
        while let Some(up) = parent.get(&key).filter(|up| **up != key) {
            key = *up;
        }
        key
    }
    for call in history {
        let keys = call.action.keys();
        for key in &keys {
            parent.entry(*key).or_insert(*key);
            let (one, other) = (root(&parent, keys[0]), root(&parent, *key));
            parent.insert(other, one);
        }
    }
    let mut parts: BTreeMap<Key, (BTreeSet<Key>, Vec<Call>)> = BTreeMap::new();
    for call in history {
        let keys = call.action.keys();
        let Some(first) = keys.first() else { continue };
        let part = parts.entry(root(&parent, *first)).or_default();
        part.0.extend(keys);
        part.1.push(call.clone());
    }
    parts.into_values().collect()
}

/// A choice in the search for an order.
struct Choice {
    call: usize,
    values_before: Values,
}

fn check_object(calls: &[Call], initial: Values) -> Result<(), String> {
    let mut calls = calls.to_vec();
    // A read whose result nobody has seen tells nothing.
    calls.retain(|call| call.end.is_some() || !matches!(call.action, Action::Read(_)));
    calls.sort_by_key(|call| call.start);
    let needed = calls.iter().filter(|call| call.end.is_some()).count();
    let mut done = Done::new(calls.len());
    let mut seen: HashSet<(Done, Values)> = HashSet::new();
    let mut order: Vec<Choice> = Vec::new();
    let mut values = initial;
    let (mut ended, mut from) = (0, 0);
    let mut longest: (usize, String) = (0, "nothing can come first".to_owned());
    loop {
        if ended == needed {
            return Ok(());
        }
        match next(&calls, &done, &values, from, &seen) {
            Some((call, after)) => {
                done.flip(call);
                seen.insert((done.clone(), after.clone()));
                let values_before = std::mem::replace(&mut values, after);
                order.push(Choice {
                    call,
                    values_before,
                });
                ended += usize::from(calls[call].end.is_some());
                from = 0;
                if order.len() > longest.0 {
                    longest = (order.len(), describe(&calls, &done, &values));
                }
            }
            None => {
                let Some(choice) = order.pop() else {
                    return Err(format!("after {} operations: {}", longest.0, longest.1));
                };
                done.flip(choice.call);
                ended -= usize::from(calls[choice.call].end.is_some());
                values = choice.values_before;
                from = choice.call + 1;
            }
        }
    }
}

/// Returns the first call from `from` on that can come next and leads to a new configuration.
fn next(
    calls: &[Call],
    done: &Done,
    values: &Values,
    from: usize,
    seen: &HashSet<(Done, Values)>,
) -> Option<(usize, Values)> {
    // A call that began after another one had ended cannot come before it.
    let mut first_end = u64::MAX;
    for (index, call) in calls.iter().enumerate() {
        if call.start > first_end {
            break;
        }
        if !done.has(index) {
            first_end = first_end.min(call.end.unwrap_or(u64::MAX));
        }
    }
    let mut with = done.clone();
    for (index, call) in calls.iter().enumerate() {
        if call.start > first_end {
            break;
        }
        if index < from || done.has(index) {
            continue;
        }
        if let Some(after) = apply(&call.action, values) {
            with.flip(index);
            let configuration = (with.clone(), after);
            if !seen.contains(&configuration) {
                return Some((index, configuration.1));
            }
            with.flip(index);
        }
    }
    None
}

fn describe(calls: &[Call], done: &Done, values: &Values) -> String {
    let left = calls
        .iter()
        .enumerate()
        .filter(|(index, _)| !done.has(*index));
    let left: Vec<_> = left.take(6).map(|(_, call)| call).collect();
    let values: Vec<_> = values.iter().take(12).collect();
    format!("values {values:?}, and none of these fits next: {left:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(action: Action, start: u64, end: u64) -> Call {
        Call {
            action,
            start,
            end: Some(end),
        }
    }

    fn write(key: Key, value: u64, start: u64, end: u64) -> Call {
        call(Action::Write(vec![(key, Some(value))]), start, end)
    }

    fn read(key: Key, value: Value, start: u64, end: u64) -> Call {
        call(Action::Read(vec![(key, value)]), start, end)
    }

    fn good(history: &[Call]) {
        check(history, &BTreeMap::new()).unwrap();
    }

    fn bad(history: &[Call]) {
        assert!(check(history, &BTreeMap::new()).is_err(), "{history:?}");
    }

    #[test]
    fn operations_that_overlap_may_come_in_any_order() {
        good(&[
            write(1, 1, 0, 10),
            read(1, None, 1, 2),
            read(1, Some(1), 3, 4),
        ]);
        good(&[
            write(1, 1, 0, 10),
            write(1, 2, 0, 10),
            read(1, Some(1), 11, 12),
        ]);
        good(&[
            write(1, 1, 0, 10),
            write(1, 2, 0, 10),
            read(1, Some(2), 11, 12),
        ]);
    }

    #[test]
    fn stale_reads_and_values_from_nowhere_are_found() {
        bad(&[write(1, 1, 0, 1), read(1, None, 2, 3)]);
        bad(&[write(1, 1, 0, 1), write(1, 2, 2, 3), read(1, Some(1), 4, 5)]);
        bad(&[read(1, Some(7), 0, 1)]);
        // The value was seen and later not seen.
        bad(&[
            write(1, 1, 0, 10),
            read(1, Some(1), 1, 2),
            read(1, None, 3, 4),
        ]);
        // Two readers disagree about the order of two writes.
        bad(&[
            write(1, 1, 0, 20),
            write(1, 2, 0, 20),
            read(1, Some(1), 1, 2),
            read(1, Some(2), 3, 4),
            read(1, Some(1), 5, 6),
        ]);
    }

    #[test]
    fn unknown_outcomes_may_have_happened_late_or_never() {
        let unknown = Call {
            action: Action::Write(vec![(1, Some(5))]),
            start: 0,
            end: None,
        };
        good(&[unknown.clone(), read(1, None, 1, 2)]);
        good(&[unknown.clone(), read(1, None, 1, 2), read(1, Some(5), 3, 4)]);
        bad(&[unknown, read(1, Some(5), 1, 2), read(1, None, 3, 4)]);
    }

    #[test]
    fn batches_are_one_operation_on_all_their_keys() {
        let batch = |value, start, end| {
            call(
                Action::Write(vec![(1, Some(value)), (2, Some(value))]),
                start,
                end,
            )
        };
        let both = |one, two, start, end| {
            call(
                Action::Read(vec![(1, Some(one)), (2, Some(two))]),
                start,
                end,
            )
        };
        good(&[
            batch(1, 0, 1),
            batch(2, 2, 9),
            both(1, 1, 3, 4),
            both(2, 2, 5, 6),
        ]);
        bad(&[batch(1, 0, 1), batch(2, 2, 9), both(1, 2, 3, 4)]);
        // Each key by itself would be linearizable.
        bad(&[
            batch(1, 0, 1),
            batch(2, 2, 9),
            read(1, Some(2), 3, 4),
            read(2, Some(1), 5, 6),
        ]);
    }

    #[test]
    fn counters_count_every_addition_once() {
        let add = |result, start, end| call(Action::Add(1, Some(result)), start, end);
        good(&[add(2, 0, 9), add(1, 0, 9), add(3, 10, 11)]);
        bad(&[add(1, 0, 9), add(1, 0, 9)]);
        bad(&[add(2, 0, 1), add(1, 2, 3)]);
    }

    #[test]
    fn swaps_need_what_they_name() {
        let swap =
            |old, new, done, start, end| call(Action::Swap(1, old, Some(new), done), start, end);
        good(&[
            swap(None, 1, true, 0, 9),
            swap(None, 2, false, 0, 9),
            read(1, Some(1), 10, 11),
        ]);
        bad(&[swap(None, 1, true, 0, 9), swap(None, 2, true, 0, 9)]);
        bad(&[write(1, 1, 0, 1), swap(Some(1), 2, false, 2, 3)]);
    }

    #[test]
    fn long_histories_of_many_keys_are_quick() {
        let mut history = Vec::new();
        for step in 0..20_000_u64 {
            let key = (step % 16) as Key;
            history.push(write(key, step, step * 2, step * 2 + 60));
        }
        good(&history);
    }
}
