//! `bench ablation`: what the product does, compared with a slower way of doing the same.
//!
//! Each ablation runs its variants in turn in one process, round after round, and reports the
//! median round of each; `is_ours` marks what the product does. The other variants live here alone.
//!
//! Reading order: [`options`], `rounds` (turns and medians), [`run`](mod@run), then one file for
//! each: `pending`, `queue`, `handles`, and `keys` (`throttle`, `scatter-gather`, `fetch`) with
//! `context`; [`cached`] (`descent`, `cursor`); `stats` with `counters` and `queries`; `alloc` with
//! `zones` and `overwrites`.

mod alloc;
pub mod cached;
mod context;
mod counters;
#[cfg(all(test, pando_audit))]
mod counters_audit;
mod handles;
mod keys;
pub mod options;
mod overwrites;
mod pending;
mod queries;
mod queue;
mod rounds;
pub mod run;
mod stats;
mod zones;

pub use options::{Ablation, AblationOptions};
pub(crate) use rounds::middle_of;
pub use run::run;
