//! Blocks of the data file: reserving, allocating, freeing and discarding them.

pub(crate) mod cutting;
pub(crate) mod discarding;
pub(crate) mod discards;
pub(crate) mod freed_room;
pub(crate) mod growth;
pub(crate) mod held;
pub(crate) mod id_turns;
pub(crate) mod keeper;
pub(crate) mod reservations;
pub(crate) mod urgency;
