//! What a table is created as.

/// What a table is created as: see [`crate::Db::table_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableOptions {
    pub(crate) counted: bool,
}

impl TableOptions {
    /// Makes the options of [`crate::Db::table`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a table that knows the number of its entries below each key: [`crate::Table::rank`],
    /// [`crate::Table::key_at`] and [`crate::Table::count`] take one descent each, however many
    /// entries there are (default: false).
    ///
    /// It costs writes that add or remove entries: each changes all nodes from the root to its
    /// leaf, so those of several threads take turns. Reads, and writes that replace a value, cost
    /// what they cost otherwise. Programs that know no later version of the format than 1 do not
    /// open a store that has had such a table.
    #[must_use]
    pub fn counted(mut self, counted: bool) -> Self {
        self.counted = counted;
        self
    }
}
