//! APPEND and SETRANGE: strings that grow in place.

use super::{Command, Flags, replies};
use crate::context::{Context, Found, Run};

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.0.0",
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        ..Command::write("append", 3, append)
    },
    Command {
        since: "2.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        summary: "Overwrites a part of a string value with another by an offset. Creates the key \
                  if it doesn't exist.",
        ..Command::write("setrange", 4, set_range)
    },
];

/// Writes `piece` at `offset` of the string that was found, and replies the new length.
fn overwrite(
    context: &mut Context<'_>,
    key: &[u8],
    found: Found,
    offset: usize,
    piece: &[u8],
) -> Run {
    // The value is edited where it was read, behind its old head, then written with a new head.
    let mut value = std::mem::take(&mut context.data().scratch.value);
    let start = match found.row {
        Some(row) => row.payload,
        None => {
            value.clear();
            0
        }
    };
    let end = start + offset + piece.len();
    if value.len() < end {
        value.resize(end, 0);
    }
    value[start + offset..end].copy_from_slice(piece);
    let length = value.len() - start;
    let result = context.put(key, &value[start..], found.deadline(), found.entry);
    context.data().scratch.value = value;
    result?;
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

fn current_length(context: &mut Context<'_>, found: Found) -> usize {
    found.row.map_or(0, |row| context.payload(row).len())
}

fn append(context: &mut Context<'_>) -> Run {
    let (key, piece) = (context.argument(1), context.argument(2));
    let found = context.find(key)?;
    let length = current_length(context, found);
    if !context.fits(key, length.saturating_add(piece.len())) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    overwrite(context, key, found, length, piece)
}

fn set_range(context: &mut Context<'_>) -> Run {
    let (key, piece) = (context.argument(1), context.argument(3));
    let offset = match context.integer_at(2).map(usize::try_from) {
        Ok(Ok(offset)) => offset,
        Ok(Err(_)) => return context.fail(replies::OFFSET),
        Err(text) => return context.fail(text),
    };
    let found = context.find(key)?;
    if piece.is_empty() {
        let length = current_length(context, found);
        return context.integer(i64::try_from(length).unwrap_or(i64::MAX));
    }
    if !context.fits(key, offset.saturating_add(piece.len())) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    overwrite(context, key, found, offset, piece)
}
