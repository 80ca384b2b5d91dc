//! Real pairs: the bytes that they take on disk in one layout of pages, and reads of them.
//!
//! `cargo run --release -p pando-bench --features pandodb/zstd --example pairs -- FILE DIR PAGE
//! BLOCK COMPRESSION MEMORY [SECONDS]`: FILE has lines of KEY, a tab and VALUE in order of their
//! keys (`bench/real-pairs` writes one). If there is no store in DIR, one is made, filled in random
//! order and compacted. Sizes are bytes, but MEMORY, which is mebibytes; COMPRESSION is that of
//! `--compression`. Then keys are read at random for SECONDS (5): one at a time, and 128 at a time.
//!
//! Prints one line: bytes of keys and values; MB of used blocks before and after the compaction,
//! and of the data file; for each way of reading thousands of keys a second, and the pages read and
//! the processor time of a key.

use std::io::Write;
use std::ops::ControlFlow;

use pando_bench::random::Random;
use pando_sync::time::{self, Duration};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Compression, Db, Durability, Table, WriteOptions};

const GROUP: usize = 128;

type Failure = Box<dyn std::error::Error>;

struct Asked {
    file: String,
    dir: String,
    page: usize,
    block: usize,
    compression: Compression,
    max_memory: u64,
    seconds: f64,
}

fn asked() -> Result<Asked, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some([file, dir, page, block, compression, memory]), rest) = (
        arguments.first_chunk::<6>(),
        arguments.get(6..).unwrap_or_default(),
    ) else {
        return Err("FILE DIR PAGE BLOCK COMPRESSION MEMORY [SECONDS]".into());
    };
    Ok(Asked {
        file: file.clone(),
        dir: dir.clone(),
        page: page.parse()?,
        block: block.parse()?,
        compression: Compression::parse(compression)?,
        max_memory: memory.parse::<u64>()? << 20,
        seconds: rest.first().map_or(Ok(5.0), |text| text.parse())?,
    })
}

/// Reads `group` keys at a time. Returns thousands of keys a second, and pages read and processor
/// time of a key.
fn read(
    db: &Db,
    table: &Table,
    pairs: &[(&[u8], &[u8])],
    (group, seconds): (usize, f64),
) -> Result<String, Failure> {
    let mut random = Random::new(group as u64, 0);
    let mut value = Vec::new();
    let mut round = |keys: &mut u64| -> Result<(), Failure> {
        let mut choose = || pairs[usize::try_from(random.below(pairs.len() as u64)).unwrap_or(0)];
        *keys += group as u64;
        if group == 1 {
            let (key, expected) = choose();
            let found = table.get_into(key, &mut value)?;
            return match found && value == expected {
                true => Ok(()),
                false => Err("a key has another value".into()),
            };
        }
        let chosen: Vec<_> = (0..group).map(|_| choose()).collect();
        let keys: Vec<&[u8]> = chosen.iter().map(|(key, _)| *key).collect();
        let found = table.get_many(&keys)?;
        let same = found
            .iter()
            .zip(&chosen)
            .all(|(found, (_, expected))| found.as_deref() == Some(*expected));
        match same {
            true => Ok(()),
            false => Err("a key has another value".into()),
        }
    };
    let mut run = |seconds: f64| -> Result<(f64, u64), Failure> {
        let (began, mut keys) = (time::now(), 0);
        while began.elapsed() < Duration::from_secs_f64(seconds) {
            for _ in 0..1 + 64 / group {
                round(&mut keys)?;
            }
        }
        Ok((began.elapsed().as_secs_f64(), keys))
    };
    run(seconds / 5.0)?;
    let (before, cpu_before) = (db.statistics().get(Ticker::PageReads), cpu_ns()?);
    let (took, keys) = run(seconds)?;
    let pages = db.statistics().get(Ticker::PageReads) - before;
    let (cpu_ns, keys) = (cpu_ns()? - cpu_before, (keys as f64).max(1.0));
    Ok(format!(
        "{:.1} k/s ({:.2} pages, {:.2} us of processor)",
        keys / took / 1000.0,
        pages as f64 / keys,
        cpu_ns as f64 / keys / 1000.0
    ))
}

/// Returns the processor time of this thread.
fn cpu_ns() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().unwrap_or_default();
    Ok(first.parse()?)
}

/// Puts `pairs` in random order into a new store, compacts it and closes it. Returns the bytes that
/// it uses.
fn fill(db: Db, pairs: &[(&[u8], &[u8])]) -> Result<String, Failure> {
    let table = db.table("pairs")?;
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    let mut random = Random::new(7, 0);
    for last in (1..order.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1))?;
        order.swap(last, other);
    }
    for some in order.chunks(GROUP) {
        let mut batch = Batch::new();
        for index in some {
            batch.put(&table, pairs[*index].0, pairs[*index].1);
        }
        db.write(&mut batch, WriteOptions::default())?;
    }
    db.checkpoint()?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let used = || {
        let report = db.report();
        megabytes(report.data_bytes - report.data_free_bytes)
    };
    let filled = used();
    db.compact(|_| ControlFlow::Continue(()))?;
    let (packed, file) = (used(), megabytes(db.report().data_bytes));
    drop(table);
    db.close()?;
    Ok(format!(
        "filled {filled:.1}, compacted {packed:.1}, file {file:.1} MB; "
    ))
}

fn main() -> Result<(), Failure> {
    let asked = asked()?;
    let bytes = std::fs::read(&asked.file)?;
    let mut pairs = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some(tab) = line.iter().position(|byte| *byte == b'\t') {
            pairs.push((&line[..tab], &line[tab + 1..]));
        }
    }
    let user: usize = pairs
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let open = |max_memory| {
        Db::builder()
            .max_memory(max_memory)
            .page_size(asked.page)
            .block_size(asked.block)
            .compression(asked.compression)
            .durability(Durability::None)
            .open(&asked.dir)
    };
    let filled = match std::fs::exists(&asked.dir)? {
        true => String::new(),
        false => fill(open(256 << 20)?, &pairs)?,
    };
    let db = open(asked.max_memory)?;
    let table = db.table("pairs")?;
    let single = read(&db, &table, &pairs, (1, asked.seconds))?;
    let many = read(&db, &table, &pairs, (GROUP, asked.seconds))?;
    drop(table);
    db.close()?;
    writeln!(
        std::io::stdout(),
        "page {} block {} {}: {user} bytes; {filled}one {single}, {GROUP} {many}",
        asked.page,
        asked.block,
        asked.compression
    )?;
    Ok(())
}
