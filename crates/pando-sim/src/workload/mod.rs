//! Threads that do random things to a store, and records of what they did.
//!
//! Every thread writes its own entries, in its own tables and in shared ones, checks what it reads
//! against its records, and stops at the first error, which the caller judges.

mod entries;
mod plan;
mod snapshots;
mod tables;
mod transactions;
mod worker;

use std::collections::BTreeSet;

use pando_sync::{Arc, thread};
use pandodb::{Db, Error};

use crate::failure::{Failure, Result};
use crate::history::History;
use crate::order;
use crate::panics;
use crate::state::State;
use worker::{Shared, Stop, Worker};

pub use plan::Plan;

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    /// What each thread has committed.
    pub histories: Vec<History>,
    /// Stamps at which calls began that made everything before them durable.
    pub synced: Vec<u64>,
    /// The errors at which threads stopped.
    pub errors: Vec<Error>,
    /// Number of commits that were refused for lack of space.
    pub refused: usize,
}

/// Runs `plan` on top of `initial` (by thread; missing threads are empty).
///
/// # Errors
/// A read contradicts what the thread has committed.
pub fn run(db: &Db, plan: Plan, initial: &[State]) -> Result<Run> {
    let shared = Arc::new(Shared::default());
    let workers: Vec<_> = (0..plan.threads)
        .map(|thread| {
            let initial = initial.get(thread).cloned().unwrap_or_default();
            let worker = Worker::new(db.clone(), plan, History::new(thread, initial), &shared);
            thread::spawn(move || worker.work(plan.steps))
        })
        .collect();
    let mut run = Run {
        histories: Vec::new(),
        synced: Vec::new(),
        errors: Vec::new(),
        refused: 0,
    };
    let mut failure = None;
    let (mut looks, mut unknown) = (Vec::new(), BTreeSet::new());
    for worker in workers {
        match worker.join() {
            Ok((worker, end)) => {
                let thread = worker.history.thread;
                looks.extend(worker.looks);
                unknown.extend(worker.unknown.map(|number| (thread, number)));
                run.histories.push(worker.history);
                run.refused += worker.refused;
                match end {
                    Ok(()) => {}
                    Err(Stop::Error(error)) => run.errors.push(error),
                    Err(Stop::Failure(found)) => failure = Some(found),
                }
            }
            Err(panic) => {
                let text = panics::text_of(&*panic);
                let what = format!("a thread of the workload panicked: {text}");
                failure = Some(Failure::new(what));
            }
        }
    }
    run.synced.append(&mut shared.synced.lock());
    if let Some(failure) = failure {
        return Err(failure);
    }
    order::check_live(looks, initial, &unknown)?;
    Ok(run)
}
