//! One file: its durable content, the changes since, and what a crash leaves of them.
//!
//! The crash model is that of a file system over a disk with atomic sectors: of each sector some
//! prefix of its changes survives (a sector is written back whole, so a later change never survives
//! without an earlier one to the same sector), independently of other sectors; of the lengths, too,
//! some prefix survives. Bytes that a surviving cut removed never come back.

use std::collections::HashMap;
use std::ops::Range;

use super::random::Random;
use crate::cast::usize_of;

/// Number of bytes that a disk writes atomically.
pub const SECTOR_BYTES: u64 = 512;

/// Which changes survive a crash, of those that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// None.
    AllLost,
    /// All.
    AllSurvive,
    /// For each sector an arbitrary prefix of its changes.
    RandomSubset,
    /// The same, and a change may end within a sector.
    TornSectors,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
    Extend(u64),
    Punch(Range<u64>),
}

impl Change {
    fn len_after(&self, before: u64) -> u64 {
        match self {
            Self::Write { offset, bytes } => before.max(offset + bytes.len() as u64),
            Self::Length(len) => *len,
            Self::Extend(end) => before.max(*end),
            Self::Punch(_) => before,
        }
    }

    fn apply(&self, content: &mut Vec<u8>) {
        content.resize(usize_of(self.len_after(content.len() as u64)), 0);
        match self {
            Self::Write { offset, bytes } => {
                content[usize_of(*offset)..][..bytes.len()].copy_from_slice(bytes);
            }
            Self::Punch(range) => punch(content, range),
            Self::Length(_) | Self::Extend(_) => {}
        }
    }

    /// Returns the range of bytes whose content changes, empty for truncations and extensions.
    fn touched(&self) -> Range<u64> {
        match self {
            Self::Write { offset, bytes } => *offset..offset + bytes.len() as u64,
            Self::Punch(range) => range.clone(),
            Self::Length(_) | Self::Extend(_) => 0..0,
        }
    }
}

fn punch(content: &mut [u8], range: &Range<u64>) {
    let end = (content.len() as u64).min(range.end);
    let start = end.min(range.start);
    content[usize_of(start)..usize_of(end)].fill(0);
}

/// One file.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    seen: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

impl Image {
    /// Makes a file whose visible content is durable.
    pub(super) fn durable(content: Vec<u8>) -> Self {
        Self {
            durable: content.clone(),
            seen: content,
            changes: Vec::new(),
        }
    }

    /// Returns the content that programs read.
    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// Returns the content that the last sync has made durable.
    pub(super) fn safe(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.changes.push(change);
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.change(Change::Write { offset, bytes });
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.change(Change::Length(len));
    }

    pub(super) fn extend(&mut self, end: u64) {
        self.change(Change::Extend(end));
    }

    pub(super) fn punch(&mut self, range: Range<u64>) {
        self.change(Change::Punch(range));
    }

    /// Changes the medium itself: the visible content, the durable content, and everything that can
    /// survive.
    pub(super) fn damage(&mut self, offset: u64, bytes: &[u8]) {
        let change = Change::Write {
            offset,
            bytes: bytes.to_vec(),
        };
        let end = offset + bytes.len() as u64;
        assert!(end <= self.len(), "damage lies within the file");
        change.apply(&mut self.seen);
        let durable = (self.durable.len() as u64).clamp(offset, end) - offset;
        if durable > 0 {
            Change::Write {
                offset,
                bytes: bytes[..usize_of(durable)].to_vec(),
            }
            .apply(&mut self.durable);
        }
        if !self.changes.is_empty() {
            self.changes.push(change);
        }
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Does a failed sync: some of the changes become durable, the others are forgotten, and no
    /// later sync writes them. Programs continue to see all of them.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.survivors(random, CrashMode::RandomSubset);
        self.changes.clear();
    }

    /// Drops the kernel's cached content that it considers clean: for changes that a failed sync
    /// has forgotten, programs see the content of the disk from now on.
    pub(super) fn drop_clean(&mut self) {
        self.seen = self.prefix(self.changes.len());
    }

    /// Returns the content that a crash at this moment leaves.
    pub(super) fn survivors(&self, random: &mut Random, mode: CrashMode) -> Vec<u8> {
        let count = self.changes.len();
        match mode {
            CrashMode::AllLost => self.prefix(0),
            CrashMode::AllSurvive => self.prefix(count),
            // If each sector chose independently, whole prefixes would be rare.
            _ => match random.below(4) {
                0 => self.prefix(random.index(count + 1)),
                _ => self.mixture(random, mode == CrashMode::TornSectors),
            },
        }
    }

    /// Returns the content if the first `count` changes survive.
    fn prefix(&self, count: usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for change in &self.changes[..count] {
            change.apply(&mut content);
        }
        content
    }

    /// Returns the content if each sector, and the length, choose independently.
    fn mixture(&self, random: &mut Random, torn: bool) -> Vec<u8> {
        let count = self.changes.len();
        let lengths: Vec<u64> = self
            .changes
            .iter()
            .scan(self.durable.len() as u64, |len, change| {
                *len = change.len_after(*len);
                Some(*len)
            })
            .collect();
        let length_before = |index: usize| match index {
            0 => self.durable.len() as u64,
            _ => lengths[index - 1],
        };
        let lengths_kept = random.index(count + 1);
        let mut sectors = SectorChoice::new(random.index(count + 1), count);
        let mut content = self.durable.clone();
        let longest = lengths.iter().copied().fold(0, u64::max);
        content.resize(content.len().max(usize_of(longest)), 0);
        // The lowest end of a lost truncation: later data beyond it lies in space that the file
        // never got.
        let mut lost_cut = u64::MAX;
        for (index, change) in self.changes.iter().enumerate() {
            if let Change::Length(len) = change {
                if index < lengths_kept {
                    content[usize_of(*len)..].fill(0);
                } else if *len < length_before(index) {
                    lost_cut = lost_cut.min(*len);
                }
            }
            for piece in pieces(change.touched()) {
                let kept = sectors.changes_kept(piece.start / SECTOR_BYTES, random);
                let len = piece.end - piece.start;
                let survives = match index.cmp(&kept) {
                    std::cmp::Ordering::Less => len,
                    std::cmp::Ordering::Equal if torn && random.once_in(2) => random.below(len),
                    _ => 0,
                };
                let range = piece.start..(piece.start + survives).min(lost_cut.max(piece.start));
                copy(change, &range, &mut content);
            }
        }
        let mut len = length_before(lengths_kept);
        if lengths_kept < count && lengths[lengths_kept] > len && random.once_in(2) {
            let sectors = (lengths[lengths_kept] - len).div_ceil(SECTOR_BYTES);
            len = (len + random.below(sectors + 1) * SECTOR_BYTES).min(lengths[lengths_kept]);
        }
        content.resize(usize_of(len), 0);
        content
    }
}

/// Copies the part of a change that lies in `range`.
fn copy(change: &Change, range: &Range<u64>, content: &mut [u8]) {
    if range.is_empty() {
        return;
    }
    match change {
        Change::Write { offset, bytes } => {
            let source = usize_of(range.start - offset)..usize_of(range.end - offset);
            content[usize_of(range.start)..usize_of(range.end)].copy_from_slice(&bytes[source]);
        }
        Change::Punch(_) => punch(content, range),
        Change::Length(_) | Change::Extend(_) => {}
    }
}

/// Cuts a range at the borders of sectors.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let end = range.end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES);
            std::mem::replace(&mut start, end)..end
        })
    })
}

/// The number of changes that each sector keeps: every second sector keeps as many as the common
/// choice.
struct SectorChoice {
    common: usize,
    count: usize,
    chosen: HashMap<u64, usize>,
}

impl SectorChoice {
    fn new(common: usize, count: usize) -> Self {
        Self {
            common,
            count,
            chosen: HashMap::new(),
        }
    }

    fn changes_kept(&mut self, sector: u64, random: &mut Random) -> usize {
        *self.chosen.entry(sector).or_insert_with(|| {
            if random.once_in(2) {
                self.common
            } else {
                random.index(self.count + 1)
            }
        })
    }
}
