//! Names of the files of a store.

/// Name of the data file.
pub(crate) const DATA: &str = "data";
/// Name of a file that exists only while a store is being created.
pub(crate) const CREATING: &str = "creating";

/// Name of a file that exists only while a store is being filled, from a dump or by a salvage.
pub(crate) const LOADING: &str = "loading";

/// Name of the dump that an open store writes of itself.
pub(crate) const DUMP: &str = "store.dump";
/// Its name until all of it is written.
pub(crate) const HALF_DUMP: &str = "store.dump.half";

/// Name of the base file of the mapping with this number.
pub(crate) fn base_name(number: u64) -> String {
    format!("map.{number}")
}

/// Name of the journal file of the mapping with this number.
pub(crate) fn journal_name(number: u64) -> String {
    format!("journal.{number}")
}
