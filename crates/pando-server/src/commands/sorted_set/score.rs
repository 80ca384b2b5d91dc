//! ZCARD, ZSCORE, ZMSCORE, ZRANK, ZREVRANK: what is known of members.

use super::describe::reading;
use super::order::SortedSet;
use super::replying;
use crate::context::{Command, Context, Run, replies};

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
    let set = SortedSet::read(context, context.argument(1))?;
    let rank = set.rank_of(context.argument(2));
    put_score(context, rank.map(|rank| set.score(rank)));
    Ok(())
}

fn scores(context: &mut Context<'_>) -> Run {
    let set = SortedSet::read(context, context.argument(1))?;
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
    let set = SortedSet::read(context, context.argument(1))?;
    let Some(rank) = set.rank_of(context.argument(2)) else {
        match with_score {
            true => context.reply().null_array(),
            false => context.reply().null(),
        }
        return Ok(());
    };
    if with_score {
        context.reply().array(2);
    }
    let shown = if reversed { set.len() - 1 - rank } else { rank };
    context.integer(i64::try_from(shown).unwrap_or(i64::MAX))?;
    if with_score {
        replying::score(context, set.score(rank));
    }
    Ok(())
}
