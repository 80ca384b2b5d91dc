//! XADD and XLEN.

use super::arguments::INVALID_ID;
use super::trim::Options;
use super::{reading, reply_count, reply_id, writing};
use crate::context::{Command, Context, Flags, Interrupted, Kind, Run, Stream, replies};
use crate::data::packed::{Encoding, Form, encode};
use crate::data::stream_head::StreamHead;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::entry_key;
use crate::notifications::classes::Class;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of \
                     entries evicted.",
        summary: "Appends a new message to a stream. Creates the key if it doesn't exist.",
        ..writing("xadd", -5, add)
    },
    Command {
        flags: Flags::READONLY.and(Flags::FAST),
        kind: Kind::Read,
        complexity: "O(1)",
        summary: "Return the number of messages in a stream.",
        ..reading("xlen", 2, length)
    },
];

const TOO_SMALL: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// What the client says of the ID of the new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The next one.
    Any,
    /// The next one of this time.
    Of(u64),
    This(StreamId),
}

impl Asked {
    /// Returns the ID of the next entry of a stream.
    fn id(self, head: &StreamHead, now_ms: u64) -> Result<StreamId, &'static str> {
        let last = head.last;
        let id = match self {
            Self::Any if now_ms > last.ms => StreamId::new(now_ms, 0),
            Self::Any => last.next().ok_or(TOO_SMALL)?,
            Self::Of(ms) if ms == last.ms => {
                StreamId::new(ms, last.sequence.checked_add(1).ok_or(TOO_SMALL)?)
            }
            Self::Of(ms) => StreamId::new(ms, 0),
            Self::This(id) => id,
        };
        match id > last {
            true => Ok(id),
            false => Err(TOO_SMALL),
        }
    }
}

fn add(context: &mut Context<'_>) -> Run {
    let mut asked = Asked::Any;
    let mut is_id = |text: &[u8]| {
        asked = match StreamId::parse_partial(text, 0).ok_or(INVALID_ID)? {
            (id, true) => Asked::This(id),
            (id, false) => Asked::Of(id.ms),
        };
        Ok(())
    };
    let options = Options::parse(context, Some(&mut is_id))?;
    let fields = options.end + 1..context.count();
    if fields.len() < 2 || !fields.len().is_multiple_of(2) {
        return context.fail(&replies::wrong_arity("xadd"));
    }
    if asked == Asked::This(StreamId::ZERO) {
        return context.fail("ERR The ID specified in XADD must be greater than 0-0");
    }
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    if !stream.exists() && options.is_for_existing {
        context.reply().null();
        return Ok(());
    }
    if stream.head.last == StreamId::MAX {
        return context
            .fail("ERR The stream has exhausted the last possible ID, unable to add more items");
    }
    let id = asked.id(&stream.head, context.now_ms)?;
    let mut row = std::mem::take(&mut context.data().scratch.element_row);
    let arguments = context.arguments;
    encode(
        (Encoding::Stream, Form::Plain),
        fields.map(|at| arguments.at(at)),
        &mut row,
    );
    context.check_row("an entry of a stream", row.len())?;
    if !stream.exists() {
        context.create_stream(&mut stream)?;
    }
    let has_trimmed = append(context, &mut stream, (id, &row), &options)?;
    context.data().scratch.element_row = row;
    context.put_stream(key, stream)?;
    context.event(Class::Stream, "xadd", key);
    if has_trimmed {
        context.event(Class::Stream, "xtrim", key);
    }
    reply_id(&mut context.reply(), id);
    Ok(())
}

/// Adds an entry, and trims the stream. Returns true if entries have gone.
fn append(
    context: &mut Context<'_>,
    stream: &mut Stream,
    (id, row): (StreamId, &[u8]),
    options: &Options,
) -> Result<bool, Interrupted> {
    let (mut stays, mut has_trimmed) = (true, false);
    if let Some(trim) = options.trim {
        let trimmed = trim.find(context, stream, Some(id))?;
        trimmed.remove(context, stream)?;
        stays = !trimmed.has_new;
        has_trimmed = trimmed.count() > 0 || trimmed.has_new;
    }
    let head = &mut stream.head;
    head.added = head.added.wrapping_add(1);
    head.last = id;
    if !stays {
        return Ok(has_trimmed);
    }
    if head.length == 0 {
        head.first = id;
    }
    head.length += 1;
    let key = entry_key(head.id, id);
    context.put_stream_row(stream, &key, row)?;
    Ok(has_trimmed)
}

fn length(context: &mut Context<'_>) -> Run {
    let stream = context.read_stream(context.argument(1))?;
    reply_count(&mut context.reply(), stream.head.length);
    Ok(())
}
