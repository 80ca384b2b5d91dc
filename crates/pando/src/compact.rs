//! `pando compact`: shrinks the files of a store that no process has open to what it contains.

use std::ops::ControlFlow;
use std::path::Path;

use pandodb::{Builder, CompactPhase, CompactProgress, CompactReport, Compression, Db};
use serde_json::json;

use crate::command_line::CompactFlags;
use crate::failure::Failure;
use crate::inspect::{check_directory, of_store};
use crate::memory;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;

/// The smallest log, so that little of it has to be written before it is freed.
const LOG_BYTES: u64 = 4 << 20;

/// Opens the store, which nobody else may have open, compacts it, and closes it.
pub(crate) fn run(flags: &CompactFlags) -> Result<(), Failure> {
    check_directory(&flags.target.dir)?;
    let max_memory = memory::tool_budget(flags.max_memory.as_deref(), 2)?;
    let dir = &flags.target.dir;
    let before = disk_bytes(dir);
    let mut options = Db::builder().max_memory(max_memory).log_bytes(LOG_BYTES);
    if let Some(compression) = flags.compression {
        check_effect(options.clone(), dir, compression)?;
        options = options.compression(compression);
    }
    let db = open(options, dir)?;
    let mut progress = Progress::new();
    let show = |now: CompactProgress| {
        progress.update(doing(now.phase), now.share);
        ControlFlow::Continue(())
    };
    let compacted = match flags.compression {
        Some(_) => db.rewrite(show),
        None => db.compact(show),
    };
    let closed = db.close();
    progress.finish();
    let report = compacted?;
    closed?;
    let after = disk_bytes(dir);
    if flags.target.json {
        output::line(compact_json(&report, before, after));
        return Ok(());
    }
    output::line(format_args!(
        "{} on disk, {} before; {} in {:.1} s",
        show_size(after),
        show_size(before),
        work(&report),
        report.elapsed.as_secs_f64()
    ));
    Ok(())
}

fn open(options: Builder, dir: &Path) -> Result<Db, Failure> {
    let opened = options.open_existing(dir);
    opened.map_err(|error| of_store(dir, error))
}

/// Refuses a compression that would have every page written again and none become smaller. The
/// store is opened without it, which leaves the one that it has.
fn check_effect(options: Builder, dir: &Path, compression: Compression) -> Result<(), Failure> {
    if compression == Compression::None {
        return Ok(());
    }
    let db = open(options, dir)?;
    let report = db.report();
    db.close()?;
    if report.page_size > report.block_size {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--compression {compression}: the pages of {} are one block of {} bytes, so none would become \
         smaller; only a store that is created with a compression, or with smaller blocks, has pages \
         of several",
        dir.display(),
        report.block_size
    )))
}

fn doing(phase: CompactPhase) -> &'static str {
    match phase {
        CompactPhase::Garbage => "freeing what is gone",
        CompactPhase::Pack => "packing leaves",
        CompactPhase::Rewrite => "writing pages again",
        CompactPhase::Move => "moving pages",
        CompactPhase::Cut => "cutting files",
    }
}

fn work(report: &CompactReport) -> String {
    format!(
        "{} pages merged, {} packed, {} moved, {} chunks moved",
        report.pages_merged, report.pages_packed, report.pages_moved, report.chunks_moved
    )
}

fn compact_json(report: &CompactReport, before: u64, after: u64) -> serde_json::Value {
    json!({
        "disk_bytes_before": before,
        "disk_bytes_after": after,
        "data_bytes_before": report.data_bytes_before,
        "data_bytes_after": report.data_bytes_after,
        "data_free_bytes": report.data_free_bytes,
        "pages_merged": report.pages_merged,
        "pages_packed": report.pages_packed,
        "pages_moved": report.pages_moved,
        "chunks_moved": report.chunks_moved,
        "log_bytes_given_back": report.log_bytes_given_back,
        "elapsed_ms": u64::try_from(report.elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Returns the bytes that the files below `directory` take on disk; files that cannot be inspected
/// count as nothing.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(match metadata.is_dir() {
                true => disk_bytes(&entry.path()),
                false => metadata.blocks() * 512,
            })
        })
        .sum()
}
