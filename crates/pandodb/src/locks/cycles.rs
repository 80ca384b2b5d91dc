//! Finds cycles of waits, and ends them.
//!
//! The lock of the graph is held while a wait of somebody who holds something begins, so such waits
//! begin one after the other. Who waits for whom is read from the queues, and while a wait lasts,
//! nobody is added to those that it waits for. So a cycle is complete when its last wait begins,
//! and is found then. A wait that ends by its deadline in the middle of the search may make
//! somebody the victim of a cycle that is just being broken: it is told to try again, as it would
//! be anyway.
//!
//! A pass would end by itself, but not soon: where many write the same few keys, nearly every one
//! is in a cycle, and each would last as long as a pass. So passes in cycles are taken away.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::locks::graph::Graph;
use crate::locks::lock::Ended;
use crate::locks::name::{LockName, OwnerId};
use crate::locks::table::LockTable;

/// Breaks all cycles that `owner`, whose wait has begun, is in: passes are taken away; if there are
/// none, the youngest gives up. Returns true if that is `owner`, who is still in the queue. Waits
/// that have ended go to `ended`, for the caller to notify without the lock of the graph.
pub(super) fn break_cycles(
    graph: &mut Graph,
    owner: OwnerId,
    table: &LockTable,
    ended: &mut Ended,
) -> bool {
    let mut before = None;
    while let Some(cycle) = cycle_of(graph, owner, table) {
        if take_passes(graph, &cycle, table, ended) {
            continue;
        }
        let youngest = youngest_of(graph, &cycle);
        // A pass may have ended in the middle of the search, and with it the cycle.
        let Some(youngest) = youngest.filter(|_| before.as_ref() == Some(&cycle)) else {
            before = Some(cycle);
            continue;
        };
        if youngest == owner {
            return true;
        }
        let edge = graph.end(youngest).expect("members of cycles wait");
        ended.append(&mut table.end_victim((edge.stripe, &edge.wait.name), youngest));
    }
    false
}

/// Takes away passes for which somebody in the cycle waits, of one lock, and of all who wait for
/// the same as the one in the cycle: they are in cycles, too. Returns whether there were any.
fn take_passes(graph: &Graph, cycle: &[OwnerId], table: &LockTable, ended: &mut Ended) -> bool {
    let next = cycle.iter().cycle().skip(1);
    cycle.iter().zip(next).any(|(one, next)| {
        let (Some(edge), Some(of_next)) = (graph.wait_of(*one), graph.wait_of(*next)) else {
            return false;
        };
        let waits_as_next = |one: OwnerId| {
            let edge = graph.wait_of(one);
            edge.is_some_and(|edge| edge.wait.name == of_next.wait.name)
        };
        let place = (edge.stripe, &edge.wait.name);
        let (taken, mut waits) = table.take_passes(place, waits_as_next);
        ended.append(&mut waits);
        taken
    })
}

/// Returns a cycle through `owner`, who comes first: each waits for the next, the last for `owner`.
///
/// All that `owner` waits for, directly or not, are visited once. Of those who wait for the same
/// lock, each waits for all before it, so of each lock no more of the queue is looked at than is
/// new.
fn cycle_of(graph: &Graph, owner: OwnerId, table: &LockTable) -> Option<Vec<OwnerId>> {
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
                return Some(way_to(owner, one, &waits_for));
            }
            if let Entry::Vacant(new) = waits_for.entry(next) {
                new.insert(one);
                left.push(next);
            }
        }
    }
    None
}

/// Returns those on the way from `owner` to `last`. `waits_for` has for each of them the one before
/// it.
fn way_to(owner: OwnerId, last: OwnerId, waits_for: &HashMap<OwnerId, OwnerId>) -> Vec<OwnerId> {
    let before = |one: &OwnerId| waits_for.get(one).copied().filter(|_| *one != owner);
    let mut way: Vec<OwnerId> = std::iter::successors(Some(last), before).collect();
    way.reverse();
    assert_eq!(way.first(), Some(&owner), "the way begins with its owner");
    way
}

/// Returns the youngest transaction in a cycle; there is one, if nobody in it waits for passes.
fn youngest_of(graph: &Graph, cycle: &[OwnerId]) -> Option<OwnerId> {
    let of_age = |one: &OwnerId| Some((graph.wait_of(*one)?.age?, *one));
    cycle.iter().filter_map(of_age).max().map(|(_, one)| one)
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_format::TreeId;
    use pando_sync::Arc;
    use pando_sync::time::Duration;

    use super::*;
    use crate::locks::lock::Mode;
    use crate::locks::owner::{Asked, LockOwner, OwnerKind};

    const EXCLUSIVE: Mode = Mode::Exclusive { at_most: None };

    fn owner(table: &Arc<LockTable>, kind: OwnerKind) -> LockOwner {
        LockOwner::new(table.clone(), kind, None, Duration::MAX)
    }

    /// Returns whether `owner` has the lock of `key` at once.
    fn gets(owner: &mut LockOwner, key: u8, mode: Mode) -> bool {
        let name = LockName::Key(TreeId(16), [key].into());
        let asked = owner.ask((u32::from(key), &name), mode, "t", || ());
        asked.is_ok() && has(owner)
    }

    /// Returns whether `owner` waits for nothing any longer.
    fn has(owner: &mut LockOwner) -> bool {
        matches!(owner.look(), Ok(Asked::Granted))
    }

    /// Commits that have a pass for key 1, and a transaction that has locked key 2.
    fn with_passes(table: &Arc<LockTable>) -> (Vec<LockOwner>, LockOwner) {
        let mut first = owner(table, OwnerKind::Transaction);
        assert!(gets(&mut first, 1, EXCLUSIVE));
        let commits = (0..9).map(|_| owner(table, OwnerKind::Commit));
        let mut commits: Vec<LockOwner> = commits.collect();
        assert!(!commits.iter_mut().any(|one| gets(one, 1, Mode::Pass)));
        first.release_all();
        assert!(commits.iter_mut().all(has));
        let mut second = owner(table, OwnerKind::Transaction);
        assert!(gets(&mut second, 2, EXCLUSIVE));
        (commits, second)
    }

    #[test]
    fn who_waits_for_passes_in_a_cycle_gets_the_lock_at_once() {
        let table = Arc::new(LockTable::default());
        let (mut commits, mut second) = with_passes(&table);
        assert!(!commits.iter_mut().any(|one| gets(one, 2, Mode::Pass)));
        assert!(gets(&mut second, 1, EXCLUSIVE));
        second.release_all();
        assert!(commits.iter_mut().all(has));
    }

    #[test]
    fn a_commit_that_closes_a_cycle_of_waits_loses_its_pass() {
        let table = Arc::new(LockTable::default());
        let (mut commits, mut second) = with_passes(&table);
        assert!(!gets(&mut second, 1, EXCLUSIVE));
        let (last, others) = commits.split_at_mut(1);
        assert!(!others.iter_mut().any(|one| gets(one, 2, Mode::Pass)));
        assert!(!has(&mut second), "a pass is left that its commit may use");
        assert!(!gets(&mut last[0], 2, Mode::Pass));
        assert!(has(&mut second));
    }

    #[test]
    fn passes_outlast_waits_that_are_in_no_cycle() {
        let table = Arc::new(LockTable::default());
        let (mut commits, second) = with_passes(&table);
        assert!(!commits.iter_mut().any(|one| gets(one, 2, Mode::Pass)));
        let mut third = owner(&table, OwnerKind::Transaction);
        assert!(!gets(&mut third, 1, EXCLUSIVE));
        drop(second);
        assert!(commits.iter_mut().all(has));
        assert!(!has(&mut third));
        drop(commits);
        assert!(has(&mut third));
    }
}
