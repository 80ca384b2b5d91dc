//! The rows of a command of many keys, looked for together (decision 148).

use super::Context;
use super::foreseen_rows::ROWS_MAX;

impl Context<'_> {
    /// Has the batch look for the rows of the next keys of a command that reads the row of each of
    /// its keys, in their order: those of the arguments from `at` on, each `step` behind the one
    /// before it. To be called before each key; `number` is how many were before it.
    #[inline]
    pub(crate) fn foresee_keys(&mut self, number: usize, at: usize, step: usize) {
        if number.is_multiple_of(ROWS_MAX) && at + step < self.count() {
            self.foresee_group(at, step);
        }
    }

    fn foresee_group(&mut self, at: usize, step: usize) {
        let database = self.database();
        let arguments = self.arguments;
        let data = self.data();
        let Some(batch) = data.batch.as_deref_mut() else {
            return;
        };
        let rows = &mut data.scratch.rows;
        rows.clear();
        for at in (at..arguments.len()).step_by(step).take(ROWS_MAX) {
            data.engine.folder.append(arguments.at(at), &mut rows.bytes);
            rows.end_one();
        }
        rows.give(|some| batch.foresee(&database.keys, some));
    }
}
