//! What a table is created as.

use pando_format::TreeId;

use crate::tables::kind::TreeKind;

/// What a table is created as: see [`crate::Db::table_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableOptions {
    counted: bool,
    weighted: bool,
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

    /// Makes a counted table in which an entry may stand for several units, such as a block of
    /// elements: [`crate::Table::rank`], [`crate::Table::count`] and [`crate::Table::key_at`] count
    /// units (default: false).
    ///
    /// How many they are, its weight, is said by the first byte of its value:
    /// [`crate::weight_byte`] makes it. An entry weighs 1 whose value is empty, begins with another
    /// byte, or does not lie in the same page as its key: that is what key and value together may
    /// take of a page, a little less than half of it. [`crate::Table::len`] is the number of
    /// entries, whatever they weigh.
    ///
    /// A write that replaces a value changes all nodes from the root to its leaf if the weight
    /// changes, as one that adds an entry does. Programs that know no later version of the format
    /// than 2 do not open a store that has had such a table.
    ///
    /// ```
    /// # fn main() -> pandodb::Result<()> {
    /// use pandodb::{TableOptions, weight_byte};
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// let blocks = db.table_with("blocks", TableOptions::new().weighted(true))?;
    /// for (key, words) in [(b"a", &b"xyz"[..]), (b"b", b"u"), (b"c", b"vw")] {
    ///     let weight = weight_byte(words.len() as u8);
    ///     blocks.put(key, &[&[weight], words].concat())?;
    /// }
    /// assert_eq!(blocks.rank(b"c")?, 4);
    /// assert_eq!(blocks.unit_at(5)?, Some((b"c".to_vec(), 1)));
    /// assert_eq!(blocks.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn weighted(mut self, weighted: bool) -> Self {
        self.weighted = weighted;
        self
    }

    /// Returns the kind of the table's trees.
    pub(crate) fn kind(self) -> TreeKind {
        match (self.weighted, self.counted) {
            (true, _) => TreeKind::Weighted,
            (false, true) => TreeKind::Counted,
            (false, false) => TreeKind::Plain,
        }
    }

    /// Returns the options of a table whose trees are of the kind of `tree`.
    pub(crate) fn of(tree: TreeId) -> Self {
        Self {
            counted: tree.is_counted(),
            weighted: tree.is_weighted(),
        }
    }
}
