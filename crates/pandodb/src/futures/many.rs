//! Reads of many keys as one future: pages that are not in memory are read at the same time.
//!
//! Keys are awaited in their order. Before one is awaited, those near behind it are tried once, and
//! the pages that they miss are requested; most are in memory when their turn comes.

use pando_pool::Restart;
use pando_versions::Registration;

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::futures::drive::{answer_of, drive_alone, durable, yield_once};
use crate::futures::snapshot::read_in_memory;
use crate::pages::store::Store;
use crate::read::at::ReadAt;
use crate::state::read_bounds::Debt;
use crate::transaction::handle::Transaction;
use crate::wait::reason::{Unfinished, WaitReason};

/// Most keys that are tried ahead of the one that is awaited.
const AHEAD_MAX: usize = 64;
/// Number of keys after which other tasks get their turn.
const TURN_KEYS: usize = 1024;
/// Most keys that the helper reads at a settled snapshot before it does something else.
const HELPED_MAX: usize = 256;

/// What is known of one key.
#[derive(Debug, Clone, Default)]
enum Known {
    #[default]
    Nothing,
    /// A page of it was not in memory.
    Missed,
    Value(Option<Vec<u8>>),
}

/// The keys of one call, and what is known of them.
struct Gathering<'k> {
    keys: &'k [&'k [u8]],
    known: Vec<Known>,
    /// Number of keys that were tried.
    tried: usize,
    /// The debt of all that was found.
    debt: Debt,
}

impl<'k> Gathering<'k> {
    fn new(keys: &'k [&'k [u8]]) -> Self {
        Self {
            keys,
            known: vec![Known::Nothing; keys.len()],
            tried: 0,
            debt: Debt::NONE,
        }
    }

    /// Tries the keys from `at` on, a few at least or none, and requests the pages that they miss.
    /// What else is in their way is met in their turn.
    fn look_ahead(&mut self, table: &Table, then: Option<&Registration>, at: usize) {
        let end = self.keys.len().min(at + AHEAD_MAX);
        if self.tried > at + AHEAD_MAX / 2 || self.tried >= end {
            return;
        }
        let engine = table.db.engine();
        let (mut work, mut value) = (ReadAt::default(), Vec::new());
        for next in self.tried.max(at)..end {
            work.forget_kept();
            let key = self.keys[next];
            match engine.try_read(then, &table.state, key, &mut work, &mut value) {
                Ok((found, debt)) => {
                    self.debt.add(debt);
                    self.known[next] = Known::Value(found.then(|| value.clone()));
                }
                Err(unfinished) => {
                    let mut missed = false;
                    engine.count_miss(&unfinished, &mut missed);
                    if let Unfinished::Wait(WaitReason::Restart(Restart::Fault(page))) = unfinished
                    {
                        self.known[next] = Known::Missed;
                        engine.reads.request(page);
                    }
                    for page in work.reader.wanted.drain(..) {
                        engine.reads.request(page);
                    }
                }
            }
        }
        self.tried = end;
    }

    /// Reads the keys that are not known yet, as they are or as `snapshot` sees them in memory.
    async fn run(&mut self, table: &Table, snapshot: Option<&Snapshot>) -> Result<()> {
        for at in 0..self.keys.len() {
            self.look_ahead(table, snapshot.map(Snapshot::registration), at);
            if !matches!(self.known[at], Known::Value(_)) {
                let mut missed = matches!(self.known[at], Known::Missed);
                let read = read_in_memory(table, snapshot, self.keys[at], &mut missed);
                let (value, debt) = read.await?;
                self.debt.add(debt);
                self.known[at] = Known::Value(value);
            }
            if (at + 1).is_multiple_of(TURN_KEYS) {
                yield_once().await;
            }
        }
        Ok(())
    }

    /// Reads the keys that are not known yet at a snapshot that goes on on disk.
    async fn run_on_disk(&mut self, table: &Table, snapshot: &Snapshot) -> Result<()> {
        let settled = snapshot.settled().ok_or(Error::SnapshotEnded)?;
        let tree = snapshot.tree_of(table)?;
        let is_left = |at: &usize| !matches!(self.known[*at], Known::Value(_));
        let left: Vec<usize> = (0..self.keys.len()).filter(is_left).collect();
        for part in left.chunks(HELPED_MAX) {
            let settled = settled.clone();
            let owned: Vec<_> = part
                .iter()
                .map(|at| (*at, self.keys[*at].to_vec()))
                .collect();
            let answer = table.db.engine().helper.ask(move |engine: &Engine| {
                let keys = owned.iter().map(|(at, key)| (*at, &key[..]));
                let (keys, mut values): (Vec<_>, _) = (keys.collect(), Vec::new());
                let together = |store: &Store, pages: &[_]| engine.fetch_many_of(store, pages);
                settled.get_many(&together, tree, &keys, |at, value| {
                    engine.count_get();
                    values.push((at, value.map(<[u8]>::to_vec)));
                })?;
                Ok(values)
            });
            for (at, value) in answer_of(answer).await? {
                self.known[at] = Known::Value(value);
            }
        }
        Ok(())
    }

    /// Returns all values, once they may be shown.
    async fn finish(self, engine: &Engine) -> Result<Vec<Option<Vec<u8>>>> {
        if let Some(lsn) = self.debt.lsn() {
            durable(engine, lsn).await?;
        }
        let values = self.known.into_iter().map(|known| match known {
            Known::Value(value) => value,
            Known::Nothing | Known::Missed => unreachable!("each key was read"),
        });
        Ok(values.collect())
    }
}

impl Table {
    /// As [`Table::get_many`]. Never blocks. Keeps a copy of each value until all are there.
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # let work = async {
    /// let values = table.get_many_async(&[b"apple", b"plum"]).await?;
    /// assert_eq!(values, [Some(b"red".to_vec()), None]);
    /// # Ok::<(), pandodb::Error>(())
    /// # };
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(std::pin::pin!(work).poll(&mut context)?.is_ready());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get_many`].
    pub async fn get_many_async(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut gathering = Gathering::new(keys);
        gathering.run(self, None).await?;
        gathering.finish(self.db.engine()).await
    }
}

impl Snapshot {
    /// As [`Snapshot::get_many`]. Never blocks. Keeps a copy of each value until all are there.
    ///
    /// # Errors
    /// As [`Snapshot::get_many`].
    pub async fn get_many_async(
        &self,
        table: &Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let engine = self.engine_of(table)?;
        let mut gathering = Gathering::new(keys);
        let in_memory = match self.settled() {
            None => gathering.run(table, Some(self)).await,
            Some(_) => Err(Error::SnapshotEnded),
        };
        match in_memory {
            // It was settled, maybe meanwhile.
            Err(Error::SnapshotEnded) => gathering.run_on_disk(table, self).await?,
            other => other?,
        }
        gathering.finish(engine).await
    }
}

impl Transaction {
    /// As [`Transaction::get_many`]. Never blocks, except for a moment as
    /// [`Transaction::get_async`].
    ///
    /// # Errors
    /// As [`Transaction::get_many`].
    pub async fn get_many_async(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        let others = self.get_own_many(table, keys, &mut values)?;
        if others.is_empty() {
            return Ok(values);
        }
        drive_alone(table.db.engine(), || self.try_take_snapshot()).await?;
        let left: Vec<&[u8]> = others.iter().map(|at| keys[*at]).collect();
        let read = match &self.snapshot {
            None => table.get_many_async(&left).await?,
            Some(snapshot) => {
                let read = snapshot.get_many_async(table, &left).await;
                let read = read.map_err(|error| self.of_failed_read(table, error))?;
                for key in left {
                    self.note_read(table, key)?;
                }
                read
            }
        };
        for (at, value) in others.into_iter().zip(read) {
            values[at] = value;
        }
        Ok(values)
    }
}
