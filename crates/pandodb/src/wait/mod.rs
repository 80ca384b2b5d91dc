//! Why a step cannot continue, and how operations wait for that.

pub(crate) mod blocking;
pub(crate) mod reason;
pub(crate) mod register;
