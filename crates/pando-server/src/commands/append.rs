//! APPEND and SETRANGE: strings that grow in place.

use crate::context::{Command, Context, Flags, Found, Interrupted, Keys, NewString, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.0.0",
        large: Keys::SECOND,
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        ..Command::write("append", 3, append)
    },
    Command {
        since: "2.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        large: Keys::THIRD,
        summary: "Overwrites a part of a string value with another by an offset. Creates the key \
                  if it doesn't exist.",
        ..Command::write("setrange", 4, set_range)
    },
];

/// Writes `piece` at `offset` of the string in `found`, which was read last. Returns its new
/// length.
pub(crate) fn overwrite(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    offset: u64,
    piece: NewString<'_>,
) -> Result<u64, Interrupted> {
    let length = context.string_bytes(found).max(offset + piece.len());
    match (piece, &found.pieces) {
        (NewString::Bytes(piece), Some(head)) if context.fits_pieces(length, head.piece) => {
            context.write_pieces(key, (found, head), (offset, piece))?;
        }
        (_, Some(_)) => {
            // It becomes too long for pieces, or the argument is for memory.
            let found = context.find(key)?;
            context.write_chunks(key, &found, (offset, piece))?;
        }
        (NewString::Bytes(piece), None)
            if found.large.is_none() && context.wants_pieces(length, piece.len() as u64) =>
        {
            context.put_new_pieces(key, found, (offset, piece))?;
        }
        (NewString::Bytes(piece), None)
            if found.large.is_none() && context.lies_in_pages(key, length) =>
        {
            overwrite_plain(context, key, found, offset, piece)?;
        }
        (piece, None) => overwrite_chunked(context, key, found, (offset, piece))?,
    }
    Ok(length)
}

/// Changes a string in chunks, or makes one of it.
fn overwrite_chunked(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    (offset, piece): (u64, NewString<'_>),
) -> Run {
    match (found.large.as_deref(), piece) {
        (Some(chunked), NewString::Bytes(bytes))
            if context.wants_patches(chunked, offset, bytes.len() as u64) =>
        {
            context.write_patches(key, (found, chunked), (offset, bytes))
        }
        _ => context.write_chunks(key, found, (offset, piece)),
    }
}

/// Edits the value in the buffer into which it was read, after its old head, and writes it with a
/// new head.
fn overwrite_plain(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    offset: u64,
    piece: &[u8],
) -> Run {
    let mut value = std::mem::take(&mut context.data().scratch.value);
    let start = match found.row {
        Some(row) => row.payload,
        None => {
            value.clear();
            0
        }
    };
    let offset = usize::try_from(offset).expect("what lies in pages is short");
    let end = start + offset + piece.len();
    if value.len() < end {
        value.resize(end, 0);
    }
    value[start + offset..end].copy_from_slice(piece);
    let string = NewString::Bytes(&value[start..]);
    let result = context.put(key, string, found.deadline(), found.former);
    context.data().scratch.value = value;
    result
}

fn append(context: &mut Context<'_>) -> Run {
    let (key, piece) = (context.argument(1), context.string(2));
    let found = context.find_to_change(key)?;
    let length = context.string_bytes(&found);
    if !context.fits(length.saturating_add(piece.len())) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    if piece.len() == 0 && found.large.is_some() {
        context.event(Class::String, "append", key);
        return context.integer(i64::try_from(length).unwrap_or(i64::MAX));
    }
    let length = overwrite(context, key, &found, length, piece)?;
    context.event(Class::String, "append", key);
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

fn set_range(context: &mut Context<'_>) -> Run {
    let (key, piece) = (context.argument(1), context.string(3));
    let offset = match context.integer_at(2).map(u64::try_from) {
        Ok(Ok(offset)) => offset,
        Ok(Err(_)) => return context.fail(replies::OFFSET),
        Err(text) => return context.fail(text),
    };
    let found = context.find_to_change(key)?;
    if piece.len() == 0 {
        let length = context.string_bytes(&found);
        return context.integer(i64::try_from(length).unwrap_or(i64::MAX));
    }
    if !context.fits(offset.saturating_add(piece.len())) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let length = overwrite(context, key, &found, offset, piece)?;
    context.event(Class::String, "setrange", key);
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}
