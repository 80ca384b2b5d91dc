//! The benchmark: random reads of all threads, for each number of threads all variants in turn.

use super::reads::{CachedReads, Reader, variants};
use super::rig::{KEY_BYTES, VALUE_BYTES};
use crate::ablation::AblationOptions;
use crate::ablation::rounds;
use crate::error::Result;
use crate::options::KeyKind;
use crate::phase::{self, Calls, Done, Observer, Phase};
use crate::random::Random;
use crate::record::Record;

const WORKLOAD: &str = "readrandom";
/// Keys of a call: reading the clock is little beside them.
const BATCH: u64 = 16;

struct Reads<'a> {
    reader: Reader<'a>,
    random: Random,
    num: u64,
}

impl Calls for Reads<'_> {
    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        let ops = BATCH.min(limit);
        for _ in 0..ops {
            self.reader.read(self.random.below(self.num))?;
        }
        Ok(Some(Done { ops, found: ops }))
    }
}

pub(in crate::ablation) fn run(
    options: &AblationOptions,
    observer: &mut dyn Observer,
) -> Result<()> {
    let reads = CachedReads::new(
        options.ablation,
        options.size_bytes,
        options.page_bytes,
        options.seed,
    )?;
    let variants = variants(options.ablation);
    for threads in options.thread_counts() {
        let mut turn = |index: usize, observer: &mut dyn Observer| {
            measure(options, &reads, variants[index].name, *threads, observer)
        };
        rounds::run(options, &variants, &mut turn, observer)?;
    }
    Ok(())
}

fn measure(
    options: &AblationOptions,
    reads: &CachedReads,
    variant: &str,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let phase = Phase {
        name: WORKLOAD,
        threads,
        beside: false,
        total: options.total(),
        duration: options.duration,
        warmup: options.warmup,
        interval: None,
        rate: None,
        call_ops: BATCH,
    };
    let make = |thread: usize| {
        Ok(Reads {
            reader: reads.reader(variant),
            random: Random::new(options.seed, thread as u64),
            num: reads.num(),
        })
    };
    let measured = phase::run(&phase, make, observer, &mut || ())?;
    let mut record = Record::new(WORKLOAD, "ours", threads, options.seed);
    record.set_measured(&measured);
    record.found = Some(measured.found);
    record.num = Some(reads.num());
    record.batch = Some(BATCH);
    record.key_kind = Some(KeyKind::Random.name());
    record.key_size_bytes = Some(KEY_BYTES);
    record.value_size_bytes = Some(VALUE_BYTES);
    record.page_size = Some(options.page_bytes);
    record.frames = Some(reads.rig.pool.frames());
    Ok(record)
}
