//! Page table, frames, latches, fetch, eviction, images and write-back.
//!
//! The pool holds pages in the frames of one arena of fixed size. The arena stays mapped for as
//! long as the pool exists, so an optimistic reader may read the wrong page, but it never reads
//! unmapped memory. The pool knows where every page is (one atomic word each), who may change it
//! (the latch of its frame), and which bytes of it the next checkpoint needs (epochs and images).
//! It does not read or write files: it hands out what must be read or written, and the caller
//! reports when that is done.
//!
//! Reading order: [`restart`], [`latch`], [`page_table`], [`frame`], `contention`, [`words`],
//! [`options`]; the parts of the pool: [`page_ids`], `free_frames`, [`epoch`], `image_buffers`,
//! `load_waiters`, [`pool`]; its operations: `apply_token`, `hinted_frame`, [`access`], [`shared`],
//! [`load`], [`image`], [`chunk`], [`adopt`], [`eviction`], `unread`, [`pin_budget`].
//!
//! # Transitions of a page word
//!
//! | from     | to       | by                       | holding                          |
//! |----------|----------|--------------------------|----------------------------------|
//! | free     | resident | `Pool::allocate`         | the new frame's exclusive latch  |
//! | on disk  | loading  | `Pool::begin_load` (CAS) | the frame's exclusive latch      |
//! | loading  | resident | `Pool::finish_load`      | the frame's exclusive latch      |
//! | loading  | on disk  | `Pool::fail_load`        | the frame's exclusive latch      |
//! | resident | on disk  | eviction                 | the frame's exclusive latch      |
//! | resident | free     | `Exclusive::free`        | the frame's exclusive latch      |
//! | on disk  | free     | `Pool::free_unread` (CAS)| nothing: the CAS is the claim    |
//! | free     | chunk    | `Pool::adopt_chunk`      | the id                           |
//! | free     | on disk, | `Pool::adopt`            | the id                           |
//! |          | or chunk |                          |                                  |
//! | chunk    | chunk    | `Pool::move_chunk` (CAS) | the epoch's list of pairs        |
//! | chunk    | free     | `Pool::free_unread` (CAS)| nothing: the CAS is the claim    |

#![forbid(unsafe_code)]

pub mod access;
pub mod adopt;
mod apply_token;
pub mod chunk;
mod contention;
pub mod epoch;
pub mod eviction;
pub mod frame;
mod free_frames;
mod hinted_frame;
pub mod image;
mod image_buffers;
pub mod latch;
pub mod load;
mod load_waiters;
pub mod options;
pub mod page_ids;
pub mod page_table;
pub mod pin_budget;
pub mod pool;
pub mod restart;
pub mod shared;
mod unread;
pub mod words;

pub use access::{Exclusive, Marks, Optimistic, PagePin};
pub use apply_token::ApplyToken;
pub use hinted_frame::HintedFrame;
pub use image::BadImage;
pub use image_buffers::Image;
pub use load::{LoadError, LoadStart, LoadTicket, LoadWait};
pub use options::{CheckImages, Content, ImageFacts, PoolOptions};
pub use pin_budget::{PinBudget, PinShare, StepShare};
pub use pool::Pool;
pub use restart::{Attempt, Resource, Restart};
pub use shared::Shared;
pub use unread::FreedBy;
pub use words::{PageMut, PageWords};
