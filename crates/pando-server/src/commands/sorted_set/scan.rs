//! ZSCAN: all members of a packed sorted set come in the first reply, whose cursor says that the
//! iteration is over.

use super::describe::{SLOW_READ, reading};
use super::double;
use super::order::SortedSet;
use crate::commands::glob::Comparisons;
use crate::commands::scan_options::{ScanOptions, iterate, reply_nothing};
use crate::context::{Command, Context, Run};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: SLOW_READ,
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command \
                 calls for the cursor to return back to 0. N is the number of elements inside the \
                 collection.",
    summary: "Iterates over members and scores of a sorted set.",
    ..reading("zscan", -3, "2.8.0", scan)
}];

fn scan(context: &mut Context<'_>) -> Run {
    let cursor = ScanOptions::cursor(context)?;
    let Some((set, next, options)) = iterate(context, ValueType::SortedSet, cursor)? else {
        return reply_nothing(context);
    };
    let set = SortedSet::checked(set)?;
    let pattern = options.pattern;
    let comparisons = Comparisons::new();
    let takes = |rank: &usize| pattern.is_none_or(|of| comparisons.matches(of, set.member(*rank)));
    let ranks: Vec<usize> = (0..set.in_memory()).filter(takes).collect();
    comparisons.end()?;
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(ranks.len() * 2);
    for rank in ranks {
        let score = set.score(rank);
        reply.bulk(set.member(rank));
        let text = match set.encoding() {
            Encoding::Listpack => double::text(score),
            _ => double::text_of_17_digits(score),
        };
        reply.bulk(text.as_bytes());
    }
    context.check_reply()
}
