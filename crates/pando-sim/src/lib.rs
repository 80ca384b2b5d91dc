//! Seeded workloads with a model, crashes and faults under them, and a linearizability checker.
//!
//! One number, the seed, decides workload, faults and what a crash leaves; only the schedule of
//! threads depends on the machine. Nothing here is part of the product, and the product knows
//! nothing of it.
//!
//! | module       | what it does                                                               |
//! |--------------|----------------------------------------------------------------------------|
//! | [`state`]    | what a store holds, with an incremental fingerprint                        |
//! | [`history`]  | what a thread has committed, and which of its prefixes a store holds       |
//! | [`order`]    | whether the order of LSNs is one in which the commits could have run        |
//! | [`workload`] | does random things to a store and records them                             |
//! | [`store`]    | the small store under test, and reads of all that it holds                 |
//! | [`kind`]     | kinds of tables, and whether a table counts what it holds                  |
//! | [`crash`]    | crashes at sync points and writes, recovery, crashes inside recovery       |
//! | [`restart`]  | processes that end while the kernel keeps running, then a power cut        |
//! | [`faults`]   | operations of the device that fail, once or from then on                   |
//! | `fault_errors` | which errors are right after such a failure                              |
//! | `given_up`   | stores in which such failures have taken a page out of reach               |
//! | [`full`]     | disks that are full, at each write and with every frame dirty                |
//! | [`full_close`] | closes stores on full disks                                              |
//! | [`full_deletes`] | deletes everything on a full disk                                      |
//! | [`full_together`] | threads that find a disk full at the same moment                      |
//! | [`damage`]   | flipped bits, cut and missing files, lost and misdirected writes           |
//! | [`older`]    | files of an earlier moment beside newer ones                                |
//! | [`linear`]   | linearizability of histories of registers, batches and counters            |
//! | [`isolation`] | anomalies in histories of transactions                                |
//! | [`kill`]     | kills the server's process again and again under clients                   |
//! | [`watchdog`] | ends a process that hangs                                                  |
//! | [`panics`]   | ends a process in which a thread of an engine panics                       |

#![forbid(unsafe_code)]

pub mod crash;
pub mod damage;
mod damage_salvage;
mod damage_writes;
pub mod failure;
mod fault_errors;
pub mod faults;
pub mod full;
pub mod full_close;
pub mod full_deletes;
pub mod full_together;
mod given_up;
pub mod history;
pub mod isolation;
pub mod kill;
pub mod kind;
pub mod linear;
pub mod older;
pub mod order;
pub mod panics;
pub mod restart;
pub mod state;
pub mod store;
pub mod watchdog;
pub mod workload;

pub use failure::{Failure, Result};
