//! A whole run of `bench resp`.

use std::net::SocketAddr;

use pando_format::cast::usize_of;
use pando_sync::time::Duration;

use super::client::Client;
use super::command::{Commands, RespPlan};
use super::control::{Control, Info};
use super::options::{RespOptions, RespWorkload};
use super::server::Target;
use crate::error::Result;
use crate::options::durability_name;
use crate::phase::{self, Measured, Observer, Phase, share};
use crate::record::Record;
use crate::values::Values;

/// Commands that each connection keeps in flight while keys are written untimed.
const FILL_PIPELINE: usize = 64;

/// Runs all workloads of `options`, and reports each to `observer`.
///
/// # Errors
/// Options that make no sense, errors of the server or of the connection, and answers that differ
/// from what was written; the run ends there.
pub fn run(options: &RespOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let target = Target::open(options)?;
    let values = Values::new(options.value_bytes, 1.0, options.seed);
    if !options.use_existing_db && options.workloads.iter().any(|one| one.reads()) {
        fill(options, &values, target.address, observer)?;
    }
    let mut control = Control::new(target.address)?;
    for workload in &options.workloads {
        let plan = RespPlan {
            options,
            workload: Some(*workload),
            keys: options.keys(),
            values: &values,
        };
        // Both are known once the run has ended.
        let mut before = control.info();
        let mut measuring = || before = control.info();
        let measured = run_plan(&plan, target.address, observer, &mut measuring)?;
        let record = record(&plan, &target, &measured, &before?, &control.info()?);
        observer.record(&record)?;
    }
    drop(control);
    target.close()
}

/// Sets each key once.
fn fill(
    options: &RespOptions,
    values: &Values,
    address: SocketAddr,
    observer: &mut dyn Observer,
) -> Result<()> {
    let options = RespOptions {
        pipeline: FILL_PIPELINE,
        ..options.clone()
    };
    let plan = RespPlan {
        options: &options,
        workload: None,
        keys: options.keys(),
        values,
    };
    run_plan(&plan, address, observer, &mut || ())?;
    Ok(())
}

fn run_plan(
    plan: &RespPlan<'_>,
    address: SocketAddr,
    observer: &mut dyn Observer,
    measuring: &mut dyn FnMut(),
) -> Result<Measured> {
    let options = plan.options;
    let is_timed = plan.workload.is_some();
    let duration = options.duration.filter(|_| is_timed);
    let phase = Phase {
        name: plan.name(),
        threads: options.threads,
        beside: false,
        total: duration.is_none().then_some(options.num),
        duration,
        warmup: match is_timed {
            true => options.warmup,
            false => Duration::ZERO,
        },
        interval: options.interval.filter(|_| is_timed),
        rate: None,
        call_ops: 1,
    };
    let make = |index| {
        let numbers = phase.share(options.num, index);
        let clients = share(options.clients as u64, options.threads, index);
        let commands = Commands::new(plan, numbers, index);
        let connections = usize_of(clients.end - clients.start);
        Client::new(plan, commands, address, connections)
    };
    phase::run(&phase, make, observer, measuring)
}

fn record(
    plan: &RespPlan<'_>,
    target: &Target,
    measured: &Measured,
    before: &Info,
    after: &Info,
) -> Record {
    let options = plan.options;
    let mut record = Record::new(plan.name(), "ours", options.threads, options.seed);
    record.set_measured(measured);
    let per_op = |count: f64| count / measured.ops.max(1) as f64;
    record.server = Some(after.server());
    record.io_backend = after.text("io_backend").map(str::to_owned);
    let number = |name| after.number(name).map(whole);
    record.page_size = number("page_size");
    record.queue_depth = number("queue_depth").or(options.queue_depth);
    record.max_memory = number("maxmemory")
        .filter(|bytes| *bytes > 0)
        .map(|bytes| bytes as u64);
    record.page_reads_per_op = after.grown(before, "page_reads_total").map(per_op);
    record.page_writes_per_op = after.grown(before, "page_writes_total").map(per_op);
    let is_read = matches!(plan.workload, Some(RespWorkload::Get | RespWorkload::Mget));
    let missed = after.grown(before, "gets_missed_total");
    record.hits_per_op = missed
        .filter(|_| is_read)
        .map(|missed| (1.0 - per_op(missed)).max(0.0));
    if !target.is_own() {
        let user = after.grown(before, "used_cpu_user");
        let system = after.grown(before, "used_cpu_sys");
        let seconds = user.zip(system).map(|(user, system)| user + system);
        record.server_cpu_us_per_op = seconds.map(|seconds| per_op(seconds * 1e6));
    }
    record.found = is_read.then_some(measured.found);
    record.clients = Some(options.clients);
    record.pipeline = Some(options.pipeline);
    record.num = Some(options.num);
    record.key_size_bytes = Some(options.key_bytes);
    record.value_size_bytes = Some(options.value_bytes);
    record.batch = (plan.workload == Some(RespWorkload::Mget)).then_some(options.batch);
    record.durability = target.is_own().then(|| durability_name(options.durability));
    record.distribution = Some("uniform".to_owned());
    record.rate_ops_per_s = options.rate;
    record.interval_s = options.interval.map(|interval| interval.as_secs_f64());
    record
}

/// Returns a number of the server's report, which has no fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is no number of bytes or requests becomes the nearest one"
)]
fn whole(number: f64) -> usize {
    number as usize
}
