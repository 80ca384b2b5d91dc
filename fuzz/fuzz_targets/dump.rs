//! Loads a dump whose first lines are right and whose rows are the input: an error that names a
//! line, or a store whose dump is loaded again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pandodb::device::MemoryDevice;
use pandodb::{Builder, Db, DumpReport, Error};

fn options() -> Builder {
    Db::builder().max_memory(4 << 20).frames(64)
}

/// Returns the text of a dump of nothing, up to its first table.
fn header() -> Vec<u8> {
    let db = options().open_in_memory().expect("it opens");
    let mut text = Vec::new();
    let snapshot = db.snapshot().expect("it begins");
    snapshot.dump(&mut text, |_, _| ()).expect("it is written");
    text.truncate(text.len() - b"whole 0\n".len());
    text
}

/// Loads the text, and returns the dump of what that made.
fn again(text: &[u8]) -> Result<Vec<u8>, Error> {
    let device = MemoryDevice::new(64 << 20);
    DumpReport::load_into(text, device.clone().into(), options())?;
    let db = Db::open_device(options(), device.into())?;
    let mut again = Vec::new();
    db.snapshot()?.dump(&mut again, |_, _| ())?;
    Ok(again)
}

/// The tables of a dump.
fn tables(text: &[u8]) -> &[u8] {
    let begin = text.windows(10).position(|part| part == b"\nchecksum ");
    &text[begin.expect("each dump has this line") + 20..]
}

fuzz_target!(|bytes: &[u8]| {
    let text = [&header()[..], bytes].concat();
    match again(&text) {
        Ok(copy) => {
            let second = again(&copy).expect("it was written by this program");
            assert_eq!(tables(&copy), tables(&second));
        }
        Err(Error::InvalidDump { line, .. }) => assert!(line > 6, "{line}"),
        Err(
            Error::KeyTooLong { .. }
            | Error::InvalidTableName { .. }
            | Error::Full { .. }
            | Error::ValueTooLong { .. }
            | Error::BatchTooLarge { .. },
        ) => {}
        Err(other) => panic!("{other}"),
    }
});
