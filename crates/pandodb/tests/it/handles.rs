//! What user code does on the store's own threads: wakers panic there.

use std::task::{Context, Wake, Waker};

use pando_sync::WakerArc;
use pando_sync::time::{self, Duration};
use pandodb::{Builder, Db};

/// A value that is stored in chunks, which a helper writes and reads for futures.
const LARGE: usize = 400_000;

fn options() -> Builder {
    Db::builder().max_memory(4 << 20)
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
