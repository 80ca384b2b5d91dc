//! Gets as futures: they return a new value, fill the caller's buffer, or call a closure.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pando_pool::Restart;
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::Result;
use crate::futures::key::Key;
use crate::futures::{Next, TURNS_MAX, Waits};
use crate::read::buffers::{with_reader, with_value};
use crate::read::point::{Copied, SoFar};
use crate::state::helper::Answer;
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// A get after its first attempt, which is made before the first poll.
#[derive(Debug)]
enum Begun<T> {
    /// None once the result was handed out.
    Ended(Option<Result<T>>),
    Pending(PendingGet),
}

/// A get that its first attempt could not finish.
#[derive(Debug)]
struct PendingGet {
    key: Key,
    state: Arc<TableState>,
    waits: Waits,
    /// Its miss was counted.
    missed: bool,
    /// A copy that may be shown once all batches up to its mark are applied and its debt is paid.
    /// It is kept because reading again might meet the next batch, and so on forever.
    copied: Option<(Copied, Vec<u8>)>,
    debt: Debt,
    /// The answer of the helper, once the helper has taken over.
    helped: Option<Arc<Answer<Option<Vec<u8>>>>>,
}

/// Makes the first attempt of a get. A value in memory costs neither a reference count nor a copy
/// of the key.
fn begin<T>(
    table: &Table,
    key: &[u8],
    out: &mut Vec<u8>,
    end: impl FnOnce(bool, &mut Vec<u8>) -> T,
) -> Begun<T> {
    let engine = table.db.engine();
    let mut missed = false;
    let copied = look_up(engine, &table.state, key, &mut missed, out);
    let step = copied.and_then(|copied| {
        let debt = engine.check_copied(copied, key)?;
        engine.check_paid(debt).map(|()| copied.found)
    });
    let reason = match step {
        Ok(found) => {
            engine.store.statistics.tick(Ticker::Gets, 1);
            return Begun::Ended(Some(Ok(end(found, out))));
        }
        Err(Unfinished::Error(error)) => return Begun::Ended(Some(Err(error))),
        // The key is read again first: the wait must be that of the copy that is kept.
        Err(Unfinished::Wait(WaitReason::Durable(_))) => WaitReason::Restart(Restart::Conflict),
        Err(Unfinished::Wait(reason)) => reason,
    };
    Begun::Pending(PendingGet {
        key: Key::new(engine, key),
        state: table.state.clone(),
        waits: Waits {
            reason: Some(reason),
            ..Waits::default()
        },
        missed,
        copied: None,
        debt: Debt::NONE,
        helped: None,
    })
}

/// Copies the value of `key`. On a fault it requests the further pages that the read needs.
fn look_up(
    engine: &Engine,
    state: &TableState,
    key: &[u8],
    missed: &mut bool,
    out: &mut Vec<u8>,
) -> Step<Copied> {
    with_reader(|reader| {
        engine
            .look_up(state, key, reader, out)
            .inspect_err(|unfinished| {
                engine.count_miss(unfinished, missed);
                // The caller waits for the first one.
                for page in reader.wanted.drain(..).skip(1) {
                    engine.reads.request(page);
                }
            })
    })
}

impl PendingGet {
    /// Continues; `out` holds the value if it is found.
    fn poll(&mut self, waker: &Waker, out: &mut Vec<u8>) -> Poll<Result<bool>> {
        if self.helped.is_none() {
            let error = self.waits.failure(self.key.engine());
            if let Some(error) = error {
                return Poll::Ready(Err(error));
            }
            for _ in 0..TURNS_MAX {
                match self.waits.arrange(self.key.engine(), waker)? {
                    Next::Try => {}
                    Next::Wait => return Poll::Pending,
                    Next::AskForHelp => {
                        self.ask_for_help();
                        break;
                    }
                }
                match self.attempt(out) {
                    Ok(found) => return Poll::Ready(Ok(found)),
                    Err(Unfinished::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Unfinished::Wait(reason)) => self.waits.reason = Some(reason),
                }
            }
        }
        let Some(answer) = &self.helped else {
            waker.wake_by_ref();
            return Poll::Pending;
        };
        answer.poll(waker).map(|result| {
            let value = result?;
            let found = value.is_some();
            *out = value.unwrap_or_default();
            Ok(found)
        })
    }

    /// Makes one more attempt, of what is not done yet.
    fn attempt(&mut self, out: &mut Vec<u8>) -> Step<bool> {
        let engine = self.key.engine();
        if self.copied.is_none() {
            let (missed, key) = (&mut self.missed, self.key.bytes());
            let copied = look_up(engine, &self.state, key, missed, out)?;
            self.copied = Some((copied, std::mem::take(out)));
        }
        let (copied, value) = self.copied.as_mut().expect("it was just copied");
        if self.debt == Debt::NONE {
            self.debt = engine.check_copied(*copied, self.key.bytes())?;
        }
        engine.check_paid(self.debt)?;
        std::mem::swap(out, value);
        engine.store.statistics.tick(Ticker::Gets, 1);
        Ok(copied.found)
    }

    /// Hands the get to the helper.
    fn ask_for_help(&mut self) {
        assert!(self.helped.is_none(), "a get is handed over once");
        let (state, begun) = (self.state.clone(), SoFar::with_miss(self.missed));
        let key = Key::new(self.key.engine(), self.key.bytes());
        self.helped = Some(self.key.engine().helper.ask(move |engine| {
            let mut value = Vec::new();
            let found = with_reader(|reader| {
                engine.read_on(&state, key.bytes(), reader, &mut value, begun)
            })?;
            Ok(found.then_some(value))
        }));
    }
}

impl<T> Begun<T> {
    /// Continues the get; `end` turns what was found into the result.
    ///
    /// # Panics
    /// If it is polled again after it has ended.
    fn poll(
        &mut self,
        waker: &Waker,
        out: &mut Vec<u8>,
        end: impl FnOnce(bool, &mut Vec<u8>) -> T,
    ) -> Poll<Result<T>> {
        let result = match self {
            Self::Ended(result) => result.take().expect("a future ends once"),
            Self::Pending(get) => match get.poll(waker, out) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(found) => found.map(|found| end(found, out)),
            },
        };
        // Gives the key's buffer back.
        *self = Self::Ended(None);
        Poll::Ready(result)
    }
}

/// Takes the value out of the buffer.
fn owned(found: bool, value: &mut Vec<u8>) -> Option<Vec<u8>> {
    found.then(|| std::mem::take(value))
}

/// See [`Table::get_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct GetAsync {
    get: Begun<Option<Vec<u8>>>,
}

impl Future for GetAsync {
    type Output = Result<Option<Vec<u8>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get.poll(context.waker(), &mut Vec::new(), owned)
    }
}

/// See [`Table::get_into_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct GetIntoAsync<'b> {
    get: Begun<bool>,
    out: &'b mut Vec<u8>,
}

impl Future for GetIntoAsync<'_> {
    type Output = Result<bool>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { get, out } = &mut *self;
        get.poll(context.waker(), out, |found, _| found)
    }
}

/// See [`Table::get_with_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct GetWithAsync<R, F> {
    get: Begun<Option<R>>,
    /// None once it was called.
    f: Option<F>,
}

impl<R, F> std::fmt::Debug for GetWithAsync<R, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GetWithAsync").finish_non_exhaustive()
    }
}

// Nothing in it is pinned.
impl<R, F> Unpin for GetWithAsync<R, F> {}

/// Calls the user's closure with the value of a get that has ended.
fn show<R, F: FnOnce(&[u8]) -> R>(f: &mut Option<F>, found: bool, value: &[u8]) -> Option<R> {
    let f = f.take().filter(|_| found)?;
    Some(f(value))
}

impl<R, F: FnOnce(&[u8]) -> R> Future for GetWithAsync<R, F> {
    type Output = Result<Option<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { get, f } = &mut *self;
        with_value(|out| get.poll(context.waker(), out, |found, out| show(f, found, out)))
    }
}

impl Table {
    /// Reads the value of `key`, if it exists. The first attempt is made in this call: a value in
    /// memory is copied here, and the future only hands it out. Never blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`]; [`crate::Error::Closed`] if a page is missing and the store is
    /// closed.
    pub fn get_async(&self, key: &[u8]) -> GetAsync {
        GetAsync {
            get: begin(self, key, &mut Vec::new(), owned),
        }
    }

    /// Reads `key` into `out`, which is cleared first; true if it exists. Allocates nothing once
    /// `out` has room. Otherwise as [`Table::get_async`].
    ///
    /// # Errors
    /// As [`Table::get_async`].
    pub fn get_into_async<'b>(&self, key: &[u8], out: &'b mut Vec<u8>) -> GetIntoAsync<'b> {
        GetIntoAsync {
            get: begin(self, key, out, |found, _| found),
            out,
        }
    }

    /// Calls `f` with a copy of the value of `key`, if it exists: in this call, if the value is in
    /// memory. Allocates nothing. Otherwise as [`Table::get_async`].
    ///
    /// # Errors
    /// As [`Table::get_async`].
    pub fn get_with_async<R, F: FnOnce(&[u8]) -> R>(&self, key: &[u8], f: F) -> GetWithAsync<R, F> {
        let mut f = Some(f);
        let get = with_value(|out| begin(self, key, out, |found, out| show(&mut f, found, out)));
        GetWithAsync { get, f }
    }
}
