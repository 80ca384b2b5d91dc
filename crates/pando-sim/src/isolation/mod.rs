//! Finds anomalies in recorded histories of transactions: a pure library.
//!
//! `tests/it/isolation.rs` records such histories of the library. The checker is itself checked
//! with histories by hand and at random, and with bugs planted in it.
//!
//! ```text
//!   History ---> Index ---> reads (own ones taken off) ---> visible    G1a, G1b, unwritten
//!                  |                       |                replay     state at each LSN
//!                  |                       v
//!                  |           order of each key's versions ---------> lost updates, lists
//!                  v                       |                           that do not fit
//!            time: who had                 v
//!            ended before  ------>  graph of ww, wr, rw -------------> circles: G0, G1c,
//!                                                                      G-single, G2, real time
//! ```
//!
//! The anomalies are those of Adya ("Weak Consistency: A Generalized Theory and Optimistic
//! Implementations for Distributed Transactions", 1999). That dependencies can be told from lists
//! that are appended to, and how anomalies are printed, is from Elle (Kingsbury and Alvaro, "Elle:
//! Inferring Isolation Anomalies from Experimental Observations", VLDB 2020). Real time is that of
//! strict serializability.
//!
//! | level         | forbids, besides what the one above it does                               |
//! |---------------|---------------------------------------------------------------------------|
//! | ReadCommitted | G0, G1a, G1b, G1c; own reads, unwritten values, elements that are         |
//! |               | repeated, incompatible orders                                             |
//! | Snapshot      | G-single, G-nonadjacent, lost updates, internal reads that differ, reads  |
//! |               | beside the snapshot                                                       |
//! | Serializable  | G2-item, G2, reads stale at commit, circles by real time                  |
//!
//! **Levels may be mixed** in a history, after Adya's mixing: ww and wr always count, an overtaken
//! read (rw) against a level only if its reader is at least of it, real time only if who began
//! later is. So a circle breaks a promise if all of its members that read what was overtaken, and
//! all that came later by the clock, had got that promise; whoever wrote. An anomaly of one read
//! is judged by its reader; a lost update by who lost it, and where that is not known by the
//! lowest of them.
//!
//! **A range** is a read of each key of it that occurs in the history: of a key that it did not
//! show, too, and an edge from that makes a G2 of a circle. Lists are not seen by ranges.
//!
//! **What is not certain makes no edge.** Deletes look alike, so what a read of an absent key saw
//! is known only where the key is never deleted, or by LSNs. Without LSNs, values are ordered only
//! by who read one and wrote another. A transaction of unknown outcome counts as committed once a
//! committed one has seen a write of it. Reads of transactions that are not committed are compared
//! with their snapshot and their own writes, and nothing else. The order of one client's
//! transactions counts as far as real time does.

mod anomaly;
mod builder;
mod components;
mod edge;
mod graph;
mod history;
mod index;
mod level;
mod order;
mod reads;
mod replay;
#[cfg(test)]
mod tests;
mod time;
mod versions;
mod visible;

pub use anomaly::{Anomaly, Kind};
pub use history::{Bounds, Level, Operation, Outcome, TableKey, Transaction, TransactionHistory};
pub use level::{Report, check, examine};
