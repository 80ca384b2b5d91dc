//! Whether what was read was there to be read: written, committed, and not overwritten by its own
//! writer. And which transactions of unknown outcome are committed, since others saw them.

use std::collections::HashSet;

use super::anomaly::{Anomaly, Kind};
use super::history::Outcome;
use super::index::Index;
use super::reads::{Observation, Seen, of_read};

/// Marks transactions of unknown outcome as committed if a committed one has seen a write of
/// theirs: what they saw counts then, too.
pub(super) fn settle(index: &mut Index<'_>, observations: &[Observation<'_>]) {
    let count = index.transactions.len();
    let mut starts = vec![0; count + 1];
    for observation in observations {
        starts[observation.transaction + 1] += 1;
    }
    for number in 0..count {
        starts[number + 1] += starts[number];
    }
    let mut open: Vec<usize> = (0..count).filter(|it| index.committed[*it]).collect();
    while let Some(reader) = open.pop() {
        for observation in &observations[starts[reader]..starts[reader + 1]] {
            for value in values(observation) {
                let Some(write) = index.writer(observation.key, *value) else {
                    continue;
                };
                let writer = write.transaction;
                if index.transactions[writer].outcome == Outcome::Unknown
                    && !index.committed[writer]
                {
                    index.committed[writer] = true;
                    open.push(writer);
                }
            }
        }
    }
}

/// Returns what committed transactions read and must not have.
pub(super) fn check(index: &Index<'_>, observations: &[Observation<'_>]) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    for observation in observations {
        let reader = observation.transaction;
        if !index.committed[reader] {
            continue;
        }
        let key = observation.key;
        let mut report = |kind, writer: Option<usize>, text: String| {
            let mut anomaly = of_read(index, kind, reader, key, &text);
            anomaly.transactions.extend(writer.map(|it| index.id(it)));
            anomalies.push(anomaly);
        };
        let values = values(observation);
        let mut before = HashSet::new();
        for (place, value) in values.iter().enumerate() {
            if !before.insert(*value) {
                let text = format!("{values:?}, with {value} twice");
                report(Kind::Repeated, None, text);
            }
            let Some(write) = index.writer(key, *value) else {
                let text = format!("{value}, which nobody wrote");
                report(Kind::Unwritten, None, text);
                continue;
            };
            let (writer, id) = (write.transaction, index.id(write.transaction));
            if !index.committed[writer] {
                let text = format!("{value} of T{id}, which was aborted");
                report(Kind::G1a, Some(writer), text);
            } else if write.is_intermediate && place + 1 == values.len() {
                let text = format!("{value} of T{id}, which wrote on");
                report(Kind::G1b, Some(writer), text);
            }
        }
    }
    anomalies
}

/// Returns the values, or elements, of a read.
fn values<'a>(observation: &'a Observation<'_>) -> &'a [u64] {
    match &observation.seen {
        Seen::Value(value) => value.as_slice(),
        Seen::List(elements) => elements,
    }
}
