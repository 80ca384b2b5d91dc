//! Messages that clients publish to channels, and the clients that have subscribed (decision 083).
//!
//! Reading order: `message` (bytes that all receivers share), `queue` and `mailbox` (what waits for
//! one client), `limits` (how much may), `registry` (who receives what; the argument of order),
//! `subscriptions` (the same, as one client sees it).

pub(crate) mod limits;
pub(crate) mod mailbox;
pub(crate) mod message;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod subscriptions;
