//! Ranges as futures: an iterator's next entry, read without blocking.
//!
//! A future that is dropped before its end has taken nothing: the next call returns the entry that
//! it would have returned.

use std::ops::{Bound, ControlFlow, RangeBounds};

use pando_tree::Direction;

use crate::api::iter::{Entry, Iter, NextEntry, ReadFor, copied};
use crate::api::range_end::{RangeEnd, Source};
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::futures::drive::{Driven, answer_of, drive, drive_alone, durable};
use crate::transaction::handle::Transaction;
use crate::transaction::iter::TransactionIter;

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

/// Loads the leaf where `end` continues, as it is or as `snapshot` sees it in memory.
async fn load_in_memory(
    table: &Table,
    snapshot: Option<&Snapshot>,
    end: &mut RangeEnd,
    until: Bound<&[u8]>,
) -> Result<()> {
    let engine = table.db.engine();
    let from = table.source(snapshot.map(Snapshot::registration));
    let mut missed = false;
    let driven = drive(engine, |_| end.try_load(from, until, &mut missed)).await?;
    if let Driven::Ended(debt) = driven {
        if let Some(lsn) = debt.lsn() {
            durable(engine, lsn).await?;
        }
        end.loaded(from, until);
        return Ok(());
    }
    let then = match snapshot {
        Some(snapshot) => Some(snapshot.register_again()?.ok_or(Error::SnapshotEnded)?),
        None => None,
    };
    let (state, mut loaded, until) = (table.state.clone(), end.anew(), owned(until));
    let answer = engine.helper.ask(move |engine: &Engine| {
        let from = Source {
            engine,
            table: &state,
            then: then.as_ref(),
        };
        loaded.load(from, borrowed(&until))?;
        Ok(loaded)
    });
    end.take(engine, answer_of(answer).await?);
    Ok(())
}

impl Iter<'_> {
    /// As [`Iterator::next`]. Never blocks. It does not let other tasks run while entries are in
    /// memory.
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// # let work = async {
    /// let (mut entries, mut bytes) = (table.iter(), 0);
    /// while let Some((key, value)) = entries.next_async().await.transpose()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// assert_eq!(bytes, 20);
    /// # Ok::<(), pandodb::Error>(())
    /// # };
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(std::pin::pin!(work).poll(&mut context)?.is_ready());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_async(&mut self) -> Option<Result<Entry>> {
        let entry = self.next_ref_async().await?;
        Some(entry.map(|(key, value)| copied(key, value)))
    }

    /// As [`Iter::next_async`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_back_async(&mut self) -> Option<Result<Entry>> {
        let entry = self.next_back_ref_async().await?;
        Some(entry.map(|(key, value)| copied(key, value)))
    }

    /// As [`Iter::next_ref`]. Never blocks.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_ref_async(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step_async(Direction::Forward).await
    }

    /// As [`Iter::next_back_ref`]. Never blocks.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_back_ref_async(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step_async(Direction::Backward).await
    }

    async fn step_async(&mut self, direction: Direction) -> Option<Result<(&[u8], &[u8])>> {
        let position = match self.next_in_leaf(direction) {
            Some(position) => position,
            None => match self.advance_async(direction).await {
                Ok(position) => position?,
                Err(error) => {
                    self.finish();
                    return Some(Err(error));
                }
            },
        };
        Some(Ok(self.entry(direction, position)))
    }

    /// Moves over the next entry, and returns its position in its leaf.
    async fn advance_async(&mut self, direction: Direction) -> Result<Option<usize>> {
        loop {
            match self.look(direction)? {
                NextEntry::None => return Ok(None),
                NextEntry::Short => return Ok(Some(self.pass(direction))),
                NextEntry::NotLoaded => self.load_async(direction).await?,
                NextEntry::Long => {
                    let found = self.read_long_async(direction).await?;
                    let position = self.pass(direction);
                    if found {
                        return Ok(Some(position));
                    }
                }
            }
        }
    }

    /// Reads the value of the next entry. Returns whether the key is still there.
    async fn read_long_async(&mut self, direction: Direction) -> Result<bool> {
        let ReadFor {
            table,
            snapshot,
            end,
            long,
            ..
        } = self.read_for(direction);
        let (key, _) = end.entry(end.next);
        let Some(snapshot) = snapshot else {
            return table.get_into_async(key, long).await;
        };
        let value = snapshot.get_async(table, key).await?;
        let found = value.is_some();
        *long = value.unwrap_or_default();
        Ok(found)
    }

    /// Loads the next leaf.
    async fn load_async(&mut self, direction: Direction) -> Result<()> {
        let ReadFor {
            table,
            snapshot,
            end,
            until,
            ..
        } = self.read_for(direction);
        let Some(snapshot) = snapshot else {
            return load_in_memory(table, None, end, until).await;
        };
        if snapshot.settled().is_none() {
            match load_in_memory(table, Some(snapshot), end, until).await {
                // It may have been settled meanwhile.
                Err(Error::SnapshotEnded) => {}
                loaded => return loaded,
            }
        }
        let settled = snapshot.settled().ok_or(Error::SnapshotEnded)?;
        let (engine, tree) = (table.db.engine(), snapshot.tree_of(table)?);
        let (mut loaded, until) = (end.anew(), owned(until));
        let answer = engine.helper.ask(move |engine: &Engine| {
            loaded.load_settled(engine, (&settled, tree), borrowed(&until))?;
            Ok(loaded)
        });
        end.take(engine, answer_of(answer).await?);
        Ok(())
    }
}

impl Transaction {
    /// As [`Transaction::range`], without blocking if this is the first read; its entries are those
    /// of [`TransactionIter::next_async`].
    ///
    /// # Errors
    /// Those of a first read; others come with the first entry.
    pub async fn range_async<'t, 'k>(
        &'t mut self,
        table: &'t Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<TransactionIter<'t>> {
        self.check_store(table)?;
        self.check_usable()?;
        drive_alone(table.db.engine(), || self.try_take_snapshot()).await?;
        Ok(self.range(table, range))
    }
}

impl TransactionIter<'_> {
    /// As [`Iterator::next`]. Never blocks: see [`Iter::next_async`].
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_async(&mut self) -> Option<Result<Entry>> {
        self.step_async(true).await
    }

    /// As [`TransactionIter::next_async`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub async fn next_back_async(&mut self) -> Option<Result<Entry>> {
        self.step_async(false).await
    }

    async fn step_async(&mut self, is_forward: bool) -> Option<Result<Entry>> {
        if self.is_over {
            return None;
        }
        let entry = match self.failed.take() {
            Some(error) => Err(error),
            None => self.next_entry_async(is_forward).await,
        };
        self.ended(entry)
    }

    async fn next_entry_async(&mut self, is_forward: bool) -> Result<Option<Entry>> {
        loop {
            if self.wants_stored(is_forward) {
                let next = match is_forward {
                    true => self.stored.next_async().await,
                    false => self.stored.next_back_async().await,
                };
                self.take_stored(is_forward, next)?;
            }
            if let ControlFlow::Break(entry) = self.merge(is_forward)? {
                return Ok(entry);
            }
        }
    }
}
