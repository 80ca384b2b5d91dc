//! Loading elements of a large collection by their names.
//!
//! Few are looked for one by one. Many are looked for in the order of their rows, so that each page
//! is read once, however little memory there is; what was found survives a wait, and others get
//! turns in between.

use std::collections::HashSet;

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::Polled;

use super::part::{Goal, Load};
use crate::context::{Context, Interrupted, Run, look_ahead};
use crate::data::elements::{self, ElementKeys, Kind};
use crate::data::keyspace::RowError;

/// Bytes of named elements, about, for which room is made at once.
pub(super) const NAMED_BYTES: usize = 96;
/// Number of names from which on a table tells those that come twice.
const NAMES_OF_TABLE: usize = 8;
/// Number of names from which on they are looked for in the order of their rows.
const NAMES_IN_ORDER: usize = 128;
/// Number of names that are looked for before others get a turn.
const NAMES_PER_TURN: usize = 4096;

/// Tells names that come twice.
#[derive(Default)]
struct Seen<'n>(HashSet<&'n [u8]>);

impl<'n> Seen<'n> {
    /// Returns true if `name` is among those before it; to be asked for each one.
    fn has(&mut self, before: &[&'n [u8]], name: &'n [u8]) -> bool {
        match before.len() {
            0..NAMES_OF_TABLE => before.contains(&name),
            NAMES_OF_TABLE => {
                self.0.extend(before);
                !self.0.insert(name)
            }
            _ => !self.0.insert(name),
        }
    }
}

/// Returns the places of the names that differ, in the order of their rows.
fn in_order(keys: &ElementKeys, names: &[&[u8]]) -> Vec<u32> {
    let numbered = names.iter().zip(0..);
    let mut order: Vec<(u64, u32)> = numbered.map(|(name, at)| (keys.hash(name), at)).collect();
    let name = |at: u32| names[at as usize];
    order.sort_unstable_by(|one, other| {
        let hashes = one.0.cmp(&other.0);
        hashes.then_with(|| name(one.1).cmp(name(other.1)))
    });
    order.dedup_by(|one, other| one.0 == other.0 && name(one.1) == name(other.1));
    order.into_iter().map(|(_, at)| at).collect()
}

impl Context<'_> {
    /// Loads the elements that have one of these names.
    pub(super) fn load_named(
        &mut self,
        members: &Table,
        goal: Goal,
        names: &[&[u8]],
    ) -> Result<Arc<Load>, Interrupted> {
        let goal = Goal {
            kind: Kind::Name,
            ..goal
        };
        if names.len() >= NAMES_IN_ORDER {
            return self.load_in_order(members, goal, names);
        }
        let mut load = Load::new(goal);
        let mut seen = Seen::default();
        let numbered = names.iter().enumerate();
        let each =
            numbered.filter_map(|(at, name)| (!seen.has(&names[..at], name)).then_some(*name));
        self.load_names(members, &mut load, each)?;
        load.strings.seal();
        Ok(Arc::new(load))
    }

    /// The same for many names.
    fn load_in_order(
        &mut self,
        members: &Table,
        goal: Goal,
        names: &[&[u8]],
    ) -> Result<Arc<Load>, Interrupted> {
        let keys = self.engine().element_keys;
        if self.is_together {
            if names.len() > NAMES_PER_TURN {
                return Err(Interrupted::Yield);
            }
            // Who would have to wait leaves the run: nothing is kept for a next one.
            let mut load = Load::new(goal);
            let order = in_order(&keys, names);
            self.load_names(
                members,
                &mut load,
                order.iter().map(|at| names[*at as usize]),
            )?;
            load.strings.seal();
            return Ok(Arc::new(load));
        }
        let goal = Goal {
            names: Some(keys.hash_of_all(names)),
            ..goal
        };
        if let Some(done) = self.finished(&goal) {
            return Ok(done);
        }
        let mut load = self.take_load(goal);
        let is_new = load.names.is_empty();
        if is_new {
            load.names = in_order(&keys, names);
            load.left = load.names.len();
        }
        let result = self.load_more_names(members, &mut load, names);
        let mut load = self.unless_interrupted(load, result)?;
        if !is_new {
            return Ok(self.finish(load));
        }
        // What was found at once is found so again: it takes no memory of further runs.
        load.strings.seal();
        Ok(Arc::new(load))
    }

    /// Loads as many of the missing names as a turn may take.
    fn load_more_names(&mut self, members: &Table, load: &mut Load, names: &[&[u8]]) -> Run {
        let order = std::mem::take(&mut load.names);
        let first = order.len() - load.left;
        let turn = NAMES_PER_TURN << self.doublings();
        let behind = order.len().min(first + turn);
        let each = order[first..behind].iter().map(|at| names[*at as usize]);
        let result = self.load_names(members, load, each);
        load.names = order;
        result?;
        if load.left > 0 {
            self.progress.turns += 1;
            return Err(Interrupted::Yield);
        }
        Ok(())
    }

    /// Loads the elements with these names, which differ, and counts how many names are left.
    fn load_names<'n>(
        &mut self,
        members: &Table,
        load: &mut Load,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Run {
        let scratch = &mut self.data().scratch;
        let mut key = std::mem::take(&mut scratch.element_key);
        let mut row = std::mem::take(&mut scratch.element_row);
        let result = self.load_names_with(members, (load, names), (&mut key, &mut row));
        self.give_back_buffers((key, row));
        result
    }

    fn load_names_with<'n>(
        &mut self,
        members: &Table,
        (load, mut names): (&mut Load, impl Iterator<Item = &'n [u8]>),
        (key, row): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Run {
        let (id, keys) = (load.goal.head.id, self.engine().element_keys);
        let before = self.loaded_bytes();
        while let Some(name) = names.next() {
            keys.name(id, name, key);
            let mut source = self.source();
            let found = source.get(members, key, row)?;
            let shown_from = source.shown_from;
            self.progress.show_from(shown_from);
            match found {
                Polled::Pending(mut pending) => {
                    let put_key = |name, key: &mut Vec<u8>| keys.name(id, name, key);
                    let of = (members, usize::MAX);
                    look_ahead::add_pages_of(names, of, put_key, (key, row), &mut pending)?;
                    return Err(Interrupted::Pending(pending));
                }
                Polled::Ready(false) => {
                    load.left = load.left.saturating_sub(1);
                    continue;
                }
                Polled::Ready(true) => {}
            }
            if load.strings.len() == 0 {
                let elements = names.size_hint().1.unwrap_or_default() + 1;
                load.strings.reserve(elements * 2, NAMED_BYTES);
            }
            load.add(key, row)?;
            if elements::decode_name(key, row)?.name != name {
                return Err(RowError::OtherKey.into());
            }
            self.check_load(before, load)?;
        }
        Ok(())
    }
}
