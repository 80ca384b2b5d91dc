//! Checks the leaves of a batch that is too large to pin all of them: each leaf has been in memory
//! once before the record is written, so that damage to one of them is found while the batch can
//! still be refused (decision 061).
//!
//! The progress is kept from one attempt to the next: pages checked earlier may have left memory
//! again by then.

use pando_format::PageId;
use pando_pool::Restart;
use pando_tree::{Cover, Finger, GROUP_MAX, Ways};

use crate::engine::Engine;
use crate::read::point::on_tree;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;

/// Most further pages that are read at the same time.
const WANTED_MAX: usize = 64;

impl Engine {
    /// Checks the leaves of the writes of `order` from `checked` on, and advances `checked` past
    /// those that are in memory. `wanted` gets further missing pages, besides the page of the
    /// fault.
    pub(crate) fn check_leaves(
        &self,
        set: &WriteSet,
        order: &[usize],
        checked: &mut usize,
        wanted: &mut Vec<PageId>,
    ) -> Step<()> {
        let mut last = Finger::default();
        let mut ways = Ways::default();
        while *checked < order.len() {
            let (table, key, _) = set.write_at(order[*checked]);
            let tree = set.tables[table].tree().expect("checked in prepare");
            let state = &set.tables[table].state;
            if state.tree() != Some(tree) {
                // The check inside the gate finds this again, and reports it.
                return Ok(());
            }
            if last.cover(tree, &self.store.pool, key) != Cover::Unknown {
                *checked += 1;
                continue;
            }
            let mut keys: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
            let of_table = order[*checked..]
                .iter()
                .map(|at| set.write_at(*at))
                .take_while(|(other, ..)| *other == table);
            let mut count = 0;
            for (place, (_, key, _)) in keys.iter_mut().zip(of_table) {
                *place = key;
                count += 1;
            }
            let found = tree.locate_group(&self.store.pool, &keys[..count], &mut ways);
            let mut missing = None;
            for place in found {
                match on_tree(state, tree, place) {
                    Ok((place, _)) if missing.is_none() => {
                        *checked += 1;
                        last = place.finger();
                    }
                    Ok(_) => {}
                    Err(Restart::Fault(page)) if missing.is_none() => missing = Some(page),
                    Err(Restart::Fault(page)) if wanted.len() < WANTED_MAX => wanted.push(page),
                    Err(Restart::Fault(_)) => {}
                    Err(restart) if missing.is_none() => return Err(restart.into()),
                    Err(_) => {}
                }
            }
            if let Some(page) = missing {
                return Err(Restart::Fault(page).into());
            }
        }
        Ok(())
    }
}
