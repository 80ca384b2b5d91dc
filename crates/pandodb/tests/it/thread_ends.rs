//! Stores that are used, closed and dropped by what a thread keeps and destroys when it ends: what
//! the store keeps of the same thread may have been destroyed before.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_sync::thread;
use pando_sync::{Arc, Mutex, Rank};
use pandodb::{Batch, Builder, Db, Snapshot, Table};

use crate::fixture::{NONE, fill, text_key as key};

const ROWS: u32 = 4000;
const LONG: usize = 300_000;

type Act = Box<dyn FnOnce() + Send>;

/// Acts when it is destroyed with its thread.
struct AtEnd {
    act: Option<Act>,
    /// None until then; whether it has panicked.
    panicked: Arc<Mutex<Option<bool>>>,
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        let act = self.act.take().unwrap();
        // A panic in here would end the process.
        let panicked = catch_unwind(AssertUnwindSafe(act)).is_err();
        *self.panicked.lock() = Some(panicked);
    }
}

/// Calls `uses` on a thread, then `act` behind the end of all that the store keeps of the thread.
fn at_the_end_of_a_thread(uses: impl FnOnce() + Send + 'static, act: Act) {
    let panicked = Arc::new(Mutex::new(Rank::Leaf, None));
    let at_end = AtEnd {
        act: Some(act),
        panicked: panicked.clone(),
    };
    let run = move || {
        // What is made first is destroyed last.
        AT_END.set(Some(at_end));
        uses();
    };
    thread::spawn(run).join().unwrap();
    assert_eq!(*panicked.lock(), Some(false));
}

fn options() -> Builder {
    let options = Db::builder().max_memory(4 << 20).frames(64);
    options.chunk_size(64 << 10).chunk_values_over(LONG / 2)
}

/// Does everything that keeps something of its thread.
fn use_all(table: &Table, snapshot: &Snapshot, round: u8) {
    let db = table.db();
    let some: Vec<Vec<u8>> = (0..ROWS).step_by(37).map(key).collect();
    let some: Vec<&[u8]> = some.iter().map(|key| &key[..]).collect();
    for key in &some {
        let shown = table.get_with(key, <[u8]>::len).unwrap();
        assert_eq!(shown, Some(500));
        assert_eq!(table.get(key).unwrap().unwrap().len(), 500);
        let before = snapshot.get(table, key).unwrap();
        assert_eq!(before.unwrap(), [7; 500]);
    }
    assert_eq!(table.get_many(&some).unwrap().len(), some.len());
    assert_eq!(snapshot.get_many(table, &some).unwrap().len(), some.len());
    assert!(table.range(..).count() > ROWS as usize);
    assert_eq!(table.get(b"long").unwrap().unwrap().len(), LONG);

    table.put(&[b'a', round], b"a").unwrap();
    table.put(b"long", &[round; LONG]).unwrap();
    table.update(some[1], |_| Some(vec![round; 500])).unwrap();
    assert!(!table.delete(b"none").unwrap());
    let mut batch = Batch::new();
    batch.put(table, some[2], &[round; 500]);
    batch.put(table, b"b", b"b");
    db.write(&mut batch, Default::default()).unwrap();
    let changed = db.transact(|transaction| {
        transaction.get(table, some[3])?;
        transaction.put(table, some[3], &[round; 500])
    });
    changed.unwrap();
    db.checkpoint().unwrap();
    assert!(db.snapshot().is_ok());
}

#[test]
fn a_store_is_used_when_its_thread_has_forgotten_it() {
    let place = tempfile::tempdir().unwrap();
    let db = options().open(place.path()).unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..ROWS, |number| (key(number), [7; 500]));
    table.put(b"long", &[7; LONG]).unwrap();
    let snapshot = Arc::new(db.snapshot().unwrap());
    let (other, before) = (table.clone(), snapshot.clone());
    let uses = move || use_all(&other, &before, 1);
    let other = table.clone();
    at_the_end_of_a_thread(uses, Box::new(move || use_all(&other, &snapshot, 2)));
    assert_eq!(table.get(b"long").unwrap().unwrap(), [2; LONG]);
}

#[test]
fn the_last_handle_may_go_with_its_thread() {
    for closes in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let db = options().open(place.path()).unwrap();
        let table = db.table("t").unwrap();
        fill(&table, 0..ROWS, |number| (key(number), [7; 500]));
        let other = table.clone();
        let uses = move || {
            // The close makes the file shorter, for which it waits for a checkpoint.
            for number in 0..ROWS - 10 {
                other.delete_with(&key(number), NONE).unwrap();
            }
            other.db().checkpoint().unwrap();
        };
        let end = move || {
            drop(table);
            match closes {
                true => db.close().unwrap(),
                false => drop(db),
            }
        };
        at_the_end_of_a_thread(uses, Box::new(end));
        // The close has written a checkpoint, also of writes that are not durable at once.
        let db = options().open(place.path()).unwrap();
        assert_eq!(db.report().recovery_batches, 0);
        assert_eq!(db.table("t").unwrap().len(), 10);
    }
}
