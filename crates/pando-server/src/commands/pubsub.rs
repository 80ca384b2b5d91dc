//! PUBSUB: which channels have subscribers, and how many.

use crate::context::{Command, Context, Flags, Group, Run};
use crate::pubsub::message::Space;

const fn sub(
    name: &'static str,
    (arity, since): (i32, &'static str),
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::PUBSUB.and(Flags::LOADING),
        group: Group::PubSub,
        since,
        complexity: "O(N) where N is the number of channels that are looked at.",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    group: Group::PubSub,
    since: "2.8.0",
    complexity: "Depends on subcommand.",
    summary: "A container for Pub/Sub commands.",
    subcommands: &[
        sub(
            "channels",
            (-2, "2.8.0"),
            |context| active(context, Space::Channel, "CHANNELS"),
            "Returns the active channels.",
        ),
        sub(
            "numsub",
            (-2, "2.8.0"),
            |context| counts(context, Space::Channel),
            "Returns a count of subscribers to channels.",
        ),
        sub(
            "numpat",
            (2, "2.8.0"),
            patterns,
            "Returns a count of unique pattern subscriptions.",
        ),
        sub(
            "shardchannels",
            (-2, "7.0.0"),
            |context| active(context, Space::Shard, "SHARDCHANNELS"),
            "Returns the active shard channels.",
        ),
        sub(
            "shardnumsub",
            (-2, "7.0.0"),
            |context| counts(context, Space::Shard),
            "Returns the count of subscribers of shard channels.",
        ),
        Command {
            flags: Flags::LOADING,
            ..sub(
                "help",
                (2, "6.2.0"),
                help,
                "Returns helpful text about the different subcommands.",
            )
        },
    ],
    ..Command::new("pubsub", -2, help)
}];

fn active(context: &mut Context<'_>, space: Space, name: &str) -> Run {
    if context.count() > 3 {
        let text = format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
        );
        return context.fail(&text);
    }
    let found = (context.shared.channels).active(space, context.arguments.get(2))?;
    let mut reply = context.reply();
    reply.array(found.len());
    found.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn counts(context: &mut Context<'_>, space: Space) -> Run {
    let (shared, names) = (context.shared, context.arguments);
    let mut reply = context.reply();
    reply.array(names.from(2).count() * 2);
    for name in names.from(2) {
        reply.bulk(name);
        let members = shared.channels.members(space, name);
        reply.integer(i64::try_from(members).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn patterns(context: &mut Context<'_>) -> Run {
    let count = context.shared.channels.len(Space::Pattern);
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CHANNELS [<pattern>]",
        "    Return the currently active channels matching a <pattern> (default: '*').",
        "NUMPAT",
        "    Return number of subscriptions to patterns.",
        "NUMSUB [<channel> ...]",
        "    Return the number of subscribers for the specified channels, excluding",
        "    pattern subscriptions(default: no channels).",
        "SHARDCHANNELS [<pattern>]",
        "    Return the currently active shard level channels matching a <pattern> (default: '*').",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    Return the number of subscribers for the specified shard level channel(s)",
        "HELP",
        "    Print this help.",
    ])
}
