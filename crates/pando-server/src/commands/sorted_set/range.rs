//! ZRANGE, ZRANGESTORE, and the older commands for single kinds of ranges.

use std::ops::Range;

use pando_resp::Writer;

use super::bounds::{Bounds, By, Selected};
use super::describe::{SLOW_READ, STORING, reading, writing};
use super::order::{end_store, store};
use super::replying;
use crate::context::{Command, Context, Flags, Keys, Run, replies};
use crate::data::shown_rows::Shown;

const OF_RANGE: Flags = SLOW_READ.and(Flags::SHOWS_ALL);
const BY_RANK: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the \
     number of elements returned.";
const WITH_LIMIT: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M \
     the number of elements being returned. If M is constant (e.g. always asking for the first 10 \
     elements with LIMIT), you can consider it O(log(N)).";
const TO_STORE: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M \
     the number of elements stored into the destination key.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: OF_RANGE,
        complexity: BY_RANK,
        summary: "Returns members in a sorted set within a range of indexes.",
        ..reading("zrange", -4, "1.2.0", |context| show(context, None, None))
    },
    Command {
        flags: STORING,
        keys: Keys::TWO,
        complexity: TO_STORE,
        summary: "Stores a range of members from sorted set in a key.",
        ..writing("zrangestore", -5, "6.2.0", store_range)
    },
    Command {
        flags: OF_RANGE,
        complexity: BY_RANK,
        summary: "Returns members in a sorted set within a range of indexes in reverse order.",
        ..reading("zrevrange", -4, "1.2.0", |context| {
            show(context, Some(By::Rank), Some(true))
        })
    },
    Command {
        flags: OF_RANGE,
        complexity: WITH_LIMIT,
        summary: "Returns members in a sorted set within a range of scores.",
        ..reading("zrangebyscore", -4, "1.0.5", |context| {
            show(context, Some(By::Score), Some(false))
        })
    },
    Command {
        flags: OF_RANGE,
        complexity: WITH_LIMIT,
        summary: "Returns members in a sorted set within a range of scores in reverse order.",
        ..reading("zrevrangebyscore", -4, "2.2.0", |context| {
            show(context, Some(By::Score), Some(true))
        })
    },
    Command {
        flags: OF_RANGE,
        complexity: WITH_LIMIT,
        summary: "Returns members in a sorted set within a lexicographical range.",
        ..reading("zrangebylex", -4, "2.8.9", |context| {
            show(context, Some(By::Member), Some(false))
        })
    },
    Command {
        flags: OF_RANGE,
        complexity: WITH_LIMIT,
        summary: "Returns members in a sorted set within a lexicographical range in reverse order.",
        ..reading("zrevrangebylex", -4, "2.8.9", |context| {
            show(context, Some(By::Member), Some(true))
        })
    },
];

/// What a command asks for.
struct Request<'a> {
    bounds: Bounds<'a>,
    reversed: bool,
    with_scores: bool,
    offset: i64,
    /// The largest number of elements; negative: there is none.
    limit: i64,
}

/// Options behind the bounds.
struct Options {
    by: Option<By>,
    reversed: Option<bool>,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl Options {
    /// Reads the options from argument `at` on; the kind and the direction may be given already.
    fn parse(
        mut self,
        context: &Context<'_>,
        mut at: usize,
        stores: bool,
    ) -> Result<Self, &'static str> {
        while at < context.count() {
            if !stores && context.is(at, "withscores") {
                self.with_scores = true;
            } else if context.is(at, "limit") && at + 2 < context.count() {
                self.offset = context.integer_at(at + 1)?;
                self.limit = context.integer_at(at + 2)?;
                at += 2;
            } else if self.reversed.is_none() && context.is(at, "rev") {
                self.reversed = Some(true);
            } else if self.by.is_none() && context.is(at, "bylex") {
                self.by = Some(By::Member);
            } else if self.by.is_none() && context.is(at, "byscore") {
                self.by = Some(By::Score);
            } else {
                return Err(replies::SYNTAX);
            }
            at += 1;
        }
        Ok(self)
    }
}

impl<'a> Request<'a> {
    /// Reads the request whose sorted set is argument `source`.
    fn parse(
        context: &Context<'a>,
        source: usize,
        by: Option<By>,
        reversed: Option<bool>,
    ) -> Result<Self, &'static str> {
        let options = Options {
            by,
            reversed,
            with_scores: false,
            offset: 0,
            limit: -1,
        };
        let options = options.parse(context, source + 3, source == 2)?;
        let by = options.by.unwrap_or(By::Rank);
        let reversed = options.reversed.unwrap_or(false);
        if options.limit != -1 && by == By::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with either \
                        BYSCORE or BYLEX",
            );
        }
        if options.with_scores && by == By::Member {
            return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX");
        }
        // From the highest to the lowest, as the reply.
        let swapped = reversed && by != By::Rank;
        let (first, last) = match swapped {
            true => (source + 2, source + 1),
            false => (source + 1, source + 2),
        };
        Ok(Self {
            bounds: Bounds::parse(context, by, first, last)?,
            reversed,
            with_scores: options.with_scores,
            // Ranks are limited by their bounds alone.
            offset: if by == By::Rank { 0 } else { options.offset },
            limit: options.limit,
        })
    }

    /// Returns what offset and limit leave of these ranks.
    fn limited(&self, ranks: Range<usize>) -> Range<usize> {
        let skipped = match usize::try_from(self.offset) {
            Ok(offset) => offset.min(ranks.len()),
            // So does Redis with a negative one.
            Err(_) => ranks.len(),
        };
        let left = ranks.len() - skipped;
        let taken = usize::try_from(self.limit).map_or(left, |limit| limit.min(left));
        match self.reversed {
            true => ranks.end - skipped - taken..ranks.end - skipped,
            false => ranks.start + skipped..ranks.start + skipped + taken,
        }
    }
}

fn show(context: &mut Context<'_>, by: Option<By>, reversed: Option<bool>) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let request = Request::parse(context, 1, by, reversed)?;
    let key = context.argument(1);
    let found = context.read(key)?;
    let score: Option<fn(&mut Writer<'_>, f64)> = match request.with_scores {
        true => Some(replying::write_score),
        false => None,
    };
    let shown = (Shown::Member(score), request.reversed);
    let limited = |ranks| request.limited(ranks);
    let selected = (request.bounds).select_to_show(context, (key, found), shown, limited);
    let (set, places) = selected?;
    replying::begin(context, places.len(), request.with_scores);
    let mut put = |place| replying::element(context, set.element(place), request.with_scores);
    match request.reversed {
        true => places.rev().try_for_each(&mut put),
        false => places.into_iter().try_for_each(&mut put),
    }
}

fn store_range(context: &mut Context<'_>) -> Run {
    let request = Request::parse(context, 2, None, None)?;
    let (key, found) = (context.argument(1), context.read(context.argument(2))?);
    let limited = |ranks| request.limited(ranks);
    let of = (key, found);
    let selected = (request.bounds).select_to_store(context, of, request.reversed, limited);
    match selected? {
        Selected::Stored(stored) => end_store(context, key, &stored),
        Selected::InMemory(set, places) => {
            let elements = places.map(|place| set.element(place)).collect();
            store(context, key, elements)
        }
    }
}
