//! Gets of several keys in one step, for event loops that have them at hand (decision 050).
//!
//! The keys go down together ([`pando_tree::Tree::get_group`]), so their misses of the processor's
//! caches overlap. What comes back are the first of them, as many as one after the other could
//! have been read without a wait. Each is read not before the one in front of it: leaves are
//! validated in the order of the keys, and a leaf with the mark of a batch counts only if that
//! batch was applied before the first key was looked up. Else a value of the batch would come
//! before one that the batch replaces.

use std::ops::Range;

use pando_format::Lsn;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Fate, GROUP_MAX};

use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::Result;
use crate::tables::state::TableState;
use crate::wait::reason::Unfinished;

/// Tries of the keys together: writers that come between spoil few of them.
const TRIES: usize = 2;

/// Where values of a group lie in the bytes that were appended to; `None`: there is no such key.
pub type GroupValues = Vec<Option<Range<usize>>>;

/// What was read of a group in one try.
struct Tried {
    /// Keys from the first on.
    count: usize,
    /// Trying the others again may help.
    again: bool,
}

impl Engine {
    fn try_group(
        &self,
        table: &TableState,
        keys: &[&[u8]],
        bytes: &mut Vec<u8>,
        values: &mut GroupValues,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Tried> {
        let before = self.read_bounds.applied();
        let (tree, fates) = match self.look_up_group(table, keys, bytes) {
            Ok(looked_up) => looked_up,
            Err(Unfinished::Wait(_)) => {
                return Ok(Tried {
                    count: 0,
                    again: true,
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
                // Shown if the batch turns out to be applied when all begins again.
                Fate::Read { lookup, .. } => self.check_mark(lookup.multi_lsn).is_ok(),
                Fate::Restart(restart) => *restart == Restart::Conflict,
                Fate::Long => false,
            };
            return Ok(Tried { count, again });
        }
        Ok(Tried {
            count: keys.len(),
            again: false,
        })
    }
}

impl Table {
    /// Most keys of [`Table::try_get_group`].
    pub const GROUP_MAX: usize = GROUP_MAX;

    /// Reads the first of `keys`, as many as can be had without waiting: appends their values to
    /// `bytes`, and to `values` where they lie. Means the same as [`Table::try_get`] for one after
    /// the other. A key that is not in memory, or whose value is a long one, ends it, and is read
    /// by itself; so may be one that is being written.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchTable`]. What is wrong with a page is told by [`Table::try_get`].
    ///
    /// # Panics
    /// When there are more than [`Table::GROUP_MAX`] keys.
    pub fn try_get_group(
        &self,
        keys: &[&[u8]],
        bytes: &mut Vec<u8>,
        values: &mut GroupValues,
        shown_from: &mut Option<Lsn>,
    ) -> Result<()> {
        let engine = self.db.engine();
        let before = values.len();
        let mut done = 0;
        for _ in 0..TRIES {
            let tried = engine.try_group(&self.state, &keys[done..], bytes, values, shown_from)?;
            done += tried.count;
            if !tried.again {
                break;
            }
        }
        assert_eq!(values.len() - before, done, "what is done has its place");
        engine.store.statistics.tick(Ticker::Gets, done as u64);
        Ok(())
    }
}
