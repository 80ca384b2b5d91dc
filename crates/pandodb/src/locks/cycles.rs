//! Finds cycles of waits, and ends them.
//!
//! The lock of the graph is held while a wait of somebody who holds something begins, so such waits
//! begin one after the other. Who waits for whom is read from the queues, and while a wait lasts,
//! nobody is added to those that it waits for. So a cycle is complete when its last wait begins,
//! and is found then. A wait that ends by its deadline in the middle of the search may make
//! somebody the victim of a cycle that is just being broken: it is told to try again, as it would
//! be anyway.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::locks::graph::Graph;
use crate::locks::lock::Ended;
use crate::locks::name::{LockName, OwnerId};
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
        let edge = graph.end(youngest).expect("members of cycles wait");
        ended.append(&mut table.end_victim((edge.stripe, &edge.wait.name), youngest));
    }
    false
}

/// Returns the youngest owner in a cycle through `owner`.
///
/// All that `owner` waits for, directly or not, are visited once. Of those who wait for the same
/// lock, each waits for all before it, so of each lock no more of the queue is looked at than is
/// new.
fn youngest_in_cycle(graph: &Graph, owner: OwnerId, table: &LockTable) -> Option<OwnerId> {
    // Who waits for whom, on the way that was found first.
    let mut waits_for = HashMap::new();
    // The last ticket of each lock of which all before it are known.
    let mut known: HashMap<&LockName, u64> = HashMap::new();
    let (mut left, mut blockers) = (vec![owner], Vec::new());
    while let Some(one) = left.pop() {
        let Some(edge) = graph.wait_of(one) else {
            continue;
        };
        let (name, ticket) = (&edge.wait.name, edge.wait.ticket);
        let before = known.get(name).copied();
        table.blockers((edge.stripe, &edge.wait), before, &mut blockers);
        known.insert(name, ticket.max(before.unwrap_or(0)));
        for next in blockers.drain(..) {
            if next == one {
                continue;
            }
            if next == owner {
                return youngest_on_way(graph, owner, one, &waits_for);
            }
            if let Entry::Vacant(new) = waits_for.entry(next) {
                new.insert(one);
                left.push(next);
            }
        }
    }
    None
}

/// Returns the youngest of those on the way from `owner` to `last`. `waits_for` has for each of
/// them the one before it.
fn youngest_on_way(
    graph: &Graph,
    owner: OwnerId,
    last: OwnerId,
    waits_for: &HashMap<OwnerId, OwnerId>,
) -> Option<OwnerId> {
    let before = |one: &OwnerId| waits_for.get(one).copied().filter(|_| *one != owner);
    let way = std::iter::successors(Some(last), before);
    let of_age = |one: OwnerId| graph.wait_of(one).map(|edge| (edge.age, one));
    way.filter_map(of_age).max().map(|(_, one)| one)
}
