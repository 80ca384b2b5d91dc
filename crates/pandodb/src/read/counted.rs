//! Reads of counted tables that take numbers of entries: ranks, and keys of given ranks.

use pando_tree::{Place, Ranked, Selected, Tree};

use crate::engine::Engine;
use crate::error::Error;
use crate::read::buffers::with_known_rank;
use crate::read::point::{Copied, no_such_table, on_tree};
use crate::state::read_bounds::Debt;
use crate::tables::kind::TreeKind;
use crate::tables::state::TableState;
use crate::wait::reason::Step;

/// Returns the error for a table whose tree is not of the kind that is wanted.
#[cold]
pub(crate) fn not_of_kind(table: &TableState, wanted: TreeKind) -> Error {
    let name = table.name.to_string();
    match wanted {
        TreeKind::Weighted => Error::NotWeighted { name },
        TreeKind::Plain | TreeKind::Counted => Error::NotCounted { name },
    }
}

/// Returns the tree of a counted table.
fn counted_tree(table: &TableState) -> Step<Tree> {
    let Some(tree) = table.tree() else {
        return Err(no_such_table(table));
    };
    match tree.id.is_counted() {
        true => Ok(tree),
        false => Err(not_of_kind(table, TreeKind::Counted).into()),
    }
}

impl Engine {
    /// Makes one attempt to count the entries of `ranked`. Never blocks.
    pub(crate) fn try_rank(&self, table: &TableState, ranked: Ranked<'_>) -> Step<u64> {
        let tree = counted_tree(table)?;
        Ok(on_tree(
            table,
            tree,
            tree.try_rank(&self.store.pool, ranked),
        )?)
    }

    /// Makes one attempt to count the entries that are among `to` and not among `from`. Never
    /// blocks.
    pub(crate) fn try_count(
        &self,
        table: &TableState,
        from: Option<Ranked<'_>>,
        to: Ranked<'_>,
    ) -> Step<u64> {
        let tree = counted_tree(table)?;
        let counted = with_known_rank(self.number, |known| {
            tree.try_count(&self.store.pool, from, to, known)
        });
        Ok(on_tree(table, tree, counted)?)
    }

    /// Makes one attempt to find the key that has `rank` smaller ones, or, in a weighted table, the
    /// one that has the unit of this number. Returns how many of its units lie before that one,
    /// None if there is no such key. Never blocks.
    pub(crate) fn try_key_at(
        &self,
        table: &TableState,
        rank: u64,
        key: &mut Vec<u8>,
    ) -> Step<Option<u64>> {
        let tree = counted_tree(table)?;
        let found = tree.try_select(&self.store.pool, rank, key);
        Ok(on_tree(table, tree, found)?)
    }

    /// As [`Engine::try_key_at`], counted from the first key that is not below `from`.
    pub(crate) fn try_key_from(
        &self,
        table: &TableState,
        (from, number): (&[u8], u64),
        key: &mut Vec<u8>,
    ) -> Step<Option<u64>> {
        let tree = counted_tree(table)?;
        let found = with_known_rank(self.number, |known| {
            tree.try_select_from(&self.store.pool, (from, number), key, known)
        });
        Ok(on_tree(table, tree, found)?)
    }

    /// As [`Engine::try_key_from`], and copies the value, if it lies with the key.
    pub(crate) fn try_entry_from(
        &self,
        table: &TableState,
        (from, number): (&[u8], u64),
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Step<FoundEntry> {
        let tree = counted_tree(table)?;
        let to = (&mut *key, &mut *value);
        let selected = with_known_rank(self.number, |known| {
            tree.try_select_record(&self.store.pool, (from, number), to, known)
        });
        match on_tree(table, tree, selected)? {
            Selected::None => Ok(FoundEntry::None),
            Selected::Key(offset) => Ok(FoundEntry::Key(offset)),
            Selected::Record(lookup, place, offset) => {
                let debt = self.check_copied(Copied::of(tree.id, &lookup), key)?;
                Ok(FoundEntry::Whole(debt, place, offset))
            }
        }
    }
}

/// An entry that was found by its number, and how many of its units lie before that one.
pub(crate) enum FoundEntry {
    /// There are not that many.
    None,
    /// Key and value were copied. Both may be shown once the debt is paid.
    Whole(Debt, Place, u64),
    /// The key was copied; the value lies elsewhere.
    Key(u64),
}

#[cfg(test)]
mod tests {
    use pando_device::AnyDevice;
    use pando_device::faulty::FaultyDevice;
    use pando_format::page::HEADER_WORDS;

    use crate::{Db, TableOptions, VerifyReport};

    /// The page is sound by itself, and so are the pages below it.
    #[test]
    fn a_wrong_count_is_found_by_verify() {
        find_a_wrong_count(TableOptions::new().counted(true));
        find_a_wrong_count(TableOptions::new().weighted(true));
    }

    fn find_a_wrong_count(kind: TableOptions) {
        let device = FaultyDevice::new(1);
        let any = || AnyDevice::from(device.clone());
        let options = Db::builder().max_memory(8 << 20);
        let db = Db::open_device(options, any()).unwrap();
        let table = db.table_with("t", kind).unwrap();
        for number in 0..1000_u32 {
            let value = [number.to_le_bytes()[0]; 100];
            table.put(&number.to_be_bytes(), &value).unwrap();
        }
        db.checkpoint().unwrap();
        assert_eq!(VerifyReport::of_device(&any()).unwrap().damages, []);
        let engine = db.engine();
        let pool = &engine.store.pool;
        let root = table.state.tree().unwrap().root;
        {
            let closed = pool.gate().close();
            let token = pool.apply_token(&closed);
            let mut latch = pool.exclusive(root).unwrap();
            let mut page = latch.modify(&token).unwrap();
            // The record of the first entry: the length of its value, and the value.
            let record = page.words().load(HEADER_WORDS) >> 19 & 0x1FFF;
            let count = record as usize + 1;
            let one_more = page.words().load(count) + 1;
            page.store(count, one_more);
        }
        db.checkpoint().unwrap();
        db.close().unwrap();
        let report = VerifyReport::of_device(&any()).unwrap();
        let [damage] = &report.damages[..] else {
            panic!("{:?}", report.damages);
        };
        assert!(damage.what.contains("entries below"), "{damage:?}");
    }
}
