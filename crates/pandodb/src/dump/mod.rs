//! Dumps: a whole store as text, for copies that outlive formats, machines and sizes of pages, and
//! for people to read. `docs/format.md` has the grammar (section 9).
//!
//! ```text
//! snapshot -> rows -> escaped lines, a checksum for each table -> any writer       (write)
//! any reader -> lines -> rows -> batches -> a new store                            (load)
//! ```
//! An open store writes one of itself to a file of its directory ([`file`], decision 139).
//!
//! A dump is of one moment, however long it takes to write and whatever is committed meanwhile. The
//! store that is loaded from it has the same tables and rows, but pages, log and files of its own.
//!
//! Reading order: [`text`], [`header`], [`write`], [`file`], [`lines`], [`load`].

mod file;
mod header;
mod lines;
pub(crate) mod load;
mod report;
mod text;
mod write;

pub use load::load_dump;
pub use report::{DumpFile, DumpProgress, DumpReport, DumpedTable};
