//! Tests of saved versions: against a history that forgets nothing, with little room, and with
//! threads.
#![cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]

mod room;
mod stress;
mod twin;
