//! Removes what has ended, without anybody reading it.
//!
//! Each loop looks after some of the databases. Expiry entries are ordered by time, so the first
//! leaf of a database's elements shows whether anything is due. Due entries are worked off in
//! small transactions: an entry whose row has ended goes with its row; an entry whose row has a
//! later deadline is moved there; an entry that no row names just goes. The work of a step is
//! bounded; when more is due the next step follows after the connections have had their turn.

use std::ops::Bound;
use std::task::Waker;

use pando_stats::Ticker;
use pando_sync::time::unix_ms;
use pandodb::nonblocking::{Opened, Outcome, Polled, Reactor, ScanPage, ValidatedBatch};

use crate::data::engine::{Database, Engine};
use crate::data::keyspace::{ENTRY_TAG, Expiry, Row, decode_entry, encode, encode_head, entry_key};
use crate::figures::statistics::ServerStatistics;

/// Most entries of one batch.
const BATCH: usize = 64;
/// Waits for pages after which a batch is halved: what it needs does not stay in memory together.
const WAITS_PER_BATCH: u32 = 2;

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cleaned {
    /// More is due now.
    More,
    /// The cleaner waits for its waker.
    Waiting,
    /// Nothing is due in any database.
    Nothing,
}

/// The cleaner of one loop.
pub(crate) struct Cleaner {
    /// Databases that are its own.
    databases: Vec<usize>,
    /// Index in `databases` of the one it is at.
    at: usize,
    /// Databases in a row where nothing was due.
    quiet: usize,
    /// Due entries: time and stored key.
    due: Vec<(u64, Vec<u8>)>,
    /// Entries of the next batch.
    size: usize,
    /// Waits for pages of the current batch.
    waits: u32,
    /// The batch is made and waits for its commit.
    committing: bool,
    removed: u64,
    page: ScanPage,
    value: Vec<u8>,
    encoded: Vec<u8>,
    batch: ValidatedBatch,
    waker: Waker,
}

/// Why a batch is not finished.
enum Stop {
    Waiting,
    Again,
    Failed,
}

impl From<pandodb::Error> for Stop {
    // A failed engine answers every command with its error; the cleaner just rests.
    fn from(_: pandodb::Error) -> Self {
        Self::Failed
    }
}

impl Cleaner {
    pub(crate) fn new(engine: &Engine, databases: Vec<usize>, waker: Waker) -> Self {
        Self {
            databases,
            at: 0,
            quiet: 0,
            due: Vec::new(),
            size: BATCH,
            waits: 0,
            committing: false,
            removed: 0,
            page: ScanPage::default(),
            value: Vec::new(),
            encoded: Vec::new(),
            batch: ValidatedBatch::new(&engine.db),
            waker,
        }
    }

    /// True if any entry exists at all, due or not.
    pub(crate) fn has_entries(&self, engine: &Engine) -> bool {
        self.databases
            .iter()
            .any(|number| engine.databases[*number].entries() > 0)
    }

    /// Works off at most one batch.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        reactor: &mut Reactor,
        statistics: &ServerStatistics,
    ) -> Cleaned {
        let Some(number) = self.databases.get(self.at) else {
            return Cleaned::Nothing;
        };
        let database = &engine.databases[*number];
        match self.batch(database, engine, reactor, unix_ms()) {
            Ok(0) => {
                self.at = (self.at + 1) % self.databases.len();
                self.quiet += 1;
                if self.quiet < self.databases.len() {
                    return Cleaned::More;
                }
                self.quiet = 0;
                Cleaned::Nothing
            }
            Ok(_) => {
                statistics.tick(Ticker::ExpiredKeys, self.removed);
                self.quiet = 0;
                Cleaned::More
            }
            Err(Stop::Waiting) => Cleaned::Waiting,
            Err(Stop::Again) => Cleaned::More,
            Err(Stop::Failed) => Cleaned::Nothing,
        }
    }

    /// Collects, changes and commits; how many entries were worked off.
    fn batch(
        &mut self,
        database: &Database,
        engine: &Engine,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Result<usize, Stop> {
        if self.due.is_empty() {
            self.collect(database, reactor, now_ms)?;
            if self.due.is_empty() {
                return Ok(0);
            }
        }
        if !self.committing {
            self.batch.reset();
            self.removed = 0;
            self.change(database, engine, reactor, now_ms)?;
            self.committing = true;
        }
        match self.batch.try_commit(reactor)? {
            Polled::Pending(pending) => {
                reactor.park(pending, &self.waker)?;
                Err(Stop::Waiting)
            }
            Polled::Ready(Outcome::Conflict { .. }) => {
                self.committing = false;
                Err(Stop::Again)
            }
            Polled::Ready(Outcome::Committed(_)) => {
                self.committing = false;
                // It keeps the chunks of large values from being freed.
                self.batch.reset();
                let count = self.due.len();
                self.due.clear();
                self.waits = 0;
                self.size = (self.size * 2).min(BATCH);
                Ok(count)
            }
        }
    }

    /// Looks which entries are due.
    fn collect(
        &mut self,
        database: &Database,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Result<(), Stop> {
        if database.entries() == 0 {
            return Ok(());
        }
        let mut from = ENTRY_TAG.to_vec();
        loop {
            let scanned = database
                .elements
                .try_scan(Bound::Included(&from), &mut self.page)?;
            if let Polled::Pending(pending) = scanned {
                reactor.park(pending, &self.waker)?;
                return Err(Stop::Waiting);
            }
            let mut any = false;
            for (key, _) in self.page.iter().take(self.size) {
                any = true;
                match decode_entry(key) {
                    Some((time, stored)) if time <= now_ms => {
                        self.due.push((time, stored.to_vec()));
                    }
                    _ => break,
                }
            }
            match self.page.next.take() {
                // An emptied leaf that is not yet removed.
                Some(next) if !any => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Puts the changes of a transaction into its batch.
    fn change(
        &mut self,
        database: &Database,
        engine: &Engine,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let mut missing = false;
        for (time, stored) in &self.due {
            self.value.clear();
            let opened = self.batch.open(&database.keys, stored, &mut self.value)?;
            let mut large = None;
            match opened {
                Polled::Pending(pending) => {
                    // All rows of the batch are asked for together.
                    reactor.park(pending, &self.waker)?;
                    missing = true;
                    continue;
                }
                Polled::Ready(opened) => {
                    if missing {
                        continue;
                    }
                    entry_key(&mut self.encoded, *time, stored);
                    self.batch.delete(&database.elements, &self.encoded);
                    match opened {
                        Opened::Absent => continue,
                        Opened::Value => {}
                        Opened::Large(stream) => large = Some(stream),
                    }
                }
            }
            // A damaged row keeps its error for those who ask for it.
            let Ok(row) = Row::decode(stored, &self.value) else {
                continue;
            };
            let Some(expiry) = row.expiry.filter(|expiry| expiry.entry == *time) else {
                continue;
            };
            if row.is_over(now_ms) {
                self.batch.delete(&database.keys, stored);
                self.removed += 1;
                continue;
            }
            let deadline = expiry.deadline;
            entry_key(&mut self.encoded, deadline, stored);
            self.batch.put(&database.elements, &self.encoded, b"")?;
            let key = row.user_key(stored, &self.value);
            let whole_key = engine.folder.folds(key).then_some(key);
            let entry = deadline;
            let expiry = Some(Expiry { deadline, entry });
            if let Some(stream) = large {
                let mut head = Vec::new();
                encode_head(&mut head, whole_key, expiry);
                let value = stream.with_head(head)?;
                self.batch.put_large(&database.keys, stored, value)?;
                continue;
            }
            encode(
                &mut self.encoded,
                whole_key,
                expiry,
                &self.value[row.payload..],
            );
            self.batch.put(&database.keys, stored, &self.encoded)?;
        }
        if missing {
            self.waits += 1;
            if self.waits.is_multiple_of(WAITS_PER_BATCH) {
                self.size = (self.size / 2).max(1);
                self.due.truncate(self.size);
            }
            return Err(Stop::Waiting);
        }
        Ok(())
    }
}
