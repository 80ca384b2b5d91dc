//! Models of the wake-up protocol: in every interleaving of two or three threads, all of them are
//! woken. Run them with `RUSTFLAGS="--cfg pando_loom" cargo test -p pando-wal --release --lib`.

use pando_format::Lsn;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, thread};

use crate::group::{Failed, Group, Role};
use crate::parking::Parking;

/// A log whose records are numbers without bytes.
struct Model {
    group: Group,
    reserved: AtomicU64,
    flushing: AtomicBool,
}

impl Model {
    fn new(reserved: u64) -> Arc<Self> {
        Arc::new(Self {
            group: Group::new(Lsn(0)),
            reserved: AtomicU64::new(reserved),
            flushing: AtomicBool::new(false),
        })
    }

    fn append(&self) -> Lsn {
        Lsn(self.reserved.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn flush(&self) -> Lsn {
        let other = self.flushing.swap(true, Ordering::Relaxed);
        assert!(!other, "two flushes are in flight");
        let newest = Lsn(self.reserved.load(Ordering::Acquire));
        self.group.batch_closed(newest);
        self.flushing.store(false, Ordering::Relaxed);
        newest
    }

    fn commit(&self) {
        let lsn = self.append();
        let waited = self.group.wait(lsn, Role::Committer, || Some(self.flush()));
        assert_eq!(waited, Ok(()));
        assert!(self.group.durable() >= lsn);
    }
}

fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn two_committers_are_both_told() {
    check(3, || {
        let model = Model::new(0);
        let other = thread::spawn({
            let model = model.clone();
            move || model.commit()
        });
        model.commit();
        other.join().unwrap();
    });
}

#[test]
fn three_committers_are_all_told() {
    check(1, || {
        let model = Model::new(0);
        let others = [0, 1].map(|_| {
            let model = model.clone();
            thread::spawn(move || model.commit())
        });
        model.commit();
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn an_event_loop_is_told_by_the_flush_of_another() {
    check(3, || {
        let model = Model::new(2);
        let flusher = thread::spawn({
            let model = model.clone();
            move || {
                let waited = model
                    .group
                    .wait(Lsn(2), Role::Background, || Some(model.flush()));
                assert_eq!(waited, Ok(()));
            }
        });
        let parking = Parking::new();
        while !model.group.request(Lsn(1), parking.waker()).unwrap() {
            parking.park();
        }
        flusher.join().unwrap();
    });
}

#[test]
fn a_failed_flush_is_told_to_all() {
    check(3, || {
        let model = Model::new(2);
        let flusher = thread::spawn({
            let model = model.clone();
            move || model.group.wait(Lsn(2), Role::Committer, || None)
        });
        let waited = model.group.wait(Lsn(1), Role::Committer, || None);
        assert_eq!(waited, Err(Failed));
        assert_eq!(flusher.join().unwrap(), Err(Failed));
    });
}
