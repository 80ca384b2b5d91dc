//! Keys that an import or an export cannot take, as it names them.

use crate::output;

/// Keys that are named, and how many bytes of the name of each.
const SHOWN: u64 = 10;
const NAME_BYTES: usize = 200;

/// Says why the key `name` stays behind, the `count`-th that does; of the first that is not named,
/// `others`.
pub(crate) fn tell(count: u64, name: &[u8], why: &str, others: &str) {
    match count {
        ..=SHOWN => {
            let (start, more) = name.split_at(name.len().min(NAME_BYTES));
            let start = start.escape_ascii();
            match more.len() {
                0 => output::note(format_args!("'{start}': {why}")),
                more => output::note(format_args!("'{start}' and {more} bytes: {why}")),
            }
        }
        count if count == SHOWN + 1 => output::note(others),
        _ => {}
    }
}
