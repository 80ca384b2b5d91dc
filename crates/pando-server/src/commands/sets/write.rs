//! SADD, SREM, SMOVE.

use super::members::Members;
use super::writing;
use crate::context::{Command, Context, Flags, Keys, Part, Run};
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: "O(1) for each element added, so O(N) to add N elements.",
        ..writing(
            "sadd",
            -3,
            "1.0.0",
            add,
            "Adds one or more members to a set. Creates the key if it doesn't exist.",
        )
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "O(N) where N is the number of members to be removed.",
        ..writing(
            "srem",
            -3,
            "1.0.0",
            remove,
            "Removes one or more members from a set. Deletes the set if the last member was \
             removed.",
        )
    },
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        keys: Keys::TWO,
        ..writing(
            "smove",
            4,
            "1.0.0",
            move_member,
            "Moves a member from one set to another.",
        )
    },
];

fn add(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let held = match context.count() {
        3 => context.long_collection(key, Encoding::Hashtable)?,
        _ => Err(context.find(key)?),
    };
    let found = match held {
        Err(found) => found,
        Ok(held) => match context.put_named((key, held), (context.argument(2), b""))? {
            None => context.find(key)?,
            Some(is_new) => {
                if is_new {
                    context.event(Class::Set, "sadd", key);
                }
                return context.integer(i64::from(is_new));
            }
        },
    };
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let set = context.decoded(found, context.value_type(), &Part::Named(&members))?;
    let mut set = Members::new(set, members.len());
    let mut added = 0;
    for member in context.arguments.from(2) {
        added += i64::from(set.add(member));
    }
    if added > 0 {
        context.put_collection(key, &set.set)?;
        context.event(Class::Set, "sadd", key);
    }
    context.integer(added)
}

fn remove(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let mut set = context.find_part(key, &Part::Named(&members))?;
    let removed = set.remove_named(&members);
    if removed > 0 {
        context.event(Class::Set, "srem", key);
        context.put_collection(key, &set)?;
    }
    context.integer(removed)
}

fn move_member(context: &mut Context<'_>) -> Run {
    let (from_key, to_key) = (context.argument(1), context.argument(2));
    let member = context.argument(3);
    let mut from = Members::new(context.find_part(from_key, &Part::Named(&[member]))?, 1);
    if !from.set.exists() {
        return context.integer(0);
    }
    let mut to = Members::new(context.find_part(to_key, &Part::Named(&[member]))?, 1);
    if from_key == to_key {
        return context.integer(i64::from(from.has(member)));
    }
    if !from.remove(member) {
        return context.integer(0);
    }
    let is_new = to.add(member);
    context.check_room(&to.set)?;
    context.event(Class::Set, "srem", from_key);
    context.put_collection(from_key, &from.set)?;
    if is_new {
        context.put_collection(to_key, &to.set)?;
        context.event(Class::Set, "sadd", to_key);
    }
    context.integer(1)
}
