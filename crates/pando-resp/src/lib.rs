//! RESP2 and RESP3, sans-io: bytes in, commands out; replies in, bytes out.
//!
//! Only the client owns a socket or a clock, and nothing knows the engine. What a peer declares is
//! never trusted: no declared length causes an allocation, every size has a named limit, and any
//! bytes are answered by a command, by a request for more bytes or by a [`ProtocolError`], never by
//! a panic.
//!
//! Reading order: [`limits`], [`arguments`], [`request`] (with `inline` for commands typed by
//! hand), [`reply`] (with [`text`] for errors), [`answer`] (the client's side, for tools, tests and
//! benchmarks), [`client`], [`number`].

#![forbid(unsafe_code)]

pub mod answer;
pub mod arguments;
pub mod client;
mod inline;
pub mod limits;
pub mod number;
pub mod reply;
pub mod request;
pub mod text;

pub use answer::{Answer, AnswerError};
pub use arguments::{Arguments, Span};
pub use client::{Client, ClientOptions};
pub use limits::Limits;
pub use number::parse_integer;
pub use reply::{Bulks, Version, Writer};
pub use request::{Parsed, Parser, ProtocolError};
pub use text::text_of;
