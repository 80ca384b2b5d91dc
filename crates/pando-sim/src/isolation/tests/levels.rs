//! Transactions of several levels in one history: each gets the guarantees of its own level.

use super::{clean, t};
use crate::isolation::{Kind, Level, Transaction, TransactionHistory, check, examine};

use Level::{ReadCommitted, Serializable, Snapshot};

/// Returns the kinds of forbidden anomalies when every transaction names its level.
fn forbidden<const N: usize>(transactions: [Transaction; N]) -> Vec<Kind> {
    let report = examine(&TransactionHistory::from(transactions), Serializable).unwrap();
    report.forbidden.iter().map(|it| it.kind).collect()
}

#[test]
fn write_skew_counts_if_both_readers_are_serializable() {
    let skew = |one, other| {
        [
            t(1).read_none("t/y").write("t/x", 1).level(one),
            t(2).read_none("t/x").write("t/y", 1).level(other),
        ]
    };
    assert_eq!(forbidden(skew(Serializable, Serializable)), [Kind::G2Item]);
    assert_eq!(forbidden(skew(Serializable, Snapshot)), []);
    assert_eq!(forbidden(skew(ReadCommitted, Serializable)), []);
}

#[test]
fn half_a_commit_counts_if_its_reader_is_at_a_snapshot() {
    let half = |writer, reader| {
        [
            t(1).write("t/x", 1).write("t/y", 1).level(writer),
            t(2).read_none("t/x").read("t/y", 1).level(reader),
        ]
    };
    assert_eq!(forbidden(half(ReadCommitted, Snapshot)), [Kind::GSingle]);
    assert_eq!(
        forbidden(half(ReadCommitted, Serializable)),
        [Kind::GSingle]
    );
    assert_eq!(forbidden(half(Serializable, ReadCommitted)), []);
}

#[test]
fn a_forbidden_circle_does_not_hide_behind_an_allowed_one() {
    // T4 sees half of T1, as ReadCommitted may. T1 and T2 have a write skew, and both are
    // serializable.
    let history = [
        t(1).read_none("t/y")
            .write("t/x", 1)
            .write("t/z", 1)
            .level(Serializable),
        t(2).read_none("t/x").write("t/y", 1).level(Serializable),
        t(4).read_none("t/x").read("t/z", 1).level(ReadCommitted),
    ];
    assert_eq!(forbidden(history), [Kind::G2Item]);
}

/// A violation of real time is forbidden if the later transaction is serializable.
#[test]
fn real_time_counts_for_who_began_later() {
    let late = |writer, reader| {
        [
            t(1).write("t/x", 1).during(1, 2).level(writer),
            t(2).read_none("t/x").during(3, 4).level(reader),
        ]
    };
    assert_eq!(
        forbidden(late(ReadCommitted, Serializable)),
        [Kind::RealTime]
    );
    assert_eq!(forbidden(late(Serializable, Snapshot)), []);
}

/// A lost update is forbidden if the transaction that committed last is at a snapshot.
#[test]
fn a_lost_update_counts_for_who_lost_it() {
    let lost = |first, second| {
        [
            t(1).read_none("t/x").write("t/x", 1).commit(1).level(first),
            t(2).read_none("t/x")
                .write("t/x", 2)
                .commit(2)
                .level(second),
        ]
    };
    assert_eq!(forbidden(lost(ReadCommitted, Snapshot)), [Kind::LostUpdate]);
    assert_eq!(forbidden(lost(Snapshot, ReadCommitted)), []);
    // Without LSNs it is unknown which transaction committed last.
    let unordered = |first, second| {
        lost(first, second).map(|it| Transaction {
            commit_lsn: None,
            ..it
        })
    };
    assert_eq!(forbidden(unordered(Snapshot, Snapshot)), [Kind::LostUpdate]);
    assert_eq!(forbidden(unordered(ReadCommitted, Snapshot)), []);
}

/// Reading aborted data is forbidden at every level.
#[test]
fn g1_counts_for_everybody() {
    let aborted = t(1).write("t/x", 1).aborted().level(Serializable);
    assert_eq!(
        forbidden([aborted, t(2).read("t/x", 1).level(ReadCommitted)]),
        [Kind::G1a]
    );
}

#[test]
fn reports_say_what_was_allowed() {
    let skew = [
        t(1).read_none("t/y").write("t/x", 1),
        t(2).read_none("t/x").write("t/y", 1),
    ];
    let report = check(&TransactionHistory::from(skew), Snapshot).unwrap();
    assert_eq!((report.committed, report.dependencies), (2, 2));
    assert_eq!(report.forbidden, []);
    let allowed: Vec<_> = report.allowed.iter().map(|it| it.kind).collect();
    assert_eq!(allowed, [Kind::G2Item]);
    clean([]);
}
