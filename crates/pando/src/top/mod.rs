//! `pando top`: what a running server does, live in a terminal or as plain text.
//!
//! Reading order: `connection` (asks a server over its ordinary port), `sample` (the contents of
//! INFO at one moment), `spread` (a histogram of it), `figures` (two samples become rates and
//! percentiles), `panels` (what is shown, in words), `quantities` (how numbers are written),
//! `plain` and `screen` (where it is shown), `keys`, `watch` (the thread that asks), `run`.

mod connection;
mod figures;
mod keys;
mod panels;
mod plain;
mod quantities;
mod run;
mod sample;
mod screen;
mod spread;
mod watch;

pub(crate) use run::run;
