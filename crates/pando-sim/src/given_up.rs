//! Stores in which a page was given up: it could not be read four times when a write to it was due,
//! whose record was in the log (decision 061). The write was put aside, and the page stays out of
//! reach, also once it could be read. Everything else is as it was.

use pando_device::FaultyDevice;
use pandodb::statistics::Ticker;
use pandodb::{Db, Error};

use crate::failure::{Failure, Result, Unread, fail};
use crate::history;
use crate::store;
use crate::workload::Run;

/// Returns the number of writes that were put aside.
pub(crate) fn writes(db: &Db) -> u64 {
    db.statistics().get(Ticker::WritesAside)
}

/// Checks that tables without such a page hold what was committed, and others say what is damaged:
/// now, and when the store has been closed and is opened again, where it takes writes.
pub(crate) fn check(seed: u64, db: Db, device: &FaultyDevice, run: &Run) -> Result<()> {
    let most = writes(&db);
    check_tables(&db, run, most)?;
    db.close().map_err(failed("closing"))?;
    let db = store::open(seed, device).map_err(failed("opening"))?;
    check_tables(&db, run, most).map_err(|failure| failure.within("opened again"))?;
    let table = db.table(store::PROBE).map_err(failed("probing"))?;
    table.put(b"key", b"value").map_err(failed("probing"))?;
    drop(table);
    db.close().map_err(failed("closing again"))
}

/// True if `error` tells of such a page.
pub(crate) fn is_told(error: &Error) -> bool {
    error.is_corruption() && error.to_string().contains("out of reach")
}

fn failed(what: &str) -> impl FnOnce(Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// `most` tables may be damaged.
fn check_tables(db: &Db, run: &Run, most: u64) -> Result<()> {
    let unknown = history::changed_beside_failed(&run.histories);
    let mut damaged = 0;
    for name in db.tables().iter().filter(|name| *name != store::PROBE) {
        match store::read_table(db, name) {
            Ok(_) if unknown.contains(name) => {}
            Ok(entries) => history::check_table(&run.histories, name, &entries)?,
            Err(Unread::Error(error)) if is_told(&error) => damaged += 1,
            Err(unread) => return fail(format!("reading {name}: {unread:?}")),
        }
    }
    match damaged <= most {
        true => Ok(()),
        false => fail(format!("{damaged} tables are damaged by {most} writes")),
    }
}
