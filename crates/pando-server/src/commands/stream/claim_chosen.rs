//! XCLAIM: a consumer takes over pending entries that it names.

use std::collections::BTreeSet;

use super::arguments::{id, integer_or};
use super::claim::{Claiming, missing_group, reply_claimed};
use super::groups::{CREATED_CONSUMER, OpenGroup, check_consumer, find_group, pending, pending_at};
use super::{text_of, writing};
use crate::context::{Command, Context, Flags, Interrupted, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::PendingRow;
use crate::notifications::classes::Class;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    flags: Flags::WRITE.and(Flags::FAST),
    complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
    summary: "Changes, or acquires, ownership of a message in a consumer group, as if the message \
              was delivered a consumer group member.",
    ..writing("xclaim", -6, run)
}];

/// The arguments behind the name of the consumer.
#[derive(Default)]
struct Options {
    least_idle: i64,
    ids: Vec<StreamId>,
    /// When the entries were delivered.
    delivered: Option<i64>,
    times: Option<i64>,
    is_forced: bool,
    is_only_id: bool,
    last: StreamId,
}

impl Options {
    fn parse(context: &Context<'_>, now: i64) -> Result<Self, Interrupted> {
        let text = "ERR Invalid min-idle-time argument for XCLAIM";
        let mut options = Self {
            least_idle: integer_or(context, 4, text)?.max(0),
            ..Self::default()
        };
        let mut at = 5;
        while at < context.count() {
            let Ok(id) = id(context.argument(at), 0) else {
                break;
            };
            options.ids.push(id);
            at += 1;
        }
        while at < context.count() {
            at = options.option(context, at, now)? + 1;
        }
        Ok(options)
    }

    /// Reads the option at `at`; returns the place of its last argument.
    fn option(&mut self, context: &Context<'_>, at: usize, now: i64) -> Result<usize, Interrupted> {
        let has_more = at + 1 < context.count();
        let value = at + 1;
        if context.is(at, "force") {
            self.is_forced = true;
        } else if context.is(at, "justid") {
            self.is_only_id = true;
        } else if has_more && context.is(at, "idle") {
            let text = "ERR Invalid IDLE option argument for XCLAIM";
            self.delivered = Some(now.saturating_sub(integer_or(context, value, text)?));
            return Ok(value);
        } else if has_more && context.is(at, "time") {
            let text = "ERR Invalid TIME option argument for XCLAIM";
            self.delivered = Some(integer_or(context, value, text)?);
            return Ok(value);
        } else if has_more && context.is(at, "retrycount") {
            let text = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
            let times = integer_or(context, value, text)?;
            self.times = (times >= 0).then_some(times);
            return Ok(value);
        } else if has_more && context.is(at, "lastid") {
            self.last = id(context.argument(value), 0)?;
            return Ok(value);
        } else {
            let option = text_of(context.argument(at));
            return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
        }
        Ok(at)
    }
}

fn run(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    let Some(group) = find_group(context, &stream, context.argument(2))? else {
        return Err(missing_group(context).into());
    };
    let now = i64::try_from(context.now_ms).unwrap_or(i64::MAX);
    let options = Options::parse(context, now)?;
    let name = context.argument(3);
    check_consumer(context, name)?;
    let mut group = OpenGroup::new(group);
    group.row.last = group.row.last.max(options.last);
    let (consumer, is_new) = group.find_or_create(context, &mut stream, name)?;
    if is_new {
        context.event(Class::Stream, CREATED_CONSUMER, key);
    }
    let claiming = Claiming {
        consumer,
        // A time that makes no sense is now: clients compute it by clocks of their own.
        delivered: options
            .delivered
            .filter(|at| (0..=now).contains(at))
            .unwrap_or(now),
        times: options.times,
        is_only_id: options.is_only_id,
    };
    let claimed = claim(context, (&mut stream, &mut group), (&options, &claiming))?;
    let entries = claiming.entries(context, &stream, &claimed)?;
    group.put(context, &mut stream)?;
    context.put_group(key, stream)?;
    reply_claimed(context, &claimed, &entries)
}

/// Claims those entries that can be claimed; returns their IDs.
fn claim(
    context: &mut Context<'_>,
    (stream, group): (&mut Stream, &mut OpenGroup),
    (options, claiming): (&Options, &Claiming),
) -> Result<Vec<StreamId>, Interrupted> {
    let ids = &options.ids;
    let are_there = context.has_entries(stream, ids)?;
    let rows = pending_at(context, stream, (group.row.number, ids))?;
    let mut seen = BTreeSet::new();
    let mut claimed = Vec::new();
    for ((id, is_there), mut row) in ids.iter().zip(are_there).zip(rows) {
        if !seen.insert(*id) {
            // It may have been claimed just now.
            row = pending(context, stream, (group.row.number, *id))?;
        }
        if !is_there {
            // A pending one that was deleted is pending no longer.
            if let Some(row) = row {
                group.remove_pending(context, stream, (*id, row.consumer))?;
            }
            continue;
        }
        if let Some(old) = may_claim(row, options, context.now_ms) {
            let of = (&mut *stream, &mut *group);
            claiming.claim(context, of, *id, old)?;
            claimed.push(*id);
        }
    }
    Ok(claimed)
}

/// Returns who has an entry, which is there, and how often it was delivered, if it can be claimed.
fn may_claim(
    row: Option<PendingRow>,
    options: &Options,
    now_ms: u64,
) -> Option<(Option<u64>, i64)> {
    match row {
        None if options.is_forced => Some((None, 1)),
        None => None,
        Some(row) => {
            let is_idle = options.least_idle == 0 || row.idle(now_ms) >= options.least_idle;
            is_idle.then_some((Some(row.consumer), row.times))
        }
    }
}
