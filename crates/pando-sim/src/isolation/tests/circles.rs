//! Circles: for each kind, a history that has it, and the most similar one that does not.

use super::{clean, finds, kinds, t};
use crate::isolation::{Kind, Level, TransactionHistory, check};

#[test]
fn g0_is_two_lists_appended_to_in_both_orders() {
    let writers = || {
        [
            t(1).append("t/x", 1).append("t/y", 1),
            t(2).append("t/x", 2).append("t/y", 2),
        ]
    };
    let [first, second] = writers();
    let reader = t(3).list("t/x", [1, 2]).list("t/y", [2, 1]);
    finds(Kind::G0, Level::ReadCommitted, [first, second, reader]);
    let [first, second] = writers();
    clean([first, second, t(3).list("t/x", [1, 2]).list("t/y", [1, 2])]);
}

#[test]
fn g1c_is_two_transactions_that_see_each_other() {
    finds(
        Kind::G1c,
        Level::ReadCommitted,
        [
            t(1).write("t/x", 1).read("t/y", 2),
            t(2).write("t/y", 2).read("t/x", 1),
        ],
    );
    clean([
        t(1).write("t/x", 1).read_none("t/y"),
        t(2).write("t/y", 2).read("t/x", 1),
    ]);
}

#[test]
fn g1c_goes_through_writes_too() {
    // T1 comes before T2 on list x, and has seen what T2 wrote.
    finds(
        Kind::G1c,
        Level::ReadCommitted,
        [
            t(1).append("t/x", 1).read("t/y", 2),
            t(2).append("t/x", 2).write("t/y", 2),
            t(3).list("t/x", [1, 2]),
        ],
    );
    clean([
        t(1).append("t/x", 1).read_none("t/y"),
        t(2).append("t/x", 2).write("t/y", 2),
        t(3).list("t/x", [1, 2]),
    ]);
}

#[test]
fn g_single_is_a_read_that_sees_half_of_a_commit() {
    let writer = || t(1).write("t/x", 1).write("t/y", 1);
    finds(
        Kind::GSingle,
        Level::Snapshot,
        [writer(), t(2).read_none("t/x").read("t/y", 1)],
    );
    clean([
        writer(),
        t(2).read("t/x", 1).read("t/y", 1),
        t(3).read_none("t/x").read_none("t/y"),
    ]);
}

#[test]
fn g_single_is_found_in_lists() {
    let writer = || {
        [
            t(1).append("t/x", 1),
            t(2).append("t/x", 2).append("t/y", 1),
        ]
    };
    let [first, second] = writer();
    let all = t(3).list("t/x", [1, 2]);
    let half = t(4).list("t/x", [1]).list("t/y", [1]);
    finds(
        Kind::GSingle,
        Level::Snapshot,
        [first, second, all.clone(), half],
    );
    let [first, second] = writer();
    clean([first, second, all, t(4).list("t/x", [1]).list("t/y", [])]);
}

/// An append that no list shows comes after all elements that were seen, so a reader that has not
/// seen it comes before it.
#[test]
fn an_append_that_no_list_shows_is_behind_all_that_was_seen() {
    let first = || [t(1).append("t/x", 1), t(2).append("t/x", 2).write("t/y", 1)];
    let [one, two] = first();
    finds(
        Kind::GSingle,
        Level::Snapshot,
        [one, two, t(3).list("t/x", [1]).read("t/y", 1)],
    );
    let [one, two] = first();
    clean([one, two, t(3).list("t/x", [1]).read_none("t/y")]);
}

#[test]
fn g_single_is_found_by_a_range() {
    let writer = || t(1).write("t/b", 1).write("u/y", 1);
    finds(
        Kind::GSingle,
        Level::Snapshot,
        [writer(), t(2).range("t/a", "t/c", []).read("u/y", 1)],
    );
    // The upper bound of a range is exclusive.
    clean([writer(), t(2).range("t/a", "t/b", []).read("u/y", 1)]);
    clean([
        writer(),
        t(2).range("t/b", "t/c", [("t/b", 1)]).read("u/y", 1),
    ]);
}

#[test]
fn g_nonadjacent_is_two_readers_that_see_two_writers_in_both_orders() {
    let writers = || (t(1).write("t/x", 1), t(2).write("t/y", 1));
    let (x, y) = writers();
    // This is the long fork: no order of the two commits explains both reads.
    finds(
        Kind::GNonadjacent,
        Level::Snapshot,
        [
            x,
            y,
            t(3).read("t/x", 1).read_none("t/y"),
            t(4).read_none("t/x").read("t/y", 1),
        ],
    );
    let (x, y) = writers();
    clean([
        x,
        y,
        t(3).read("t/x", 1).read_none("t/y"),
        t(4).read("t/x", 1).read("t/y", 1),
    ]);
}

#[test]
fn g2_item_is_write_skew() {
    let skew = || {
        [
            t(1).read_none("t/x").read_none("t/y").write("t/x", 1),
            t(2).read_none("t/x").read_none("t/y").write("t/y", 1),
        ]
    };
    finds(Kind::G2Item, Level::Serializable, skew());
    assert!(check(&TransactionHistory::from(skew()), Level::Snapshot).is_ok());
    clean([
        t(1).read_none("t/x").read_none("t/y").write("t/x", 1),
        t(2).read("t/x", 1).read_none("t/y").write("t/y", 1),
    ]);
}

#[test]
fn the_read_only_anomaly_is_a_g2_item() {
    // Fekete, O'Neil and O'Neil 2004: without T3, T1 and T2 can be ordered.
    let two = || {
        [
            t(1).read_none("t/x").read_none("t/y").write("t/x", 1),
            t(2).read_none("t/y").write("t/y", 1),
        ]
    };
    let [one, other] = two();
    finds(
        Kind::G2Item,
        Level::Serializable,
        [one, other, t(3).read_none("t/x").read("t/y", 1)],
    );
    clean(two());
}

#[test]
fn g2_is_two_ranges_that_miss_each_others_keys() {
    let low = || t(1).range("t/a", "t/m", []).write("t/p", 1);
    finds(
        Kind::G2,
        Level::Serializable,
        [low(), t(2).range("t/m", "t/z", []).write("t/b", 2)],
    );
    clean([
        low(),
        t(2).range("t/m", "t/z", [("t/p", 1)]).write("t/b", 2),
    ]);
    clean([low(), t(2).range("t/q", "t/z", []).write("t/b", 2)]);
    // Anomalies on rows that existed concern items, not ranges.
    finds(
        Kind::G2Item,
        Level::Serializable,
        [
            t(1).write("t/b", 1).write("t/p", 1),
            t(2).range("t/a", "t/m", [("t/b", 1)])
                .read("t/p", 1)
                .write("t/p", 2),
            t(3).range("t/m", "t/z", [("t/p", 1)])
                .read("t/b", 1)
                .write("t/b", 3),
        ],
    );
}

#[test]
fn real_time_is_a_read_of_what_was_before_a_commit_that_had_ended() {
    let writer = || t(1).write("t/x", 1).during(1, 2);
    finds(
        Kind::RealTime,
        Level::Serializable,
        [writer(), t(2).read_none("t/x").during(3, 4)],
    );
    // A transaction that began at the moment of the commit may come before it.
    clean([writer(), t(2).read_none("t/x").during(2, 4)]);
    clean([writer(), t(2).read("t/x", 1).during(3, 4)]);
}

#[test]
fn real_time_goes_through_moments_that_nobody_spans() {
    // T2 ended before T3 began, and T5 ended before T4 began, but no other transaction connects
    // these pairs.
    let history = |ended| {
        [
            t(2).write("t/y", 2).during(3, ended),
            t(3).write("t/z", 3).during(5, 20),
            t(5).write("t/w", 5).during(1, 6),
            t(4).read_none("t/y").during(7, 8),
        ]
    };
    finds(Kind::RealTime, Level::Serializable, history(4));
    clean(history(7));
}

/// A commit whose end is unknown comes before no transaction in real time.
#[test]
fn an_unknown_end_is_before_nobody() {
    let seen = || t(3).read("t/x", 1).during(9, 10);
    let late = || t(1).write("t/x", 1).during(1, 2);
    clean([late().unknown(), t(2).read_none("t/x").during(3, 4), seen()]);
    assert_eq!(
        kinds(
            Level::Serializable,
            [late(), t(2).read_none("t/x").during(3, 4), seen()]
        ),
        [Kind::RealTime]
    );
}

#[test]
fn a_circle_is_printed_with_its_edges() {
    let history = TransactionHistory::from([
        t(3).write("t/x", 1).write("t/y", 1),
        t(7).read_none("t/x").read("t/y", 1),
    ]);
    let failure = check(&history, Level::Snapshot).unwrap_err().to_string();
    assert_eq!(failure, "G-single: T7 -rw(t/x)-> T3 -wr(t/y)-> T7");
    let history = TransactionHistory::from([
        t(1).write("t/x", 1).during(1, 2),
        t(2).range("t/a", "t/z", []).during(3, 4),
    ]);
    let failure = check(&history, Level::Serializable)
        .unwrap_err()
        .to_string();
    assert_eq!(
        failure,
        "real time: T1 -real time-> T2 -rw of a range(t/x)-> T1"
    );
}
