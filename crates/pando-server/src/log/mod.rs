//! What the server reports to `tracing`: from which level on, at which rate at most, and in which
//! words (decision 047).

mod events;
mod level;
mod limit;

pub(crate) use events::Events;
pub use level::{LogLevel, LogLevelSetter};
pub(crate) use limit::Limit;
