//! The last handle of a store, and what user code does on the store's own threads: wakers drop it
//! there, close it there and panic there.

use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Mutex, OnceLock, Rank, WakerArc, thread};
use pandodb::{Builder, Db, Error};

/// A value that is stored in chunks, which a helper writes and reads for futures.
const LARGE: usize = 400_000;

fn options() -> Builder {
    Db::builder().max_memory(4 << 20)
}

/// Opens the store once it is closed.
fn opened(directory: &Path) -> Db {
    let deadline = time::now() + Duration::from_secs(30);
    loop {
        match options().open(directory) {
            Err(Error::InUse { .. }) if time::now() < deadline => {
                thread::park_timeout(Duration::from_millis(5));
            }
            result => return result.unwrap(),
        }
    }
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that is its own waker: the store holds it while it waits.
struct Task {
    future: Mutex<Option<TaskFuture>>,
    /// It is to be polled, perhaps again.
    is_woken: AtomicBool,
    /// It goes on where it is woken, on a thread of the store. Otherwise it is dropped there.
    goes_on: bool,
}

impl Task {
    fn spawn(goes_on: bool, future: impl Future<Output = ()> + Send + 'static) {
        let future: TaskFuture = Box::pin(future);
        let future = Mutex::new(Rank::Caller, Some(future));
        let is_woken = AtomicBool::new(false);
        WakerArc::new(Self {
            future,
            is_woken,
            goes_on,
        })
        .poll();
    }

    fn poll(self: WakerArc<Self>) {
        let waker = Waker::from(self.clone());
        let is_ready = |future: &mut TaskFuture| {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            polled.is_ready()
        };
        self.is_woken.store(true, Ordering::SeqCst);
        while self.is_woken.load(Ordering::SeqCst) {
            // Whoever polls it now looks again afterwards.
            let Some(mut future) = self.future.try_lock() else {
                return;
            };
            self.is_woken.store(false, Ordering::SeqCst);
            if future.as_mut().is_some_and(is_ready) {
                *future = None;
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: WakerArc<Self>) {
        if self.goes_on {
            self.poll();
        }
    }
}

/// A thread of the store that would have to wait for its own end has another one close it.
#[test]
fn the_last_handle_may_go_on_a_thread_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let value = vec![7; LARGE];
    for goes_on in [true, false] {
        let db = opened(directory.path());
        let table = db.table("t").unwrap();
        table.put(b"first", &value).unwrap();
        drop(db);
        let value = value.clone();
        Task::spawn(goes_on, async move {
            table.put_async(b"second", &value).await.unwrap();
            let found = table.get_async(b"first").await.unwrap();
            assert_eq!(found, Some(value));
            drop(table);
        });
        let table = opened(directory.path()).table("t").unwrap();
        assert_eq!(table.get(b"first").unwrap().unwrap().len(), LARGE);
        if goes_on {
            assert_eq!(table.get(b"second").unwrap().unwrap().len(), LARGE);
        }
    }
}

#[test]
fn a_store_that_is_closed_on_its_own_thread_is_closed_on_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let closed = Arc::new(OnceLock::new());
    Task::spawn(true, {
        let closed = closed.clone();
        async move {
            table.put_async(b"key", &vec![7; LARGE]).await.unwrap();
            drop(table);
            closed.set(db.close()).unwrap();
        }
    });
    let table = opened(directory.path()).table("t").unwrap();
    // A panic would have ended in the waker.
    let closed = closed.get();
    assert!(
        matches!(closed, Some(Err(Error::Busy { .. }))),
        "{closed:?}"
    );
    assert_eq!(table.get(b"key").unwrap().unwrap().len(), LARGE);
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: WakerArc<Self>) {
        panic!("of a waker: this belongs to the test");
    }
}

/// Whoever waits beside a waker that panics is woken, and the store goes on.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let wakers = [Waker::from(WakerArc::new(Panicking)), Waker::noop().clone()];
    let lengths = [1, LARGE];
    let mut writes: Vec<_> = (0..40_u8)
        .map(|number| Box::pin(table.put_async(&[number], &vec![7; lengths[number as usize % 2]])))
        .collect();
    let deadline = time::now() + Duration::from_secs(30);
    while !writes.is_empty() {
        for waker in &wakers {
            let mut context = Context::from_waker(waker);
            writes.retain_mut(|write| match write.as_mut().poll(&mut context) {
                std::task::Poll::Ready(ended) => {
                    ended.unwrap();
                    false
                }
                std::task::Poll::Pending => true,
            });
        }
        assert!(time::now() < deadline, "{} are left", writes.len());
    }
    table.put(b"key", b"value").unwrap();
    assert_eq!(table.len(), 41);
    drop(table);
    db.close().unwrap();
}

/// It would wait for the compaction, which waits for it.
#[test]
fn a_compaction_does_not_close_its_store() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let report = db.compact(|_| {
        assert!(matches!(db.clone().close(), Err(Error::Busy { .. })));
        table.put(b"key", b"value").unwrap();
        ControlFlow::Continue(())
    });
    assert!(report.unwrap().finished);
    assert_eq!(table.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(table);
    db.close().unwrap();
}

#[test]
fn a_store_that_must_exist_makes_no_directory() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("none");
    let refused = options().open_existing(&directory).map(drop).unwrap_err();
    assert!(matches!(
        refused,
        Error::InvalidOption { option: "dir", .. }
    ));
    assert!(!directory.exists());
    options().open(&directory).unwrap().close().unwrap();
    options().open_existing(&directory).unwrap();
}

#[test]
fn a_store_that_has_lost_its_superblock_is_not_taken_for_none() {
    let place = tempfile::tempdir().unwrap();
    options().open(place.path()).unwrap().close().unwrap();
    std::fs::remove_file(place.path().join("superblock")).unwrap();
    for opened in [
        options().open_existing(place.path()),
        options().open(place.path()),
    ] {
        let refused = opened.map(drop).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
    }
    let new = place.path().join("new");
    for refused in looked_at(place.path(), &new) {
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
    }
    assert!(!new.exists());
}

/// Returns the errors of all that reads the store in `directory` without opening it.
fn looked_at(directory: &Path, new: &Path) -> [Error; 3] {
    let none = |_, _| ();
    let refused = "it has no store that can be read";
    [
        pandodb::verify(directory, none).expect_err(refused),
        pandodb::stat(directory, none).expect_err(refused),
        pandodb::salvage(directory, new, options(), none).expect_err(refused),
    ]
}

#[test]
fn a_store_that_has_lost_its_data_file_is_damaged() {
    let place = tempfile::tempdir().unwrap();
    options().open(place.path()).unwrap().close().unwrap();
    std::fs::remove_file(place.path().join("data")).unwrap();
    let opened = options().open(place.path()).map(drop).unwrap_err();
    let looked = looked_at(place.path(), &place.path().join("new"));
    for refused in looked.into_iter().chain([opened]) {
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
        let text = refused.to_string();
        assert_eq!(text, "data is damaged: the file is missing");
    }
}

#[test]
fn a_directory_without_a_store_is_named_as_that() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("letter.txt"), "dear").unwrap();
    let new = place.path().join("new");
    for refused in looked_at(place.path(), &new) {
        assert!(
            matches!(refused, Error::InvalidOption { option: "dir", .. }),
            "{refused}"
        );
    }
    assert!(!new.exists());
}

#[test]
fn a_new_store_lies_beside_what_services_keep_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let kept = ["redis.conf", "redis.log", "pando.toml", "pando.pid"];
    for name in kept {
        std::fs::write(path(name), name).unwrap();
    }
    std::fs::create_dir(path("old")).unwrap();
    for foreign in ["dump.rdb", "conf", "log", "old/redis.log"] {
        std::fs::write(path(foreign), foreign).unwrap();
        let refused = options().open(place.path()).map(drop).unwrap_err();
        let what = format!("holds '{foreign}'");
        assert!(refused.to_string().contains(&what), "{refused}");
        let lock = path("LOCK");
        assert!(!lock.exists(), "a refused opening leaves a lock file");
        // One that was there stays: it may be that of another program.
        std::fs::write(&lock, "4711").unwrap();
        assert!(options().open(place.path()).is_err());
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), "4711");
        std::fs::remove_file(lock).unwrap();
        std::fs::remove_file(path(foreign)).unwrap();
    }
    // As if a creation had been cut off: what it has left goes, and nothing else.
    for name in ["creating", "data", "map.1"] {
        std::fs::write(path(name), "unfinished").unwrap();
    }
    options().open(place.path()).unwrap().close().unwrap();
    options().open_existing(place.path()).unwrap();
    for name in kept {
        assert_eq!(std::fs::read_to_string(path(name)).unwrap(), name);
    }
}
