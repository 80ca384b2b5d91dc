//! The checker against handwritten histories, random histories and large histories.

mod circles;
mod levels;
mod malformed;
mod random;
mod reads;
mod size;

use super::{Kind, Level, Transaction, TransactionHistory, examine};

const ALL: [Level; 3] = [Level::ReadCommitted, Level::Snapshot, Level::Serializable];

/// Returns a transaction with this id.
fn t(id: u64) -> Transaction {
    Transaction::new(id)
}

/// Returns the kinds of all anomalies that are found, whether `level` allows them or not, without
/// duplicates.
fn kinds<const N: usize>(level: Level, transactions: [Transaction; N]) -> Vec<Kind> {
    let report = examine(&TransactionHistory::from(transactions), level).unwrap();
    let mut kinds: Vec<_> = (report.forbidden.iter().chain(&report.allowed))
        .map(|it| it.kind)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Checks that exactly `kind` is found, and that it is forbidden from level `from` on and allowed
/// below.
#[track_caller]
fn finds<const N: usize>(kind: Kind, from: Level, transactions: [Transaction; N]) {
    assert_eq!(kind.forbidden_from(), from);
    let history = TransactionHistory::from(transactions);
    for level in ALL {
        let report = examine(&history, level).unwrap();
        let found = if level < from {
            assert_eq!(report.forbidden, [], "{level:?}");
            report.allowed
        } else {
            assert_eq!(report.allowed, [], "{level:?}");
            report.forbidden
        };
        assert!(!found.is_empty(), "{level:?}: nothing found");
        for anomaly in found {
            assert_eq!(anomaly.kind, kind, "{level:?}: {anomaly}");
        }
    }
}

/// Checks that no anomaly is found at any level.
#[track_caller]
fn clean<const N: usize>(transactions: [Transaction; N]) {
    let history = TransactionHistory::from(transactions);
    for level in ALL {
        let report = examine(&history, level).unwrap();
        let found: Vec<_> = report.forbidden.iter().chain(&report.allowed).collect();
        assert!(found.is_empty(), "{level:?}: {found:?}");
    }
}
