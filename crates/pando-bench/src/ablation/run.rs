//! A whole run of `bench ablation`.

use super::options::{Ablation, AblationOptions};
use super::{alloc, cached, handles, keys, pending, queue, stats};
use crate::error::Result;
use crate::phase::Observer;

/// Runs all variants of the ablation in turn; `observer` is told of each at the end.
///
/// # Errors
/// Options that make no sense, errors of device and engine, and reads of something else than was
/// written: the run ends there.
pub fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    if options.ablation.is_of_cached_reads() {
        // One tree serves all numbers of threads.
        return cached::run::run(options, observer);
    }
    if options.ablation == Ablation::Stats {
        // Its workloads have numbers of threads of their own.
        return stats::run(options, observer);
    }
    if options.ablation == Ablation::Alloc {
        // One state serves all numbers of threads.
        return alloc::run(options, observer);
    }
    for (index, threads) in options.thread_counts().iter().enumerate() {
        let turn = AblationOptions {
            threads: vec![*threads],
            // What the turn before has left in a named directory.
            use_existing_db: options.use_existing_db || index > 0 && options.dir.is_some(),
            ..options.clone()
        };
        run_one(&turn, observer)?;
    }
    Ok(())
}

/// With one number of threads.
fn run_one(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    match options.ablation {
        Ablation::Pending => pending::run(options, observer),
        Ablation::Queue => queue::run(options, observer),
        Ablation::PreadHandles => handles::run(options, observer),
        Ablation::Throttle => keys::throttle(options, observer),
        Ablation::ScatterGather => keys::scatter_gather(options, observer),
        Ablation::Fetch => keys::fetch(options, observer),
        Ablation::Descent | Ablation::Cursor => cached::run::run(options, observer),
        Ablation::Stats => stats::run(options, observer),
        Ablation::Alloc => alloc::run(options, observer),
    }
}
