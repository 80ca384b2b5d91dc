//! Stores whose files are not of one moment: `log` was left out of a backup, or is that of another
//! one. They are refused, and not opened as they were at some moment before.

use std::fs;
use std::path::Path;

use pandodb::{Builder, Db, Error};

use crate::fixture::copy_directory;

fn options() -> Builder {
    Db::builder().max_memory(4 << 20)
}

fn put(db: &Db, value: &[u8]) {
    db.table("t").unwrap().put(b"key", value).unwrap();
}

/// Checks that opening `directory` and verifying it say `what` is wrong with its log, and that a
/// salvage says so, too, and finds `value` at the key.
fn assert_refused(directory: &Path, what: &str, value: Option<&[u8]>) {
    for _ in 0..2 {
        let refused = options().open(directory).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
        assert!(refused.to_string().contains(what), "{refused}");
    }
    let report = pandodb::verify(directory, |_, _| ()).unwrap();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert!(
        report.damages[0].what.contains(what),
        "{:?}",
        report.damages
    );

    let salvaged = directory.with_extension("salvaged");
    let report = pandodb::salvage(directory, &salvaged, options(), |_, _| ()).unwrap();
    assert!(report.unbounded[0].what.contains(what), "{report:?}");
    let db = options().open(&salvaged).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(table.get(b"key").unwrap().as_deref(), value);
}

#[test]
fn a_store_without_its_log_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let db = options().open(at("store")).unwrap();
    put(&db, b"checkpointed");
    db.checkpoint().unwrap();
    put(&db, b"acknowledged");
    copy_directory(&at("store"), &at("ended"));
    db.close().unwrap();
    copy_directory(&at("store"), &at("closed"));

    fs::remove_dir_all(at("ended/log")).unwrap();
    assert_refused(
        &at("ended"),
        "no file of it is there",
        Some(b"checkpointed"),
    );
    for entry in fs::read_dir(at("closed/log")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_refused(
        &at("closed"),
        "no file of it is there",
        Some(b"acknowledged"),
    );
}

#[test]
fn a_store_with_the_log_of_a_later_life_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let db = options().open(at("store")).unwrap();
    put(&db, b"of monday");
    copy_directory(&at("store"), &at("monday"));
    drop(db);
    let db = options().open_existing(at("store")).unwrap();
    put(&db, b"of tuesday");
    copy_directory(&at("store"), &at("tuesday"));
    drop(db);

    copy_directory(&at("monday"), &at("whole"));
    let whole = options().open(at("whole")).unwrap();
    let found = whole.table("t").unwrap().get(b"key").unwrap();
    assert_eq!(found.as_deref(), Some(&b"of monday"[..]));

    fs::remove_dir_all(at("monday/log")).unwrap();
    copy_directory(&at("tuesday/log"), &at("monday/log"));
    assert_refused(&at("monday"), "of different moments", None);
}
