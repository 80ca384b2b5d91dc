//! The checker against histories: by hand, at random, and many at once.

mod circles;
mod levels;
mod malformed;
mod random;
mod reads;
mod size;

use super::{History, Kind, Level, Transaction, examine};

const ALL: [Level; 3] = [Level::ReadCommitted, Level::Snapshot, Level::Serializable];

/// Transaction `id`.
fn t(id: u64) -> Transaction {
    Transaction::new(id)
}

/// Kinds of all that is found, whether allowed at `level` or not; each once.
fn kinds<const N: usize>(level: Level, transactions: [Transaction; N]) -> Vec<Kind> {
    let report = examine(&History::from(transactions), level).unwrap();
    let mut kinds: Vec<_> = (report.forbidden.iter().chain(&report.allowed))
        .map(|it| it.kind)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Exactly `kind` is found, and it is forbidden from its level on and allowed below.
#[track_caller]
fn finds<const N: usize>(kind: Kind, from: Level, transactions: [Transaction; N]) {
    assert_eq!(kind.forbidden_from(), from);
    let history = History::from(transactions);
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

/// Nothing is found at any level.
#[track_caller]
fn clean<const N: usize>(transactions: [Transaction; N]) {
    let history = History::from(transactions);
    for level in ALL {
        let report = examine(&history, level).unwrap();
        let found: Vec<_> = report.forbidden.iter().chain(&report.allowed).collect();
        assert!(found.is_empty(), "{level:?}: {found:?}");
    }
}
