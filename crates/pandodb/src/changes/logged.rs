//! What an operation of the log may be. Its record has a checksum, and still it may come from a
//! program that went wrong, or from somebody who made it up: what the trees take for granted of
//! keys, values and names is checked before anything is done.

use pando_format::catalogue::TABLE_NAME_BYTES_MAX;
use pando_format::log::Operation;
use pando_format::{Damage, PageSize};
use pando_tree::VALUE_BYTES_MAX;

/// Checks the lengths in an operation, for pages of `page_size`.
///
/// # Errors
/// [`Damage`] if no commit writes such an operation.
pub(crate) fn check_operation(
    page_size: PageSize,
    operation: &Operation<'_>,
) -> Result<(), Damage> {
    match operation {
        Operation::Put { key, value, .. } => check_write(page_size, key, value.len()),
        Operation::Delete { key, .. } | Operation::PutChunks { key, .. } => {
            check_write(page_size, key, 0)
        }
        Operation::CreateTable { name, .. }
        | Operation::DropTable { name, .. }
        | Operation::ReplaceTable { name, .. }
        | Operation::TakeTree { name, .. } => check_name(name),
        Operation::SwapTables { first, second, .. } => {
            check_name(first).and_then(|()| check_name(second))
        }
    }
}

/// Checks the lengths of a key and its value.
///
/// # Errors
/// [`Damage`] if no table has such a key, or such a value in pages.
pub(crate) fn check_write(
    page_size: PageSize,
    key: &[u8],
    value_bytes: usize,
) -> Result<(), Damage> {
    if key.len() > page_size.key_bytes_max() || value_bytes > VALUE_BYTES_MAX {
        let what = format!("a key of {} bytes, a value of {value_bytes}", key.len());
        return Err(Damage::new(what));
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), Damage> {
    match name.len() {
        1..=TABLE_NAME_BYTES_MAX => Ok(()),
        bytes => Err(Damage::new(format!("a table name of {bytes} bytes"))),
    }
}
