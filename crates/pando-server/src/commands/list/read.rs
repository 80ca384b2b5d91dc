//! LLEN, LRANGE, LINDEX.

use std::ops::Range;

use super::{place, places, reading};
use crate::context::{Command, Context, Flags, Found, Part, Run, is_too_long};
use crate::data::keyspace::ValueType;
use crate::data::packed::Reader;
use crate::data::shown_rows::Shown;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::READONLY.and(Flags::FAST),
        summary: "Returns the length of a list.",
        ..reading("llen", 2, length)
    },
    Command {
        complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, \
                     from nearest end (HEAD or TAIL) for large lists; and N is the number of \
                     elements in the specified range.",
        flags: Flags::READONLY.and(Flags::SHOWS_ALL),
        summary: "Returns a range of elements from a list.",
        ..reading("lrange", 4, range)
    },
    Command {
        complexity: "O(N) where N is the number of elements to traverse to get to the element at \
                     index. This makes asking for the first or the last element of the list O(1).",
        summary: "Returns an element from a list by its index.",
        ..reading("lindex", 3, index)
    },
];

fn length(context: &mut Context<'_>) -> Run {
    context.reply_length(context.argument(1))
}

/// Replies with elements of the list whose payload is `payload`: an array of those at the places
/// that `select` returns for its length, or the first of them or null.
fn reply_selected(
    context: &mut Context<'_>,
    payload: &[u8],
    select: impl FnOnce(usize) -> Range<usize>,
    is_array: bool,
) -> Run {
    let mut reader = Reader::new(payload)?;
    let places = select(reader.left);
    for _ in 0..places.start {
        reader.next()?;
    }
    let mut reply = context.reply();
    match is_array {
        true => reply.array(places.len()),
        false if places.is_empty() => reply.null(),
        false => {}
    }
    reader.write(places.len(), &mut reply)?;
    context.check_reply()
}

fn reply_row(
    context: &mut Context<'_>,
    payload_at: usize,
    select: impl FnOnce(usize) -> Range<usize>,
    is_array: bool,
) -> Run {
    let value = std::mem::take(&mut context.data().scratch.value);
    let result = reply_selected(context, &value[payload_at..], select, is_array);
    context.data().scratch.value = value;
    result
}

/// Replies with elements of the list at the first argument, as [`reply_selected`].
fn reply_places(
    context: &mut Context<'_>,
    found: Found,
    select: impl Fn(usize) -> Range<usize>,
    is_array: bool,
) -> Run {
    let Some(row) = found.row else {
        match is_array {
            true => context.reply().array(0),
            false => context.reply().null(),
        }
        return Ok(());
    };
    let Some(head) = context.tree_head(&found)? else {
        return reply_row(context, row.payload, select, is_array);
    };
    let places = select(head.len());
    match is_array {
        true if context.reply_elements(head, &places)? => return Ok(()),
        false if !places.is_empty() && context.reply_place(head, places.start)? => return Ok(()),
        _ => {}
    }
    if places.is_empty() {
        match is_array {
            true => context.reply().array(0),
            false => context.reply().null(),
        }
        return Ok(());
    }
    let (key, asked) = (context.argument(1), (head, places.clone()));
    let how = (Shown::Element, false);
    if is_array {
        context.ask_for_places(key, asked.clone(), how, false)?;
    }
    // Of a list in blocks, there may be more than those that are wanted.
    let list = match context.decoded(found, ValueType::List, &Part::Places(&select)) {
        Err(interrupted) if is_array && is_too_long(&interrupted) => {
            context.ask_for_places(key, asked, how, true)?;
            return Err(interrupted);
        }
        list => list?,
    };
    let first = places.start - list.first();
    let mut reply = context.reply();
    if is_array {
        reply.array(places.len());
    }
    let shown = first..first + places.len();
    shown.for_each(|place| reply.bulk(list.strings.at(place)));
    context.check_reply()
}

fn range(context: &mut Context<'_>) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let (start, end) = (context.integer_at(2)?, context.integer_at(3)?);
    let found = context.read(context.argument(1))?;
    let select = |length| places(start, end, length);
    reply_places(context, found, select, true)
}

fn index(context: &mut Context<'_>) -> Run {
    let found = context.read(context.argument(1))?;
    if found.row.is_none() {
        context.reply().null();
        return Ok(());
    }
    let index = context.integer_at(2)?;
    let select = |length| place(index, length).map_or(0..0, |place| place..place + 1);
    reply_places(context, found, select, false)
}
