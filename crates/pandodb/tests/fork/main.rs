//! A store in a forked child: data in memory can be read, every call that needs a thread or a file
//! of the parent fails at once, and the parent notices nothing.
//!
//! These tests are a program of their own because a child briefly shares the locks of all open
//! directories.

#![expect(unsafe_code, reason = "std does not fork")]

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pandodb::{Db, Durability, Error, WriteOptions, device};

/// Runs `case` in a forked child. Returns whether it succeeded within half a minute.
fn in_child(case: impl FnOnce()) -> bool {
    // SAFETY: the child runs `case` and ends without returning. `case` may allocate: glibc makes
    // its allocator usable in children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. Its signal ends a child that hangs.
        unsafe { libc::alarm(30) };
        let is_fine = catch_unwind(AssertUnwindSafe(case)).is_ok();
        // SAFETY: the call ends the child at once, without destructors that belong to the parent.
        unsafe { libc::_exit(i32::from(!is_fine)) };
    }
    let mut status = 0;
    // SAFETY: the call waits for the child made above, and `status` has room for its result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn is_forked<T>(result: pandodb::Result<T>) -> bool {
    matches!(result, Err(Error::Io { source, .. }) if matches!(*source, device::Error::Forked))
}

#[test]
fn a_child_reads_what_is_in_memory_and_everything_else_fails_at_once() {
    let place = tempfile::tempdir().unwrap();
    let options = || {
        Db::builder()
            .durability(Durability::Durable)
            .max_memory(16 << 20)
    };
    let db = options().open(place.path()).unwrap();
    let table = db.table("things").unwrap();
    let value = [7; 1000];
    let quick = WriteOptions::durability(Durability::None);
    for number in 0..40_000_u32 {
        let key = number.to_be_bytes();
        table.put_with(&key, &value, quick).unwrap();
    }
    let last = 39_999_u32.to_be_bytes();
    assert!(table.get(&last).unwrap().is_some());
    // The data are far more than fits in memory.
    let is_cold = |number: &u32| {
        let mut get = pin!(table.get_async(&number.to_be_bytes()));
        let mut context = Context::from_waker(Waker::noop());
        get.as_mut().poll(&mut context).is_pending()
    };
    let cold = (0..40_000_u32).rev().find(is_cold).unwrap();
    table.put(b"large", &[7; 5 << 20]).unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut left = Some((db.clone(), table.clone()));
    let fine = in_child(|| {
        assert_eq!(table.get(&last).unwrap().unwrap(), value);
        assert!(is_forked(table.put(b"key", b"value")));
        assert!(is_forked(table.delete(&last)));
        assert!(is_forked(db.table("more")));
        assert!(is_forked(db.flush()));
        assert!(is_forked(db.checkpoint()));
        let key = (cold / 2).to_be_bytes();
        assert!(is_forked(table.get(&key)));
        assert!(is_forked(table.get(b"large")));
        assert!(is_forked(table.get_many(&[&key, b"large"])));
        assert!(is_forked(
            table.iter().try_for_each(|entry| entry.map(drop))
        ));
        assert!(is_forked(snapshot.get(&table, &key)));
        let mut get = pin!(table.get_async(&key));
        let mut context = Context::from_waker(Waker::noop());
        match get.as_mut().poll(&mut context) {
            Poll::Ready(result) => assert!(is_forked(result)),
            Poll::Pending => panic!("it waits for a thread of the parent"),
        }
        drop(left.take());
    });
    assert!(fine);
    table.put(b"key", b"value").unwrap();
    assert!(table.get(b"large").unwrap().is_some());
    drop((left, table, snapshot));
    db.close().unwrap();
    let db = options().open(place.path()).unwrap();
    let table = db.table("things").unwrap();
    assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(table.get(&last).unwrap().unwrap(), value);
}

/// The parent may have freed the blocks that a settled snapshot reads, and a child is not told.
#[test]
fn a_child_does_not_read_files_through_a_settled_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let options = Db::builder().max_memory(16 << 20);
    let db = options.open(place.path()).unwrap();
    let table = db.table("things").unwrap();
    table.put(b"key", b"value").unwrap();
    let snapshot = db.snapshot_settled().unwrap();
    assert!(snapshot.get(&table, b"key").unwrap().is_some());
    let fine = in_child(|| {
        assert!(is_forked(snapshot.get(&table, b"key")));
        assert!(is_forked(db.snapshot_settled()));
    });
    assert!(fine);
    assert!(snapshot.get(&table, b"key").unwrap().is_some());
}

/// A child has the files of its parent, and its locks, until it executes another program.
#[test]
fn a_store_opens_again_while_a_child_has_its_files() {
    let place = tempfile::tempdir().unwrap();
    let options = || Db::builder().max_memory(8 << 20);
    let db = options().open(place.path()).unwrap();
    let kept = Some(db.clone());
    let (mut told, tell) = io::pipe().unwrap();
    let (mut heard, mut say) = io::pipe().unwrap();
    // SAFETY: the child reads from a file, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop((kept, tell));
        let _ = say.write(b"x");
        let _ = told.read(&mut [0]);
        // SAFETY: the call ends the child at once.
        unsafe { libc::_exit(0) };
    }
    heard.read_exact(&mut [0]).unwrap();
    let refused = options().open(place.path()).unwrap_err();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop(kept);
    db.close().unwrap();
    let again = options().open(place.path());
    drop(tell);
    // SAFETY: the call waits for the child made above, and needs no status.
    let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(waited, child);
    again.unwrap().close().unwrap();
}

/// A process that may have no more threads is told so, and that is the end of it.
#[test]
fn a_store_whose_threads_cannot_be_started_is_not_opened() {
    let fine = in_child(|| {
        let most = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: the limit lives as long as the call.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const most) };
        assert_eq!(limited, 0);
        // No limit holds for root; who is not root stays who he is.
        // SAFETY: the call takes a number.
        let _refused = unsafe { libc::setuid(54321) };
        let refused = Db::builder().open_in_memory().map(drop).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
        assert!(refused.to_string().contains("start pando-"), "{refused}");
    });
    assert!(fine);
}
