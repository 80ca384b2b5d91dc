//! SAVE, BGSAVE, LASTSAVE, SHUTDOWN, TIME.
//!
//! A save is a checkpoint of the engine. It blocks, so a separate thread takes it while the
//! connection that asked for it waits.

use pando_sync::Arc;
use pando_sync::atomic::Ordering;

use crate::context::job::{self, Job, JobTurn};
use crate::context::{Command, Context, Flags, Interrupted, Keys, Kind, Run, replies};

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: ADMIN.and(Flags::NO_MULTI),
        kind: Kind::Read,
        keys: Keys::NONE,
        summary: "Synchronously saves the database(s) to disk.",
        ..Command::new("save", 1, save)
    },
    Command {
        flags: ADMIN,
        kind: Kind::Read,
        summary: "Asynchronously saves the database(s) to disk.",
        ..Command::new("bgsave", -1, background_save)
    },
    Command {
        flags: Flags::LOADING.and(Flags::FAST),
        summary: "Returns the Unix timestamp of the last successful save to disk.",
        ..Command::new("lastsave", 1, last_save)
    },
    Command {
        flags: ADMIN.and(Flags::LOADING).and(Flags::NO_MULTI),
        summary: "Synchronously saves the database(s) to disk and shuts down the Redis server.",
        ..Command::new("shutdown", -1, shutdown)
    },
    Command {
        since: "2.6.0",
        flags: Flags::LOADING.and(Flags::FAST),
        summary: "Returns the server time.",
        ..Command::new("time", 1, time)
    },
];

fn save(context: &mut Context<'_>) -> Run {
    if let Some(job) = context.progress.job.clone() {
        return match job.result(context.waker) {
            None => Err(Interrupted::Wait),
            Some(Ok(())) => context.ok(),
            Some(Err(text)) => context.fail(&format!("ERR {text}")),
        };
    }
    let engine = context.shared.engine();
    let engine = engine.expect("SAVE runs when the engine is open");
    let Some(turn) = JobTurn::try_take(&context.shared.saving) else {
        return context.fail("ERR Background save already in progress");
    };
    let (job, end) = Job::new(context.waker.clone());
    let end = end.with_turn(turn);
    let failed = Arc::clone(&context.shared.save_failed);
    let worker = move || {
        let result = engine.db.checkpoint().map_err(|error| error.to_string());
        if let Err(error) = &result {
            tracing::error!(error, "SAVE: no checkpoint was taken");
        } else {
            tracing::info!("SAVE has taken a checkpoint: no dump file is written");
        }
        drop(engine);
        failed.store(result.is_err(), Ordering::Relaxed);
        end.finish(result);
    };
    if let Err(text) = job::start("pando-save", worker) {
        return context.fail(&format!("ERR {text}"));
    }
    context.progress.job = Some(job);
    Err(Interrupted::Wait)
}

fn background_save(context: &mut Context<'_>) -> Run {
    if context.count() > 2 || context.count() == 2 && !context.is(1, "schedule") {
        return context.fail(replies::SYNTAX);
    }
    context.engine().db.request_checkpoint();
    tracing::info!("BGSAVE has asked for a checkpoint: no dump file is written");
    context.reply().simple("Background saving started");
    Ok(())
}

fn last_save(context: &mut Context<'_>) -> Run {
    let engine = context.shared.engine();
    let started = context.shared.started_ms;
    let time = engine.map_or(started, |engine| engine.db.last_checkpoint_unix_ms());
    context.integer(i64::try_from(time / 1000).unwrap_or(i64::MAX))
}

fn shutdown(context: &mut Context<'_>) -> Run {
    let has = |word| (1..context.count()).any(|at| context.is(at, word));
    let known = ["nosave", "save", "now", "force", "abort"];
    let is_known = |at| known.iter().any(|word| context.is(at, word));
    let abort = has("abort");
    let others = ["nosave", "save", "now", "force"].into_iter().any(has);
    if !(1..context.count()).all(is_known) || abort && others || has("save") && has("nosave") {
        return context.fail(replies::SYNTAX);
    }
    if abort {
        return context.fail("ERR No shutdown in progress.");
    }
    context.session.closing = true;
    let client = &context.record.address;
    tracing::info!(%client, "SHUTDOWN was asked for");
    context.shared.stop();
    Ok(())
}

fn time(context: &mut Context<'_>) -> Run {
    let elapsed = pando_sync::time::SystemTime::now()
        .duration_since(pando_sync::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    context.reply().array(2);
    context
        .reply()
        .bulk(elapsed.as_secs().to_string().as_bytes());
    let micros = elapsed.subsec_micros().to_string();
    context.reply().bulk(micros.as_bytes());
    Ok(())
}
