//! Why a step cannot go on, and waiting for it.

pub(crate) mod blocking;
pub(crate) mod reason;
pub(crate) mod register;
