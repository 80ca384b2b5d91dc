//! Page table, frames, latches, fetch, eviction, images and write-back.
