//! HGET, HMGET, HGETALL, HKEYS, HVALS, HLEN, HSTRLEN, HEXISTS.

use pando_resp::Writer;

use super::reading;
use crate::context::{Command, Context, Flags, Part, Run};
use crate::data::keyspace::RowError;
use crate::data::packed::Reader;
use crate::data::shown_rows::Shown;

const OF_ALL: Flags = Flags::READONLY.and(Flags::SHOWS_ALL);
const COMPLEXITY: &str = "O(N) where N is the size of the hash.";

pub(crate) const COMMANDS: &[Command] = &[
    reading(
        "hget",
        3,
        "2.0.0",
        get,
        "Returns the value of a field in a hash.",
    ),
    Command {
        complexity: "O(N) where N is the number of fields being requested.",
        ..reading(
            "hmget",
            -3,
            "2.0.0",
            get_many,
            "Returns the values of all fields in a hash.",
        )
    },
    Command {
        flags: OF_ALL,
        complexity: COMPLEXITY,
        ..reading(
            "hgetall",
            2,
            "2.0.0",
            get_all,
            "Returns all fields and values in a hash.",
        )
    },
    Command {
        flags: OF_ALL,
        complexity: COMPLEXITY,
        ..reading(
            "hkeys",
            2,
            "2.0.0",
            |context| every_second(context, 0),
            "Returns all fields in a hash.",
        )
    },
    Command {
        flags: OF_ALL,
        complexity: COMPLEXITY,
        ..reading(
            "hvals",
            2,
            "2.0.0",
            |context| every_second(context, 1),
            "Returns all values in a hash.",
        )
    },
    reading(
        "hlen",
        2,
        "2.0.0",
        |context| context.reply_length(context.argument(1)),
        "Returns the number of fields in a hash.",
    ),
    reading(
        "hstrlen",
        3,
        "3.2.0",
        length_of_value,
        "Returns the length of the value of a field.",
    ),
    reading(
        "hexists",
        3,
        "2.0.0",
        exists,
        "Determines whether a field exists in a hash.",
    ),
];

/// Returns the value of `field`.
fn value_of<'a>(hash: Option<Reader<'a>>, field: &[u8]) -> Result<Option<&'a [u8]>, RowError> {
    let Some(mut reader) = hash else {
        return Ok(None);
    };
    while let Some(other) = reader.next()? {
        let value = reader.next()?.ok_or(RowError::Damaged)?;
        if other == field {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn show(reply: &mut Writer<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}

fn get(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    context.show_collection(key, &Part::Named(&[field]), |hash, reply| {
        show(reply, value_of(hash, field)?);
        Ok(())
    })
}

fn get_many(context: &mut Context<'_>) -> Run {
    let fields: Vec<&[u8]> = context.arguments.from(2).collect();
    let hash = context.read_part(context.argument(1), &Part::Named(&fields))?;
    context.reply().array(fields.len());
    let mut named = hash.named(&fields);
    for field in fields {
        let value = named.find(field).map(|place| hash.strings.at(place + 1));
        show(&mut context.reply(), value);
        context.check_reply()?;
    }
    Ok(())
}

fn get_all(context: &mut Context<'_>) -> Run {
    context.show_whole(context.argument(1), Shown::NameAndValue, |hash, reply| {
        let Some(mut hash) = hash else {
            reply.map(0);
            return Ok(());
        };
        reply.map(hash.left / 2);
        hash.write(hash.left, reply)
    })
}

/// Replies with the fields (`which` is 0) or the values (1).
fn every_second(context: &mut Context<'_>, which: usize) -> Run {
    let shown = [Shown::Name, Shown::Value][which];
    context.show_whole(context.argument(1), shown, |hash, reply| {
        let Some(mut hash) = hash else {
            reply.array(0);
            return Ok(());
        };
        reply.array(hash.left / 2);
        let mut place = 0;
        while let Some(string) = hash.next()? {
            if place % 2 == which {
                reply.bulk(string);
            }
            place += 1;
        }
        Ok(())
    })
}

fn length_of_value(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    context.show_collection(key, &Part::Named(&[field]), |hash, reply| {
        let length = value_of(hash, field)?.map_or(0, <[u8]>::len);
        reply.integer(i64::try_from(length).unwrap_or(i64::MAX));
        Ok(())
    })
}

fn exists(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    context.show_collection(key, &Part::Named(&[field]), |hash, reply| {
        reply.integer(i64::from(value_of(hash, field)?.is_some()));
        Ok(())
    })
}
