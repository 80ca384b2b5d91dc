//! Pages in memory and on disk: the store, the phases of its life, reads and writes of pages.

pub(crate) mod codec_sample;
pub(crate) mod data_sync;
pub(crate) mod failures;
pub(crate) mod fetch;
pub(crate) mod fetcher;
pub(crate) mod handed_over;
pub(crate) mod layout;
pub(crate) mod leaves;
pub(crate) mod lifecycle;
pub(crate) mod place_order;
pub(crate) mod publish;
pub(crate) mod read_context;
pub(crate) mod store;
pub(crate) mod tags;
pub(crate) mod told_notes;
pub(crate) mod uncounted_leaks;
pub(crate) mod writeback;
