//! PUBLISH and SPUBLISH.

use pandodb::Lsn;

use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::pubsub::message::Space;
use crate::pubsub::registry::TooManySteps;

/// Longest name of a channel.
pub(super) const CHANNEL_BYTES_MAX: usize = 64 * 1024;

const TOO_LONG: &str = "ERR this channel cannot be compared with all patterns of subscribers: \
                        they are too long together";

const fn publishing(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::PUBSUB
            .and(Flags::LOADING)
            .and(Flags::FAST)
            .and(Flags::NO_INTERACTIVE),
        group: Group::PubSub,
        since,
        complexity: "O(N) where N is the number of receivers, and of patterns of all clients.",
        summary,
        ..Command::new(name, 3, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    publishing(
        "publish",
        "2.0.0",
        |context| publish(context, Space::Channel),
        "Posts a message to a channel.",
    ),
    publishing(
        "spublish",
        "7.0.0",
        |context| publish(context, Space::Shard),
        "Post a message to a shard channel",
    ),
];

/// Publishes the message, and replies how many receive it. Inside EXEC, which may run again, it is
/// published with the commit, in the order of commits, and the reply says how many would receive it
/// now. Behind a command of the same EXEC that changes subscriptions, it waits for that change.
fn publish(context: &mut Context<'_>, space: Space) -> Run {
    let (channel, text) = (context.argument(1), context.argument(2));
    if channel.len() > CHANNEL_BYTES_MAX {
        return context.fail(replies::CHANNEL_TOO_LONG);
    }
    let channels = &context.shared.channels;
    let count = if context.exec_index.is_some() {
        let others = channels.receivers_besides(space, channel, context.record.id);
        let Ok(others) = others else {
            return context.fail(TOO_LONG);
        };
        let own = context.session.subscriptions.as_deref_mut();
        let own_count = own.as_ref().map_or(0, |own| own.receives(space, channel));
        match own.filter(|own| own.has_changes()) {
            Some(own) => own.publish_later(space, channel, text),
            None => context.progress.events.add_message(space, (channel, text)),
        }
        Ok(own_count + others)
    } else {
        let data = context.data.as_ref();
        let newest = || data.map_or(Lsn(0), |data| data.engine.db.newest_lsn());
        let (message, after) = ((channel, text), context.session.last_write);
        let notifications = &context.shared.notifications;
        notifications.publish_alone(space, message, newest, after)
    };
    match count {
        Ok(count) => context.integer(i64::try_from(count).unwrap_or(i64::MAX)),
        Err(TooManySteps) => context.fail(TOO_LONG),
    }
}
