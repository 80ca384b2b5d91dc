//! Operations for event loops: every call returns at once, with a result or with a reason to wait.
//!
//! [`Reads`] are those of a table, [`ValidatedBatch`] is a one-shot transaction, [`Transaction`]
//! one of many steps; [`ValueSource`], [`ValueSink`] and [`PendingEdit`] are for large values.
//!
//! A loop owns a [`Reactor`]. An operation that cannot continue returns [`Polled::Pending`]; the
//! loop hands that to [`Reactor::park`] together with the waker of the task, and runs the operation
//! again from the beginning when the waker is woken. An operation holds nothing in between
//! (decision 009).

pub use crate::commit::outcome::Outcome;
pub use crate::event_loop::counted::EntryFrom;
pub use crate::event_loop::foreseen::Foreseen;
pub use crate::event_loop::group::GroupValues;
pub use crate::event_loop::polled::{Pending, Polled};
pub use crate::event_loop::reactor::{Prefetched, Reactor};
pub use crate::event_loop::table::{Reads, ScanPage};
pub use crate::event_loop::transaction::Transaction;
pub use crate::event_loop::validated_batch::{BatchPlace, BatchSavepoint, ValidatedBatch};
pub use crate::event_loop::watch::{Watch, WatchPlace};
pub use crate::streams::edit::NewBytes;
pub use crate::streams::event_loop::{
    EditOld, Fingerprint, Opened, PendingEdit, ValueSink, ValueSource,
};
