//! Real time: who had ended before another began.
//!
//! All pairs would be quadratic. A sweep over the times makes **moments**, nodes of their own, one
//! after the other; who ends leads to the next one, and who begins comes behind the last:
//!
//! ```text
//!   T1 |---|              T1 --> m0 --> m1 <-- T2
//!   T2   |----|                  |      |
//!   T3       |--|                v      v
//!   T4           |--|            T3     T4
//! ```
//!
//! At equal times nothing is known, so nothing is said. Who has not ended, or whose outcome nobody
//! was told, is before nobody: it may take effect at any later time.

use super::edge::{Edge, Why};
use super::history::Outcome;
use super::index::Index;

/// Returns the edges of real time, and the number of nodes with moments.
pub(super) fn sweep(index: &Index<'_>) -> (Vec<Edge>, usize) {
    let count = index.transactions.len();
    // At one time, what begins is before what ends: neither is before the other then.
    let mut events = Vec::with_capacity(2 * count);
    for (number, it) in index.transactions.iter().enumerate() {
        if !index.committed[number] {
            continue;
        }
        events.push((it.invoked, false, number));
        if let Some(completed) = it.completed
            && it.outcome == Outcome::Committed
        {
            events.push((completed, true, number));
        }
    }
    events.sort_unstable();
    let (mut edges, mut ended, mut moments) = (Vec::new(), Vec::new(), count);
    let edge = |from, to| Edge {
        from,
        to,
        why: Why::RealTime,
        key: 0,
    };
    for (_, ends, number) in events {
        if ends {
            ended.push(number);
            continue;
        }
        if !ended.is_empty() {
            if moments > count {
                edges.push(edge(moments - 1, moments));
            }
            edges.extend(ended.drain(..).map(|before| edge(before, moments)));
            moments += 1;
        }
        if moments > count {
            edges.push(edge(moments - 1, number));
        }
    }
    (edges, moments)
}
