//! A connection and its turns: bytes in, commands, bytes out.
//!
//! Reading order: `state` (what it holds), `output` (replies and their gate), `loop_data` (what it
//! is lent for a turn), `advance` (a turn), `intake` (finds a command), `executor` (one command,
//! from arguments to gate), `running` (a command that has begun), `accounting` (what it adds to the
//! figures), `messages` (those of channels, and about keys), `events` (those of keys), `tracking`
//! (about which keys), `monitored` (commands that MONITOR shows), `lookahead` (page faults of a
//! pipeline together), `pipeline_run` (plain commands together), `joining` and `round_run` (those
//! of several connections), `contended` (keys that loops write in turns), `reservation` (a key that
//! one command has to itself), `held` (commands before which others are served).

mod accounting;
pub(crate) mod advance;
mod contended;
mod element_names;
mod events;
pub(crate) mod executor;
mod held;
mod intake;
mod interactive;
pub(crate) mod joining;
mod late_acts;
mod lookahead;
pub(crate) mod loop_data;
mod messages;
mod monitored;
mod output;
mod parking;
mod pause;
mod pipeline_run;
mod reservation;
pub(crate) mod round_run;
mod running;
mod state;
mod tracking;

use state::Held;
pub(crate) use state::{Buffers, Connection, SpareBuffers};
