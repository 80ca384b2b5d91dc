//! Removes the elements of large collections that were given up. Nothing is kept of them for
//! snapshots that begin later (decision 132).

use std::collections::btree_map::Entry;
use std::ops::Bound;

use pandodb::nonblocking::{Polled, Reactor, Reads};
use pandodb::{Lsn, Table};

use super::{Cleaner, Stop};
use crate::data::elements::{END_OF_GIVEN_UP, decode_given_up, given_up_key, id_of};
use crate::data::engine::Database;
use crate::data::members::Spared;

/// Most collections that were given up of which a batch removes elements.
const COLLECTIONS: usize = 64;
/// Returns from which key on the collections that were given up last are named, if there are more
/// than a batch takes. They are removed first: their rows are most likely still in memory, and
/// those of older ones may have to be read.
fn newest_given_up(members: &Table) -> pandodb::Result<Option<Vec<u8>>> {
    let Polled::Ready(count) = Reads::of(members).rank(&END_OF_GIVEN_UP)? else {
        return Ok(None);
    };
    let taken = (COLLECTIONS / 2) as u64;
    if count <= 2 * taken {
        return Ok(None);
    }
    let mut key = Vec::new();
    match Reads::of(members).key_at(count - taken, &mut key)? {
        Polled::Ready(Some(_)) => Ok(Some(key)),
        // Others have changed it; or they are no longer in memory.
        Polled::Ready(None) | Polled::Pending(_) => Ok(None),
    }
}

impl Cleaner {
    /// Collects rows of collections that were given up, and behind all rows of one the row that
    /// says so.
    pub(super) fn collect_gone(
        &mut self,
        database: &Database,
        reactor: &mut Reactor,
    ) -> Result<(), Stop> {
        let Some(members) = database.members.table() else {
            return Ok(());
        };
        let gone_of = members.last_swap();
        let number = self.databases[self.at];
        let spared = database.members.spared();
        let mut given_up = Vec::new();
        if let Some(newest) = newest_given_up(members)? {
            let of = (members, number, &spared);
            self.collect_given_up(of, reactor, (&newest, &mut given_up))?;
        }
        let of = (members, number, &spared);
        self.collect_given_up(of, reactor, (&[0; 8], &mut given_up))?;
        let most = self.size_gone;
        let (mut gone, mut missing) = (Vec::new(), false);
        self.note_given_up(members, number, &given_up);
        let mut since = Some(Lsn::default());
        for id in given_up {
            let of_it = self.given_up_since.get(&(number, id)).copied();
            since = since.zip(of_it).map(|(all, one)| all.max(one));
            match self.collect_rows((members, id), reactor, &mut gone) {
                Ok(()) if gone.len() < most => {
                    let mut key = Vec::new();
                    given_up_key(id, &mut key);
                    gone.push(key);
                }
                Ok(()) => break,
                // The pages of all are read together, and those in memory do not wait.
                Err(Stop::Waiting) => missing = true,
                Err(_) if !gone.is_empty() => break,
                Err(Stop::Failed(error)) if error.is_corruption() => {
                    return Err(Stop::DamagedCollection(id, error));
                }
                Err(stop) => return Err(stop),
            }
        }
        if gone.is_empty() && missing {
            return Err(Stop::Waiting);
        }
        (self.gone, self.gone_of, self.gone_since) = (gone, gone_of, since);
        Ok(())
    }

    /// Notes since when these collections of a database have been given up, and forgets others.
    fn note_given_up(&mut self, members: &Table, number: usize, given_up: &[u64]) {
        let is_known = |(of, id): &(usize, u64)| *of != number || given_up.contains(id);
        self.given_up_since
            .retain(|collection, _| is_known(collection));
        let mut row = Vec::new();
        for id in given_up {
            let Entry::Vacant(place) = self.given_up_since.entry((number, *id)) else {
                continue;
            };
            given_up_key(*id, &mut row);
            if let Some(since) = Reads::of(members).last_write(&row) {
                place.insert(since);
            }
        }
    }

    /// Adds the collections that were given up from this key on, as far as a batch takes them.
    fn collect_given_up(
        &mut self,
        (members, number, spared): (&Table, usize, &Spared),
        reactor: &mut Reactor,
        (from, given_up): (&[u8], &mut Vec<u64>),
    ) -> Result<(), Stop> {
        let most = self.size_gone.min(COLLECTIONS);
        let obstacles = std::mem::take(&mut self.obstacles);
        let scanned = self.scan_members(members, reactor, from, &mut |key| {
            let id = decode_given_up(key);
            let is_new = |id: &u64| {
                let is_left = obstacles.has_collection(number, *id) || spared.has(*id);
                !is_left && !given_up.contains(id)
            };
            given_up.extend(id.filter(is_new));
            id.is_some() && given_up.len() < most
        });
        self.obstacles = obstacles;
        scanned
    }

    /// Adds the rows of a collection to those that go, as far as the batch has room.
    fn collect_rows(
        &mut self,
        (members, id): (&Table, u64),
        reactor: &mut Reactor,
        gone: &mut Vec<Vec<u8>>,
    ) -> Result<(), Stop> {
        let most = self.size_gone;
        self.scan_members(members, reactor, &id.to_be_bytes(), &mut |key| {
            let is_of = id_of(key) == id;
            if is_of {
                gone.push(key.to_vec());
            }
            is_of && gone.len() < most
        })
    }

    /// Shows the keys from `from` on until `goes_on` returns false.
    fn scan_members(
        &mut self,
        members: &Table,
        reactor: &mut Reactor,
        from: &[u8],
        goes_on: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Stop> {
        let mut from = from.to_vec();
        loop {
            let scanned = Reads::of(members).scan(Bound::Included(&from), &mut self.page)?;
            if let Polled::Pending(pending) = scanned {
                reactor.park(pending, &self.waker)?;
                return Err(Stop::Waiting);
            }
            for index in 0..self.page.len() {
                if !goes_on(self.page.entry(index).0) {
                    return Ok(());
                }
            }
            match self.page.next.take() {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use pando_sync::Arc;
    use pandodb::{Db, TableOptions};

    use super::super::tests::clean;
    use super::*;
    use crate::data::cleaner::Cleaned;
    use crate::data::elements::position_key;
    use crate::data::engine::Engine;
    use crate::figures::statistics::ServerStatistics;
    use crate::notifications::release::Notifications;

    /// Returns a store with collections that were given up, given by id and number of rows, and
    /// with one that lives.
    fn store_of(given_up: &[(u64, u64)]) -> (Engine, Table) {
        let db = Db::builder()
            .max_memory(16 << 20)
            .open_in_memory()
            .expect("a store in memory");
        let options = TableOptions::new().counted(true).weighted(true);
        let members = db.table_with("db/0/members", options).expect("it is made");
        let mut key = Vec::new();
        for (id, count) in given_up {
            given_up_key(*id, &mut key);
            members.put(&key, b"").expect("there is room");
            for number in 0..*count {
                position_key(*id, &number.to_be_bytes(), &mut key);
                members.put(&key, b"\0element").expect("there is room");
            }
        }
        position_key(1000, b"lives", &mut key);
        members.put(&key, b"\0element").expect("there is room");
        (Engine::new(db).expect("the tables are made"), members)
    }

    /// Small collections share batches: who makes and gives them up is not faster than their
    /// removal. One that is longer than a batch goes last.
    #[test]
    fn small_collections_that_were_given_up_go_together() {
        let mut given_up = vec![(200, 600)];
        given_up.extend((1..=100).map(|id| (id, 3)));
        let (engine, members) = store_of(&given_up);
        let mut reactor = Reactor::new(&engine.db, Waker::noop().clone()).expect("a reactor");
        let mut cleaner = Cleaner::new(&engine, vec![0], Waker::noop().clone());
        let steps = clean(&mut cleaner, &engine, &mut reactor);
        // Rows of 101 collections, and what says so: 1,001 in batches of 256.
        assert!(steps < 10, "{steps}");
        assert_eq!(members.len(), 1);
    }

    /// Snapshots keep rows of what was given up behind them, and nothing of what was given up
    /// before them, also where both go in one batch.
    #[test]
    fn nothing_is_kept_for_snapshots_that_see_no_head() {
        let (engine, members) = store_of(&[]);
        let row = |id: u64, number: u64| {
            let mut key = Vec::new();
            position_key(id, &number.to_be_bytes(), &mut key);
            key
        };
        for id in 1..=3 {
            for number in 0..50 {
                let put = members.put(&row(id, number), b"\0element");
                put.expect("there is room");
            }
        }
        let give_up = |id: u64| {
            let mut key = Vec::new();
            given_up_key(id, &mut key);
            members.put(&key, b"").expect("there is room");
        };
        let left = |snapshot: &pandodb::Snapshot, id: u64| {
            let has = |number| snapshot.contains(&members, &row(id, number));
            (0..50)
                .filter(|number| has(*number).expect("no error"))
                .count()
        };
        let mut reactor = Reactor::new(&engine.db, Waker::noop().clone()).expect("a reactor");
        let mut cleaner = Cleaner::new(&engine, vec![0], Waker::noop().clone());
        give_up(1);
        let first = engine.db.snapshot().expect("there is room");
        clean(&mut cleaner, &engine, &mut reactor);
        assert_eq!((left(&first, 1), left(&first, 2)), (0, 50));
        drop(first);
        give_up(2);
        let second = engine.db.snapshot().expect("there is room");
        give_up(3);
        clean(&mut cleaner, &engine, &mut reactor);
        assert_eq!(left(&second, 3), 50);
        drop(second);
        assert_eq!(members.len(), 1);
        assert_eq!(cleaner.given_up_since.len(), 0);
    }

    #[test]
    fn what_was_given_up_last_goes_first() {
        let given_up: Vec<_> = (1..=100).map(|id| (id, 20)).collect();
        let (engine, members) = store_of(&given_up);
        let mut reactor = Reactor::new(&engine.db, Waker::noop().clone()).expect("a reactor");
        let mut cleaner = Cleaner::new(&engine, vec![0], Waker::noop().clone());
        let statistics = ServerStatistics::new(&[]).expect("there is address space");
        let notifications = Notifications::new(&Arc::default());
        let step = cleaner.step(&engine, &mut reactor, (&statistics, &notifications));
        assert_eq!(step, Cleaned::More);
        let is_there = |id: u64| {
            let mut key = Vec::new();
            given_up_key(id, &mut key);
            members.get(&key).expect("no error").is_some()
        };
        // Of the newest 32, twelve fit into a batch of 256 rows.
        let left: Vec<u64> = (1..=100).filter(|id| is_there(*id)).collect();
        let expected: Vec<u64> = (1..=68).chain(81..=100).collect();
        assert_eq!(left, expected);
        clean(&mut cleaner, &engine, &mut reactor);
        assert_eq!(members.len(), 1);
    }
}
