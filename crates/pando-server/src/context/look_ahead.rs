//! Pages that are needed behind one that is missing: they are read at the same time.

use pandodb::nonblocking::{Pending, Polled, Reads};
use pandodb::{Result, Table};

/// Number of pages that are read at the same time as one that is missing.
const PAGES_MAX: usize = 128;
/// Number of rows that are looked for to find them.
const ROWS_MAX: usize = 2048;

/// Buffers for the key of a row, and for what is read of it.
pub(super) type RowBuffers<'b> = (&'b mut Vec<u8>, &'b mut Vec<u8>);

/// Lets `pending` stand for the pages of `rows` in `table`, too, as far as they are missing: those
/// that are needed behind the one that it stands for, next ones first. `put_key` replaces a buffer
/// by the key of a row, of whose value `row_bytes` bytes are needed.
pub(super) fn add_pages_of<R>(
    rows: impl Iterator<Item = R>,
    (table, row_bytes): (&Table, usize),
    put_key: impl Fn(R, &mut Vec<u8>),
    (key, row): RowBuffers<'_>,
    pending: &mut Pending,
) -> Result<()> {
    let mut pages = 0;
    for at in rows.take(ROWS_MAX) {
        put_key(at, key);
        row.clear();
        if let Polled::Pending(other) = Reads::of(table).prefetch(key, row_bytes, row)? {
            pages += usize::from(pending.beside(other));
        }
        if pages == PAGES_MAX {
            break;
        }
    }
    Ok(())
}
