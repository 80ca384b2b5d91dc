//! Values in chunks: very large values that are stored in pieces of at most 1 MiB. Each chunk is an
//! extent of its own, is never in a frame, and is streamed in and out (decision 028, decision 029).
//!
//! ```text
//! write   extents -> bytes -> sync -> [gate: record names extents -> ids, reference in the leaf]
//! read    register -> reference from the leaf -> its chunks, one at a time -> unregister
//! free    reference replaced -> row of the garbage table -> nobody registered before it -> free
//! ```
//!
//! Until a record names them, extents belong to the operation that wrote them (`blobs::staged`),
//! which gives them back when it fails or is dropped. From then on a chunk is a page with an id and
//! a place. A chunk that a reader may still want is never overwritten: see `blobs::readers`.
//!
//! Order in which to read the code: `blobs`, [`writer`], `changes::blobs`, [`look`], [`stream`],
//! [`edit`], [`event_loop`].

pub(crate) mod edit;
pub(crate) mod event_loop;
pub(crate) mod extents;
pub(crate) mod look;
pub(crate) mod old_bytes;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod stream;
pub(crate) mod writer;
