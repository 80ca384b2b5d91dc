//! Judges a history: what is wrong with it, and which of that the levels allow.

use std::collections::{BTreeSet, HashSet};

use super::anomaly::{Anomaly, Kind};
use super::edge::Edge;
use super::graph::Search;
use super::history::{Level, TransactionHistory};
use super::index::Index;
use super::{reads, replay, time, versions, visible};
use crate::failure::{Failure, Result};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What breaks a promise.
    pub forbidden: Vec<Anomaly>,
    /// What is not as if transactions ran one by one, but was promised to nobody. Examples: of
    /// connected transactions one circle is told, and none if there is something forbidden.
    pub allowed: Vec<Anomaly>,
    /// Transactions that count as committed.
    pub committed: usize,
    /// Dependencies between them, without those of real time.
    pub dependencies: usize,
}

/// Finds what is wrong with `history`. Transactions that name no level are judged by `level`.
///
/// # Errors
///
/// The history cannot be judged: an id, a value of a key, or the LSN of a commit occurs twice, a
/// key has both a value and a list, a transaction ended before it began or was aborted and has an
/// LSN, or a range has a row outside of its bounds.
pub fn examine(history: &TransactionHistory, level: Level) -> Result<Report> {
    let mut index = Index::new(history, level)?;
    let (observations, mut anomalies) = reads::walk(&index);
    visible::settle(&mut index, &observations);
    anomalies.extend(visible::check(&index, &observations));
    anomalies.extend(replay::check(&index, &observations));
    let found = versions::dependencies(&index, &observations);
    anomalies.extend(found.anomalies);
    let mut edges = found.edges;
    // One edge of a kind between two transactions is enough.
    edges.sort_unstable();
    edges.dedup_by_key(|edge| Edge { key: 0, ..*edge });
    let dependencies = edges.len();
    let (moments, nodes) = time::sweep(&index);
    edges.extend(moments);
    let search = Search {
        index: &index,
        edges: &edges,
        nodes,
        lost: &found.lost,
    };
    let mut known: HashSet<(Kind, BTreeSet<u64>)> = HashSet::new();
    for level in scopes(&index.levels) {
        for circle in search.circles(level) {
            let members = circle.transactions.iter().copied().collect();
            if known.insert((circle.kind, members)) {
                anomalies.push(circle);
            }
        }
    }
    anomalies.sort_by_key(|it| it.kind);
    let (forbidden, allowed) = anomalies.into_iter().partition(Anomaly::is_forbidden);
    Ok(Report {
        forbidden,
        allowed,
        committed: index.committed.iter().filter(|it| **it).count(),
        dependencies,
    })
}

/// As [`examine`], for who wants to go on only if nothing is forbidden.
///
/// # Errors
///
/// Those of [`examine`], and what is forbidden.
pub fn check(history: &TransactionHistory, level: Level) -> Result<Report> {
    let report = examine(history, level)?;
    if report.forbidden.is_empty() {
        return Ok(report);
    }
    let lines: Vec<_> = report.forbidden.iter().map(Anomaly::to_string).collect();
    Err(Failure::new(lines.join("\n")))
}

/// Returns the levels whose promises have to be looked at by themselves. The lowest shows
/// everything; a circle of higher ones could hide in it behind one that is allowed.
fn scopes(levels: &[Level]) -> Vec<Level> {
    let all = [Level::ReadCommitted, Level::Snapshot, Level::Serializable];
    let mut scopes = vec![Level::ReadCommitted];
    for scope in &all[1..] {
        let below = *scopes.last().expect("the first is there");
        let leaves_out = levels.iter().any(|it| *it >= below && it < scope);
        if leaves_out && levels.iter().any(|it| it >= scope) {
            scopes.push(*scope);
        }
    }
    scopes
}
