//! One change of a table as a whole, made with the gate closed, for batches and for replay. The
//! caller publishes it: readers do not know the gate, and must not see a batch in part.
//!
//! The tree that a table loses becomes a row of the garbage table in the same apply section, and
//! `garbage` frees it later. The log never contains these rows: they are derived from the catalogue
//! here.

use pando_format::catalogue::{TreeRow, filled_garbage_key, garbage_key};
use pando_format::{Lsn, TreeId};
use pando_pool::{ApplyToken, Marks};
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_tree::{Scratch, Tree, ValueReader};

use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::state::loads::Filled;
use crate::tables::counts::entries_of;
use crate::tables::kind::TreeKind;
use crate::tables::state::{CATALOGUE, GARBAGE, NewTree, TableBatch, TableState};

/// One change of a table, as the log describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedTableChange<'a> {
    /// The table that gets or loses a tree.
    pub(crate) name: &'a str,
    /// The tree that the name loses.
    pub(crate) old: Option<TreeId>,
    /// The tree that it gets; None when it is dropped.
    pub(crate) new: Option<TreeId>,
    /// The same tree, if it was filled before.
    pub(crate) filled: Option<Filled>,
}

impl LoggedTableChange<'_> {
    fn check(&self) {
        assert!(
            self.old.is_some() || self.new.is_some(),
            "a change of a table gives or takes a tree"
        );
        let is_its_own = |filled: Filled| Some(filled.tree.id) == self.new;
        assert!(
            self.filled.is_none_or(is_its_own),
            "the tree that was filled is the one that the table gets"
        );
    }
}

impl Store {
    /// Applies one change of a table, with the gate closed, and returns the tree that the table
    /// gets; None if there is no such table. `index` distinguishes the changes of the batch of
    /// `lsn`. `created` is the state to use for a new table; None makes one. Blocks.
    pub(crate) fn apply_change(
        &self,
        token: &ApplyToken<'_>,
        change: LoggedTableChange<'_>,
        created: Option<&Arc<TableState>>,
        lsn: Lsn,
        index: u32,
        scratch: &mut Scratch,
    ) -> Result<Option<NewTree>> {
        change.check();
        let marks = Marks {
            lsn,
            multi_lsn: lsn,
        };
        let state = self.tables.get(change.name);
        let known = state.as_ref().and_then(|state| state.tree());
        if let (Some(known), None) = (known, change.old) {
            return Err(not_absent(change.name, known, lsn));
        }
        if let Some(old) = change.old {
            let Some(tree) = known.filter(|tree| tree.id == old) else {
                return Err(Error::corrupt(
                    "log",
                    format!("{lsn}: table '{}' does not have {old}", change.name),
                ));
            };
            let row = TreeRow {
                tree: tree.id,
                root: tree.root,
            };
            let key = garbage_key(lsn, index);
            self.apply(
                token,
                GARBAGE,
                marks,
                &key,
                Some(&row.encode_garbage()),
                scratch,
            )?;
        }
        let name = change.name.as_bytes();
        let Some(new) = change.new else {
            self.apply(token, CATALOGUE, marks, name, None, scratch)?;
            return Ok(state.map(|table| NewTree {
                table,
                row: None,
                entries: 0,
            }));
        };
        let tree = self.new_tree(token, (new, change.filled), marks, scratch)?;
        self.next_tree
            .fetch_max(u64::from(new.number()) + 1, Ordering::Relaxed);
        let row = TreeRow {
            tree: new,
            root: tree.root,
        };
        self.apply(token, CATALOGUE, marks, name, Some(&row.encode()), scratch)?;
        let table = match (state, created) {
            (Some(state), _) => state,
            (None, Some(created)) => created.clone(),
            (None, None) => self.tables.absent(change.name),
        };
        if let (Some(old), None) = (change.old, change.filled) {
            self.tables.note_emptied(old, new);
        }
        let entries = change.filled.map_or(0, |filled| {
            entries_of(filled.entries).expect("counted, or checked by replay")
        });
        Ok(Some(NewTree {
            table,
            row: Some(row),
            entries,
        }))
    }
}

impl Store {
    /// Returns the tree `new`, which is made unless it was filled before.
    fn new_tree(
        &self,
        token: &ApplyToken<'_>,
        (new, filled): (TreeId, Option<Filled>),
        marks: Marks,
        scratch: &mut Scratch,
    ) -> Result<Tree> {
        let Some(filled) = filled else {
            let tree = self.drive(|| Tree::create(&self.pool, token, new))?;
            self.wire_root(tree)?;
            return Ok(tree);
        };
        self.dequeue_filled(token, filled, marks, scratch)?;
        // A root that cannot be read is an error for readers of this table, not for everybody else.
        let _ = self.wire_root(filled.tree);
        Ok(filled.tree)
    }

    /// Applies a swap of two tables, which have these trees, as the log describes it. For replay.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the tables do not have the trees.
    pub(crate) fn apply_swap(
        &self,
        token: &ApplyToken<'_>,
        swapped: [(&str, TreeId); 2],
        lsn: Lsn,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let corrupt = |what: String| Error::corrupt("log", format!("{lsn}: {what}"));
        let mut found = Vec::with_capacity(2);
        for (name, id) in swapped {
            let table = self.tables.get(name);
            let state = table.and_then(|state| Some((state.tree()?, state)));
            let Some((tree, state)) = state.filter(|(tree, _)| tree.id == id) else {
                return Err(corrupt(format!("table '{name}' does not have {id}")));
            };
            found.push((tree, state));
        }
        let [(first_tree, first), (second_tree, second)]: [(Tree, Arc<TableState>); 2] =
            found.try_into().expect("both were found");
        if first_tree.id == second_tree.id
            || TreeKind::of(first_tree.id) != TreeKind::of(second_tree.id)
        {
            let (one, other) = (first_tree.id, second_tree.id);
            return Err(corrupt(format!("{one} and {other} are swapped")));
        }
        let marks = Marks {
            lsn,
            multi_lsn: lsn,
        };
        self.name_swapped(token, (&first.name, second_tree), marks, scratch)?;
        self.name_swapped(token, (&second.name, first_tree), marks, scratch)?;
        self.tables
            .swap(&[[first, second]], TableBatch::unseen(lsn));
        Ok(())
    }

    /// Gives the row of the table called `name` the tree that it gets by a swap.
    pub(crate) fn name_swapped(
        &self,
        token: &ApplyToken<'_>,
        (name, tree): (&str, Tree),
        marks: Marks,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let row = TreeRow {
            tree: tree.id,
            root: tree.root,
        };
        self.apply(
            token,
            CATALOGUE,
            marks,
            name.as_bytes(),
            Some(&row.encode()),
            scratch,
        )?;
        Ok(())
    }
}

/// The error for a record that creates a table which has a tree: nothing would name that tree any
/// longer, and it would never be freed.
fn not_absent(name: &str, known: Tree, lsn: Lsn) -> Error {
    let what = format!("{lsn}: table '{name}' is created, and has {}", known.id);
    Error::corrupt("log", what)
}

impl Store {
    /// Removes the row of a filled tree, which a table takes in the same apply section.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such tree.
    pub(crate) fn dequeue_filled(
        &self,
        token: &ApplyToken<'_>,
        filled: Filled,
        marks: Marks,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Tree { id, root } = filled.tree;
        let key = filled_garbage_key(id);
        let (mut reader, mut found) = (ValueReader::new(), Vec::new());
        self.drive(|| GARBAGE.try_get(&self.pool, &key, &mut reader, &mut found))?;
        let row = TreeRow { tree: id, root };
        if found != row.encode_garbage() {
            return Err(Error::corrupt(
                "log",
                format!("{}: {id} at {root} was not filled", marks.lsn),
            ));
        }
        self.apply(token, GARBAGE, marks, &key, None, scratch)?;
        Ok(())
    }
}
