//! Very large values: pieces of at most 1 MiB, each an extent of its own, that are never in a
//! frame and are streamed in and out.
//!
//! ```text
//! write   extents -> bytes -> sync -> [gate: log record names extents -> ids, list in the leaf]
//! read    register -> list from the leaf -> extents of its chunks, one at a time -> unregister
//! free    list replaced -> row of the garbage table -> nobody registered before it -> free
//! ```
//! Until a record names them, extents belong to the operation that wrote them (`blobs::staged`): it
//! gives them back when it fails or is dropped. From then on a chunk is a page with an id and a
//! place.
//! Nothing is written over a chunk that a reader may still want: see `blobs::readers`.
//!
//! Reading order: `blobs`, [`writer`], `changes::blobs`, [`look`], [`stream`], [`edit`],
//! [`event_loop`].

pub(crate) mod edit;
pub(crate) mod event_loop;
pub(crate) mod extents;
pub(crate) mod look;
pub(crate) mod old_bytes;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod stream;
pub(crate) mod writer;
