//! RANDOMKEY.

use pandodb::nonblocking::{Polled, Reads};

use crate::context::{Command, Context, Flags, Group, Interrupted, Kind, Run};
use crate::data::keyspace::Row;

/// Number of keys that are drawn before others get a turn: those that have expired do not count.
const DRAWS_PER_TURN: usize = 100;
/// Number of turns. After that nothing that the command may see is likely to be there: it has been
/// deleted by the transaction that the command belongs to, or all has expired.
const TURNS_MAX: u32 = 50;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::READONLY,
    group: Group::Generic,
    kind: Kind::Read,
    complexity: "O(1)",
    summary: "Returns a random key name from the database.",
    ..Command::new("randomkey", 1, random_key)
}];

fn random_key(context: &mut Context<'_>) -> Run {
    let turns = context.progress.turns;
    // The draws of all runs of a turn are the same, so those that wait for pages come to an end.
    let seed = context.progress.seed().wrapping_add(u64::from(turns));
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = &context.database().keys;
    for _ in 0..DRAWS_PER_TURN {
        if keys.is_empty() || turns >= TURNS_MAX {
            context.reply().null();
            return Ok(());
        }
        if let Some(key) = draw(context, &mut random)?
            && context.find_any_head(&key)?.row.is_some()
        {
            context.reply().bulk(&key);
            return Ok(());
        }
    }
    context.progress.turns += 1;
    Err(Interrupted::Yield)
}

/// Returns a key at random, which may have expired; `None` if there was none where it looked.
fn draw(
    context: &mut Context<'_>,
    random: &mut fastrand::Rng,
) -> Result<Option<Vec<u8>>, Interrupted> {
    let database = context.database();
    let (mut stored, mut value, mut shown_from) = (Vec::new(), Vec::new(), None);
    let mut below = |count: usize| random.usize(..count);
    match Reads::of(&database.keys).sample_key(&mut below, &mut stored)? {
        Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
        Polled::Ready(false) => return Ok(None),
        Polled::Ready(true) => {}
    }
    // The row has the whole of a long key.
    match database.look(&stored, &mut value, &mut shown_from)? {
        Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
        Polled::Ready(false) => return Ok(None),
        Polled::Ready(true) => {}
    }
    context.progress.show_from(shown_from);
    let row = Row::decode(&stored, &value)?;
    Ok(Some(row.user_key(&stored, &value).to_vec()))
}
