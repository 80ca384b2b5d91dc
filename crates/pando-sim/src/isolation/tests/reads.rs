//! Anomalies of single reads and of single keys, each with the most similar history that is clean.

use super::{clean, finds, t};
use crate::isolation::{Kind, Level};

#[test]
fn g1a_is_a_read_of_what_was_aborted() {
    let writer = || t(1).write("t/x", 1);
    let reader = || t(2).read("t/x", 1);
    finds(
        Kind::G1a,
        Level::ReadCommitted,
        [writer().aborted(), reader()],
    );
    clean([writer(), reader()]);
    clean([writer().aborted(), reader().aborted()]);
    // The outcome is unknown, but a reader has seen the value, so the writer has committed.
    clean([writer().unknown(), reader()]);
}

#[test]
fn g1a_is_found_in_lists_and_ranges() {
    let aborted = || t(1).append("t/x", 1).write("u/x", 1).aborted();
    let second = || t(2).append("t/x", 2);
    finds(
        Kind::G1a,
        Level::ReadCommitted,
        [aborted(), second(), t(3).list("t/x", [1, 2])],
    );
    finds(
        Kind::G1a,
        Level::ReadCommitted,
        [aborted(), t(3).range("u/a", "u/z", [("u/x", 1)])],
    );
    clean([
        aborted(),
        second(),
        t(3).list("t/x", [2]).range("u/a", "u/z", []),
    ]);
}

#[test]
fn g1b_is_a_read_of_what_its_writer_overwrote() {
    let writer = || t(1).write("t/x", 1).write("t/x", 2);
    finds(
        Kind::G1b,
        Level::ReadCommitted,
        [writer(), t(2).read("t/x", 1)],
    );
    clean([writer(), t(2).read("t/x", 2)]);
    clean([t(1).write("t/x", 1).read("t/x", 1).write("t/x", 2)]);
}

#[test]
fn g1b_is_a_list_that_ends_within_a_transaction() {
    let writer = || t(1).append("t/x", 1).append("t/x", 2);
    let whole = || t(3).list("t/x", [1, 2]);
    finds(
        Kind::G1b,
        Level::ReadCommitted,
        [writer(), t(2).list("t/x", [1]), whole()],
    );
    clean([writer(), t(2).list("t/x", []), whole()]);
}

#[test]
fn a_lost_update_is_two_that_read_one_version_and_wrote_another() {
    let update = |id, value| t(id).read_none("t/x").write("t/x", value);
    finds(
        Kind::LostUpdate,
        Level::Snapshot,
        [update(1, 1), update(2, 2)],
    );
    // With LSNs the reads also differ from the state before the commit, which only serializable
    // transactions are promised to see.
    let by_lsn = || [update(1, 1).commit(1), update(2, 2).commit(2)];
    let both = [Kind::LostUpdate, Kind::CommitRead];
    assert_eq!(super::kinds(Level::Snapshot, by_lsn()), both[..1]);
    assert_eq!(super::kinds(Level::Serializable, by_lsn()), both);
    clean([update(1, 1), t(2).read("t/x", 1).write("t/x", 2)]);
    // A transaction that has not read the key overwrites no unseen version.
    clean([update(1, 1), t(2).write("t/x", 2)]);
    clean([update(1, 1), update(2, 2).aborted()]);
}

#[test]
fn a_lost_update_of_a_list_is_an_append_beside_another() {
    let append = |id, value| t(id).list("t/x", []).append("t/x", value);
    let reader = || t(3).list("t/x", [1, 2]);
    finds(
        Kind::LostUpdate,
        Level::Snapshot,
        [append(1, 1), append(2, 2), reader()],
    );
    finds(
        Kind::LostUpdate,
        Level::Snapshot,
        [append(1, 1), append(2, 2)],
    );
    clean([
        append(1, 1),
        t(2).list("t/x", [1]).append("t/x", 2),
        reader(),
    ]);
}

#[test]
fn an_own_read_shows_own_writes() {
    let own = Kind::OwnRead;
    let level = Level::ReadCommitted;
    finds(own, level, [t(1).write("t/x", 1).read_none("t/x")]);
    clean([t(1).write("t/x", 1).read("t/x", 1)]);
    finds(
        own,
        level,
        [
            t(1).write("t/x", 1),
            t(2).read("t/x", 1).delete("t/x").read("t/x", 1),
        ],
    );
    clean([
        t(1).write("t/x", 1),
        t(2).read("t/x", 1).delete("t/x").read_none("t/x"),
    ]);
    finds(own, level, [t(1).write("t/b", 1).range("t/a", "t/c", [])]);
    clean([t(1).write("t/b", 1).range("t/a", "t/c", [("t/b", 1)])]);
    finds(own, level, [t(1).read("t/x", 1).write("t/x", 1)]);
    clean([t(1).read_none("t/x").write("t/x", 1)]);
    finds(own, level, [t(1).append("t/x", 1).list("t/x", [])]);
    clean([t(1).append("t/x", 1).list("t/x", [1])]);
    finds(
        own,
        level,
        [
            t(1).append("t/x", 1),
            t(2).list("t/x", [2, 1]).append("t/x", 2),
        ],
    );
    // A transaction that aborts also sees its own writes.
    finds(
        own,
        level,
        [t(1).write("t/x", 1).read_none("t/x").aborted()],
    );
}

#[test]
fn an_own_append_is_taken_off_a_list_before_it_is_compared() {
    // T1 appended 1 and saw no element before it. T2 committed before T1 did.
    clean([
        t(1).append("t/x", 1).aborted().list("t/x", [1]),
        t(2).append("t/x", 2).list("t/x", [2]),
        t(3).list("t/x", [2]),
    ]);
}

#[test]
fn two_reads_of_a_key_in_a_transaction_are_the_same() {
    let internal = |last| t(2).read_none("t/x").then(last);
    let read = |id| t(id).read("t/x", 1).operations[0].clone();
    let history = [t(1).write("t/x", 1).commit(1), internal(read(2))];
    // T1 committed between the two reads, so this is also a G-single.
    assert_eq!(
        super::kinds(Level::Snapshot, history),
        [Kind::GSingle, Kind::InternalRead]
    );
    clean([t(1).write("t/x", 1), t(2).read("t/x", 1).read("t/x", 1)]);
    // It is uncertain whether the key was deleted or did not exist yet, so there is no edge, but
    // the two reads differ.
    let deletes = [t(1).write("t/x", 1), t(3).read("t/x", 1).delete("t/x")];
    let [write, delete] = deletes;
    finds(
        Kind::InternalRead,
        Level::Snapshot,
        [
            write,
            delete,
            t(2).read_none("t/x").range("t/a", "t/z", [("t/x", 1)]),
        ],
    );
}

#[test]
fn nobody_reads_what_nobody_wrote() {
    finds(Kind::Unwritten, Level::ReadCommitted, [t(1).read("t/x", 1)]);
    finds(
        Kind::Unwritten,
        Level::ReadCommitted,
        [t(1).list("t/x", [1])],
    );
    clean([t(1).read_none("t/x").list("t/y", [])]);
}

#[test]
fn a_list_has_no_element_twice() {
    let writer = || t(1).append("t/x", 1);
    finds(
        Kind::Repeated,
        Level::ReadCommitted,
        [writer(), t(2).list("t/x", [1, 1])],
    );
    clean([writer(), t(2).list("t/x", [1])]);
}

#[test]
fn lists_are_beginnings_of_each_other() {
    let writers = || (t(1).append("t/x", 1), t(2).append("t/x", 2));
    let (one, two) = writers();
    finds(
        Kind::IncompatibleOrders,
        Level::ReadCommitted,
        [one, two, t(3).list("t/x", [1, 2]), t(4).list("t/x", [2])],
    );
    let (one, two) = writers();
    clean([one, two, t(3).list("t/x", [1, 2]), t(4).list("t/x", [1])]);
    let (one, two) = writers();
    finds(
        Kind::IncompatibleOrders,
        Level::ReadCommitted,
        [one.commit(2), two.commit(1), t(3).list("t/x", [1, 2])],
    );
    let (one, two) = writers();
    clean([one.commit(1), two.commit(2), t(3).list("t/x", [1, 2])]);
}

#[test]
fn a_read_is_of_the_state_at_its_snapshot() {
    let writers = || {
        (
            t(1).write("t/x", 1).commit(10),
            t(2).write("t/x", 2).commit(20),
        )
    };
    let read = |value, lsn| t(3).read("t/x", value).snapshot(lsn);
    for (value, lsn, is_right) in [
        (1, 10, true),
        (1, 19, true),
        (2, 20, true),
        (1, 20, false),
        (2, 19, false),
    ] {
        let (one, two) = writers();
        if is_right {
            clean([one, two, read(value, lsn)]);
        } else {
            finds(
                Kind::SnapshotRead,
                Level::Snapshot,
                [one, two, read(value, lsn)],
            );
        }
    }
    let (one, two) = writers();
    finds(
        Kind::SnapshotRead,
        Level::Snapshot,
        [one, two, t(3).read_none("t/x").snapshot(10)],
    );
    let (one, two) = writers();
    finds(
        Kind::SnapshotRead,
        Level::Snapshot,
        [
            one,
            two,
            t(3).range("t/a", "t/z", []).snapshot(10).aborted(),
        ],
    );
    // It is unknown when a transaction without an LSN wrote, if it did.
    let (one, two) = writers();
    clean([one, two, read(1, 20), t(4).write("t/x", 4).unknown()]);
}

#[test]
fn a_list_is_that_of_the_snapshot() {
    let append = |id| t(id).append("t/x", id).commit(id);
    finds(
        Kind::SnapshotRead,
        Level::Snapshot,
        [append(1), append(2), t(3).list("t/x", [1]).snapshot(2)],
    );
    clean([append(1), append(2), t(3).list("t/x", [1, 2]).snapshot(2)]);
}

#[test]
fn deletes_are_told_apart_by_their_lsns() {
    let three = || {
        [
            t(1).write("t/x", 1).commit(1),
            t(2).delete("t/x").write("t/y", 1).commit(2),
            t(3).write("t/x", 3).commit(3),
        ]
    };
    let [write, delete, again] = three();
    clean([
        write,
        delete,
        again,
        t(4).read_none("t/x").read("t/y", 1).snapshot(2),
    ]);
    let [write, delete, again] = three();
    clean([
        write,
        delete,
        again,
        t(4).read_none("t/x").read_none("t/y").snapshot(0),
    ]);
    let [write, delete, again] = three();
    finds(
        Kind::SnapshotRead,
        Level::Snapshot,
        [write, delete, again, t(4).read_none("t/x").snapshot(3)],
    );
}

#[test]
fn a_serializable_read_is_of_the_state_before_the_commit() {
    let writer = || t(1).write("t/x", 1).commit(5);
    let reader = |lsn| {
        t(2).read_none("t/x")
            .write("t/y", 1)
            .snapshot(4)
            .commit(lsn)
    };
    assert_eq!(
        super::kinds(Level::Serializable, [writer(), reader(6)]),
        [Kind::CommitRead]
    );
    // There is no circle, and at a snapshot it is no anomaly.
    clean_at(Level::Snapshot, [writer(), reader(6)]);
    clean([t(1).write("t/x", 1).commit(6), reader(5)]);
}

fn clean_at<const N: usize>(level: Level, transactions: [crate::isolation::Transaction; N]) {
    assert_eq!(super::kinds(level, transactions), []);
}
