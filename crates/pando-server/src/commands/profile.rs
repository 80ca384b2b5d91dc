//! PANDO PROFILE: where the commands of a connection spend their time.

use pandodb::{CommitStep, Spent, Wait};

use crate::context::{Command, Context, Flags, Run, replies};

/// The subcommand of PANDO.
pub(super) const PROFILE: Command = Command {
    flags: Flags::LOADING.and(Flags::NO_MULTI),
    summary: "Tells where the commands of the connection spend their time.",
    ..Command::new("profile", 3, profile)
};

fn profile(context: &mut Context<'_>) -> Run {
    if context.is(2, "on") {
        if context.session.profiles.is_none() {
            context.session.profiles = Some(Box::default());
        }
        return context.ok();
    }
    if context.is(2, "off") {
        context.session.profiles = None;
        return context.ok();
    }
    if !context.is(2, "get") {
        return context.fail(replies::SYNTAX);
    }
    let Some(profiles) = &context.session.profiles else {
        return context.fail("ERR profiles are off on this connection: PANDO PROFILE ON");
    };
    let Some(last) = profiles.last().cloned() else {
        context.reply().map(0);
        return Ok(());
    };
    let waits = Wait::ALL.map(|wait| (wait.name(), last.profile.waited(wait)));
    let steps = CommitStep::ALL.map(|step| (step.name(), last.profile.commit(step)));
    let number = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
    let busy = last.profile.total();
    let mut reply = context.reply();
    reply.map(6);
    reply.bulk(b"command");
    reply.bulk(last.command.as_bytes());
    reply.bulk(b"runs");
    reply.integer(number(last.runs.into()));
    reply.bulk(b"elapsed_us");
    reply.integer(number(last.elapsed.as_micros()));
    reply.bulk(b"running_us");
    reply.integer(number(busy.as_micros()));
    for (name, parts) in [("waits", &waits[..]), ("commit", &steps[..])] {
        let parts = parts.iter().filter(|(_, spent)| spent.count > 0);
        reply.bulk(name.as_bytes());
        reply.map(parts.clone().count());
        for (name, Spent { count, time, .. }) in parts {
            reply.bulk(name.as_bytes());
            reply.array(2);
            reply.integer(number((*count).into()));
            reply.integer(number(time.as_micros()));
        }
    }
    Ok(())
}
