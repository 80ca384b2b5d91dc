//! Entries at random for event loops.

use crate::error::Result;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::table::Reads;

impl Reads<'_> {
    /// As [`crate::Table::sample_key`], into `key`; true if there is one.
    ///
    /// # Errors
    /// As [`crate::Table::get_into`].
    pub fn sample_key(
        self,
        draw: &mut dyn FnMut(usize) -> usize,
        key: &mut Vec<u8>,
    ) -> Result<Polled<bool>> {
        let step = self
            .table
            .db
            .engine()
            .try_sample(&self.table.state, draw, key);
        polled(step, &mut Vec::new())
    }
}
