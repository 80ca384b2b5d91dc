//! ZCARD, ZSCORE, ZMSCORE, ZRANK, ZREVRANK: what is known of members.

use super::describe::reading;
use super::order::{SortedSet, score_of};
use super::replying;
use crate::context::{Command, Context, Found, Interrupted, Part, Run, replies};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::Reader;

const RANK_COMPLEXITY: &str = "O(log(N))";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        summary: "Returns the number of members in a sorted set.",
        ..reading("zcard", 2, "1.2.0", length)
    },
    Command {
        summary: "Returns the score of a member in a sorted set.",
        ..reading("zscore", 3, "1.2.0", score)
    },
    Command {
        complexity: "O(N) where N is the number of members being requested.",
        summary: "Returns the score of one or more members in a sorted set.",
        ..reading("zmscore", -3, "6.2.0", scores)
    },
    Command {
        complexity: RANK_COMPLEXITY,
        summary: "Returns the index of a member in a sorted set ordered by ascending scores.",
        ..reading("zrank", -3, "2.0.0", |context| rank(context, false))
    },
    Command {
        complexity: RANK_COMPLEXITY,
        summary: "Returns the index of a member in a sorted set ordered by descending scores.",
        ..reading("zrevrank", -3, "2.0.0", |context| rank(context, true))
    },
];

/// From this number of members on they are looked up in a table.
const MANY: usize = 16;

fn length(context: &mut Context<'_>) -> Run {
    context.reply_length(context.argument(1))
}

fn put_score(context: &mut Context<'_>, score: Option<f64>) {
    match score {
        Some(score) => replying::score(context, score),
        None => context.reply().null(),
    }
}

fn score(context: &mut Context<'_>) -> Run {
    let (key, member) = (context.argument(1), context.argument(2));
    context.show_collection(key, &Part::Named(&[member]), |set, reply| {
        match score_in(set, member)? {
            Some(score) => replying::write_score(reply, score),
            None => reply.null(),
        }
        Ok(())
    })
}

/// Returns the score of a member among these.
fn score_in(set: Option<Reader<'_>>, member: &[u8]) -> Result<Option<f64>, RowError> {
    let Some(mut set) = set else {
        return Ok(None);
    };
    while let Some(other) = set.next()? {
        let score = set.next()?.ok_or(RowError::Damaged)?;
        if other == member {
            let score = score_of(score).filter(|score| !score.is_nan());
            return score.ok_or(RowError::Damaged).map(Some);
        }
    }
    Ok(None)
}

fn scores(context: &mut Context<'_>) -> Run {
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let set = SortedSet::read_part(context, context.argument(1), &Part::Named(&members))?;
    let count = context.count() - 2;
    let table = (count >= MANY).then(|| set.scores());
    context.reply().array(count);
    for member in context.arguments.from(2) {
        let score = match &table {
            Some(table) => table.get(member).copied(),
            None => set.rank_of(member).map(|rank| set.score(rank)),
        };
        put_score(context, score);
    }
    context.check_reply()
}

fn rank(context: &mut Context<'_>, reversed: bool) -> Run {
    let with_score = context.count() > 3;
    if context.count() > 4 {
        return Err(replies::wrong_arity(context.command.name).into());
    }
    if with_score && !context.is(3, "withscore") {
        return Err(replies::SYNTAX.into());
    }
    let found = context.read(context.argument(1))?;
    let Some((rank, score, length)) = rank_of(context, found)? else {
        match with_score {
            true => context.reply().null_array(),
            false => context.reply().null(),
        }
        return Ok(());
    };
    if with_score {
        context.reply().array(2);
    }
    let shown = if reversed { length - 1 - rank } else { rank };
    context.integer(i64::try_from(shown).unwrap_or(i64::MAX))?;
    if with_score {
        replying::score(context, score);
    }
    Ok(())
}

/// Returns rank and score of argument 2 in the sorted set `found`, which was read last, and the
/// number of its elements.
fn rank_of(
    context: &mut Context<'_>,
    found: Found,
) -> Result<Option<(usize, f64, usize)>, Interrupted> {
    let member = context.argument(2);
    let head = context.tree_head(&found)?;
    if let Some(head) = head
        && let Some(ranked) = context.ranked_beside(head, member)?
    {
        return Ok(ranked.map(|(rank, score)| (rank, score, head.len())));
    }
    let part = match head {
        Some(head) if context.may_rank(&head)? => Part::Named(&[member]),
        _ => Part::All,
    };
    let is_whole = matches!(part, Part::All);
    let set = SortedSet::checked(context.decoded(found, ValueType::SortedSet, &part)?)?;
    let Some(place) = set.rank_of(member) else {
        return Ok(None);
    };
    let (score, length) = (set.score(place), set.len());
    let rank = match head {
        Some(head) if !is_whole => {
            let key = context.engine().element_keys.place(score, member);
            let rank = context.rank_of_score(head, &key)?;
            rank.filter(|rank| *rank < length)
                .ok_or(Interrupted::Torn)?
        }
        _ => place,
    };
    Ok(Some((rank, score, length)))
}
