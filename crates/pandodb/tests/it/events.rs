//! What the engine tells `tracing`: that it is poisoned, once; that it was opened and closed.

use std::fmt::{Debug, Write as _};

use pando_sync::{Arc, Mutex};
use pandodb::device::AnyDevice;
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::{Db, Error};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events of a thread as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_log_that_fails_is_told_once_with_its_cause() {
    let lines = Lines::default();
    let told = lines.clone();
    tracing::subscriber::with_default(lines, || {
        let device = FaultyDevice::new(1);
        let db = Db::open_device(Db::builder(), AnyDevice::from(device.clone())).unwrap();
        let table = db.table("t").unwrap();
        device.fail(FaultPlan::once(Operation::Sync, "log/", 1, Fault::Io));
        for _ in 0..3 {
            let refused = table.put(b"key", b"value");
            assert!(
                matches!(refused, Err(Error::Poisoned { .. })),
                "{refused:?}"
            );
        }
        db.close().unwrap_err();
    });
    let lines = told.0.lock();
    let of = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!(of("INFO message=store opened"), 1, "{lines:#?}");
    assert_eq!(of("takes no writes until"), 1, "{lines:#?}");
    assert_eq!(of("store closed without a checkpoint"), 1, "{lines:#?}");
    let errors = lines.iter().filter(|line| line.starts_with("ERROR"));
    assert!(
        errors.into_iter().all(|line| line.contains("sync")),
        "{lines:#?}"
    );
}
