//! The workloads themselves check what each engine reads. These tests also check what they count.

use pando_bench::{Error, Observer, Record, Result, Workload};
use pando_peers::engine::Setup;
use pando_peers::options::{CHUNK, Kind, WORKLOADS};
use pando_peers::record::PeerRecord;
use pando_peers::session::{Held, Turn};
use pando_peers::{ENGINES, EngineKind, Level, Options, Session};
use pando_sync::time::Duration;

/// An observer that ignores everything.
struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _workload: &str, _share: f64, _ops_per_s: f64) {}
    fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}
    fn record(&mut self, _record: &Record) -> Result<()> {
        Ok(())
    }
}

fn tiny() -> Options {
    Options {
        num: 600,
        scan: 20,
        max_memory: 64 << 20,
        threads: vec![1, 3],
        ..Options::default()
    }
}

fn built() -> impl Iterator<Item = EngineKind> {
    ENGINES.iter().copied().filter(EngineKind::is_built)
}

fn setup(dir: &std::path::Path, options: &Options, transactions: bool) -> Setup {
    Setup {
        dir: dir.to_owned(),
        max_memory: options.max_memory,
        durability: Level::None,
        data_bytes: options.data_bytes(),
        key_bytes: 5,
        value_bytes: 12,
        threads: 3,
        transactions,
    }
}

/// Returns the levels of durability that an engine has.
fn levels(kind: EngineKind) -> &'static [Level] {
    match kind.name {
        "bf-tree" => &[Level::None],
        _ => &[Level::None, Level::Durable, Level::Periodic],
    }
}

fn check(record: &PeerRecord, kind: EngineKind, turn: Turn, num: u64) {
    let figures = &record.record;
    assert_eq!(record.engine, kind.name);
    assert_eq!((record.round, figures.threads), (turn.round, turn.threads));
    assert!(figures.ops >= num, "{record:?}");
    assert!(figures.ops_per_s > 0.0 && figures.p50_us <= figures.p999_us);
    let found = match turn.workload {
        Workload::Overwrite => None,
        workload if workload.is_fill() => None,
        // Eleven keys each, of which 9 % are put in the long run.
        Workload::Transactions => figures.found.filter(|found| {
            let share = *found as f64 / figures.ops as f64;
            assert!(figures.conflicts_per_commit.is_some(), "{record:?}");
            (0.89..0.93).contains(&share)
        }),
        _ => Some(figures.ops),
    };
    assert_eq!(figures.found, found, "{record:?}");
    assert_eq!(
        figures.beside_ops_per_s.is_some(),
        turn.workload == Workload::ReadWhileWriting
    );
    assert!(record.settings.contains_key("version"), "{record:?}");
}

/// Returns the workloads of an engine that do not fill.
fn workloads(kind: EngineKind, transactions: bool) -> impl Iterator<Item = Workload> {
    let has = move |workload: &Workload| {
        !workload.is_fill() && (transactions || *workload != Workload::Transactions)
    };
    assert!(kind.has_transactions || !transactions);
    WORKLOADS.into_iter().filter(has)
}

/// Fills a new store with each kind of fill, and runs the other workloads for `options.rounds`
/// rounds.
fn run_all(kind: EngineKind, options: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(kind.name);
    let mut session = Session::open(kind, options, path, Held::default()).unwrap();
    let must = |record: Result<PeerRecord>| {
        record.unwrap_or_else(|error| panic!("{}: {error}", kind.name))
    };
    for workload in [Workload::FillSeq, Workload::FillRandom] {
        let turn = Turn {
            workload,
            threads: 1,
            round: 1,
        };
        let record = must(session.fill(workload, &mut Silent));
        check(&record, kind, turn, options.num);
    }
    for round in 1..=options.rounds {
        for workload in workloads(kind, options.has_transactions()) {
            for threads in options.threads.clone() {
                let turn = Turn {
                    workload,
                    threads,
                    round,
                };
                let record = must(session.run(turn, &mut Silent));
                check(&record, kind, turn, options.num);
            }
        }
    }
    session.close().unwrap();
}

#[test]
fn every_engine_reads_what_was_written_under_every_workload() {
    for kind in built() {
        run_all(
            kind,
            &Options {
                rounds: 2,
                ..tiny()
            },
        );
    }
}

/// All other workloads run on a store that was opened for transactions, too.
#[test]
fn engines_with_transactions_run_them() {
    for kind in built() {
        let options = Options {
            workloads: vec![Workload::Transactions.name().to_owned()],
            ..tiny()
        };
        if kind.has_transactions {
            run_all(kind, &options);
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(kind.name);
        let opened = Session::open(kind, &options, path, Held::default());
        assert!(matches!(opened, Err(Error::Option { .. })), "{}", kind.name);
    }
}

#[test]
fn a_transaction_reads_what_is_there_and_puts_all() {
    for kind in built().filter(|kind| kind.has_transactions) {
        let dir = tempfile::tempdir().unwrap();
        let options = tiny();
        let engine = kind.open(&setup(dir.path(), &options, true)).unwrap();
        let mut worker = engine.worker().unwrap();
        worker.put(b"one", b"first").unwrap();
        let reads = [b"one".to_vec(), b"two".to_vec()];
        let puts = [(b"one", b"again"), (b"two", b"other")];
        let puts = puts.map(|(key, value)| (key.to_vec(), value.to_vec()));
        let nothing: &[(Vec<u8>, Vec<u8>)] = &[];
        let two = [Some(b"first".to_vec()), None];
        let after = [Some(b"again".to_vec()), Some(b"other".to_vec())];
        for (puts, expected) in [(nothing, &two), (&puts[..], &two), (nothing, &after)] {
            let mut seen = vec![None; 2];
            let repeats = worker.transact(&reads, puts, &mut |at, value| {
                seen[at] = value.map(<[u8]>::to_vec);
            });
            assert_eq!(repeats.unwrap(), 0, "{}", kind.name);
            assert_eq!(seen, expected, "{}", kind.name);
        }
        drop(worker);
        engine.close().unwrap();
    }
}

#[test]
fn every_engine_takes_every_kind_of_key() {
    for kind in built() {
        for key_kind in [Kind::Binary, Kind::Random] {
            let options = Options {
                key_kind,
                threads: vec![2],
                ..tiny()
            };
            run_all(kind, &options);
        }
    }
}

#[test]
fn every_engine_commits_at_every_level_of_durability() {
    for kind in built() {
        for durability in levels(kind) {
            let dir = tempfile::tempdir().unwrap();
            let options = Options {
                num: 100,
                durability: *durability,
                ..tiny()
            };
            let path = dir.path().join(kind.name);
            let mut session = Session::open(kind, &options, path, Held::default()).unwrap();
            session.fill(Workload::FillSeq, &mut Silent).unwrap();
            for workload in [Workload::Overwrite, Workload::UpdateRandom] {
                let turn = Turn {
                    workload,
                    threads: 2,
                    round: 1,
                };
                let record = session.run(turn, &mut Silent).unwrap();
                assert_eq!(record.record.durability, Some(durability.name()));
                check(&record, kind, turn, options.num);
            }
            session.close().unwrap();
        }
    }
}

#[test]
fn engines_that_do_without_the_page_cache_do_so_when_memory_is_short() {
    for kind in built().filter(|kind| !kind.leans_on_page_cache) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = Options {
            num: 40_000,
            value_bytes: 1000,
            max_memory: 16 << 20,
            ..tiny()
        };
        assert!(options.is_out_of_memory());
        let path = dir.path().join(kind.name);
        let mut session = Session::open(kind, &options, path, Held::default()).unwrap();
        session.fill(Workload::FillRandom, &mut Silent).unwrap();
        let turn = Turn {
            workload: Workload::ReadSeq,
            threads: 1,
            round: 1,
        };
        let record = session.run(turn, &mut Silent).unwrap();
        check(&record, kind, turn, options.num);
        // A full pass reads its entries from disk, except for those that the cache holds.
        let bytes = record.disk_read_bytes_per_op.unwrap_or_default();
        assert!(bytes > 100.0, "{}: {bytes} bytes an entry", kind.name);
        session.close().unwrap();
    }
}

#[test]
fn a_fill_leaves_each_key_once_and_in_order() {
    for kind in built() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { num: 777, ..tiny() };
        let path = dir.path().join(kind.name);
        let mut session = Session::open(kind, &options, path, Held::default()).unwrap();
        for workload in [Workload::FillRandom, Workload::FillSeq, Workload::FillBulk] {
            let record = session.fill(workload, &mut Silent).unwrap();
            assert_eq!(record.record.ops, 777);
            let (kind, fill) = (kind.name, workload.name());
            assert!(record.settle_s.is_some(), "{kind}, {fill}");
            let writes = record.writes.unwrap_or_else(|| panic!("{kind}, {fill}"));
            assert_eq!(writes.user_bytes, options.data_bytes());
        }
        // There are fewer entries than a chunk, so one call reads all of them.
        assert!(options.num < CHUNK);
        let turn = Turn {
            workload: Workload::ReadSeq,
            threads: 1,
            round: 1,
        };
        let record = session.run(turn, &mut Silent).unwrap();
        assert_eq!(record.record.ops, 777, "{}", kind.name);
        session.close().unwrap();
    }
}

#[test]
fn every_engine_answers_as_an_ordered_map_does() {
    for kind in built() {
        let dir = tempfile::tempdir().unwrap();
        let options = tiny();
        let engine = kind.open(&setup(dir.path(), &options, false)).unwrap();
        let mut worker = engine.worker().unwrap();
        worker.put(b"one", b"first value").unwrap();
        let more = [(b"two".to_vec(), b"second value".to_vec())];
        worker.put_batch(&more).unwrap();
        let mut seen = Vec::new();
        let found = worker.get(b"two", &mut |_, value| seen = value.to_vec());
        assert!(found.unwrap(), "{}", kind.name);
        assert_eq!(seen, b"second value");
        assert!(!worker.get(b"three", &mut |_, _| unreachable!()).unwrap());
        let keys = [b"two".to_vec(), b"three".to_vec(), b"one".to_vec()];
        let mut many = vec![None; 3];
        worker
            .multi_get(&keys, &mut |at, value| {
                many[at] = Some(value.map(<[u8]>::to_vec))
            })
            .unwrap();
        let expected = [
            Some(b"second value".to_vec()),
            None,
            Some(b"first value".to_vec()),
        ];
        assert!(many.into_iter().flatten().eq(expected), "{}", kind.name);
        worker
            .update(b"one", &mut |old, new| {
                assert_eq!(old, Some(&b"first value"[..]));
                new.clear();
                new.extend_from_slice(b"changed");
            })
            .unwrap();
        let mut entries = Vec::new();
        let mut scan = |from: &[u8], limit| {
            entries.clear();
            worker
                .scan(from, limit, &mut |key, value| {
                    entries.push((key.to_vec(), value.to_vec()));
                })
                .unwrap();
            entries.clone()
        };
        let one = (b"one".to_vec(), b"changed".to_vec());
        assert_eq!(
            scan(b"a", 10),
            [one.clone(), more[0].clone()],
            "{}",
            kind.name
        );
        assert_eq!(scan(b"a", 1), [one]);
        assert_eq!(scan(b"onf", 10), more);
        assert_eq!(scan(b"z", 10), []);
        drop(worker);
        engine.sync().unwrap();
        engine.settle().unwrap();
        engine.close().unwrap();
    }
}

#[test]
fn a_directory_with_something_in_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "data").unwrap();
    let kind = EngineKind::from_name("pandodb").unwrap();
    let options = tiny();
    let opened = Session::open(kind, &options, dir.path().to_owned(), Held::default());
    assert!(matches!(opened.err(), Some(Error::Option { .. })));
    assert!(dir.path().join("precious").exists());
}

#[test]
fn engines_that_are_not_there_are_named() {
    let text = EngineKind::from_name("leveldb").unwrap_err().to_string();
    assert!(text.contains("there are pandodb, lmdb"), "{text}");
    for kind in ENGINES.iter().filter(|kind| !kind.is_built()) {
        let text = EngineKind::from_name(kind.name).unwrap_err().to_string();
        let feature = format!("--features {}", kind.feature);
        assert!(text.contains(&feature), "{text}");
    }
}
