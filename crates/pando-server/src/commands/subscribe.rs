//! SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE and UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
//!
//! They change what their session knows; the registry learns of it when they have ended
//! (`pubsub/subscriptions.rs`).

use super::publish::CHANNEL_BYTES_MAX;
use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::notifications::recorded::Told;
use crate::pubsub::message::Space;

/// Longest pattern. A publisher compares its channel with all of them, under a lock.
const PATTERN_BYTES_MAX: usize = 4096;

const FLAGS: Flags = Flags::PUBSUB
    .and(Flags::NOSCRIPT)
    .and(Flags::LOADING)
    .and(Flags::NO_INTERACTIVE)
    .and(Flags::BESIDE_MESSAGES);

const fn of_names(
    name: &'static str,
    (arity, since): (i32, &'static str),
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        group: Group::PubSub,
        since,
        complexity: "O(N) where N is the number of channels or patterns.",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    of_names(
        "subscribe",
        (-2, "2.0.0"),
        |context| subscribe(context, Space::Channel),
        "Listens for messages published to channels.",
    ),
    of_names(
        "psubscribe",
        (-2, "2.0.0"),
        |context| subscribe(context, Space::Pattern),
        "Listens for messages published to channels that match one or more patterns.",
    ),
    of_names(
        "ssubscribe",
        (-2, "7.0.0"),
        |context| subscribe(context, Space::Shard),
        "Listens for messages published to shard channels.",
    ),
    of_names(
        "unsubscribe",
        (-1, "2.0.0"),
        |context| unsubscribe(context, Space::Channel),
        "Stops listening to messages posted to channels.",
    ),
    of_names(
        "punsubscribe",
        (-1, "2.0.0"),
        |context| unsubscribe(context, Space::Pattern),
        "Stops listening to messages published to channels that match one or more patterns.",
    ),
    of_names(
        "sunsubscribe",
        (-1, "7.0.0"),
        |context| unsubscribe(context, Space::Shard),
        "Stops listening to messages posted to shard channels.",
    ),
];

fn subscribe(context: &mut Context<'_>, space: Space) -> Run {
    let names = context.arguments;
    let (bytes_max, text) = match space {
        Space::Pattern => (PATTERN_BYTES_MAX, replies::PATTERN_TOO_LONG),
        Space::Channel | Space::Shard => (CHANNEL_BYTES_MAX, replies::CHANNEL_TOO_LONG),
    };
    if names.from(1).any(|name| name.len() > bytes_max) {
        return context.fail(text);
    }
    let subscriptions = context.session.subscriptions.as_ref();
    // Those of the commands before it in EXEC.
    let pending_bytes = subscriptions.map_or(0, |of| of.pending_bytes());
    if !(context.shared.channels).has_room(names.from(1), pending_bytes) {
        return context.fail(replies::TOO_MANY_SUBSCRIPTIONS);
    }
    let verb = match space {
        Space::Channel => "subscribe",
        Space::Pattern => "psubscribe",
        Space::Shard => "ssubscribe",
    };
    keep_messages(context);
    for name in names.from(1) {
        let subscriptions = context.session.subscriptions.get_or_insert_default();
        subscriptions.subscribe(space, name);
        confirm(context, verb, space, Some(name));
    }
    Ok(())
}

/// Leaves the channels of the arguments, or all if there are none.
fn unsubscribe(context: &mut Context<'_>, space: Space) -> Run {
    let verb = match space {
        Space::Channel => "unsubscribe",
        Space::Pattern => "punsubscribe",
        Space::Shard => "sunsubscribe",
    };
    keep_messages(context);
    let names = context.arguments;
    if context.count() > 1 {
        names
            .from(1)
            .for_each(|name| leave(context, verb, space, name));
        return Ok(());
    }
    let subscriptions = context.session.subscriptions.as_ref();
    let all = subscriptions.map_or_else(Vec::new, |of| of.all(space));
    if all.is_empty() {
        confirm(context, verb, space, None);
    }
    all.iter()
        .for_each(|name| leave(context, verb, space, name));
    Ok(())
}

/// Has what commands before it in EXEC publish wait for the end of EXEC, as the change does that
/// comes behind it: else that could overtake it.
fn keep_messages(context: &mut Context<'_>) {
    if !context.progress.events.has_messages() {
        return;
    }
    let messages = context.progress.events.take_messages();
    let subscriptions = context.session.subscriptions.get_or_insert_default();
    for told in messages.iter() {
        if let Told::Message {
            space,
            channel,
            text,
        } = told
        {
            subscriptions.publish_later(space, channel, text);
        }
    }
}

fn leave(context: &mut Context<'_>, verb: &str, space: Space, name: &[u8]) {
    if let Some(subscriptions) = &mut context.session.subscriptions {
        subscriptions.unsubscribe(space, name);
    }
    confirm(context, verb, space, Some(name));
}

/// Replies that `name` was subscribed to or left, and how many are left.
fn confirm(context: &mut Context<'_>, verb: &str, space: Space, name: Option<&[u8]>) {
    let subscriptions = context.session.subscriptions.as_ref();
    let count = subscriptions.map_or(0, |of| of.shown(space));
    // The reply of an EXEC has other parts as well.
    context.progress.confirms = context.exec_index.is_none();
    let mut reply = context.reply();
    reply.push(3);
    reply.bulk(verb.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
}
