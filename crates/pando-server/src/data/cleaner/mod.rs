//! Removes expired keys that nobody reads.
//!
//! Each loop cleans some of the databases. Expiry entries are ordered by time, so the first leaf of
//! a database's elements shows whether an entry is due. Due entries are processed in small
//! transactions: if the row of an entry has expired, both are removed; if the row has a later
//! deadline, the entry is moved to that time; if fields of a hash have expired, these are removed,
//! and the entry is moved to the time of the next one (decision 086); if no row names the entry, it
//! is removed. The work of a step is bounded. When more is due, the next steps follow in the same
//! turn of the loop, for a time that is bounded, too, and then after the connections have had
//! theirs.
//!
//! A row that cannot be decoded keeps its entry: it is damaged, and its readers get the error, or a
//! later program has written it, which may be back tomorrow and needs the entry.
//!
//! What cannot be done now holds up nothing else (`data/obstacles.rs`): on a full disk it leaves
//! alone what needs room, makes its batches smaller, and goes on; it passes over what is damaged.
//!
//! When nothing is due, it removes the elements of large collections that were given up, and behind
//! the last one of each the row that says so (`data/elements.rs`). Nobody reads or writes them any
//! more.

mod given_up;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::task::Waker;

use pando_stats::Ticker;
use pando_sync::Arc;
use pando_sync::time::{Duration, unix_ms};
use pandodb::nonblocking::{Opened, Outcome, Polled, Reactor, Reads, ScanPage, ValidatedBatch};
use pandodb::{Lsn, ValueStream};

use crate::data::elements::{decode_given_up, given_up_key, id_of};
use crate::data::engine::{Database, Engine};
use crate::data::field_cleaner::remove_expired;
use crate::data::keyspace::{ENTRY_TAG, Expiry, Row, decode_entry, encode, entry_key, has_ended};
use crate::data::obstacles::Obstacles;
use crate::data::tree_head::tree_of;
use crate::figures::statistics::ServerStatistics;
use crate::notifications::classes::Class;
use crate::notifications::recorded::Recorded;
use crate::notifications::release::Notifications;

/// Maximum number of entries in a batch.
const BATCH: usize = 64;
/// Most elements that a batch removes.
const GONE: usize = 256;
/// Most keys that are passed over.
const PASSED_MAX: usize = 100_000;
/// Number of waits for pages after which a batch is halved, since its pages do not stay in memory
/// together.
const WAITS_PER_BATCH: u32 = 2;

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cleaned {
    /// More may be due now.
    More,
    /// The cleaner waits for its waker.
    Waiting,
    /// Nothing is due in any database.
    Nothing,
}

/// The expiry cleaner of one loop.
pub(crate) struct Cleaner {
    /// Numbers of the databases that it cleans.
    databases: Vec<usize>,
    /// Index in `databases` of the database that it is at.
    at: usize,
    /// Number of databases in a row in which nothing was due.
    quiet: usize,
    /// Due entries of the current batch: time and stored key.
    due: Vec<(u64, Vec<u8>)>,
    /// Rows of collections that were given up, to be removed by the current batch.
    gone: Vec<Vec<u8>>,
    /// The last commit that gave one of their collections up, or a later one; None if it is not
    /// known.
    gone_since: Option<Lsn>,
    /// The same for each collection, by database and id, as of when it was first seen: what the
    /// cleaner itself deletes raises what the store says.
    given_up_since: BTreeMap<(usize, u64), Lsn>,
    /// Number of collections of which the last batch has removed the last row.
    freed: u64,
    /// The last swap of the table before they were collected: nothing else says that the table
    /// which they are removed from is the one that has them.
    gone_of: Lsn,
    /// Databases and stored keys that are locked, or whose rows cannot be decoded: passed over
    /// until nothing else is due.
    passed: BTreeSet<(usize, Vec<u8>)>,
    /// What it keeps away from for longer.
    obstacles: Obstacles,
    /// Number of entries that the current batch has looked at.
    looked_at: usize,
    /// Maximum number of entries of the next batch.
    size: usize,
    /// Maximum number of elements and fields of the next batch.
    size_gone: usize,
    /// Number of waits for pages of the current batch.
    waits: u32,
    /// It waits for pages: what its batch has read so far is known.
    missing: bool,
    /// The batch is complete and waits for its commit.
    committing: bool,
    removed: u64,
    /// What the batch does to keys, to be told once it is committed.
    events: Recorded,
    /// Keys whose values the current batch changes.
    changing: Vec<Vec<u8>>,
    /// Keys whose values have changed.
    changed: Vec<Vec<u8>>,
    page: ScanPage,
    value: Vec<u8>,
    batch: ValidatedBatch,
    waker: Waker,
}

/// Why a batch is not finished.
enum Stop {
    Waiting,
    Again,
    Failed(pandodb::Error),
    /// The row of this stored key, or what belongs to it, is damaged.
    DamagedKey(Vec<u8>, pandodb::Error),
    /// Rows of this collection, which was given up, are.
    DamagedCollection(u64, pandodb::Error),
    /// A transaction has locked the row of this stored key, or it cannot be decoded.
    Passed(Vec<u8>),
}

impl From<pandodb::Error> for Stop {
    fn from(error: pandodb::Error) -> Self {
        match error {
            pandodb::Error::LockTimeout { key: Some(key), .. } => Self::Passed(key),
            error => Self::Failed(error),
        }
    }
}

/// What became of a due entry and its row.
enum Processed {
    Removed,
    /// The row lives, or there is none that names the entry.
    Renewed,
    /// The row lives without its expired fields.
    Shortened,
    /// Nothing was changed: the row cannot be decoded.
    Unknown,
    /// Nothing was changed: the row lives, and to say so needs room.
    NeedsRoom,
}

/// Returns the key of a row that was processed.
fn key_of(stored: &[u8], value: &[u8]) -> Vec<u8> {
    let row = Row::decode(stored, value);
    row.map_or_else(|_| Vec::new(), |row| row.user_key(stored, value).to_vec())
}

/// A due entry.
struct Due<'d> {
    database: &'d Database,
    engine: &'d Engine,
    time: u64,
    stored: &'d [u8],
    now_ms: u64,
    number: usize,
    /// The disk is full.
    is_full: bool,
    notifications: &'d Notifications,
}

impl Due<'_> {
    /// Records an event of the key, if anybody wants to know.
    fn event(&self, events: &mut Recorded, (class, name): (Class, &'static str), key: &[u8]) {
        if self.notifications.wants(class) {
            events.add(self.number, key, name);
        }
    }

    fn delete_entry(&self, batch: &mut ValidatedBatch) {
        let mut key = Vec::new();
        entry_key(&mut key, self.time, self.stored);
        batch.delete(&self.database.elements, &key);
    }

    /// Writes what is to be done about the row, which was opened, and of which `cut` bytes are not
    /// in `value`.
    fn process(
        &self,
        batch: &mut ValidatedBatch,
        (opened, cut): (Opened, usize),
        value: &mut Vec<u8>,
        (most, events): (&mut usize, &mut Recorded),
    ) -> pandodb::Result<Polled<Processed>> {
        let large = match opened {
            Opened::Absent => {
                self.delete_entry(batch);
                return Ok(Polled::Ready(Processed::Renewed));
            }
            Opened::Value => None,
            Opened::Large(stream) => Some(stream),
        };
        let Ok(row) = Row::decode(self.stored, value) else {
            return Ok(Polled::Ready(Processed::Unknown));
        };
        let names = |expiry: &Expiry| expiry.entry == self.time;
        if row.expiry.filter(names).is_none() {
            self.delete_entry(batch);
            return Ok(Polled::Ready(Processed::Renewed));
        }
        if row.is_over(self.now_ms) {
            return remove(self, batch, (&row, value), events).map(Polled::Ready);
        }
        if self.is_full && !row.times().has_expired_fields(self.now_ms) {
            return Ok(Polled::Ready(Processed::NeedsRoom));
        }
        if cut > 0
            && let Polled::Pending(pending) = batch.get(&self.database.keys, self.stored, value)?
        {
            return Ok(Polled::Pending(pending));
        }
        let key = row.user_key(self.stored, value);
        let whole_key = self.engine.folder.folds(key).then_some(key);
        let renewed = Renewed {
            due: self,
            row: &row,
            value,
            whole_key,
        };
        renewed.write(batch, large, (most, events))
    }
}

/// Removes the row of an expired key, its entry, and gives up its elements if they have rows of
/// their own.
fn remove(
    due: &Due<'_>,
    batch: &mut ValidatedBatch,
    (row, value): (&Row, &[u8]),
    events: &mut Recorded,
) -> pandodb::Result<Processed> {
    let (database, stored) = (due.database, due.stored);
    let Ok(tree) = tree_of(row, value) else {
        return Ok(Processed::Unknown);
    };
    let key = row.user_key(stored, value);
    if row.times().is_over_itself(due.now_ms) {
        due.event(events, (Class::Expired, "expired"), key);
    } else {
        due.event(events, (Class::Hash, "hexpired"), key);
        due.event(events, (Class::Generic, "del"), key);
    }
    due.delete_entry(batch);
    if let (Some(id), Some(members)) = (tree, database.members.table()) {
        let mut key = Vec::new();
        given_up_key(id, &mut key);
        batch.put_freeing(members, &key, (b"", b""))?;
    }
    batch.delete(&database.keys, stored);
    Ok(Processed::Removed)
}

/// A row whose entry was due, and that lives.
struct Renewed<'r> {
    due: &'r Due<'r>,
    row: &'r Row,
    value: &'r [u8],
    whole_key: Option<&'r [u8]>,
}

impl Renewed<'_> {
    /// Writes the row with an entry of a later time, and without expired fields, of which at most
    /// `most` are removed; `large` is its string, if that lies in chunks.
    fn write(
        &self,
        batch: &mut ValidatedBatch,
        large: Option<ValueStream>,
        (most, events): (&mut usize, &mut Recorded),
    ) -> pandodb::Result<Polled<Processed>> {
        let (row, value) = (self.row, self.value);
        let Due {
            database,
            stored,
            now_ms,
            ..
        } = *self.due;
        let mut times = row.times();
        let mut rest = None;
        if times.has_expired_fields(now_ms) {
            let removed = remove_expired(database, batch, (row, value), (now_ms, *most))?;
            rest = match removed {
                Polled::Pending(pending) => return Ok(Polled::Pending(pending)),
                Polled::Ready(None) => return Ok(Polled::Ready(Processed::Unknown)),
                Polled::Ready(rest) => rest,
            };
        }
        // The new one may have the same time.
        self.due.delete_entry(batch);
        let payload = match &rest {
            Some(rest) => {
                times.fields = rest.fields;
                if rest.removed > 0 {
                    let key = row.user_key(stored, value);
                    self.due.event(events, (Class::Hash, "hexpired"), key);
                }
                *most = most.saturating_sub(rest.removed);
                &rest.payload[..]
            }
            None => &value[row.payload..],
        };
        let mut encoded = Vec::new();
        let expiry = times.due().map(|entry| Expiry { times, entry });
        if let Some(expiry) = expiry {
            entry_key(&mut encoded, expiry.entry, stored);
            match rest {
                Some(_) => batch.put_freeing(&database.elements, &encoded, (b"", b""))?,
                None => batch.put(&database.elements, &encoded, b"")?,
            }
        }
        if let Some(stream) = large {
            let mut head = Vec::new();
            // That of the patches, if it has some.
            encode(&mut head, row.value_type, self.whole_key, expiry, payload);
            let value = stream.with_head(head)?;
            batch.put_large(&database.keys, stored, value)?;
            return Ok(Polled::Ready(Processed::Renewed));
        }
        encode(
            &mut encoded,
            row.value_type,
            self.whole_key,
            expiry,
            payload,
        );
        Ok(Polled::Ready(match rest {
            Some(_) => {
                batch.put_freeing(&database.keys, stored, (&encoded, b""))?;
                Processed::Shortened
            }
            None => {
                batch.put(&database.keys, stored, &encoded)?;
                Processed::Renewed
            }
        }))
    }
}

impl Cleaner {
    /// Returns a cleaner of these databases, given by number. After [`Cleaned::Waiting`], `waker`
    /// is woken when it can continue.
    pub(crate) fn new(engine: &Engine, databases: Vec<usize>, waker: Waker) -> Self {
        Self {
            databases,
            at: 0,
            quiet: 0,
            due: Vec::new(),
            gone: Vec::new(),
            freed: 0,
            gone_of: Lsn::default(),
            gone_since: None,
            given_up_since: BTreeMap::new(),
            passed: BTreeSet::new(),
            obstacles: Obstacles::default(),
            looked_at: 0,
            size: BATCH,
            size_gone: GONE,
            waits: 0,
            missing: false,
            committing: false,
            removed: 0,
            events: Recorded::default(),
            changing: Vec::new(),
            changed: Vec::new(),
            page: ScanPage::default(),
            value: Vec::new(),
            batch: {
                let mut batch = ValidatedBatch::new(&engine.db);
                // Others are due: it does not wait for who has locked a key.
                batch.lock_timeout(Duration::ZERO);
                batch
            },
            waker,
        }
    }

    /// Returns true if there are any expiry entries, due or not.
    pub(crate) fn has_entries(&self, engine: &Engine) -> bool {
        self.databases.iter().any(|number| {
            let database = &engine.databases[*number];
            database.entries() > 0 || database.members.table().is_some_and(|of| !of.is_empty())
        })
    }

    /// Takes the keys whose values have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    /// Processes at most one batch.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        reactor: &mut Reactor,
        (statistics, notifications): (&ServerStatistics, &Arc<Notifications>),
    ) -> Cleaned {
        let Some(number) = self.databases.get(self.at).copied() else {
            return Cleaned::Nothing;
        };
        if self.obstacles.is_closed(number) {
            return self.next_database();
        }
        let database = &engine.databases[number];
        match self.batch(database, engine, reactor, (unix_ms(), notifications)) {
            Ok(0) => self.next_database(),
            Ok(_) => {
                statistics.tick(Ticker::ExpiredKeys, self.removed);
                statistics.tick(Ticker::ObjectsFreed, self.freed);
                self.quiet = 0;
                Cleaned::More
            }
            Err(Stop::Waiting) => Cleaned::Waiting,
            Err(Stop::Again) => Cleaned::More,
            Err(Stop::Failed(error)) => {
                self.go_on_after(number, &error);
                Cleaned::More
            }
            Err(Stop::DamagedKey(stored, error)) => {
                self.obstacles.tell(number, &error);
                self.obstacles.add_key(number, &stored);
                self.drop_batch();
                Cleaned::More
            }
            Err(Stop::DamagedCollection(id, error)) => {
                self.obstacles.tell(number, &error);
                self.obstacles.add_collection(number, id);
                self.drop_batch();
                Cleaned::More
            }
            Err(Stop::Passed(key)) => {
                self.drop_batch();
                match self.passed.len() < PASSED_MAX && self.passed.insert((number, key)) {
                    true => Cleaned::More,
                    false => {
                        self.passed.clear();
                        Cleaned::Nothing
                    }
                }
            }
        }
    }

    /// Goes to the next database: there is nothing more to do in this one.
    fn next_database(&mut self) -> Cleaned {
        self.at = (self.at + 1) % self.databases.len();
        self.quiet += 1;
        if self.quiet < self.databases.len() {
            return Cleaned::More;
        }
        self.quiet = 0;
        self.passed.clear();
        self.obstacles.end_round();
        Cleaned::Nothing
    }

    /// Gives the current batch up.
    fn drop_batch(&mut self) {
        self.committing = false;
        self.missing = false;
        self.batch.reset();
        self.due.clear();
        self.gone.clear();
    }

    /// Decides what to do after an error of a batch of this database: without what needs room, with
    /// less, without the only entry, or in another database.
    fn go_on_after(&mut self, number: usize, error: &pandodb::Error) {
        self.obstacles.tell(number, error);
        let is_full = matches!(error, pandodb::Error::Full { .. });
        if is_full && self.obstacles.is_newly_full() {
            return self.drop_batch();
        }
        // Of what it has collected; nothing if that was what failed.
        let entries = match (self.due.len(), self.gone.len()) {
            (0, gone) => gone,
            (1, _) => self.size_gone,
            (due, _) => due,
        };
        let first = self.due.first().cloned();
        let id = self.gone.first().map(|key| match decode_given_up(key) {
            Some(id) => id,
            None => id_of(key),
        });
        self.drop_batch();
        match (is_full || error.is_corruption(), entries, first, id) {
            (true, 2.., ..) => {
                self.obstacles.refuse(entries);
                self.size = self.obstacles.limit(self.size, BATCH);
                self.size_gone = self.obstacles.limit(self.size_gone, GONE);
            }
            (true, 1, Some((_, stored)), _) if !is_full => {
                self.obstacles.add_key(number, &stored);
            }
            // Plain keys behind it need less room.
            (true, 1, Some(entry), _) => self.obstacles.look_behind(number, &entry),
            (true, 1, None, Some(id)) if !is_full => self.obstacles.add_collection(number, id),
            _ => self.obstacles.close(number),
        }
    }

    /// Collects, changes and commits a batch; returns the number of entries that were processed.
    fn batch(
        &mut self,
        database: &Database,
        engine: &Engine,
        reactor: &mut Reactor,
        (now_ms, notifications): (u64, &Arc<Notifications>),
    ) -> Result<usize, Stop> {
        if self.due.is_empty() && self.gone.is_empty() {
            self.collect(database, reactor, now_ms)?;
            if self.due.is_empty() {
                self.collect_gone(database, reactor)?;
            }
            if self.due.is_empty() && self.gone.is_empty() {
                return Ok(0);
            }
        }
        if !self.committing {
            match std::mem::take(&mut self.missing) {
                true => self.batch.rewind(),
                false => self.batch.reset(),
            }
            self.removed = 0;
            self.events.clear();
            self.changing.clear();
            self.change(database, engine, reactor, (now_ms, notifications))?;
            if let Some(members) = database.members.table() {
                let gone = self.gone.iter();
                gone.for_each(|key| self.batch.delete(members, key));
                if let Some(since) = self.gone_since.filter(|_| self.due.is_empty()) {
                    // Later snapshots see no head that leads to them.
                    self.batch.unread_since(since);
                }
                // Behind the first one, with which the batch has noted the table: a swap from here
                // on is a conflict.
                if !self.gone.is_empty() && members.last_swap() != self.gone_of {
                    self.gone.clear();
                    return Err(Stop::Again);
                }
            }
            self.committing = true;
        }
        let announcement = (!self.events.is_empty())
            .then(|| notifications.announce(engine.db.newest_lsn(), &self.events));
        match self.batch.try_commit(reactor)? {
            Polled::Pending(pending) => {
                reactor.park(pending, &self.waker)?;
                Err(Stop::Waiting)
            }
            Polled::Ready(Outcome::Conflict { .. }) => {
                self.committing = false;
                Err(Stop::Again)
            }
            Polled::Ready(Outcome::Committed(lsn)) => {
                if let (Some(announcement), Some(lsn)) = (announcement, lsn) {
                    announcement.hand_over(lsn, std::mem::take(&mut self.events));
                }
                self.committing = false;
                // Until it is reset, the transaction keeps the chunks of large values from being
                // freed.
                self.batch.reset();
                self.changed.append(&mut self.changing);
                if let Some(last) = self.due[..self.looked_at].last() {
                    self.obstacles.look_behind(self.databases[self.at], last);
                }
                let count = self.due.len() + self.gone.len();
                // The row that says that its others are to go goes with the last of them.
                let is_last = |key: &&Vec<u8>| decode_given_up(key).is_some();
                self.freed = self.gone.iter().filter(is_last).count() as u64;
                self.due.clear();
                self.gone.clear();
                self.waits = 0;
                self.size = self.obstacles.limit(self.size * 2, BATCH);
                self.size_gone = self.obstacles.limit(self.size_gone * 2, GONE);
                Ok(count)
            }
        }
    }

    /// Collects the due entries.
    fn collect(
        &mut self,
        database: &Database,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Result<(), Stop> {
        if database.entries() == 0 {
            return Ok(());
        }
        let number = self.databases[self.at];
        let behind = self.obstacles.first_entry(number);
        let mut from = behind.unwrap_or_else(|| ENTRY_TAG.to_vec());
        loop {
            let elements = Reads::of(&database.elements);
            let scanned = elements.scan(Bound::Included(&from), &mut self.page)?;
            if let Polled::Pending(pending) = scanned {
                reactor.park(pending, &self.waker)?;
                return Err(Stop::Waiting);
            }
            let mut any = false;
            for index in 0..self.page.len() {
                let (key, _) = self.page.entry(index);
                let is_due = |(time, _): &(u64, &[u8])| has_ended(*time, now_ms);
                let Some((time, stored)) = decode_entry(key).filter(is_due) else {
                    any = true;
                    break;
                };
                if !self.passed.is_empty()
                    && self
                        .passed
                        .contains(&(self.databases[self.at], stored.to_vec()))
                {
                    continue;
                }
                if self.obstacles.has_key(number, stored) {
                    continue;
                }
                any = true;
                self.due.push((time, stored.to_vec()));
                if self.due.len() >= self.size {
                    break;
                }
            }
            match self.page.next.take() {
                // A leaf that was emptied but not yet removed, or whose keys are locked.
                Some(next) if !any => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Writes the changes of a batch into its transaction.
    fn change(
        &mut self,
        database: &Database,
        engine: &Engine,
        reactor: &mut Reactor,
        (now_ms, notifications): (u64, &Notifications),
    ) -> Result<(), Stop> {
        let mut missing = false;
        let mut most = self.size_gone;
        let damaged = |stored: &Vec<u8>, error: pandodb::Error| match error.is_corruption() {
            true => Stop::DamagedKey(stored.clone(), error),
            false => error.into(),
        };
        self.looked_at = 0;
        for (time, stored) in &self.due {
            if most == 0 {
                // The other entries stay due.
                break;
            }
            self.looked_at += 1;
            let looked = database.look_in(&mut self.batch, stored, &mut self.value);
            let looked = match looked.map_err(|error| damaged(stored, error))? {
                Polled::Ready(looked) => looked,
                Polled::Pending(pending) => {
                    // All missing rows of the batch are requested together.
                    reactor.park(pending, &self.waker)?;
                    missing = true;
                    continue;
                }
            };
            if missing {
                continue;
            }
            let due = Due {
                database,
                engine,
                time: *time,
                stored,
                now_ms,
                number: self.databases[self.at],
                is_full: self.obstacles.is_full(),
                notifications,
            };
            let told = (&mut most, &mut self.events);
            let processed = due.process(&mut self.batch, looked, &mut self.value, told);
            let processed = processed.map_err(|error| damaged(stored, error))?;
            if let Polled::Ready(Processed::Removed | Processed::Shortened) = processed {
                self.changing.push(key_of(stored, &self.value));
            }
            match processed {
                Polled::Ready(Processed::Removed) => self.removed += 1,
                Polled::Ready(Processed::Renewed | Processed::Shortened | Processed::NeedsRoom) => {
                }
                Polled::Ready(Processed::Unknown) if self.passed.len() >= PASSED_MAX => {
                    return Err(Stop::Passed(stored.clone()));
                }
                Polled::Ready(Processed::Unknown) => {
                    self.passed
                        .insert((self.databases[self.at], stored.clone()));
                }
                Polled::Pending(pending) => {
                    reactor.park(pending, &self.waker)?;
                    missing = true;
                }
            }
        }
        if missing {
            Err(self.wait_for_rows())
        } else {
            Ok(())
        }
    }

    /// Notes that rows of the batch are missing, and halves it if that goes on.
    fn wait_for_rows(&mut self) -> Stop {
        self.missing = true;
        self.waits += 1;
        if self.waits.is_multiple_of(WAITS_PER_BATCH) {
            self.size = (self.size / 2).max(1);
            self.due.truncate(self.size);
        }
        Stop::Waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::keyspace::{FieldTimes, Times, ValueType};
    use pando_sync::thread;
    use pandodb::Db;

    /// Writes a row, which may be any bytes, and its entry.
    fn put(database: &Database, key: &str, (time, row): (u64, &[u8])) {
        let (stored, mut entry) = ([b"\0", key.as_bytes()].concat(), Vec::new());
        entry_key(&mut entry, time, &stored);
        database.keys.put(&stored, row).expect("there is room");
        database.elements.put(&entry, b"").expect("there is room");
    }

    /// Returns a row with this payload that has expired, or of which fields have.
    fn row(value_type: ValueType, is_of_fields: bool, (time, payload): (u64, &[u8])) -> Vec<u8> {
        let times = match is_of_fields {
            false => Times::of(Some(time)),
            true => Times {
                deadline: None,
                fields: Some(FieldTimes {
                    first: time,
                    last: u64::MAX,
                }),
            },
        };
        let mut value = Vec::new();
        let expiry = Some(Expiry { times, entry: time });
        encode(&mut value, value_type, None, expiry, payload);
        value
    }

    /// Has the cleaner work until nothing is left that it can do; returns the number of steps.
    pub(super) fn clean(cleaner: &mut Cleaner, engine: &Engine, reactor: &mut Reactor) -> usize {
        let statistics = ServerStatistics::new(&[]).expect("there is address space");
        let notifications = Notifications::new(&Arc::default());
        for step in 1..1000 {
            match cleaner.step(engine, reactor, (&statistics, &notifications)) {
                Cleaned::Nothing => return step,
                Cleaned::Waiting => thread::yield_now(),
                Cleaned::More => {}
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn rows_that_cannot_be_decoded_keep_their_entries_and_hold_up_nothing() {
        let db = Db::builder()
            .max_memory(16 << 20)
            .open_in_memory()
            .expect("a store in memory");
        let engine = Engine::new(db).expect("the tables are made");
        let database = &engine.databases[0];
        // More than a batch, all before the one that can be removed.
        for time in 1..=200 {
            let bad = match time % 4 {
                0 => [&[9, 1][..], &[0; 16]].concat(),
                1 => row(ValueType::Stream, false, (time, b"no head")),
                2 => row(ValueType::Hash, true, (time, b"")),
                _ => row(ValueType::Set, false, (time, b"\x03\x01short")),
            };
            put(database, &format!("bad{time}"), (time, &bad));
        }
        let good = row(ValueType::String, false, (300, b"good"));
        put(database, "good", (300, &good));
        let mut reactor = Reactor::new(&engine.db, Waker::noop().clone()).expect("a reactor");
        let mut cleaner = Cleaner::new(&engine, vec![0], Waker::noop().clone());
        for _ in 0..2 {
            let steps = clean(&mut cleaner, &engine, &mut reactor);
            assert!(steps < 20, "{steps}");
            assert_eq!(database.keys.get(b"\0good").expect("no error"), None);
            assert_eq!((database.keys.len(), database.elements.len()), (200, 200));
        }
    }
}
