//! The time to check a history grows linearly with the number of transactions.

use pando_sync::time::now;

use super::t;
use crate::isolation::{Level, TableKey, TransactionHistory, examine};

const TRANSACTIONS: u64 = 50_000;
const KEYS: u64 = 500;
/// The bound is generous: a quiet machine takes less than a second, and quadratic work would take
/// far longer.
const SECONDS_MAX: u64 = 20;

/// Returns a history in which each transaction reads two values, writes one of them, and appends to
/// a list. The transactions run one after the other, or in pairs in which each reads what the other
/// writes, before either commits.
fn history(is_skewed: bool) -> TransactionHistory {
    let mut values = vec![None; 500];
    let mut lists = vec![Vec::new(); 5000];
    let mut history = TransactionHistory::default();
    let key = |table: &str, number: u64| TableKey::new(table, number.to_be_bytes());
    for id in 0..TRANSACTIONS {
        let (read, write, list) = ((id ^ 1) * 13 % KEYS, id * 13 % KEYS, id % 5000);
        let (read_at, write_at, list_at) = (
            usize::try_from(read).unwrap(),
            usize::try_from(write).unwrap(),
            usize::try_from(list).unwrap(),
        );
        let mut transaction = t(id).during(10 * id, 10 * id + 35);
        transaction = match values[read_at] {
            Some(value) => transaction.read(key("values", read), value),
            None => transaction.read_none(key("values", read)),
        };
        if read != write {
            transaction = match values[write_at] {
                Some(value) => transaction.read(key("values", write), value),
                None => transaction.read_none(key("values", write)),
            };
        }
        transaction = transaction.write(key("values", write), id);
        transaction = transaction.append(key("lists", list), id);
        lists[list_at].push(id);
        transaction = transaction.then(crate::isolation::Operation::ReadList(
            key("lists", list),
            lists[list_at].clone(),
        ));
        // The first transaction of a pair writes so late that the second does not see it.
        if !is_skewed || id % 2 == 1 {
            values[write_at] = Some(id);
            if is_skewed {
                let before = usize::try_from((id - 1) * 13 % KEYS).unwrap();
                values[before] = Some(id - 1);
            }
        }
        history.transactions.push(transaction);
    }
    history
}

#[test]
fn fifty_thousand_transactions_are_checked_within_seconds() {
    for (is_skewed, level) in [
        (false, Level::Serializable),
        (true, Level::Snapshot),
        (true, Level::ReadCommitted),
    ] {
        let history = history(is_skewed);
        let start = now();
        let report = examine(&history, level).unwrap();
        let seconds = start.elapsed().as_secs();
        assert!(seconds < SECONDS_MAX, "{level:?}: {seconds} s");
        assert_eq!(report.forbidden, [], "{level:?}");
        assert_eq!(report.committed, 50_000);
        assert!(report.dependencies > 100_000);
    }
}
