//! SCARD, SISMEMBER, SMISMEMBER, SMEMBERS.

use super::members::Members;
use super::reading;
use crate::context::{Command, Context, Flags, Part, Run};
use crate::data::shown_rows::Shown;

pub(crate) const COMMANDS: &[Command] = &[
    reading(
        "scard",
        2,
        "1.0.0",
        |context| context.reply_length(context.argument(1)),
        "Returns the number of members in a set.",
    ),
    reading(
        "sismember",
        3,
        "1.0.0",
        is_member,
        "Determines whether a member belongs to a set.",
    ),
    Command {
        complexity: "O(N) where N is the number of elements being checked for membership",
        ..reading(
            "smismember",
            -3,
            "6.2.0",
            are_members,
            "Determines whether multiple members belong to a set.",
        )
    },
    Command {
        flags: Flags::READONLY.and(Flags::SHOWS_ALL),
        complexity: "O(N) where N is the set cardinality.",
        ..reading(
            "smembers",
            2,
            "1.0.0",
            members,
            "Returns all members of a set.",
        )
    },
];

fn is_member(context: &mut Context<'_>) -> Run {
    let (key, member) = (context.argument(1), context.argument(2));
    context.show_collection(key, &Part::Named(&[member]), |set, reply| {
        let mut found = false;
        if let Some(mut set) = set {
            while let Some(other) = set.next()? {
                found |= other == member;
            }
        }
        reply.integer(i64::from(found));
        Ok(())
    })
}

fn are_members(context: &mut Context<'_>) -> Run {
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let set = context.read_part(context.argument(1), &Part::Named(&members))?;
    let set = Members::new(set, context.count() - 2);
    let count = context.count() - 2;
    context.reply().array(count);
    for member in context.arguments.from(2) {
        context.reply().integer(i64::from(set.has(member)));
    }
    context.check_reply()
}

fn members(context: &mut Context<'_>) -> Run {
    context.show_whole(context.argument(1), Shown::Name, |set, reply| {
        let Some(mut set) = set else {
            reply.set(0);
            return Ok(());
        };
        reply.set(set.left);
        set.write(set.left, reply)
    })
}
