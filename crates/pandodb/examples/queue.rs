//! A queue of jobs with several workers: each job is done by one of them, and in the table of
//! results in the same moment in which it leaves the queue.
//!
//! Workers take the first job that they see, and those who lose it try again. (With many workers
//! and short jobs, let each begin at another place of the queue.)
//!
//! `cargo run --example queue`

#![expect(clippy::print_stdout, reason = "an example shows what it has found")]

use std::thread;

use pandodb::{Db, Result, Table};

const JOBS: u32 = 200;
const WORKERS: usize = 4;

/// Does the first job. Returns false if there is none.
fn work(db: &Db, jobs: &Table, results: &Table) -> Result<bool> {
    db.transact(|transaction| {
        let first = transaction.iter(jobs).next().transpose()?;
        let Some((number, job)) = first else {
            return Ok(false);
        };
        let result: u64 = job.iter().map(|byte| u64::from(*byte)).sum();
        transaction.delete(jobs, &number)?;
        transaction.put(results, &number, &result.to_be_bytes())?;
        Ok(true)
    })
}

fn main() -> Result<()> {
    let db = Db::builder().open_in_memory()?;
    let (jobs, results) = (db.table("jobs")?, db.table("results")?);
    for number in 0..JOBS {
        jobs.put(&number.to_be_bytes(), format!("job {number}").as_bytes())?;
    }
    let done = thread::scope(|scope| {
        let worker = || {
            let mut done = 0_u32;
            while work(&db, &jobs, &results)? {
                done += 1;
            }
            Ok(done)
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<u32>>>()
    })?;
    println!("{JOBS} jobs, done by {WORKERS} workers: {done:?}");
    assert_eq!(done.iter().sum::<u32>(), JOBS, "each job once");
    assert_eq!(jobs.iter().count(), 0);
    Ok(())
}
