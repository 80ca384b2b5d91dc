//! What futures that are async functions consist of: steps that are driven to their end, answers of
//! the helper, and the wait for the log.

use std::future::poll_fn;
use std::task::Poll;

use pando_format::{Lsn, PageId};
use pando_sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::futures::{Next, TURNS_MAX, Waits};
use crate::state::helper::Answer;
use crate::wait::reason::{Step, Unfinished};

/// How far a step has come without help.
pub(super) enum Driven<T> {
    Ended(T),
    /// Its pages are evicted again and again, or it has to read chunks.
    NeedsHelp,
}

/// Makes attempts at `step` until it ends, and hands it the list of the further pages that it
/// wants.
pub(super) async fn drive<T>(
    engine: &Engine,
    mut step: impl FnMut(&mut Vec<PageId>) -> Step<T>,
) -> Result<Driven<T>> {
    let mut waits = Waits::default();
    let mut wanted = Vec::new();
    poll_fn(move |context| {
        if let Some(error) = waits.failure(engine) {
            return Poll::Ready(Err(error));
        }
        for _ in 0..TURNS_MAX {
            match waits.arrange(engine, context.waker())? {
                Next::Try => {}
                Next::Wait => return Poll::Pending,
                Next::AskForHelp => return Poll::Ready(Ok(Driven::NeedsHelp)),
            }
            match step(&mut wanted) {
                Ok(value) => return Poll::Ready(Ok(Driven::Ended(value))),
                Err(Unfinished::Error(error)) => return Poll::Ready(Err(error)),
                Err(Unfinished::Wait(reason)) => waits.reason = Some(reason),
            }
            for page in wanted.drain(..) {
                engine.reads.request(page);
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// As [`drive`], for a step that reads no pages: it needs no help.
pub(super) async fn drive_alone<T>(
    engine: &Engine,
    mut step: impl FnMut() -> Step<T>,
) -> Result<T> {
    loop {
        if let Driven::Ended(value) = drive(engine, |_| step()).await? {
            return Ok(value);
        }
    }
}

pub(super) async fn answer_of<T>(answer: Arc<Answer<T>>) -> Result<T> {
    poll_fn(|context| answer.poll(context.waker())).await
}

/// Waits until the record of `lsn` is durable.
pub(super) async fn durable(engine: &Engine, lsn: Lsn) -> Result<()> {
    poll_fn(|context| match engine.when_durable(lsn, context.waker()) {
        Ok(true) => Poll::Ready(Ok(())),
        Ok(false) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Lets other tasks run.
pub(super) async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
