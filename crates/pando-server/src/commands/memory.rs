//! MEMORY.

use std::fmt::Write as _;

use crate::context::{Command, Context, Flags, Group, Keys, Kind, Run, replies};
use crate::report::memory_use::{MemoryUse, resident_bytes};

/// Bytes of an entry in a leaf, in addition to its key and value.
const ENTRY_BYTES: usize = 8;

const fn sub(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        since: "4.0.0",
        summary,
        ..Command::new(name, 2, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for memory diagnostics commands.",
    subcommands: &[
        sub("doctor", doctor, "Outputs a memory problems report."),
        sub(
            "malloc-stats",
            malloc_stats,
            "Returns the allocator statistics.",
        ),
        sub("purge", purge, "Asks the allocator to release memory."),
        sub("stats", stats, "Returns details about memory usage."),
        Command {
            flags: Flags::READONLY,
            keys: Keys::SECOND,
            group: Group::Server,
            kind: Kind::Read,
            arity: -3,
            ..sub("usage", usage, "Estimates the memory usage of a key.")
        },
        Command {
            flags: Flags::LOADING,
            ..sub(
                "help",
                help,
                "Returns helpful text about the different subcommands.",
            )
        },
    ],
    ..Command::new("memory", -2, help)
}];

fn usage(context: &mut Context<'_>) -> Run {
    for option in (3..context.count()).step_by(2) {
        if !context.is(option, "samples") || option + 1 == context.count() {
            return context.fail(replies::SYNTAX);
        }
        match context.integer_at(option + 1) {
            Ok(0..) => {}
            Ok(_) => return context.fail(replies::SYNTAX),
            Err(text) => return context.fail(text),
        }
    }
    let found = context.find_head(context.argument(2))?;
    if found.row.is_none() {
        context.reply().null();
        return Ok(());
    }
    let scratch = &context.data().scratch;
    let row = match &found.large {
        Some(chunked) => chunked.stream.len(),
        None => (scratch.value.len() + found.cut) as u64,
    };
    let bytes = row + (scratch.stored.len() + ENTRY_BYTES) as u64;
    context.integer(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// The value of a figure in MEMORY STATS.
enum Figure {
    Count(u64),
    Ratio(f64),
}

fn stats(context: &mut Context<'_>) -> Run {
    let shared = context.shared;
    let memory = MemoryUse::new(shared);
    let (used, data) = (memory.used(), memory.frames.used_bytes);
    let resident = resident_bytes();
    let peak = shared.statistics.memory_peak(used);
    let databases = &context.engine().databases;
    let keys: u64 = databases.iter().map(|database| database.keys.len()).sum();
    let percent = |part: u64, whole: u64| Figure::Ratio(part as f64 * 100.0 / whole.max(1) as f64);
    let mut figures = vec![
        ("peak.allocated".to_owned(), Figure::Count(peak)),
        ("total.allocated".to_owned(), Figure::Count(used)),
        (
            "startup.allocated".to_owned(),
            Figure::Count(memory.at_start()),
        ),
        ("replication.backlog".to_owned(), Figure::Count(0)),
        ("clients.slaves".to_owned(), Figure::Count(0)),
        (
            "clients.normal".to_owned(),
            Figure::Count(memory.connections),
        ),
        ("cluster.links".to_owned(), Figure::Count(0)),
        (
            "aof.buffer".to_owned(),
            Figure::Count(memory.log_buffers.used_bytes),
        ),
        ("lua.caches".to_owned(), Figure::Count(0)),
        ("functions.caches".to_owned(), Figure::Count(0)),
        ("overhead.total".to_owned(), Figure::Count(used - data)),
        ("keys.count".to_owned(), Figure::Count(keys)),
        (
            "keys.bytes-per-key".to_owned(),
            Figure::Count(data / keys.max(1)),
        ),
        ("dataset.bytes".to_owned(), Figure::Count(data)),
        ("dataset.percentage".to_owned(), percent(data, used)),
        ("peak.percentage".to_owned(), percent(used, peak)),
        ("allocator.allocated".to_owned(), Figure::Count(used)),
        ("allocator.active".to_owned(), Figure::Count(resident)),
        ("allocator.resident".to_owned(), Figure::Count(resident)),
        (
            "fragmentation".to_owned(),
            Figure::Ratio(resident as f64 / used.max(1) as f64),
        ),
        ("pando.max-memory".to_owned(), Figure::Count(memory.max)),
        (
            "pando.rest.budget".to_owned(),
            Figure::Count(memory.rest_budget),
        ),
    ];
    for (name, used, budget) in memory.parts() {
        let name = format!("pando.{}", name.replace('_', "-"));
        figures.push((name.clone(), Figure::Count(used)));
        if let Some(budget) = budget {
            figures.push((format!("{name}.budget"), Figure::Count(budget)));
        }
    }
    let mut reply = context.reply();
    reply.map(figures.len());
    for (name, figure) in figures {
        reply.bulk(name.as_bytes());
        match figure {
            Figure::Count(count) => reply.integer(i64::try_from(count).unwrap_or(i64::MAX)),
            Figure::Ratio(ratio) => reply.double(ratio),
        }
    }
    Ok(())
}

fn malloc_stats(context: &mut Context<'_>) -> Run {
    let text = "Stats not supported for the current allocator";
    context.reply().bulk(text.as_bytes());
    Ok(())
}

/// The frames are one piece of memory from the start; buffers of connections come and go.
fn purge(context: &mut Context<'_>) -> Run {
    pando_sync::give_back_free_memory();
    context.ok()
}

fn doctor(context: &mut Context<'_>) -> Run {
    let memory = MemoryUse::new(context.shared);
    let mebibytes = |bytes: u64| bytes as f64 / 1_048_576.0;
    let (used, max) = (memory.used(), memory.max);
    let mut text = format!(
        "{:.1} MiB of a budget of {:.1} MiB are in use, {:.1} MiB are resident.\n",
        mebibytes(used),
        mebibytes(max),
        mebibytes(resident_bytes())
    );
    for (name, used, budget) in memory.parts() {
        let of = budget.map_or_else(String::new, |of| format!(" of {:.1}", mebibytes(of)));
        let _ = writeln!(text, "- {name}: {:.1}{of} MiB", mebibytes(used));
    }
    if memory.connections + memory.statistics > memory.rest_budget {
        text.push_str(
            "Connections and statistics take more than their share: fewer clients, shorter \
             pipelines or more max_memory would help.\n",
        );
    }
    if memory.page_table.used_bytes * 10 > memory.page_table.budget_bytes * 9 {
        text.push_str("The page table is nearly full: the data need more max_memory.\n");
    }
    context.reply().verbatim(&text);
    Ok(())
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Attempt to purge dirty pages for reclamation by the allocator.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value.",
        "HELP",
        "    Print this help.",
    ])
}
