//! Finds cycles of waits, and ends them.
//!
//! The lock of the graph is held while a wait of somebody who holds something begins, so such waits
//! begin one after the other. Who waits for whom is read from the queues, and while a wait lasts,
//! nobody is added to those that it waits for. So a cycle is complete when its last wait begins,
//! and is found then. A wait that ends by its deadline in the middle of the search may make
//! somebody the victim of a cycle that is just being broken: it is told to try again, as it would
//! be anyway.

use std::collections::HashSet;

use crate::locks::graph::Graph;
use crate::locks::lock::Ended;
use crate::locks::name::OwnerId;
use crate::locks::table::LockTable;

/// Breaks all cycles that `owner`, whose wait has begun, is in: each time the youngest gives up.
/// Returns true if that is `owner`, who is still in the queue. Waits that have ended go to `ended`,
/// for the caller to notify without the lock of the graph.
pub(super) fn break_cycles(
    graph: &mut Graph,
    owner: OwnerId,
    table: &LockTable,
    ended: &mut Ended,
) -> bool {
    while let Some(youngest) = youngest_in_cycle(graph, owner, table) {
        if youngest == owner {
            return true;
        }
        let (stripe, wait) = graph.end(youngest).expect("members of cycles wait");
        ended.append(&mut table.end_victim((stripe, &wait.name), youngest));
    }
    false
}

/// Returns the youngest owner in a cycle through `owner`.
fn youngest_in_cycle(graph: &Graph, owner: OwnerId, table: &LockTable) -> Option<OwnerId> {
    let blockers = |owner| {
        let mut blockers = Vec::new();
        if let Some((stripe, wait)) = graph.wait_of(owner) {
            table.blockers((*stripe, &wait.name), owner, &mut blockers);
        }
        blockers
    };
    let mut seen = HashSet::new();
    // The path from `owner`, and what is left to try at each place of it.
    let mut path = vec![(owner, blockers(owner))];
    while let Some((_, left)) = path.last_mut() {
        let Some(next) = left.pop() else {
            path.pop();
            continue;
        };
        if next == owner {
            return path.iter().map(|(one, _)| *one).max();
        }
        if seen.insert(next) {
            path.push((next, blockers(next)));
        }
    }
    None
}
