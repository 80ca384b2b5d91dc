//! SSCAN.

use super::reading;
use crate::commands::glob::Comparisons;
use crate::commands::scan_options::{ScanOptions, iterate, reply_nothing};
use crate::context::{Command, Context, Flags, Run};
use crate::data::keyspace::ValueType;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::READONLY,
    complexity: "O(1) for every call. O(N) for a complete iteration.",
    ..reading(
        "sscan",
        -3,
        "2.8.0",
        scan,
        "Iterates over members of a set.",
    )
}];

fn scan(context: &mut Context<'_>) -> Run {
    let cursor = ScanOptions::cursor(context)?;
    let Some((set, next, options)) = iterate(context, ValueType::Set, cursor)? else {
        return reply_nothing(context);
    };
    let comparisons = Comparisons::new();
    let takes = |member: &&[u8]| {
        let pattern = options.pattern;
        pattern.is_none_or(|pattern| comparisons.matches(pattern, member))
    };
    let members: Vec<&[u8]> = set.strings.iter().filter(takes).collect();
    comparisons.end()?;
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    context.check_reply()
}
