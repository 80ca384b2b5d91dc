//! LATENCY.

use std::fmt::Write as _;

use pando_stats::Histogram;

use crate::context::{Command, Context, Flags, Run, replies};
use crate::figures::latency_monitor::History;

const FLAGS: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING);
/// Upper end of the first bucket of LATENCY HISTOGRAM; every further bucket is twice as wide.
const FIRST_BUCKET_NS: u64 = 1024;

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        since: "2.8.13",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "2.8.13",
    complexity: "Depends on subcommand.",
    summary: "A container for latency diagnostics commands.",
    subcommands: &[
        sub(
            "doctor",
            2,
            doctor,
            "Returns a human-readable latency analysis report.",
        ),
        sub("graph", 3, graph, "Returns a latency graph for an event."),
        Command {
            since: "7.0.0",
            ..sub(
                "histogram",
                -2,
                histogram,
                "Returns the cumulative distribution of latencies of a subset or all commands.",
            )
        },
        sub(
            "history",
            3,
            history,
            "Returns timestamp-latency samples for an event.",
        ),
        sub(
            "latest",
            2,
            latest,
            "Returns the latest latency samples for all events.",
        ),
        sub(
            "reset",
            -2,
            |context| context.once(reset),
            "Resets the latency data for one or more events.",
        ),
        Command {
            flags: Flags::LOADING,
            ..sub(
                "help",
                2,
                help,
                "Returns helpful text about the different subcommands.",
            )
        },
    ],
    ..Command::new("latency", -2, help)
}];

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn latest(context: &mut Context<'_>) -> Run {
    let events = context.shared.latency_monitor.all();
    let mut reply = context.reply();
    reply.array(events.len());
    for (event, history) in events {
        let last = history.spikes.back();
        reply.array(4);
        reply.bulk(event.as_bytes());
        reply.integer(integer(last.map_or(0, |spike| spike.unix_s)));
        reply.integer(integer(last.map_or(0, |spike| spike.ms)));
        reply.integer(integer(history.ms_max));
    }
    Ok(())
}

fn history(context: &mut Context<'_>) -> Run {
    let mut events = context.shared.latency_monitor.all();
    events.retain(|event, _| context.is(2, event));
    let history = events.into_values().next().unwrap_or_default();
    let mut reply = context.reply();
    reply.array(history.spikes.len());
    for spike in history.spikes {
        reply.array(2);
        reply.integer(integer(spike.unix_s));
        reply.integer(integer(spike.ms));
    }
    Ok(())
}

/// Height of a graph, in lines.
const GRAPH_LINES: u64 = 4;
/// Width of a graph: the newest samples are shown.
const GRAPH_COLUMNS: usize = 80;

/// Draws the newest samples of an event as columns, the newest on the right, with the lowest and
/// the highest of them above.
fn draw(event: &str, history: &History) -> String {
    let from = history.spikes.len().saturating_sub(GRAPH_COLUMNS);
    let shown: Vec<u64> = history.spikes.iter().skip(from).map(|of| of.ms).collect();
    let low = shown.iter().copied().min().unwrap_or(0);
    let high = shown.iter().copied().max().unwrap_or(0);
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        history.ms_max,
        "-".repeat(GRAPH_COLUMNS)
    );
    let steps = GRAPH_LINES * 2;
    let height = |ms: u64| ((ms - low) * (steps - 1)) / (high - low).max(1) + 1;
    for line in (0..GRAPH_LINES).rev() {
        let column = |ms: &u64| match height(*ms).saturating_sub(line * 2) {
            0 => ' ',
            1 => '_',
            _ => '#',
        };
        let line: String = shown.iter().map(column).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn graph(context: &mut Context<'_>) -> Run {
    let mut events = context.shared.latency_monitor.all();
    events.retain(|event, _| context.is(2, event));
    let Some((event, history)) = events.into_iter().next() else {
        let event = replies::shown(context.argument(2));
        return context.fail(&format!("ERR No samples available for event '{event}'"));
    };
    context.reply().verbatim(&draw(event, &history));
    Ok(())
}

fn reset(context: &mut Context<'_>) -> Run {
    let count = context.shared.latency_monitor.reset(|event| {
        context.count() == 2 || (2..context.count()).any(|at| context.is(at, event))
    });
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Returns the buckets of `latency`: the end of each in microseconds, and the number of calls that
/// took at most that long. Buckets that add no call are left out.
fn buckets(latency: &Histogram) -> Vec<(u64, u64)> {
    let (mut found, mut end, mut before) = (Vec::new(), FIRST_BUCKET_NS, 0);
    let all = latency.count();
    while before < all {
        let count = match end.checked_mul(2) {
            Some(_) => latency.count_up_to(end - 1),
            None => all,
        };
        if count > before {
            found.push((end / 1000, count));
            before = count;
        }
        end = end.saturating_mul(2);
    }
    found
}

fn histogram(context: &mut Context<'_>) -> Run {
    let of_commands = &context.shared.statistics.commands;
    let wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or(name);
        let mut places = 2..context.count();
        context.count() == 2 || places.any(|at| context.is(at, name) || context.is(at, container))
    };
    let mut all = of_commands.all();
    all.retain(|(id, figures)| figures.latency.count() > 0 && wanted(of_commands.name(*id)));
    let mut reply = context.reply();
    reply.map(all.len());
    for (id, figures) in all {
        reply.bulk(of_commands.name(id).as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(integer(figures.latency.count()));
        reply.bulk(b"histogram_usec");
        let buckets = buckets(&figures.latency);
        reply.map(buckets.len());
        for (end, count) in buckets {
            reply.integer(integer(end));
            reply.integer(integer(count));
        }
    }
    Ok(())
}

fn doctor(context: &mut Context<'_>) -> Run {
    let shared = context.shared;
    let mut text = String::new();
    let events = shared.latency_monitor.all();
    match shared.settings.monitor_ms() {
        0 => text.push_str(
            "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> \
             turns it on.\n",
        ),
        ms if events.is_empty() => {
            let _ = writeln!(text, "Nothing has taken {ms} ms or longer.");
        }
        ms => {
            let _ = writeln!(text, "These have taken {ms} ms or longer:");
        }
    }
    for (event, history) in events {
        let count = history.spikes.len().max(1);
        let sum: u64 = history.spikes.iter().map(|spike| spike.ms).sum();
        let _ = writeln!(
            text,
            "- {event}: in {count} seconds, on average {} ms, at most {} ms.",
            sum / count as u64,
            history.ms_max
        );
    }
    if let Some(engine) = shared.engine() {
        advise(&engine.db, &mut text);
    }
    context.reply().verbatim(&text);
    Ok(())
}

/// Writes where the engine sees the time of slow commands go.
fn advise(db: &pandodb::Db, text: &mut String) {
    use pando_stats::{Measure, Ticker};
    let counts = db.statistics();
    for (measure, what) in [
        (Measure::DeviceRead, "A read of the device"),
        (Measure::LogFlush, "A flush of the log"),
        (Measure::CheckpointGate, "A pause for a checkpoint"),
    ] {
        let histogram = db.histogram(measure);
        if histogram.count() > 0 {
            let ms = |share| histogram.percentile(share) as f64 / 1e6;
            let (half, most) = (ms(0.5), ms(0.99));
            let _ = writeln!(text, "{what} takes {half:.3} ms; one of 100 {most:.3} ms.");
        }
    }
    let (gets, missed) = (counts.get(Ticker::Gets), counts.get(Ticker::GetsMissed));
    let _ = writeln!(
        text,
        "{missed} of {gets} point reads had to wait for the device: more max_memory makes them \
         fewer. SLOWLOG GET has the slowest commands, LATENCY HISTOGRAM all."
    );
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of command latencies in histogram format.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HELP",
        "    Print this help.",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_as_high_as_its_highest_column() {
        let mut history = History::default();
        for (second, ms) in [(1, 10), (2, 80), (3, 45)] {
            let spike = crate::figures::latency_monitor::Spike { unix_s: second, ms };
            history.spikes.push_back(spike);
        }
        history.ms_max = 99;
        let drawn = draw("command", &history);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(
            lines[0],
            "command - high 80 ms, low 10 ms (all time high 99 ms)"
        );
        assert_eq!(lines[2..], [" #", " #", " ##", "_##"]);
    }

    /// The limits of buckets double from 1024 ns on, and counts are cumulative.
    #[test]
    fn buckets_double_and_count_all_up_to_their_end() {
        let mut latency = Histogram::new();
        for ns in [1, 1023, 1024, 2047, 5000, 1_000_000, u64::MAX] {
            latency.add(ns);
        }
        let found = buckets(&latency);
        assert_eq!(found[..4], [(1, 2), (2, 4), (8, 5), (1048, 6)]);
        assert_eq!((found.len(), found[4].1), (5, 7));
        assert!(buckets(&Histogram::new()).is_empty());
    }
}
