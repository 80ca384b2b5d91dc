//! PFADD, PFCOUNT, PFMERGE, PFDEBUG, PFSELFTEST: HyperLogLogs, which are strings.
//!
//! PFCOUNT reads: it does not write its estimate into the string, as Redis does.

mod dense;
mod estimate;
mod hash;
mod sketch;
mod sparse;

use std::collections::HashSet;
use std::fmt::Write as _;

use self::estimate::{Histogram, estimate};
use self::sketch::{Corrupt, Sketch, no_registers};
use crate::context::{
    Command, Context, Flags, Found, Group, Interrupted, Keys, Kind, NewString, Run, replies,
};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "O(1) to add every element.",
        summary: "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.",
        ..Command::write("pfadd", -2, add)
    },
    Command {
        since: "2.8.9",
        flags: Flags::READONLY,
        group: Group::HyperLogLog,
        keys: Keys::ALL,
        kind: Kind::ReadMany,
        complexity: "O(N) where N is the number of keys.",
        summary: "Returns the approximated cardinality of the set(s) observed by the HyperLogLog \
                  key(s).",
        ..Command::read("pfcount", -2, count)
    },
    Command {
        since: "2.8.9",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::HyperLogLog,
        keys: Keys::ALL,
        complexity: "O(N) to merge N HyperLogLogs.",
        summary: "Merges one or more HyperLogLog values into a single key.",
        ..Command::write("pfmerge", -2, merge)
    },
    Command {
        since: "2.8.9",
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::ADMIN),
        group: Group::HyperLogLog,
        keys: Keys::SECOND,
        summary: "Internal commands for debugging HyperLogLog values.",
        ..Command::write("pfdebug", 3, debug)
    },
    Command {
        since: "2.8.9",
        flags: Flags::ADMIN,
        group: Group::HyperLogLog,
        summary: "An internal command for testing HyperLogLog values.",
        ..Command::new("pfselftest", 1, self_test)
    },
];

/// What a key was found to have.
enum Looked {
    Absent,
    Sketch(Sketch),
    /// Something else; the reply says so.
    Other,
}

fn look(context: &mut Context<'_>, key: &[u8], found: &Found) -> Result<Looked, Interrupted> {
    if found.row.is_none() {
        return Ok(Looked::Absent);
    }
    let bytes = context.part(key, found, 0..u64::MAX)?;
    match Sketch::parse(&bytes) {
        Some(sketch) => Ok(Looked::Sketch(sketch)),
        None => {
            context.fail("WRONGTYPE Key is not a valid HyperLogLog string value.")?;
            Ok(Looked::Other)
        }
    }
}

fn corrupt(context: &mut Context<'_>) -> Run {
    context.fail("INVALIDOBJ Corrupted HLL object detected")
}

fn put(context: &mut Context<'_>, key: &[u8], found: &Found, sketch: &Sketch) -> Run {
    let bytes = sketch.bytes();
    context.put(
        key,
        NewString::Bytes(&bytes),
        found.deadline(),
        found.former,
    )
}

fn add(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let found = context.find(key)?;
    let (mut sketch, mut is_changed) = match look(context, key, &found)? {
        Looked::Absent => (Sketch::new(), true),
        Looked::Sketch(sketch) => (sketch, false),
        Looked::Other => return Ok(()),
    };
    for element in context.arguments.from(2) {
        match sketch.add(element) {
            Ok(changes) => is_changed |= changes,
            Err(Corrupt) => return corrupt(context),
        }
    }
    if is_changed {
        sketch.outdate();
        put(context, key, &found, &sketch)?;
        context.event(Class::String, "pfadd", key);
    }
    context.integer(i64::from(is_changed))
}

fn count(context: &mut Context<'_>) -> Run {
    if context.count() == 2 {
        return count_one(context);
    }
    let (mut registers, mut seen) = (no_registers(), HashSet::new());
    for key in context.arguments.from(1) {
        let found = context.read(key)?;
        if !seen.insert(key) {
            continue;
        }
        let sketch = match look(context, key, &found)? {
            Looked::Absent => continue,
            Looked::Sketch(sketch) => sketch,
            Looked::Other => return Ok(()),
        };
        if sketch.merge_into(&mut registers).is_err() {
            return corrupt(context);
        }
    }
    let count = estimate(&Histogram::of(&registers));
    context.integer(count.cast_signed())
}

/// Counts what one key has, whose registers need not be laid out for that.
fn count_one(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let found = context.read(key)?;
    match look(context, key, &found)? {
        Looked::Absent => context.integer(0),
        Looked::Sketch(sketch) => match sketch.count() {
            Ok(count) => context.integer(count.cast_signed()),
            Err(Corrupt) => corrupt(context),
        },
        Looked::Other => Ok(()),
    }
}

fn merge(context: &mut Context<'_>) -> Run {
    let (mut registers, mut is_dense) = (no_registers(), false);
    let mut seen = HashSet::new();
    for key in context.arguments.from(1) {
        let found = context.read(key)?;
        if !seen.insert(key) {
            continue;
        }
        match look(context, key, &found)? {
            Looked::Absent => {}
            Looked::Sketch(sketch) => {
                is_dense |= sketch.is_dense();
                if sketch.merge_into(&mut registers).is_err() {
                    return corrupt(context);
                }
            }
            Looked::Other => return Ok(()),
        }
    }
    let key = context.argument(1);
    let found = context.find(key)?;
    let mut sketch = match look(context, key, &found)? {
        Looked::Sketch(sketch) => sketch,
        Looked::Absent | Looked::Other => Sketch::new(),
    };
    let mut is_good = !is_dense || sketch.make_dense().is_ok();
    for (index, value) in registers
        .iter()
        .enumerate()
        .filter(|(_, value)| **value > 0)
    {
        is_good &= sketch.raise(index, *value).is_ok();
    }
    if !is_good {
        return corrupt(context);
    }
    sketch.outdate();
    put(context, key, &found, &sketch)?;
    context.event(Class::String, "pfadd", key);
    context.ok()
}

fn debug(context: &mut Context<'_>) -> Run {
    let key = context.argument(2);
    let found = context.find(key)?;
    let mut sketch = match look(context, key, &found)? {
        Looked::Absent => return context.fail("ERR The specified key does not exist"),
        Looked::Sketch(sketch) => sketch,
        Looked::Other => return Ok(()),
    };
    let was_dense = sketch.is_dense();
    let names = ["getreg", "decode", "encoding", "todense"];
    let Some(name) = names.into_iter().find(|name| context.is(1, name)) else {
        let name = replies::shown(context.argument(1));
        return context.fail(&format!("ERR Unknown PFDEBUG subcommand '{name}'"));
    };
    match name {
        "encoding" => {
            let encoding = if was_dense { "dense" } else { "sparse" };
            context.reply().simple(encoding);
            return Ok(());
        }
        "decode" if was_dense => return context.fail("ERR HLL encoding is not sparse"),
        "decode" => {
            context.reply().bulk(decoded(&sketch).as_bytes());
            return context.check_reply();
        }
        _ => {}
    }
    if sketch.make_dense().is_err() {
        return corrupt(context);
    }
    if !was_dense {
        put(context, key, &found, &sketch)?;
    }
    if name == "todense" {
        return context.integer(i64::from(!was_dense));
    }
    let mut registers = no_registers();
    if sketch.merge_into(&mut registers).is_err() {
        return corrupt(context);
    }
    let mut reply = context.reply();
    reply.array(registers.len());
    registers
        .iter()
        .for_each(|value| reply.integer(i64::from(*value)));
    context.check_reply()
}

/// Returns the runs of a sparse one as text.
fn decoded(sketch: &Sketch) -> String {
    let mut text = String::new();
    for run in sketch.runs() {
        let _ = match (run.value, run.bytes) {
            (0, 1) => write!(text, "z:{} ", run.length),
            (0, _) => write!(text, "Z:{} ", run.length),
            (value, _) => write!(text, "v:{value},{} ", run.length),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Counts some elements in both encodings.
fn self_test(context: &mut Context<'_>) -> Run {
    const ELEMENTS: u64 = 20_000;
    let (mut first, mut second) = (Sketch::new(), Sketch::new());
    let mut is_good = second.make_dense().is_ok();
    for number in 0..ELEMENTS {
        let element = number.to_le_bytes();
        is_good &= first.add(&element) == second.add(&element);
    }
    first.outdate();
    second.outdate();
    let count = first.count();
    is_good &= count == second.count();
    is_good &= count.is_ok_and(|count| count.abs_diff(ELEMENTS) < ELEMENTS / 20);
    match is_good {
        true => context.ok(),
        false => context.fail("TESTFAILED the encodings differ, or the estimate is wrong"),
    }
}
