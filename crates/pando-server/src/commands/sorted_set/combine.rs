//! ZUNION, ZINTER, ZDIFF, their STORE forms, and ZINTERCARD. Sets are taken as well.

use std::collections::{HashMap, HashSet};

use pando_resp::{Writer, parse_integer};

use super::describe::{SLOW_READ, STORING, reading, writing};
use super::order::{Element, SortedSet, compare, end_store, store};
use super::replying;
use crate::context::replies;
use crate::context::{
    Collection, Command, Context, Input, Interrupted, Keys, Kind, Rule, Run, is_too_long,
};
use crate::data::combination::{Aggregate, Operation, number_or_0};
use crate::data::keyspace::ValueType;
use crate::data::shown_merge::ShownMembers;
use crate::float::parse_score;

const UNION_COMPLEXITY: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input \
     sorted sets, and M being the number of elements in the resulting sorted set.";
const INTERSECTION_COMPLEXITY: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest \
     input sorted set, K being the number of input sorted sets and M being the number of elements \
     in the resulting sorted set.";
const COUNT_COMPLEXITY: &str = "O(N*K) worst case with N being the smallest input sorted set, K \
     being the number of input sorted sets.";
const DIFFERENCE_COMPLEXITY: &str = "O(L + (N-K)log(N)) worst case where L is the total number of \
     elements in all the sets, N is the size of the first set, and K is the size of the result set.";

/// Returns a command that replies with a combination.
const fn combining(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        flags: SLOW_READ,
        keys: Keys::NONE.and_counted(1),
        kind: Kind::ReadMany,
        value_type: None,
        ..reading(name, -3, since, run)
    }
}

/// Returns a command that stores a combination.
const fn storing(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        flags: STORING,
        keys: Keys::ONE.and_counted(2),
        value_type: None,
        ..writing(name, -4, since, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: UNION_COMPLEXITY,
        summary: "Returns the union of multiple sorted sets.",
        ..combining("zunion", "6.2.0", |context| show(context, Operation::Union))
    },
    Command {
        complexity: UNION_COMPLEXITY,
        summary: "Stores the union of multiple sorted sets in a key.",
        ..storing("zunionstore", "2.0.0", |context| {
            keep(context, Operation::Union)
        })
    },
    Command {
        complexity: INTERSECTION_COMPLEXITY,
        summary: "Returns the intersect of multiple sorted sets.",
        ..combining("zinter", "6.2.0", |context| {
            show(context, Operation::Intersection)
        })
    },
    Command {
        complexity: INTERSECTION_COMPLEXITY,
        summary: "Stores the intersect of multiple sorted sets in a key.",
        ..storing("zinterstore", "2.0.0", |context| {
            keep(context, Operation::Intersection)
        })
    },
    Command {
        complexity: COUNT_COMPLEXITY,
        summary: "Returns the number of members of the intersect of multiple sorted sets.",
        ..combining("zintercard", "7.0.0", count)
    },
    Command {
        complexity: DIFFERENCE_COMPLEXITY,
        summary: "Returns the difference between multiple sorted sets.",
        ..combining("zdiff", "6.2.0", |context| {
            show(context, Operation::Difference)
        })
    },
    Command {
        complexity: DIFFERENCE_COMPLEXITY,
        summary: "Stores the difference of multiple sorted sets in a key.",
        ..storing("zdiffstore", "6.2.0", |context| {
            keep(context, Operation::Difference)
        })
    },
];

/// An input, or the part of a large one that was read.
enum Source {
    Scored(SortedSet),
    /// A set: each of its members has the score 1.
    Plain(Collection),
}

impl Source {
    /// Takes what was read. Refuses the command if that, and the `before` bytes that are in memory
    /// already, are too many together.
    fn new(
        context: &Context<'_>,
        read: Collection,
        before: usize,
    ) -> Result<(Self, usize), Interrupted> {
        let bytes = before.saturating_add(read.strings.bytes());
        if bytes > context.engine().reply_bytes_max {
            return Err(replies::TOO_MANY_LONG.into());
        }
        let source = match read.value_type {
            ValueType::SortedSet => Self::Scored(SortedSet::as_read(read)?),
            _ => Self::Plain(read),
        };
        Ok((source, bytes))
    }

    fn elements(&self) -> impl Iterator<Item = Element<'_>> {
        let count = match self {
            Self::Scored(set) => set.in_memory(),
            Self::Plain(set) => set.in_memory(),
        };
        (0..count).map(|place| match self {
            Self::Scored(set) => set.element(place),
            Self::Plain(set) => (1.0, set.strings.at(place)),
        })
    }
}

/// Inputs and options.
struct Request {
    inputs: Vec<Input>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

/// Which options a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Show,
    Store,
    Count,
}

impl Request {
    /// Reads the inputs, whose number is argument `at`, and then the options.
    fn parse(
        context: &mut Context<'_>,
        at: usize,
        operation: Operation,
        form: Form,
    ) -> Result<Self, Interrupted> {
        let count = context.integer_at(at)?;
        let count = usize::try_from(count).unwrap_or(0);
        if count < 1 {
            let name = context.command.name;
            return Err(format!("ERR at least 1 input key is needed for '{name}' command").into());
        }
        if count > context.count() - at - 1 {
            return Err(replies::SYNTAX.into());
        }
        let types = &[ValueType::SortedSet, ValueType::Set];
        let mut request = Self {
            inputs: context.inputs(at + 1..at + 1 + count, types)?,
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        request.options(context, at + 1 + count, operation, form)?;
        if operation != Operation::Difference {
            // In this order Redis adds scores, which matters for fractions.
            request.inputs.sort_by_key(Input::len);
        }
        Ok(request)
    }

    fn options(
        &mut self,
        context: &Context<'_>,
        mut at: usize,
        operation: Operation,
        form: Form,
    ) -> Result<(), Interrupted> {
        let takes_scores = operation != Operation::Difference && form != Form::Count;
        while at < context.count() {
            let left = context.count() - at;
            if takes_scores && left > self.inputs.len() && context.is(at, "weights") {
                for input in &mut self.inputs {
                    at += 1;
                    let score = parse_score(context.argument(at));
                    input.weight = score.ok_or("ERR weight value is not a float")?;
                }
            } else if takes_scores && left >= 2 && context.is(at, "aggregate") {
                at += 1;
                self.aggregate = match () {
                    () if context.is(at, "sum") => Aggregate::Sum,
                    () if context.is(at, "min") => Aggregate::Least,
                    () if context.is(at, "max") => Aggregate::Greatest,
                    () => return Err(replies::SYNTAX.into()),
                };
            } else if form == Form::Show && context.is(at, "withscores") {
                self.with_scores = true;
            } else if form == Form::Count && left >= 2 && context.is(at, "limit") {
                at += 1;
                let limit = parse_integer(context.argument(at));
                let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                self.limit = limit.ok_or("ERR LIMIT can't be negative")?;
            } else {
                return Err(replies::SYNTAX.into());
            }
            at += 1;
        }
        Ok(())
    }

    fn rule(&self, operation: Operation) -> Rule {
        Rule {
            value_type: ValueType::SortedSet,
            operation,
            aggregate: self.aggregate,
        }
    }

    /// As [`Request::combined`], for a reply, which threads make if much is to be read for it. This
    /// is what [`Request::parse`] returned for `parsed`.
    fn shown<'s>(
        self,
        context: &mut Context<'_>,
        (at, form): (usize, Form),
        (operation, members): (Operation, ShownMembers),
        sources: &'s mut Vec<Source>,
    ) -> Result<Vec<Element<'s>>, Interrupted> {
        let rule = self.rule(operation);
        context.ask_for_merged(&self.inputs, (&rule, members), false)?;
        match self.combined(context, operation, sources) {
            Err(interrupted) if is_too_long(&interrupted) => {
                let again = Self::parse(context, at, operation, form)?;
                context.ask_for_merged(&again.inputs, (&rule, members), true)?;
                Err(interrupted)
            }
            combined => combined,
        }
    }

    /// Reads the inputs into `sources`, and returns the elements of the combination, in any order.
    fn combined<'s>(
        self,
        context: &mut Context<'_>,
        operation: Operation,
        sources: &'s mut Vec<Source>,
    ) -> Result<Vec<Element<'s>>, Interrupted> {
        match operation {
            Operation::Union => self.union(context, sources),
            Operation::Intersection => self.intersection(context, sources),
            Operation::Difference => self.difference(context, sources),
        }
    }

    fn union<'s>(
        self,
        context: &mut Context<'_>,
        sources: &'s mut Vec<Source>,
    ) -> Result<Vec<Element<'s>>, Interrupted> {
        let mut weights = Vec::with_capacity(self.inputs.len());
        sources.reserve(self.inputs.len());
        let most = self.inputs.iter().map(Input::len).max().unwrap_or(0);
        let mut bytes = 0;
        for input in self.inputs {
            weights.push(input.weight);
            let read = context.whole_input(input)?;
            let (source, sum) = Source::new(context, read, bytes)?;
            bytes = sum;
            sources.push(source);
        }
        let mut scores: HashMap<&[u8], f64> = HashMap::with_capacity(most);
        for (source, weight) in sources.iter().zip(weights) {
            for (score, member) in source.elements() {
                let score = number_or_0(weight * score);
                let sum = scores.entry(member);
                sum.and_modify(|sum| *sum = self.aggregate.add(*sum, score))
                    .or_insert(score);
            }
        }
        let elements = scores.into_iter();
        Ok(elements.map(|(member, score)| (score, member)).collect())
    }

    fn intersection<'s>(
        self,
        context: &mut Context<'_>,
        sources: &'s mut Vec<Source>,
    ) -> Result<Vec<Element<'s>>, Interrupted> {
        let aggregate = self.aggregate;
        let mut inputs = self.inputs.into_iter();
        let first = inputs.next().expect("the command has a key");
        let weight = first.weight;
        let first = context.whole_input(first)?;
        let (first, bytes) = Source::new(context, first, 0)?;
        sources.push(first);
        let elements = sources[0].elements();
        let elements = elements.map(|(score, member)| (number_or_0(weight * score), member));
        let mut elements: Vec<Element<'_>> = elements.collect();
        for input in inputs {
            if elements.is_empty() {
                break;
            }
            let weight = input.weight;
            let other = context.named_input(input, &names(&elements))?;
            let (other, _) = Source::new(context, other, bytes)?;
            let scores = other.elements().map(|(score, member)| (member, score));
            let scores: HashMap<&[u8], f64> = scores.collect();
            elements.retain_mut(|(sum, member)| match scores.get(member) {
                Some(score) => {
                    *sum = aggregate.add(*sum, weight * score);
                    true
                }
                None => false,
            });
        }
        Ok(elements)
    }

    fn difference<'s>(
        self,
        context: &mut Context<'_>,
        sources: &'s mut Vec<Source>,
    ) -> Result<Vec<Element<'s>>, Interrupted> {
        let mut inputs = self.inputs.into_iter();
        let first = inputs.next().expect("the command has a key");
        let first = context.whole_input(first)?;
        let (first, bytes) = Source::new(context, first, 0)?;
        sources.push(first);
        let mut elements: Vec<Element<'_>> = sources[0].elements().collect();
        for input in inputs {
            if elements.is_empty() {
                break;
            }
            let other = context.named_input(input, &names(&elements))?;
            let (other, _) = Source::new(context, other, bytes)?;
            let gone: HashSet<&[u8]> = other.elements().map(|(_, member)| member).collect();
            elements.retain(|(_, member)| !gone.contains(member));
        }
        Ok(elements)
    }
}

fn names<'e>(elements: &[Element<'e>]) -> Vec<&'e [u8]> {
    elements.iter().map(|(_, member)| *member).collect()
}

fn show(context: &mut Context<'_>, operation: Operation) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let request = Request::parse(context, 1, operation, Form::Show)?;
    let (with_scores, mut sources) = (request.with_scores, Vec::new());
    let score: Option<fn(&mut Writer<'_>, f64)> = match with_scores {
        true => Some(replying::write_score),
        false => None,
    };
    let how = (operation, ShownMembers::ByScore(score));
    let mut elements = request.shown(context, (1, Form::Show), how, &mut sources)?;
    elements.sort_unstable_by(compare);
    replying::begin(context, elements.len(), with_scores);
    let mut put = |element| replying::element(context, element, with_scores);
    elements.into_iter().try_for_each(&mut put)
}

fn keep(context: &mut Context<'_>, operation: Operation) -> Run {
    let key = context.argument(1);
    let request = Request::parse(context, 2, operation, Form::Store)?;
    let rule = request.rule(operation);
    match context.put_merged(key, &request.inputs, &rule)? {
        Some(stored) => end_store(context, key, &stored),
        None => {
            let mut sources = Vec::new();
            let elements = request.combined(context, operation, &mut sources)?;
            store(context, key, elements)
        }
    }
}

fn count(context: &mut Context<'_>) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let request = Request::parse(context, 1, Operation::Intersection, Form::Count)?;
    let most = match request.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let mut sources = Vec::new();
    let how = (Operation::Intersection, ShownMembers::Count(most));
    let elements = request.shown(context, (1, Form::Count), how, &mut sources)?;
    context.integer(i64::try_from(elements.len().min(most)).unwrap_or(i64::MAX))
}
