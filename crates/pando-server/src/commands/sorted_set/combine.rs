//! ZUNION, ZINTER, ZDIFF, their STORE forms, and ZINTERCARD. Sets are taken as well.

use std::collections::{HashMap, HashSet};

use pando_resp::parse_integer;

use super::describe::{SLOW_READ, STORING, reading, writing};
use super::order::{Element, SortedSet, compare, store};
use super::replying;
use crate::context::replies;
use crate::context::{Collection, Command, Context, Found, Interrupted, Keys, Kind, Part, Run};
use crate::data::keyspace::ValueType;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Greatest,
}

impl Aggregate {
    /// Adds a score. Infinities of both signs add up to 0.
    fn add(self, sum: f64, score: f64) -> f64 {
        match self {
            Self::Sum => number_or_0(sum + score),
            Self::Least if score < sum => score,
            Self::Greatest if score > sum => score,
            _ => sum,
        }
    }
}

fn number_or_0(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// One of the inputs.
enum Source {
    Scored(SortedSet),
    /// A set: each of its members has the score 1.
    Plain(Collection),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Self::Scored(set) => set.len(),
            Self::Plain(set) => set.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Scored(set) => set.bytes(),
            Self::Plain(set) => set.strings.bytes(),
        }
    }

    fn element(&self, place: usize) -> Element<'_> {
        match self {
            Self::Scored(set) => set.element(place),
            Self::Plain(set) => (1.0, set.strings.at(place)),
        }
    }

    fn elements(&self) -> impl Iterator<Item = Element<'_>> {
        (0..self.len()).map(|place| self.element(place))
    }
}

/// Inputs and options.
struct Request {
    /// With their weights.
    sources: Vec<(Source, f64)>,
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
        let mut request = Self {
            sources: Vec::with_capacity(count),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        let mut bytes = 0_usize;
        for place in at + 1..=at + count {
            let source = read(context, context.argument(place))?;
            bytes = bytes.saturating_add(source.bytes());
            if bytes > context.engine().reply_bytes_max {
                return Err(replies::TOO_MANY_LONG.into());
            }
            request.sources.push((source, 1.0));
        }
        request.options(context, at + 1 + count, operation, form)?;
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
            if takes_scores && left > self.sources.len() && context.is(at, "weights") {
                for (_, weight) in &mut self.sources {
                    at += 1;
                    let score = parse_score(context.argument(at));
                    *weight = score.ok_or("ERR weight value is not a float")?;
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

    /// Returns the elements of the combination, in any order.
    fn combined(&mut self, operation: Operation) -> Vec<Element<'_>> {
        if operation != Operation::Difference {
            // In this order Redis adds scores, which matters for fractions.
            self.sources.sort_by_key(|(source, _)| source.len());
        }
        match operation {
            Operation::Union => self.union(),
            Operation::Intersection => self.intersection(),
            Operation::Difference => self.difference(),
        }
    }

    fn union(&self) -> Vec<Element<'_>> {
        let mut scores: HashMap<&[u8], f64> = HashMap::new();
        for (source, weight) in &self.sources {
            for (score, member) in source.elements() {
                let score = number_or_0(weight * score);
                let sum = scores
                    .get(member)
                    .map(|sum| self.aggregate.add(*sum, score));
                scores.insert(member, sum.unwrap_or(score));
            }
        }
        let elements = scores.into_iter();
        elements.map(|(member, score)| (score, member)).collect()
    }

    fn intersection(&self) -> Vec<Element<'_>> {
        let Some(((first, weight), others)) = self.sources.split_first() else {
            return Vec::new();
        };
        if first.len() == 0 {
            return Vec::new();
        }
        let elements = first.elements();
        let elements = elements.map(|(score, member)| (number_or_0(weight * score), member));
        let mut elements: Vec<Element<'_>> = elements.collect();
        for (source, weight) in others {
            let scores: HashMap<&[u8], f64> = source
                .elements()
                .map(|(score, member)| (member, score))
                .collect();
            elements.retain_mut(|(sum, member)| match scores.get(member) {
                Some(score) => {
                    *sum = self.aggregate.add(*sum, weight * score);
                    true
                }
                None => false,
            });
        }
        elements
    }

    fn difference(&self) -> Vec<Element<'_>> {
        let Some(((first, _), others)) = self.sources.split_first() else {
            return Vec::new();
        };
        let others = others.iter().flat_map(|(source, _)| source.elements());
        let others: HashSet<&[u8]> = others.map(|(_, member)| member).collect();
        let elements = first.elements();
        elements
            .filter(|(_, member)| !others.contains(member))
            .collect()
    }
}

/// Reads an input: a sorted set or a set.
fn read(context: &mut Context<'_>, key: &[u8]) -> Result<Source, Interrupted> {
    let found = context.read_partly(key)?;
    match found.row.map(|row| row.value_type) {
        None => {
            let empty = context.replacement(&Found::default(), ValueType::SortedSet);
            Ok(Source::Scored(SortedSet::checked(empty)?))
        }
        Some(ValueType::SortedSet) => {
            let collection = context.decoded(found, ValueType::SortedSet, &Part::All)?;
            Ok(Source::Scored(SortedSet::checked(collection)?))
        }
        Some(ValueType::Set) => Ok(Source::Plain(context.decoded(
            found,
            ValueType::Set,
            &Part::All,
        )?)),
        Some(_) => Err(replies::WRONG_TYPE.into()),
    }
}

fn show(context: &mut Context<'_>, operation: Operation) -> Run {
    let mut request = Request::parse(context, 1, operation, Form::Show)?;
    let with_scores = request.with_scores;
    let mut elements = request.combined(operation);
    elements.sort_unstable_by(compare);
    replying::begin(context, elements.len(), with_scores);
    let mut put = |element| replying::element(context, element, with_scores);
    elements.into_iter().try_for_each(&mut put)
}

fn keep(context: &mut Context<'_>, operation: Operation) -> Run {
    let mut request = Request::parse(context, 2, operation, Form::Store)?;
    let elements = request.combined(operation);
    store(context, context.argument(1), elements)
}

fn count(context: &mut Context<'_>) -> Run {
    let mut request = Request::parse(context, 1, Operation::Intersection, Form::Count)?;
    let limit = request.limit;
    let count = request.combined(Operation::Intersection).len();
    let shown = if limit > 0 { count.min(limit) } else { count };
    context.integer(i64::try_from(shown).unwrap_or(i64::MAX))
}
