//! CLIENT PAUSE, CLIENT UNPAUSE and CLIENT REPLY.

use pando_resp::parse_integer;
use pando_sync::time::now;

use crate::client::session::ReplyMode;
use crate::context::{Context, Run, replies};
use crate::loop_handle::Message;

pub(super) fn pause(context: &mut Context<'_>) -> Run {
    let all = match context.count() {
        3 => true,
        4 if context.is(3, "all") => true,
        4 if context.is(3, "write") => false,
        4 => return context.fail("ERR CLIENT PAUSE mode must be WRITE or ALL"),
        _ => return context.fail(&replies::wrong_form(context.argument(1), "CLIENT")),
    };
    let Some(time) = parse_integer(context.argument(2)) else {
        return context.fail("ERR timeout is not an integer or out of range");
    };
    let Ok(time) = u64::try_from(time) else {
        return context.fail("ERR timeout is negative");
    };
    let until = context.now_ms.checked_add(time);
    if until.is_none_or(|until| i64::try_from(until).is_err()) {
        return context.fail("ERR timeout is out of range");
    }
    // The time of a transaction that a client steps through is that of its beginning.
    context.shared.pause.begin(time, all, now());
    context.ok()
}

pub(super) fn unpause(context: &mut Context<'_>) -> Run {
    context.shared.pause.end();
    for record in context.shared.clients.all() {
        let of_client = &context.shared.loops[record.loop_index];
        of_client.send(Message::Touch(record.token));
    }
    context.ok()
}

/// The reply to OFF and SKIP is the first that is not sent.
pub(super) fn reply(context: &mut Context<'_>) -> Run {
    let mode = match context.argument(2).to_ascii_lowercase().as_slice() {
        b"on" => ReplyMode::On,
        b"off" => ReplyMode::Off,
        b"skip" if context.session.reply_mode == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return context.fail(replies::SYNTAX),
    };
    context.session.reply_mode = mode;
    if mode == ReplyMode::On {
        return context.ok();
    }
    Ok(())
}
