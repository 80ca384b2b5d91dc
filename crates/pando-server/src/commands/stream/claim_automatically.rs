//! XAUTOCLAIM: a consumer takes over pending entries that nobody has got for some time.

use super::arguments::{integer_or, start_at};
use super::claim::{Claiming, missing_group, reply_claimed};
use super::groups::{CREATED_CONSUMER, OpenGroup, check_consumer, find_group, pending_rows};
use super::{reply_id, writing};
use crate::context::{Command, Context, Flags, Interrupted, Run, Stream, replies};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::PendingRow;
use crate::notifications::classes::Class;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    since: "6.2.0",
    flags: Flags::WRITE.and(Flags::FAST),
    complexity: "O(1) if COUNT is small.",
    summary: "Changes, or acquires, ownership of messages in a consumer group, as if the messages \
              were delivered to as consumer group member.",
    ..writing("xautoclaim", -6, run)
}];

/// For each entry that is asked for so many pending ones are looked at.
const LOOKS: usize = 10;
/// Most entries that may be asked for, as for Redis.
const COUNT_MAX: i64 = i64::MAX / 16;
/// Most pending ones that are looked at, however many entries are asked for: what was read is kept
/// until the commit.
const LOOKS_MAX: usize = 100_000;
/// Most rows that are read at once.
const ROWS: usize = 1024;

struct Options {
    least_idle: i64,
    from: StreamId,
    count: usize,
    is_only_id: bool,
}

impl Options {
    fn parse(context: &Context<'_>) -> Result<Self, &'static str> {
        let text = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
        let mut options = Self {
            least_idle: integer_or(context, 4, text)?.max(0),
            from: start_at(context, 5)?,
            count: 100,
            is_only_id: false,
        };
        let mut at = 6;
        while at < context.count() {
            if context.is(at, "count") && at + 1 < context.count() {
                at += 1;
                let text = "ERR COUNT must be > 0";
                let count = integer_or(context, at, text)?;
                options.count = match (1..=COUNT_MAX).contains(&count) {
                    true => usize::try_from(count).map_err(|_| text)?,
                    false => return Err(text),
                };
            } else if context.is(at, "justid") {
                options.is_only_id = true;
            } else {
                return Err(replies::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// What was done, for the reply.
#[derive(Default)]
struct Done {
    claimed: Vec<StreamId>,
    deleted: Vec<StreamId>,
    /// The first pending entry that was not looked at.
    next: StreamId,
}

fn run(context: &mut Context<'_>) -> Run {
    let options = Options::parse(context)?;
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    let Some(group) = find_group(context, &stream, context.argument(2))? else {
        return Err(missing_group(context).into());
    };
    let name = context.argument(3);
    check_consumer(context, name)?;
    let mut group = OpenGroup::new(group);
    let (consumer, is_new) = group.find_or_create(context, &mut stream, name)?;
    if is_new {
        context.event(Class::Stream, CREATED_CONSUMER, key);
    }
    let claiming = Claiming {
        consumer,
        delivered: i64::try_from(context.now_ms).unwrap_or(i64::MAX),
        times: None,
        is_only_id: options.is_only_id,
    };
    let done = claim(context, (&mut stream, &mut group), (&options, &claiming))?;
    let entries = claiming.entries(context, &stream, &done.claimed)?;
    group.put(context, &mut stream)?;
    context.put_group(key, stream)?;
    context.reply().array(3);
    reply_id(&mut context.reply(), done.next);
    reply_claimed(context, &done.claimed, &entries)?;
    context.reply().array(done.deleted.len());
    for id in done.deleted {
        reply_id(&mut context.reply(), id);
    }
    context.check_reply()
}

fn claim(
    context: &mut Context<'_>,
    (stream, group): (&mut Stream, &mut OpenGroup),
    (options, claiming): (&Options, &Claiming),
) -> Result<Done, Interrupted> {
    let mut done = Done::default();
    let mut looks = options.count.saturating_mul(LOOKS).min(LOOKS_MAX);
    let mut from = Some(options.from);
    while let Some(start) = from {
        // One more, which says where the next call goes on.
        let count = options.count.min(ROWS).saturating_add(1);
        let range = (start, StreamId::MAX);
        let rows = pending_rows(context, stream, (group.row.number, None), range, count)?;
        let ids = rows.ids()?;
        let are_there = context.has_entries(stream, &ids)?;
        for (place, (id, is_there)) in ids.into_iter().zip(are_there).enumerate() {
            if looks == 0 || done.claimed.len() + done.deleted.len() >= options.count {
                done.next = id;
                return Ok(done);
            }
            looks -= 1;
            let row = PendingRow::decode(rows.value(place))?;
            if !is_there {
                group.remove_pending(context, stream, (id, row.consumer))?;
                done.deleted.push(id);
                continue;
            }
            if options.least_idle > 0 && row.idle(context.now_ms) < options.least_idle {
                continue;
            }
            let old = (Some(row.consumer), row.times);
            let of = (&mut *stream, &mut *group);
            claiming.claim(context, of, id, old)?;
            done.claimed.push(id);
        }
        from = match rows.len() < count {
            true => None,
            false => rows.id(rows.len() - 1)?.next(),
        };
    }
    Ok(done)
}
