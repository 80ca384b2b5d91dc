//! Batches that swap tables: their record, and what they change (decision 096).
//!
//! A swap changes no leaf, and so none tells a reader that it owes the swap's LSN (decision 060).
//! So it is durable before anybody sees it, where reads wait for that, as other changes of tables
//! are.

use pando_format::TreeId;
use pando_format::log::{BatchWriter, Operation};
use pando_pool::{ApplyToken, Marks};
use pando_sync::Arc;
use pando_tree::{Scratch, Tree};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::read::counted::not_of_kind;
use crate::tables::kind::TreeKind;
use crate::tables::state::{TableBatch, TableState};
use crate::writes::set::{BatchTable, WriteSet};

/// Returns the tree that a table of the batch had.
fn tree_of(table: &BatchTable) -> Result<Tree> {
    table.tree().ok_or_else(|| Error::NoSuchTable {
        name: table.state.name.to_string(),
    })
}

impl Engine {
    /// Returns the record of a batch that swaps tables, and the number of tables.
    pub(crate) fn describe_swaps(&self, set: &WriteSet) -> Result<(Vec<u8>, usize)> {
        let mut record = BatchWriter::new();
        record.set_multi_leaf();
        for [first, second] in set.swaps() {
            let trees: [TreeId; 2] = [tree_of(first)?.id, tree_of(second)?.id];
            let kinds = trees.map(TreeKind::of);
            if kinds[0] < kinds[1] {
                return Err(not_of_kind(&first.state, kinds[1]));
            }
            if kinds[0] > kinds[1] {
                return Err(not_of_kind(&second.state, kinds[0]));
            }
            record.push(Operation::SwapTables {
                first: first.state.name.as_bytes(),
                first_tree: trees[0],
                second: second.state.name.as_bytes(),
                second_tree: trees[1],
            });
        }
        let tables = set.table_changes.len();
        assert_eq!(
            2 * record.operations() as usize,
            tables,
            "the record has each swap once"
        );
        Ok((record.into_payload(), tables))
    }

    /// Applies swaps, with the gate closed: all rows of the catalogue, and then the tables, which
    /// nobody sees in part.
    pub(crate) fn apply_swaps(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        batch: TableBatch,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let marks = Marks {
            lsn: batch.lsn,
            multi_lsn: batch.lsn,
        };
        let mut pairs: Vec<[Arc<TableState>; 2]> = Vec::new();
        for tables in set.swaps() {
            let [first, second] = tables.map(|table| table.state.clone());
            let of = tables.map(|table| table.tree().expect("the record has both trees"));
            self.store
                .name_swapped(token, (&first.name, of[1]), marks, scratch)?;
            self.store
                .name_swapped(token, (&second.name, of[0]), marks, scratch)?;
            pairs.push([first, second]);
        }
        self.store.tables.swap(&pairs, batch);
        Ok(())
    }
}
