//! The cases of Hermitage (Kleppmann, "Hermitage: Testing the 'I' in ACID", 2014), and a few more,
//! at each isolation level, with the exact outcome of each.
//!
//! A case is a script of steps of up to three transactions on a table with a = 10 and b = 20. Its
//! outcome has what each read returned and how each commit ended, in order, and then the table.

use pandodb::Isolation::{ReadCommitted, Serializable, Snapshot};
use pandodb::{ConflictKind, Db, Error, Isolation, Table, Transaction, TransactionOptions};

struct Case {
    name: &'static str,
    script: &'static str,
    outcomes: [(Isolation, &'static str); 3],
}

/// Returns a case with one outcome for each level.
const fn case(
    name: &'static str,
    script: &'static str,
    committed: &'static str,
    snapshot: &'static str,
    serializable: &'static str,
) -> Case {
    Case {
        name,
        script,
        outcomes: [
            (ReadCommitted, committed),
            (Snapshot, snapshot),
            (Serializable, serializable),
        ],
    }
}

const CASES: [Case; 19] = [
    case(
        "G0: writes in a circle",
        "1 put a 11, 2 put a 12, 1 put b 21, 1 commit, 2 put b 22, 2 commit",
        "ok ok | a=12 b=22",
        "ok ok | a=12 b=22",
        "ok ok | a=12 b=22",
    ),
    case(
        "G1a: reads of what is rolled back",
        "1 put a 101, 2 get a, 1 rollback, 2 get a, 2 commit",
        "10 10 ok | a=10 b=20",
        "10 10 ok | a=10 b=20",
        "10 10 ok | a=10 b=20",
    ),
    case(
        "G1b: reads of what is overwritten before the commit",
        "1 put a 101, 2 get a, 1 put a 11, 1 commit, 2 get a, 2 commit",
        "10 ok 11 ok | a=11 b=20",
        "10 ok 10 ok | a=11 b=20",
        "10 ok 10 ok | a=11 b=20",
    ),
    case(
        "G1c: information in a circle",
        "1 put a 11, 2 put b 22, 1 get b, 2 get a, 1 commit, 2 commit",
        "20 10 ok ok | a=11 b=22",
        "20 10 ok ok | a=11 b=22",
        "20 10 ok read:a | a=11 b=20",
    ),
    case(
        "OTV: a transaction that was seen vanishes",
        "1 put a 11, 1 put b 19, 2 put a 12, 1 commit, 3 get a, 2 put b 18, 3 get b, 2 commit, \
         3 get b, 3 get a, 3 commit",
        "ok 11 19 ok 18 12 ok | a=12 b=18",
        "ok 11 19 ok 19 11 ok | a=12 b=18",
        "ok 11 19 ok 19 11 ok | a=12 b=18",
    ),
    case(
        "PMP: a predicate with many preceders",
        "1 range, 2 put c 30, 2 commit, 1 range, 1 commit",
        "[a=10 b=20] ok [a=10 b=20 c=30] ok | a=10 b=20 c=30",
        "[a=10 b=20] ok [a=10 b=20] ok | a=10 b=20 c=30",
        "[a=10 b=20] ok [a=10 b=20] ok | a=10 b=20 c=30",
    ),
    case(
        "PMP for writes",
        "1 range, 1 put a 20, 1 put b 30, 2 range, 2 delete b, 1 commit, 2 commit",
        "[a=10 b=20] [a=10 b=20] ok ok | a=20",
        "[a=10 b=20] [a=10 b=20] ok written:b | a=20 b=30",
        "[a=10 b=20] [a=10 b=20] ok range:a | a=20 b=30",
    ),
    case(
        "P4: a lost update",
        "1 get a, 2 get a, 1 put a 11, 2 put a 12, 1 commit, 2 commit",
        "10 10 ok ok | a=12 b=20",
        "10 10 ok written:a | a=11 b=20",
        "10 10 ok read:a | a=11 b=20",
    ),
    case(
        "P4 by a plain batch",
        "1 get a, 2 put a 12, 2 commit, 1 put a 11, 1 commit",
        "10 ok ok | a=11 b=20",
        "10 ok written:a | a=12 b=20",
        "10 ok read:a | a=12 b=20",
    ),
    case(
        "G-single: read skew",
        "1 get a, 2 get a, 2 get b, 2 put a 12, 2 put b 18, 2 commit, 1 get b, 1 commit",
        "10 10 20 ok 18 ok | a=12 b=18",
        "10 10 20 ok 20 ok | a=12 b=18",
        "10 10 20 ok 20 ok | a=12 b=18",
    ),
    case(
        "G-single with predicates",
        "1 range, 2 range, 2 put a 12, 2 put c 18, 2 commit, 1 range c, 1 commit",
        "[a=10 b=20] [a=10 b=20] ok [c=18] ok | a=12 b=20 c=18",
        "[a=10 b=20] [a=10 b=20] ok [] ok | a=12 b=20 c=18",
        "[a=10 b=20] [a=10 b=20] ok [] ok | a=12 b=20 c=18",
    ),
    case(
        "G-single with a write of what was skewed",
        "1 get a, 2 put a 12, 2 put b 18, 2 commit, 1 delete b, 1 commit",
        "10 ok ok | a=12",
        "10 ok written:b | a=12 b=18",
        "10 ok read:a | a=12 b=18",
    ),
    case(
        "G-single with a write before the commit of the other",
        "1 get a, 2 get a, 2 get b, 2 put a 12, 1 delete b, 2 put b 18, 1 rollback, 2 commit",
        "10 10 20 ok | a=12 b=18",
        "10 10 20 ok | a=12 b=18",
        "10 10 20 ok | a=12 b=18",
    ),
    case(
        "G2-item: write skew",
        "1 get a, 1 get b, 2 get a, 2 get b, 1 put a 11, 2 put b 21, 1 commit, 2 commit",
        "10 20 10 20 ok ok | a=11 b=21",
        "10 20 10 20 ok ok | a=11 b=21",
        "10 20 10 20 ok read:a | a=11 b=20",
    ),
    case(
        "G2: write skew by phantoms",
        "1 range c, 2 range c, 1 put c 30, 2 put d 42, 1 commit, 2 commit",
        "[] [] ok ok | a=10 b=20 c=30 d=42",
        "[] [] ok ok | a=10 b=20 c=30 d=42",
        "[] [] ok range:c | a=10 b=20 c=30",
    ),
    case(
        "G2 with a delete: a range that becomes empty",
        "1 range b, 2 delete b, 2 commit, 1 put a 0, 1 commit",
        "[b=20] ok ok | a=0",
        "[b=20] ok ok | a=0",
        "[b=20] ok range:b | a=10",
    ),
    case(
        "G2 with two edges: a reader sees what cannot be",
        "1 range, 2 get b, 2 put b 25, 2 commit, 3 range, 3 commit, 1 put a 0, 1 commit",
        "[a=10 b=20] 20 ok [a=10 b=25] ok ok | a=0 b=25",
        "[a=10 b=20] 20 ok [a=10 b=25] ok ok | a=0 b=25",
        "[a=10 b=20] 20 ok [a=10 b=25] ok range:b | a=10 b=25",
    ),
    case(
        "own writes and deletes are seen, by reads and ranges",
        "1 put c 30, 1 delete a, 1 get a, 1 get c, 1 range, 2 range, 1 commit, 2 commit",
        "none 30 [b=20 c=30] [a=10 b=20] ok ok | b=20 c=30",
        "none 30 [b=20 c=30] [a=10 b=20] ok ok | b=20 c=30",
        "none 30 [b=20 c=30] [a=10 b=20] ok ok | b=20 c=30",
    ),
    case(
        "a write that was never read does not conflict with reads of others",
        "1 put a 1, 2 put a 2, 2 commit, 1 get b, 1 commit",
        "ok 20 ok | a=1 b=20",
        "ok 20 ok | a=1 b=20",
        "ok 20 ok | a=1 b=20",
    ),
];

fn entries(entries: impl Iterator<Item = pandodb::Result<pandodb::Entry>>) -> String {
    let entry = |entry: pandodb::Result<pandodb::Entry>| {
        let (key, value) = entry.unwrap();
        format!("{}={}", key.escape_ascii(), value.escape_ascii())
    };
    entries.map(entry).collect::<Vec<_>>().join(" ")
}

/// Runs a step, and returns what it shows, if anything.
fn step(table: &Table, open: &mut [Option<Transaction>], step: &str) -> Option<String> {
    let words: Vec<&str> = step.split_whitespace().collect();
    let place = words[0].parse::<usize>().unwrap() - 1;
    let transaction = open[place].as_mut().unwrap();
    match words[1..] {
        ["get", key] => {
            let found = transaction.get(table, key.as_bytes()).unwrap();
            let found = found.map(|value| String::from_utf8(value).unwrap());
            Some(found.unwrap_or_else(|| "none".into()))
        }
        ["range"] => Some(format!("[{}]", entries(transaction.iter(table)))),
        ["range", from] => {
            let range = transaction.range(table, from.as_bytes()..);
            Some(format!("[{}]", entries(range)))
        }
        ["put", key, value] => {
            transaction
                .put(table, key.as_bytes(), value.as_bytes())
                .unwrap();
            None
        }
        ["delete", key] => {
            transaction.delete(table, key.as_bytes()).unwrap();
            None
        }
        ["rollback"] => {
            open[place].take().unwrap().rollback();
            None
        }
        ["commit"] => Some(match open[place].take().unwrap().commit() {
            Ok(_) => "ok".into(),
            Err(Error::Conflict { table, key, kind }) => {
                assert_eq!(table, "t");
                let kind = match kind {
                    ConflictKind::Written => "written",
                    ConflictKind::Read => "read",
                    ConflictKind::Range => "range",
                    other => panic!("{other:?}"),
                };
                format!("{kind}:{}", key.unwrap().escape_ascii())
            }
            Err(other) => panic!("{other}"),
        }),
        _ => panic!("{step}"),
    }
}

#[test]
fn each_case_has_its_outcome_at_each_level() {
    for case in &CASES {
        for (isolation, outcome) in case.outcomes {
            let db = Db::builder().max_memory(4 << 20).open_in_memory().unwrap();
            let table = db.table("t").unwrap();
            table.put(b"a", b"10").unwrap();
            table.put(b"b", b"20").unwrap();
            let options = TransactionOptions::default().isolation(isolation);
            let mut open: [_; 3] = std::array::from_fn(|_| Some(db.begin(options).unwrap()));
            let steps = case.script.split(", ");
            let shown: Vec<String> = steps
                .filter_map(|one| step(&table, &mut open, one.trim()))
                .collect();
            let found = format!("{} | {}", shown.join(" "), entries(table.iter()));
            assert_eq!(found, outcome, "{} at {isolation:?}", case.name);
        }
    }
}
