//! DUMP.

use std::ops::Range;

use crate::context::{Chunked, Context, Part, Run};
use crate::data::keyspace::ValueType;
use crate::dump::{self, VERSION, VERSION_OF_TIMED};

pub(super) fn dump(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let found = context.read(key)?;
    let Some(row) = found.row else {
        context.reply().null();
        return Ok(());
    };
    if let Some(chunked) = &found.large {
        return dump_chunked(context, key, chunked);
    }
    let mut payload = Vec::new();
    let mut version = VERSION;
    match row.value_type {
        ValueType::String => dump::put_string_value(&mut payload, context.payload(row)),
        ValueType::Stream => {
            let stream = context.stream_value(row)?;
            dump::put_stream_value(&mut payload, &stream);
        }
        value_type => {
            let all = context.decoded(found, value_type, &Part::All)?;
            let elements = (&all.strings, &all.deadlines);
            if dump::put_collection(&mut payload, value_type, elements) {
                version = VERSION_OF_TIMED;
            }
        }
    }
    dump::seal(&mut payload, version);
    context.reply().bulk(&payload);
    context.check_reply()
}

/// Replies with a string in chunks, which is read twice: for the sum behind it, and when it is
/// sent.
fn dump_chunked(context: &mut Context<'_>, key: &[u8], chunked: &Chunked) -> Run {
    let range: Range<u64> = 0..chunked.len();
    let mut before = Vec::new();
    dump::begin_string(&mut before, chunked.len());
    let sum_before = dump::crc64_on(0, &before);
    let summed =
        context.gather_chunked(key, chunked, range.clone(), &mut |sum, place, piece| {
            let so_far = if place == 0 { sum_before } else { sum.number };
            sum.number = dump::crc64_on(so_far, piece);
            false
        })?;
    let behind = dump::footer(summed.number, VERSION);
    context.reply_part_between(chunked, range, (&before, &behind))
}
