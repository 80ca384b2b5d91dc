//! SSCAN.

use super::reading;
use crate::commands::glob;
use crate::commands::scan_options::{ScanOptions, reply_nothing};
use crate::context::{Command, Context, Flags, Run};

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

/// A packed set is shown whole, as Redis shows an intset: its iteration has one step.
fn scan(context: &mut Context<'_>) -> Run {
    ScanOptions::check_cursor(context)?;
    let set = context.read_collection(context.argument(1))?;
    if !set.exists() {
        return reply_nothing(context);
    }
    let options = ScanOptions::parse(context, false)?;
    let takes = |member: &&[u8]| {
        let pattern = options.pattern;
        pattern.is_none_or(|pattern| glob::matches(pattern, member))
    };
    let members: Vec<&[u8]> = set.strings.iter().filter(takes).collect();
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(b"0");
    reply.array(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    context.check_reply()
}
