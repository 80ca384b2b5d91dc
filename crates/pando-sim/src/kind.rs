//! Kinds of tables: which one a table of a workload is, and what a table that counts has to say of
//! its entries (decisions 079 and 117).

use pando_device::faulty::Random;
use pandodb::{Table, TableOptions};

use crate::failure::{Failure, Unread};
use crate::state::{Entry, table_owner};

/// Values of up to so many bytes lie in their leaves, for every size of pages, every key of a
/// workload, and every length from which on values have chunks.
const INLINE_BYTES: usize = 200;
/// Values of so many bytes lie in no leaf of any size that a store of a workload has.
const LONG_BYTES: usize = 8192;
/// Number of places of a table whose ranks are compared with its entries.
const PLACES: usize = 24;

/// Returns what the table `name` of the store of `seed` is created as. All tables of one thread are
/// of one kind, since they are swapped.
pub fn options_of(seed: u64, name: &str) -> TableOptions {
    let last = name.bytes().last().unwrap_or(0);
    let part = match table_owner(name) {
        Some(owner) => owner as u64,
        None => 0x1000 + u64::from(last),
    };
    // Drawn from a generator of its own, so that the other choices of a seed do not change.
    match Random::new(seed).part(0xc0_0000 + part).below(4) {
        0 => TableOptions::new(),
        1 => TableOptions::new().counted(true),
        _ => TableOptions::new().weighted(true),
    }
}

/// Returns the least and the largest weight that an entry may have in a table: they differ if it
/// depends on the store whether the value lies in its leaf.
fn weights(is_weighted: bool, value: &[u8]) -> (u64, u64) {
    match value.first() {
        Some(first @ 128..) if is_weighted && value.len() < LONG_BYTES => {
            let weight = u64::from(first - 128);
            match value.len() <= INLINE_BYTES {
                true => (weight, weight),
                false => (weight.min(1), weight.max(1)),
            }
        }
        _ => (1, 1),
    }
}

/// Compares ranks, units and the number of all with the entries of a table, if it counts. Nobody
/// writes to it meanwhile.
///
/// # Errors
/// See [`Unread`].
pub fn check(table: &Table, entries: &[Entry]) -> Result<(), Unread> {
    if !table.is_counted() {
        return Ok(());
    }
    let is_weighted = table.is_weighted();
    let wrong = |what: String| {
        let what = format!("{}: {what}", table.name());
        Err(Unread::Wrong(Failure::new(what)))
    };
    let rank_at = |at: usize| match entries.get(at) {
        Some((key, _)) => table.rank(key),
        None => table.count(..),
    };
    let mut begin = 0;
    for stretch in entries.chunks(1 + entries.len() / PLACES) {
        let end = begin + stretch.len();
        let from = rank_at(begin).map_err(Unread::Error)?;
        let to = rank_at(end).map_err(Unread::Error)?;
        let (mut least, mut most) = (from, from);
        for (_, value) in stretch {
            let (low, high) = weights(is_weighted, value);
            (least, most) = (least + low, most + high);
        }
        if begin == 0 && from != 0 {
            return wrong(format!("{from} lie before the first entry"));
        }
        if !(least..=most).contains(&to) {
            return wrong(format!(
                "{from} lie before entry {begin}, {to} before entry {end}, {least} to {most} \
                 should"
            ));
        }
        let found = table.unit_at(from).map_err(Unread::Error)?;
        let weighs_nothing = |(_, value): &Entry| weights(is_weighted, value).0 == 0;
        let at = found.as_ref().map_or(entries.len(), |(key, _)| {
            entries.partition_point(|(known, _)| known < key)
        });
        let is_there = match &found {
            Some((key, offset)) => {
                let entry = entries.get(at);
                *offset == 0
                    && entry.is_some_and(|(known, value)| {
                        known == key && weights(is_weighted, value).1 > 0
                    })
            }
            None => true,
        };
        if !is_there || at < begin || !entries[begin..at].iter().all(weighs_nothing) {
            return wrong(format!("unit {from} is {found:?}, not of entry {begin}"));
        }
        begin = end;
    }
    let all = table.count(..).map_err(Unread::Error)?;
    match table.unit_at(all).map_err(Unread::Error)? {
        Some(found) => wrong(format!("there are {all} units, and {found:?} has another")),
        None if entries.is_empty() && all > 0 => wrong(format!("{all} units of no entries")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{own_table, shared_table};
    use pandodb::{Db, weight_byte};

    fn table(options: TableOptions) -> Table {
        let db = Db::builder().open_in_memory().unwrap();
        db.table_with("t", options).unwrap()
    }

    /// Puts entries whose values begin with weights, and returns them.
    fn fill(table: &Table) -> Vec<Entry> {
        let entry = |number: u8| {
            let length = usize::from(number % 20);
            let weight = weight_byte((number + 1) % 128);
            let value = [&[weight], &[number; 20][..length]].concat();
            (vec![number], value)
        };
        let entries: Vec<Entry> = (0..200).map(entry).collect();
        for (key, value) in &entries {
            table.put(key, value).unwrap();
        }
        entries
    }

    #[test]
    fn what_a_table_counts_is_compared_with_its_entries() {
        for options in [
            TableOptions::new().counted(true),
            TableOptions::new().weighted(true),
        ] {
            let table = table(options);
            check(&table, &[]).unwrap();
            let entries = fill(&table);
            check(&table, &entries).unwrap();
            for gone in [0, 7, 100, 199] {
                let mut fewer = entries.clone();
                fewer.remove(gone);
                check(&table, &fewer).unwrap_err();
            }
            check(&table, &[]).unwrap_err();
        }
        let plain = table(TableOptions::new());
        fill(&plain);
        check(&plain, &[]).unwrap();
    }

    #[test]
    fn another_weight_is_found() {
        let table = table(TableOptions::new().weighted(true));
        let entries = fill(&table);
        for changed in [0, 7, 100, 199] {
            let mut other = entries.clone();
            other[changed].1[0] ^= 1;
            check(&table, &other).unwrap_err();
        }
        // One that is as large, at another place.
        let mut swapped = entries.clone();
        for (place, other) in [(60, 150), (150, 60)] {
            swapped[place].1.clone_from(&entries[other].1);
        }
        check(&table, &swapped).unwrap_err();
    }

    #[test]
    fn where_a_value_lies_decides_unless_both_are_possible() {
        let value = |length: usize| vec![weight_byte(5); length];
        assert_eq!(weights(true, &[]), (1, 1));
        assert_eq!(weights(true, &value(1)), (5, 5));
        assert_eq!(weights(true, &value(INLINE_BYTES + 1)), (1, 5));
        assert_eq!(weights(true, &value(LONG_BYTES)), (1, 1));
        assert_eq!(weights(true, &[weight_byte(0); 300]), (0, 1));
        assert_eq!(weights(true, b"a"), (1, 1));
        assert_eq!(weights(false, &value(1)), (1, 1));
    }

    #[test]
    fn stores_have_tables_of_all_kinds() {
        let kinds = [
            TableOptions::new(),
            TableOptions::new().counted(true),
            TableOptions::new().weighted(true),
        ];
        for name in [own_table(0, 0), own_table(1, 0), shared_table(0)] {
            for kind in kinds {
                let seeds = (1..=100).filter(|seed| options_of(*seed, &name) == kind);
                assert!(seeds.count() > 10, "{kind:?}, {name}");
            }
        }
        for seed in 1..100 {
            let of = |number| options_of(seed, &own_table(2, number));
            assert_eq!(of(0), of(1), "they are swapped");
        }
    }
}
