//! A whole run of `bench ablation`.

use super::options::{Ablation, AblationOptions};
use super::{handles, keys, pending, queue, submit};
use crate::error::Result;
use crate::phase::Observer;

/// Runs all variants of the ablation in turn; `observer` is told of each at the end.
///
/// # Errors
/// Options that make no sense, errors of device and engine, and reads of something else than was
/// written: the run ends there.
pub fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    match options.ablation {
        Ablation::Pending => pending::run(options, observer),
        Ablation::Queue => queue::run(options, observer),
        Ablation::PreadHandles => handles::run(options, observer),
        Ablation::Throttle => keys::throttle(options, observer),
        Ablation::ScatterGather => keys::scatter_gather(options, observer),
        Ablation::Fetch => keys::fetch(options, observer),
        Ablation::Submit => submit::run(options, observer),
    }
}
