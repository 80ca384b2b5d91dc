//! What MONITOR shows: a line for each command of any client (decision 092).
//!
//! `line` says what a line looks like, `lines` keeps those of one command until it has ended. Who
//! gets them is in `pubsub`, whose mailboxes they go through.

mod line;
pub(crate) mod lines;

pub(crate) use line::{Argument, Caller};
