//! Stores of processes that may not have longer files, or more open ones.
//!
//! Each case runs in a forked child, whose limits are its own. These tests are a program of their
//! own because no child may have inherited a store.

#![expect(
    unsafe_code,
    reason = "limits are set by raw calls, and std does not fork"
)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::{Builder, Db, Durability, Error, Table, WriteOptions};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Runs `case` in a forked child. Returns whether it succeeded within two minutes.
fn in_child(case: impl FnOnce()) -> bool {
    // SAFETY: the child runs `case` and ends without returning. `case` may allocate: glibc makes
    // its allocator usable in children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. Its signal ends a child that hangs.
        unsafe { libc::alarm(120) };
        let outcome = catch_unwind(AssertUnwindSafe(case));
        if let Err(panic) = &outcome {
            // What the panic has said is in a buffer of the test, which ends with the child.
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let _ = writeln!(io::stderr(), "in a child: {}", text.unwrap_or("?"));
        }
        // SAFETY: the call ends the child at once, without destructors that belong to the parent.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the call waits for the child made above, and `status` has room for its result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn builder() -> Builder {
    Db::builder().max_memory(8 << 20).log_bytes(1 << 20)
}

/// Sets a soft limit of this process; returns the one before.
fn limit(resource: libc::__rlimit_resource_t, most: u64) -> u64 {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the limits, which outlive it.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limits) }, 0);
    let before = limits.rlim_cur;
    limits.rlim_cur = most.min(limits.rlim_max);
    // SAFETY: the call reads the limits.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limits) }, 0);
    before
}

fn key(number: u32) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec()
}

fn check(table: &Table, rows: &Rows) {
    let stored: Rows = table.range(..).map(Result::unwrap).collect();
    assert!(stored == *rows, "{} rows, not {}", stored.len(), rows.len());
}

fn check_stored(place: &Path, rows: &Rows) {
    let db = builder().open(place).unwrap();
    check(&db.table("data").unwrap(), rows);
    db.close().unwrap();
    let report = pandodb::verify(place, |_, _| ()).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

/// Puts until one is refused, at most `most` keys; returns the refusal.
fn put_until_refused(table: &Table, rows: &mut Rows, from: u32, most: u32) -> Option<Error> {
    for number in from..from + most {
        let options = if number % 16 == 0 {
            WriteOptions::default()
        } else {
            NONE
        };
        let value = vec![number.to_le_bytes()[0]; 300 + (number % 700) as usize];
        match table.put_with(&key(number), &value, options) {
            Ok(()) => drop(rows.insert(key(number), value)),
            Err(error) => return Some(error),
        }
    }
    None
}

/// Calls `again` until it succeeds; it may be refused for lack of room.
fn until_there_is_room<T>(mut again: impl FnMut() -> pandodb::Result<T>) -> T {
    let deadline = time::now() + Duration::from_secs(20);
    loop {
        match again() {
            Ok(done) => return done,
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                assert!(time::now() < deadline, "it is refused for ever: {error}");
                thread::yield_now();
            }
        }
    }
}

/// The limit is lowered below what the files have already, as an administrator may do. A commit
/// that is in the log by then waits for it to be raised, as on a full disk.
#[test]
fn files_that_may_not_be_so_long_are_a_full_disk() {
    for most in [0, 4096, 100 << 10, 1 << 20, 3 << 20] {
        let place = tempfile::tempdir().unwrap();
        let fine = in_child(|| {
            // SAFETY: the signal is ignored from now on, and nobody else is in this process.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            let db = builder().open(place.path()).unwrap();
            let table = db.table("data").unwrap();
            let mut rows = Rows::new();
            assert!(put_until_refused(&table, &mut rows, 0, 6000).is_none());
            let before = limit(libc::RLIMIT_FSIZE, most);
            let refused = thread::scope(|scope| {
                let puts = scope.spawn(|| put_until_refused(&table, &mut rows, 10_000, 40_000));
                let checkpoint = scope.spawn(|| db.checkpoint());
                let deadline = time::now() + Duration::from_secs(1);
                while !puts.is_finished() && time::now() < deadline {
                    thread::park_timeout(Duration::from_millis(10));
                }
                assert!(table.get(&key(3)).unwrap().is_some(), "reads go on");
                limit(libc::RLIMIT_FSIZE, before);
                let checkpoint = checkpoint.join().unwrap();
                let is_full = matches!(checkpoint, Ok(()) | Err(Error::Full { .. }));
                assert!(is_full, "{most}: {checkpoint:?}");
                puts.join().unwrap()
            });
            let is_full = matches!(refused, None | Some(Error::Full { .. }));
            assert!(is_full, "{most}: {refused:?}");
            if let Some(refused) = refused {
                let text = refused.to_string();
                assert!(text.contains("files may not be so long"), "{most}: {text}");
            }
            check(&table, &rows);
            until_there_is_room(|| table.put(b"after", b"1"));
            rows.insert(b"after".to_vec(), b"1".to_vec());
            until_there_is_room(|| db.checkpoint());
            drop(table);
            db.close().unwrap();
            check_stored(place.path(), &rows);
        });
        assert!(fine, "{most}");
    }
}

/// Takes descriptors of this process until `left` more may be opened.
fn leave_files(left: usize) -> Vec<fs::File> {
    let open = || fs::File::open("/dev/null");
    let mut taken: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
    let kept = taken.len().saturating_sub(left);
    taken.truncate(kept);
    taken
}

fn is_for_want_of_files(error: &Error) -> bool {
    error.to_string().contains("Too many open files")
}

/// It is opened, or the error says why not, and nothing has happened to it; also to a new one.
#[test]
fn a_store_is_opened_or_not_at_all() {
    let fine = in_child(|| {
        limit(libc::RLIMIT_NOFILE, 100);
        let place = tempfile::tempdir().unwrap();
        let mut rows = Rows::new();
        for is_new in [true, false] {
            let mut refused = 0;
            for left in 0..30_u32 {
                let taken = leave_files(left as usize);
                let db = match builder().open(place.path()) {
                    Ok(db) => db,
                    Err(error) => {
                        assert!(is_for_want_of_files(&error), "{left}: {error}");
                        refused += 1;
                        continue;
                    }
                };
                drop(taken);
                let table = db.table("data").unwrap();
                let from = left * 200 + 10_000 * u32::from(is_new);
                assert!(put_until_refused(&table, &mut rows, from, 200).is_none());
                drop(table);
                db.close().unwrap();
                if is_new {
                    break;
                }
            }
            assert!(refused > 5, "{refused}");
            check_stored(place.path(), &rows);
        }
    });
    assert!(fine);
}

/// Does what opens files; returns how often there were none, which is the one error there may be.
fn work(db: &Db, table: &Table, rows: &mut Rows, round: u32) -> usize {
    let mut refused = Vec::new();
    refused.extend(put_until_refused(table, rows, (round + 1) * 10_000, 3000));
    refused.extend(db.checkpoint().err());
    refused.extend(db.table(&format!("more{round}")).err());
    refused.extend(db.snapshot_settled().err());
    refused.extend(db.compact(|_| ControlFlow::Continue(())).err());
    let large = vec![7; 3 << 20];
    let put = table.put_streamed(b"large", large.len() as u64, &large[..]);
    refused.extend(put.err());
    for error in &refused {
        assert!(is_for_want_of_files(error), "{error}");
    }
    refused.len()
}

#[test]
fn a_store_that_may_open_no_more_files_goes_on_when_it_may() {
    for left in 0..2 {
        let place = tempfile::tempdir().unwrap();
        let fine = in_child(|| {
            limit(libc::RLIMIT_NOFILE, 200);
            let db = builder().open(place.path()).unwrap();
            let table = db.table("data").unwrap();
            let mut rows = Rows::new();
            assert!(put_until_refused(&table, &mut rows, 0, 2000).is_none());
            let (mut taken, mut refused) = (Vec::new(), 0);
            for round in 0..6 {
                // Again: a thread of the store may have closed one since.
                taken.extend(leave_files(left));
                refused += work(&db, &table, &mut rows, round);
            }
            assert!(refused > 0 || left > 0, "no file was wanted");
            let (any, value) = rows.iter().next().unwrap();
            assert_eq!(table.get(any).unwrap().as_ref(), Some(value));
            drop(taken);
            assert_eq!(work(&db, &table, &mut rows, 6), 0, "{left}");
            table.delete(b"large").unwrap();
            check(&table, &rows);
            drop(table);
            db.close().unwrap();
            check_stored(place.path(), &rows);
        });
        assert!(fine, "{left}");
    }
}

/// Returns the bytes of address space that this process has.
fn address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_store_whose_memory_is_refused_is_not_opened() {
    let place = tempfile::tempdir().unwrap();
    for mib in [1, 40, 80, 160, 250, 320] {
        let fine = in_child(|| {
            let before = limit(libc::RLIMIT_AS, address_space() + (mib << 20));
            let opened = Db::builder().max_memory(256 << 20).open(place.path());
            limit(libc::RLIMIT_AS, before);
            if let Err(error) = &opened {
                let text = error.to_string();
                let of_memory = text.contains("Cannot allocate memory");
                assert!(of_memory || text.contains("start pando-"), "{mib}: {text}");
            }
            assert!(
                mib > 160 || opened.is_err(),
                "{mib}: it needs less than it may take"
            );
            drop(opened);
            check_stored(place.path(), &Rows::new());
        });
        assert!(fine, "{mib}");
    }
}
