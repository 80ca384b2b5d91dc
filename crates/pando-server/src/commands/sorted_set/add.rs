//! ZADD with its options, and ZINCRBY.

use std::collections::HashMap;

use super::describe::writing;
use super::order::SortedSet;
use super::replying;
use crate::context::{Command, Context, Part, Run, replies};
use crate::data::packed::Encoding;
use crate::float::parse_score;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: "O(log(N)) for each item added, where N is the number of elements in the \
                     sorted set.",
        summary: "Adds one or more members to a sorted set, or updates their scores. Creates the \
                  key if it doesn't exist.",
        ..writing("zadd", -4, "1.2.0", |context| add(context, false))
    },
    Command {
        complexity: "O(log(N)) where N is the number of elements in the sorted set.",
        summary: "Increments the score of a member in a sorted set.",
        ..writing("zincrby", 4, "1.2.0", |context| add(context, true))
    },
];

/// From this number of members on all of them are looked up in a table, and sorted once.
const MANY: usize = 16;

/// What ZADD was asked to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// NX
    pub(super) none: bool,
    /// XX
    pub(super) some: bool,
    greater: bool,
    less: bool,
    /// CH
    pub(super) changed: bool,
    increment: bool,
}

/// What becomes of one member.
enum Change {
    /// Nothing, since an option forbids it.
    Refused,
    /// Nothing: it has this score already.
    Same(f64),
    Added(f64),
    Updated(f64),
}

/// What has become of all members.
#[derive(Default)]
struct Outcome {
    added: i64,
    updated: i64,
    /// The score of the last member that no option has forbidden.
    score: Option<f64>,
}

impl Options {
    /// Reads the options; also returns where the first score is.
    fn parse(context: &Context<'_>, increment: bool) -> Result<(Self, usize), &'static str> {
        let mut options = Self {
            increment,
            ..Self::default()
        };
        let mut at = 2;
        while at < context.count() {
            match () {
                () if context.is(at, "nx") => options.none = true,
                () if context.is(at, "xx") => options.some = true,
                () if context.is(at, "gt") => options.greater = true,
                () if context.is(at, "lt") => options.less = true,
                () if context.is(at, "ch") => options.changed = true,
                () if context.is(at, "incr") => options.increment = true,
                () => break,
            }
            at += 1;
        }
        let left = context.count() - at;
        if left == 0 || !left.is_multiple_of(2) {
            return Err(replies::SYNTAX);
        }
        if options.none && options.some {
            return Err("ERR XX and NX options at the same time are not compatible");
        }
        if options.greater && (options.none || options.less) || options.less && options.none {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible");
        }
        if options.increment && left > 2 {
            return Err("ERR INCR option supports a single increment-element pair");
        }
        Ok((options, at))
    }

    /// Decides about a member that has the score `old`, if any.
    fn decide(self, old: Option<f64>, score: f64) -> Result<Change, &'static str> {
        let Some(old) = old else {
            return Ok(match self.some {
                true => Change::Refused,
                false => Change::Added(score),
            });
        };
        if self.none {
            return Ok(Change::Refused);
        }
        let new = if self.increment { old + score } else { score };
        if new.is_nan() {
            return Err("ERR resulting score is not a number (NaN)");
        }
        let is_refused = self.less && new >= old || self.greater && new <= old;
        Ok(match is_refused {
            true => Change::Refused,
            false if new == old => Change::Same(new),
            false => Change::Updated(new),
        })
    }
}

impl Outcome {
    /// Counts a change. Returns the score that is to be written, if any.
    fn count(&mut self, change: &Change) -> Option<f64> {
        match *change {
            Change::Refused => None,
            Change::Same(score) => {
                self.score = Some(score);
                None
            }
            Change::Added(score) => {
                self.added += 1;
                self.score = Some(score);
                self.score
            }
            Change::Updated(score) => {
                self.updated += 1;
                self.score = Some(score);
                self.score
            }
        }
    }
}

/// Changes a few members in place.
fn change_few(
    set: &mut SortedSet,
    pairs: &[(f64, &[u8])],
    options: Options,
) -> Result<Outcome, &'static str> {
    let mut outcome = Outcome::default();
    for (score, member) in pairs {
        let rank = set.rank_of(member);
        let old = rank.map(|rank| set.score(rank));
        if let Some(score) = outcome.count(&options.decide(old, *score)?) {
            match rank {
                Some(rank) => set.set_score(rank, score),
                None => set.insert(member, score),
            }
        }
    }
    Ok(outcome)
}

/// Changes many members: the time does not grow with the product of both numbers of members.
fn change_many(
    old: SortedSet,
    pairs: &[(f64, &[u8])],
    options: Options,
) -> Result<(Outcome, SortedSet), &'static str> {
    let mut outcome = Outcome::default();
    let mut scores: HashMap<&[u8], f64> = old.scores();
    for (score, member) in pairs {
        let change = options.decide(scores.get(member).copied(), *score)?;
        if let Some(score) = outcome.count(&change) {
            scores.insert(member, score);
        }
    }
    let elements = scores.into_iter().map(|(member, score)| (score, member));
    let mut set = SortedSet::of(elements.collect(), old.empty_like());
    set.take_row(old);
    Ok((outcome, set))
}

fn add(context: &mut Context<'_>, increment: bool) -> Run {
    let (options, first) = Options::parse(context, increment)?;
    let mut pairs = Vec::with_capacity((context.count() - first) / 2);
    for at in (first..context.count()).step_by(2) {
        let score = parse_score(context.argument(at)).ok_or(replies::NOT_A_FLOAT)?;
        pairs.push((score, context.argument(at + 1)));
    }
    add_pairs(context, &pairs, options)
}

/// Adds members with their scores to the sorted set at the first argument, and replies.
pub(super) fn add_pairs(
    context: &mut Context<'_>,
    pairs: &[(f64, &[u8])],
    options: Options,
) -> Run {
    let key = context.argument(1);
    let held = match pairs.len() {
        1 => context.long_collection(key, Encoding::Skiplist)?,
        _ => Err(context.find(key)?),
    };
    let found = match (held, pairs) {
        (Ok(held), [(score, member)]) => {
            let mut outcome = Outcome::default();
            let decide = |old| Ok(outcome.count(&options.decide(old, *score)?));
            if context.put_member((key, held), member, decide)? {
                return reply(context, options, &outcome);
            }
            context.find(key)?
        }
        (Err(found), _) => found,
        (Ok(_), _) => unreachable!("asked for with one pair"),
    };
    let members: Vec<&[u8]> = pairs.iter().map(|(_, member)| *member).collect();
    let mut set = SortedSet::found_part(context, found, &Part::Named(&members))?;
    // Even if some of them are the same, and the set stays small.
    if pairs.len() > set.listpack_elements_max() {
        set.enlarge();
    }
    let outcome = match pairs.len() < MANY {
        true => change_few(&mut set, pairs, options)?,
        false => {
            let (outcome, changed) = change_many(set, pairs, options)?;
            set = changed;
            outcome
        }
    };
    if outcome.added + outcome.updated > 0 {
        set.put(context, key)?;
    }
    reply(context, options, &outcome)
}

/// Ends a command that has written what has changed.
fn reply(context: &mut Context<'_>, options: Options, outcome: &Outcome) -> Run {
    if outcome.added + outcome.updated > 0 {
        let event = if options.increment { "zincr" } else { "zadd" };
        context.event(Class::SortedSet, event, context.argument(1));
    }
    if !options.increment {
        let updated = if options.changed { outcome.updated } else { 0 };
        return context.integer(outcome.added + updated);
    }
    match outcome.score {
        Some(score) => replying::score(context, score),
        None => context.reply().null(),
    }
    Ok(())
}
