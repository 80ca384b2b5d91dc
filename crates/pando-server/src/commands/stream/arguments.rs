//! IDs, intervals and counts among the arguments of commands of streams.

use crate::context::Context;
use crate::data::stream_id::StreamId;

pub(super) const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";
const INVALID_START: &str = "ERR invalid start ID for the interval";
const INVALID_END: &str = "ERR invalid end ID for the interval";

/// Returns the ID in `text`; its second part is `missing` if there is none.
pub(super) fn id(text: &[u8], missing: u64) -> Result<StreamId, &'static str> {
    StreamId::parse(text, missing).ok_or(INVALID_ID)
}

/// As [`id`]; `-` is the lowest and `+` the highest ID.
pub(super) fn id_or_end(text: &[u8], missing: u64) -> Result<StreamId, &'static str> {
    match text {
        b"-" => Ok(StreamId::ZERO),
        b"+" => Ok(StreamId::MAX),
        _ => id(text, missing),
    }
}

/// Returns an end of an interval, and whether it is excluded.
fn end(text: &[u8], missing: u64) -> Result<(StreamId, bool), &'static str> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => Ok((id(rest, missing)?, true)),
        _ => Ok((id_or_end(text, missing)?, false)),
    }
}

/// Returns the first ID of an interval that begins as argument `at` says.
pub(super) fn start_at(context: &Context<'_>, at: usize) -> Result<StreamId, &'static str> {
    match end(context.argument(at), 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or(INVALID_START),
    }
}

/// Returns the last ID of an interval that ends as argument `at` says.
pub(super) fn end_at(context: &Context<'_>, at: usize) -> Result<StreamId, &'static str> {
    match end(context.argument(at), u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or(INVALID_END),
    }
}

/// Returns argument `at` as a count; below zero is 0.
pub(super) fn count_at(context: &Context<'_>, at: usize) -> Result<usize, &'static str> {
    Ok(usize::try_from(context.integer_at(at)?).unwrap_or(0))
}

/// Returns argument `at` as an integer, or the error in `text`.
pub(super) fn integer_or(
    context: &Context<'_>,
    at: usize,
    text: &'static str,
) -> Result<i64, &'static str> {
    context.integer_at(at).map_err(|_| text)
}
