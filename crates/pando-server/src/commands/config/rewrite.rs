//! CONFIG REWRITE: has the owner of the configuration file write it, on a thread of its own.

use super::table::to_be_written;
use crate::context::job::{self, Job, JobTurn};
use crate::context::{Context, Interrupted, Run};

pub(super) fn rewrite(context: &mut Context<'_>) -> Run {
    if let Some(job) = context.progress.job.clone() {
        return match job.result(context.waker) {
            None => Err(Interrupted::Wait),
            Some(Ok(())) => context.ok(),
            Some(Err(text)) => context.fail(&format!("ERR Rewriting config file: {text}")),
        };
    }
    let Some(rewriter) = context.shared.options.config_rewriter else {
        return context.fail("ERR The server is running without a config file");
    };
    // One after the other: else an older set of parameters could replace a newer one.
    let Some(turn) = JobTurn::try_take(&context.shared.is_rewriting) else {
        return context.fail("ERR Rewriting config file: another CONFIG REWRITE is under way");
    };
    let parameters = to_be_written(context.shared);
    let (job, end) = Job::new(context.waker.clone());
    let end = end.with_turn(turn);
    let worker = move || {
        let result = (rewriter.0)(&parameters);
        match &result {
            Ok(()) => tracing::info!("CONFIG REWRITE has written the configuration file"),
            Err(error) => tracing::warn!(error, "CONFIG REWRITE failed"),
        }
        end.finish(result);
    };
    if let Err(text) = job::start("pando-rewrite", worker) {
        return context.fail(&format!("ERR Rewriting config file: {text}"));
    }
    context.progress.job = Some(job);
    Err(Interrupted::Wait)
}
