//! Gets of several keys in one step, for event loops that have several at hand (decision 050).
//!
//! The keys descend together ([`pando_tree::Tree::get_group`]), so that their cache misses overlap.
//! The result is a prefix of the keys: those that could have been read one after the other without
//! a wait. No key is read before its predecessor: leaves are validated in the order of the keys,
//! and a leaf with the mark of a batch counts only if that batch was applied before the first key
//! was looked up. Otherwise a key could show a value of the batch, and a later key the value that
//! the batch replaces.

use std::ops::Range;

use pando_format::Lsn;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Fate, GROUP_MAX};

use crate::engine::Engine;
use crate::error::Result;
use crate::event_loop::table::Reads;
use crate::tables::state::TableState;
use crate::wait::reason::Unfinished;

/// Number of tries to read the keys together: writers that intervene spoil few tries.
const TRIES: usize = 2;

/// Where the values of a group are in the buffer that they were appended to; `None` for a key that
/// does not exist.
pub type GroupValues = Vec<Option<Range<usize>>>;

/// Result of one try to read a group.
struct Tried {
    /// Number of keys that were read, from the first on.
    count: usize,
    /// True if trying the remaining keys again may help.
    again: bool,
    /// True if the next key has a value that does not lie in its leaf.
    is_long: bool,
}

impl Engine {
    /// Reads the first of `keys`, as many as one try can.
    fn try_group(
        &self,
        table: &TableState,
        keys: &[&[u8]],
        bytes: &mut Vec<u8>,
        values: &mut GroupValues,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Tried> {
        let before = self.read_bounds.applied();
        let mut fates = [Fate::Long; GROUP_MAX];
        let tree = match self.look_up_group(table, keys, bytes, &mut fates) {
            Ok(tree) => tree,
            Err(Unfinished::Wait(_)) => {
                return Ok(Tried {
                    count: 0,
                    again: true,
                    is_long: false,
                });
            }
            Err(Unfinished::Error(error)) => return Err(error),
        };
        for (count, fate) in fates.iter().take(keys.len()).enumerate() {
            let again = match fate {
                Fate::Read {
                    lookup,
                    start,
                    bytes: size,
                } if lookup.multi_lsn <= before => {
                    let debt = self.debt(lookup.lsn_max, Some((tree, keys[count])));
                    *shown_from = (*shown_from).max(debt.lsn());
                    debug_assert!(start + size <= bytes.len(), "a value was copied");
                    values.push(lookup.found.then_some(*start..start + size));
                    continue;
                }
                // Another try can show it, if the batch is applied by then.
                Fate::Read { lookup, .. } => self.check_mark(lookup.multi_lsn).is_ok(),
                Fate::Restart(restart) => *restart == Restart::Conflict,
                Fate::Long => false,
            };
            return Ok(Tried {
                count,
                again,
                is_long: matches!(fate, Fate::Long),
            });
        }
        Ok(Tried {
            count: keys.len(),
            again: false,
            is_long: false,
        })
    }
}

impl Reads<'_> {
    /// Most keys in one call of [`Reads::get_group`].
    pub const GROUP_MAX: usize = GROUP_MAX;

    /// Reads the first of `keys`, as many as is possible without waiting. Appends their values to
    /// `bytes`, and the range of each to `values`. The result is the same as that of
    /// [`Reads::get`] for one key after the other. A key that is not in memory, or that has a
    /// long value, ends the group, and has to be read by itself; a key that is being written may
    /// end it too. Returns true if it was a long value that has ended it: one that does not lie in
    /// its leaf.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchTable`]. Damaged pages are reported by [`Reads::get`].
    ///
    /// # Panics
    /// If there are more than [`Reads::GROUP_MAX`] keys.
    pub fn get_group(
        self,
        keys: &[&[u8]],
        bytes: &mut Vec<u8>,
        values: &mut GroupValues,
        shown_from: &mut Option<Lsn>,
    ) -> Result<bool> {
        let engine = self.table.db.engine();
        let before = values.len();
        let (mut done, mut is_long) = (0, false);
        for _ in 0..TRIES {
            let tried =
                engine.try_group(&self.table.state, &keys[done..], bytes, values, shown_from)?;
            done += tried.count;
            is_long = tried.is_long;
            if !tried.again {
                break;
            }
        }
        assert_eq!(values.len() - before, done, "what is done has its place");
        engine.store.statistics.tick(Ticker::Gets, done as u64);
        Ok(is_long)
    }
}
