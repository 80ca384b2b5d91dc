//! `pando bench alloc`: the allocator alone.

use clap::{Args, ValueEnum};
use pando_bench::AllocOptions;

use super::flags::CommonFlags;
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::parse_size;

/// How fragmented the free blocks are.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pieces {
    /// In one piece.
    Fresh,
    /// In many pieces.
    Fragmented,
}

#[derive(Debug, Args)]
pub(crate) struct AllocFlags {
    /// Bytes of all blocks.
    #[arg(long, default_value = "1t", value_parser = parse_size)]
    size: u64,
    /// Bytes of a block.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    block_size: u64,
    /// Percentages of the blocks that are allocated, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = AllocOptions::default().fill_percent)]
    fill: Vec<u64>,
    /// Free blocks in one piece (fresh) or in many (fragmented), separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "fresh,fragmented")]
    pieces: Vec<Pieces>,
    /// Numbers of threads, in this order, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = AllocOptions::default().threads)]
    threads: Vec<usize>,
    /// Blocks that all threads together allocate, and free, for each of the two parts.
    #[arg(long, default_value_t = AllocOptions::default().num)]
    num: u64,
    #[command(flatten)]
    common: CommonFlags,
}

pub(super) fn run(flags: &AllocFlags) -> Result<(), Failure> {
    let is_fragmented = |pieces: &Pieces| matches!(pieces, Pieces::Fragmented);
    let options = AllocOptions {
        size_bytes: flags.size,
        block_bytes: flags.block_size,
        fill_percent: flags.fill.clone(),
        fragmented: flags.pieces.iter().map(is_fragmented).collect(),
        threads: flags.threads.clone(),
        num: flags.num,
        seed: flags.common.seed,
    };
    Screen::run("alloc", &flags.common, false, |screen| {
        pando_bench::alloc::run(&options, screen)
    })
}
