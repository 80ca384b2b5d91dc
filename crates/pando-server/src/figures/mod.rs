//! What the server counts and measures.

pub(crate) mod command_profile;
pub(crate) mod command_statistics;
pub(crate) mod error_codes;
pub(crate) mod latency_monitor;
pub(crate) mod rates;
pub(crate) mod slow_log;
pub(crate) mod statistics;
