//! The layers that can be measured.

use clap::Subcommand;

use super::{ablation, alloc, device, iso, kv, pool, recovery, report, resp};
use crate::failure::Failure;

/// The layer that is measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Layer {
    /// Requests to the device alone.
    Device(Box<device::DeviceFlags>),
    /// Reads that wait for their page, through the pool alone.
    Pool(Box<pool::PoolFlags>),
    /// Blocks from the allocator alone.
    Alloc(Box<alloc::AllocFlags>),
    /// The embedded engine.
    Kv(Box<kv::KvFlags>),
    /// A server, through sockets: its own, or a running one.
    Resp(Box<resp::RespFlags>),
    /// Reads of cached data, by more and more threads; transactions and snapshots beside plain
    /// operations.
    Iso(Box<iso::IsoFlags>),
    /// Scans of the whole store at a snapshot, beside writers.
    Report(Box<report::ReportFlags>),
    /// How fast a log is replayed after a crash, and how soon a read is answered.
    Recovery(Box<recovery::RecoveryFlags>),
    /// The product with and without one of its parts, in alternation.
    Ablation(Box<ablation::AblationFlags>),
    /// A name that is no layer's.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Runs the benchmarks of one layer and prints what they measure.
pub(crate) fn run(layer: Layer) -> Result<(), Failure> {
    match layer {
        Layer::Device(flags) => device::run(&flags),
        Layer::Pool(flags) => pool::run(&flags),
        Layer::Alloc(flags) => alloc::run(&flags),
        Layer::Kv(flags) => kv::run(&flags),
        Layer::Resp(flags) => resp::run(&flags),
        Layer::Iso(flags) => iso::run(&flags),
        Layer::Report(flags) => report::run(&flags),
        Layer::Recovery(flags) => recovery::run(&flags),
        Layer::Ablation(flags) => ablation::run(&flags),
        Layer::Other(words) => {
            let name = words.first().map_or("", String::as_str);
            let known = "there are device, pool, alloc, kv, resp, iso, report, recovery, ablation";
            Err(Failure::usage(format!(
                "bench {name}: is no layer; {known}"
            )))
        }
    }
}
