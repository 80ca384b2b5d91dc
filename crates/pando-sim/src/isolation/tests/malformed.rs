//! Histories that cannot have been recorded are refused and not judged.

use super::t;
use crate::isolation::{
    Bounds, Level, Operation, TableKey, Transaction, TransactionHistory, examine,
};

#[track_caller]
fn refused<const N: usize>(transactions: [Transaction; N], why: &str) {
    let failure = examine(
        &TransactionHistory::from(transactions),
        Level::ReadCommitted,
    )
    .unwrap_err();
    assert_eq!(failure.to_string(), why);
}

#[test]
fn what_cannot_have_been_recorded_is_refused() {
    refused([t(1), t(1)], "T1 occurs twice");
    refused([t(1).during(2, 1)], "T1 ended before it began");
    refused(
        [t(1).aborted().commit(1)],
        "T1 was aborted and has the LSN of a commit",
    );
    refused(
        [t(1).commit(1), t(2).commit(1)],
        "T2 has the LSN of another commit",
    );
    refused(
        [t(1).write("t/x", 1), t(2).write("t/x", 1)],
        "1 was written twice to t/x",
    );
    refused(
        [t(1).write("t/x", 1).append("t/x", 2)],
        "t/x is a list and a value",
    );
    refused(
        [t(1).range("t/a", "t/b", [("t/c", 1)])],
        "t/c is not of the range read",
    );
}

#[test]
fn ranges_have_one_table_and_may_be_open() {
    let bounds = Bounds {
        table: "t".to_owned(),
        from: b"b".to_vec(),
        to: None,
    };
    let inside = |key: &str| bounds.contains(&TableKey::from(key));
    assert_eq!(
        ["t/a", "t/b", "t/z", "u/b"].map(inside),
        [false, true, true, false]
    );
    let all = t(1).then(Operation::ReadRange(
        bounds.clone(),
        vec![("t/z".into(), 1)],
    ));
    let history = TransactionHistory::from([all, t(2).write("t/z", 1), t(3).append("t/list", 1)]);
    let report = examine(&history, Level::Serializable).unwrap();
    assert_eq!((report.forbidden, report.dependencies), (vec![], 1));
}

#[test]
fn keys_are_printed_with_their_table() {
    assert_eq!(TableKey::new("t", [b'x', 0]).to_string(), "t/x\\x00");
}
