//! LPOS: where an element is in a list.

use super::reading;
use crate::context::{Collection, Command, Context, Part, Run, Sought, replies};
use crate::data::keyspace::ValueType;

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "6.0.6",
    complexity: "O(N) where N is the number of elements in the list, for the average case. When \
                 searching for elements near the head or the tail of the list, or when the MAXLEN \
                 option is provided, the command may run in constant time.",
    summary: "Returns the index of matching elements in a list.",
    ..reading("lpos", -3, position)
}];

struct Options {
    /// Number of matches to pass over.
    skipped: usize,
    is_backwards: bool,
    /// Number of matches to return, 0: all; `None`: one, that is not in an array.
    count: Option<usize>,
    /// Number of elements to compare.
    compared: usize,
}

impl Options {
    fn parse(context: &Context<'_>) -> Result<Self, &'static str> {
        let mut options = Self {
            skipped: 0,
            is_backwards: false,
            count: None,
            compared: usize::MAX,
        };
        for at in (3..context.count()).step_by(2) {
            if at + 1 == context.count() {
                return Err(replies::SYNTAX);
            }
            if context.is(at, "rank") {
                let rank = match context.integer_at(at + 1)? {
                    i64::MIN => return Err(replies::NOT_BALANCED),
                    rank => rank,
                };
                options.is_backwards = rank < 0;
                let rank = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
                options.skipped = rank.checked_sub(1).ok_or(replies::RANK_ZERO)?;
            } else if context.is(at, "count") {
                let text = "ERR COUNT can't be negative";
                options.count = Some(context.number_from(at + 1, 0, text)?);
            } else if context.is(at, "maxlen") {
                let compared = context.number_from(at + 1, 0, "ERR MAXLEN can't be negative")?;
                options.compared = if compared == 0 { usize::MAX } else { compared };
            } else {
                return Err(replies::SYNTAX);
            }
        }
        Ok(options)
    }

    /// Returns the number of matches that are enough.
    fn most(&self) -> usize {
        match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        }
    }

    /// Returns the places of `element` that these options select.
    fn select(&self, list: &Collection, element: &[u8]) -> Vec<usize> {
        let most = self.most();
        let is_match = |(_, other): &(usize, &[u8])| *other == element;
        let places = |matches: &mut dyn Iterator<Item = (usize, &[u8])>| {
            let matches = matches.skip(self.skipped).take(most);
            matches.map(|(place, _)| place).collect()
        };
        let elements = list.strings.iter().enumerate();
        match self.is_backwards {
            false => places(&mut elements.take(self.compared).filter(is_match)),
            true => places(&mut elements.rev().take(self.compared).filter(is_match)),
        }
    }
}

fn position(context: &mut Context<'_>) -> Run {
    let options = Options::parse(context)?;
    let (key, element) = (context.argument(1), context.argument(2));
    let found = context.read(key)?;
    if let Some(head) = context.tree_head(&found)? {
        let sought = Sought {
            element,
            is_backwards: options.is_backwards,
            skipped: options.skipped,
            most: options.most(),
            compared: options.compared,
        };
        let places = context.search_list(head, &sought)?;
        return show(context, &options, places.all());
    }
    let list = context.decoded(found, ValueType::List, &Part::All)?;
    show(context, &options, &options.select(&list, element))
}

fn show(context: &mut Context<'_>, options: &Options, places: &[usize]) -> Run {
    let mut reply = context.reply();
    if options.count.is_some() {
        reply.array(places.len());
    } else if places.is_empty() {
        reply.null();
    }
    for place in places {
        reply.integer(i64::try_from(*place).unwrap_or(i64::MAX));
    }
    context.check_reply()
}
