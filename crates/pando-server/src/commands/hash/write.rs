//! HSET, HMSET, HSETNX, HDEL, HGETDEL.

use super::fields::{FIELDS_COUNT, fields_at};
use super::{grow_encoding, writing};
use crate::context::{Collection, Command, Context, Flags, Interrupted, Part, Run, replies};
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs.",
        ..writing(
            "hset",
            -4,
            "2.0.0",
            set,
            "Creates or modifies the value of a field in a hash.",
        )
    },
    Command {
        complexity: "O(N) where N is the number of fields being set.",
        ..writing(
            "hmset",
            -4,
            "2.0.0",
            set_many,
            "Sets the values of multiple fields.",
        )
    },
    writing(
        "hsetnx",
        4,
        "2.0.0",
        set_if_absent,
        "Sets the value of a field in a hash only when the field doesn't exist.",
    ),
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "O(N) where N is the number of fields to be removed.",
        ..writing(
            "hdel",
            -3,
            "2.0.0",
            delete,
            "Deletes one or more fields and their values from a hash. Deletes the hash if no \
             fields remain.",
        )
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "O(N) where N is the number of specified fields.",
        ..writing(
            "hgetdel",
            -5,
            "8.0.0",
            get_and_delete,
            "Returns the value of a field and deletes it from the hash.",
        )
    },
];

/// Writes the pairs of the arguments, and returns how many fields are new.
fn put_pairs(context: &mut Context<'_>) -> Result<i64, Interrupted> {
    if !context.count().is_multiple_of(2) {
        return Err(replies::wrong_arity(context.command.name).into());
    }
    let key = context.argument(1);
    let held = match context.count() {
        4 => context.long_collection(key, Encoding::Hashtable)?,
        _ => Err(context.find(key)?),
    };
    let found = match held {
        Err(found) => found,
        Ok(held) => {
            let pair = (context.argument(2), context.argument(3));
            if let Some(is_new) = context.put_named((key, held), pair)? {
                context.event(Class::Hash, "hset", key);
                return Ok(i64::from(is_new));
            }
            context.find(key)?
        }
    };
    let fields: Vec<&[u8]> = context.arguments.from(2).step_by(2).collect();
    let mut hash = context.decoded(found, context.value_type(), &Part::Named(&fields))?;
    let before = hash.len();
    let mut named = hash.named(&fields);
    for at in (2..context.count()).step_by(2) {
        let (field, value) = (context.argument(at), context.argument(at + 1));
        let place = named.find(field);
        if place.is_none() {
            named.set(field, hash.strings.len());
        }
        hash.deadlines.clear(field);
        put_pair(&mut hash, place, field, value);
    }
    grow_encoding(&mut hash);
    context.put_collection(key, &hash)?;
    context.event(Class::Hash, "hset", key);
    Ok(i64::try_from(hash.len() - before).unwrap_or(i64::MAX))
}

/// Writes one field, whose place is known; `None`: it is new.
pub(super) fn put_pair(hash: &mut Collection, place: Option<usize>, field: &[u8], value: &[u8]) {
    match place {
        Some(place) => hash.strings.set(place + 1, value),
        None => {
            hash.strings.push(field);
            hash.strings.push(value);
        }
    }
}

fn set(context: &mut Context<'_>) -> Run {
    let added = put_pairs(context)?;
    context.integer(added)
}

fn set_many(context: &mut Context<'_>) -> Run {
    put_pairs(context)?;
    context.ok()
}

fn set_if_absent(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    let mut hash = context.find_part(key, &Part::Named(&[field]))?;
    if hash.strings.find(field, 2).is_some() {
        return context.integer(0);
    }
    put_pair(&mut hash, None, field, context.argument(3));
    grow_encoding(&mut hash);
    context.put_collection(key, &hash)?;
    context.event(Class::Hash, "hset", key);
    context.integer(1)
}

fn delete(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let fields: Vec<&[u8]> = context.arguments.from(2).collect();
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    let deleted = hash.remove_named(&fields);
    if deleted > 0 {
        context.put_rest(key, &hash, (Class::Hash, "hdel"))?;
    }
    context.integer(deleted)
}

fn get_and_delete(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let fields = fields_at(context, 2, FIELDS_COUNT)?;
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    context.reply().array(fields.len());
    let mut named = hash.named(&fields);
    let gone = named.places();
    for field in fields {
        match named.take(field) {
            Some(place) => context.reply().bulk(hash.strings.at(place + 1)),
            None => context.reply().null(),
        }
        context.check_reply()?;
    }
    match hash.remove_at(&gone) {
        0 => Ok(()),
        _ => context.put_rest(key, &hash, (Class::Hash, "hdel")),
    }
}
