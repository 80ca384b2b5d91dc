//! Records in the order of their keys, more of them than memory has room for (decision 131).
//!
//! An external merge sort (Knuth, The Art of Computer Programming, volume 3, 5.4): what fits into
//! memory is sorted and written as a run, and runs are merged until one is left. Those with equal
//! keys stay in the order in which they came.
//!
//! A run is blocks of whole records: length of the block and its checksum, 4 and 8 bytes; then the
//! lengths of key and payload of each record, 4 bytes each, and their bytes. All numbers are
//! little-endian.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hash::Hasher as _;
use std::ops::Range;

use pando_sync::Arc;
use siphasher::sip::SipHasher13;

use super::scratch::{Scratch, ScratchFile};

/// So many bytes of records are kept in memory, and need no file.
const LITTLE: usize = 32 << 10;
/// Bytes of a block, about.
const BLOCK: usize = 32 << 10;
/// Runs that are merged into one at a time, at most: a block of each is in memory.
const RUNS: usize = 64;
/// Bytes that take as long as a record does besides its bytes, about.
const RECORD_COST: usize = 256;
/// Bytes of the lengths before a record, and of what is before a block.
const LENGTHS: usize = 8;
const BLOCK_HEAD: usize = 12;

/// Takes records, in any order.
#[derive(Debug)]
pub(crate) struct Sorter {
    scratch: Arc<Scratch>,
    is_descending: bool,
    /// Memory for records that are in no run yet.
    memory: usize,
    /// Memory for blocks of runs that are merged, and for the keys that are compared: with long
    /// records fewer runs, but two, are merged at a time.
    merging_memory: usize,
    /// What is in no run.
    bytes: Vec<u8>,
    records: Vec<Record>,
    count: usize,
    /// Bytes of the longest record.
    longest: usize,
    runs: Option<Runs>,
    merging: Option<Merging>,
}

/// A record in memory.
#[derive(Debug, Clone, Copy)]
struct Record {
    start: usize,
    key: u32,
    payload: u32,
}

/// Sorted runs in one file.
#[derive(Debug)]
struct Runs {
    file: ScratchFile,
    places: Vec<Range<u64>>,
}

impl Sorter {
    /// Returns one without records; with `is_descending` the last one comes first.
    pub(crate) fn new(scratch: Arc<Scratch>, is_descending: bool) -> Self {
        let memory = scratch.sort_bytes();
        Self {
            scratch,
            is_descending,
            memory,
            merging_memory: 2 * memory,
            bytes: Vec::new(),
            records: Vec::new(),
            count: 0,
            longest: 0,
            runs: None,
            merging: None,
        }
    }

    /// Number of records that it was given.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Takes a record. May block.
    pub(crate) fn push(&mut self, key: &[&[u8]], payload: &[u8]) -> Result<(), String> {
        let taken = self.bytes.len() + self.records.len() * size_of::<Record>();
        if taken >= self.memory {
            self.spill()?;
        }
        let start = self.bytes.len();
        key.iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        let length = self.bytes.len() - start;
        self.bytes.extend_from_slice(payload);
        self.longest = self.longest.max(self.bytes.len() - start);
        self.records.push(Record {
            start,
            key: short(length),
            payload: short(payload.len()),
        });
        self.count += 1;
        Ok(())
    }

    /// Sorts on, for about `records` short records, or fewer long ones, once all were given.
    /// Returns all of them when it is done. Blocks.
    pub(crate) fn settle(&mut self, records: usize) -> Result<Option<Sorted>, String> {
        if let Some(merging) = &mut self.merging {
            if merging.step(records)? {
                let merging = self.merging.take().expect("it is there");
                self.runs = Some(merging.made);
            }
        } else if self.runs.is_none() && self.bytes.len() <= LITTLE {
            self.sort();
            let records = std::mem::take(&mut self.records);
            let mut blocks = Blocks::default();
            for record in &records {
                blocks.push(self.parts(record));
            }
            return Ok(Some(Sorted(Reader::of_bytes(blocks.block))));
        } else {
            self.spill()?;
            (self.bytes, self.records) = (Vec::new(), Vec::new());
        }
        let Some(runs) = self.runs.take() else {
            return Ok(None);
        };
        if let [run] = &runs.places[..] {
            let run = run.clone();
            return Ok(Some(Sorted(Reader::of_run(Arc::new(runs.file), run))));
        }
        let made = self.no_runs()?;
        let how = (self.runs_max(), self.is_descending);
        self.merging = Some(Merging::new(runs, made, how));
        Ok(None)
    }

    /// Returns how many runs are merged into one at a time, at most.
    fn runs_max(&self) -> usize {
        // A block ends behind a record that may be the longest, and so may the key of another one
        // be.
        let of_run = BLOCK + 2 * self.longest;
        (self.merging_memory / of_run).clamp(2, RUNS)
    }

    fn parts(&self, record: &Record) -> (&[u8], &[u8]) {
        let whole = &self.bytes[record.start..];
        let (key, rest) = whole.split_at(record.key as usize);
        (key, &rest[..record.payload as usize])
    }

    fn sort(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by(|a, b| {
            let keys = order(self.is_descending, self.parts(a).0, self.parts(b).0);
            keys.then(a.start.cmp(&b.start))
        });
        self.records = records;
    }

    fn no_runs(&self) -> Result<Runs, String> {
        Ok(Runs {
            file: self.scratch.file()?,
            places: Vec::new(),
        })
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> Result<(), String> {
        if self.records.is_empty() {
            return Ok(());
        }
        self.sort();
        let mut runs = match self.runs.take() {
            Some(runs) => runs,
            None => self.no_runs()?,
        };
        let start = runs.file.len();
        let mut blocks = Blocks::default();
        for record in &self.records {
            if blocks.push(self.parts(record)) {
                blocks.write(&mut runs.file)?;
            }
        }
        blocks.write(&mut runs.file)?;
        runs.places.push(start..runs.file.len());
        self.runs = Some(runs);
        self.bytes.clear();
        self.records.clear();
        Ok(())
    }
}

fn short(length: usize) -> u32 {
    u32::try_from(length).expect("elements and their weights are below 4 GiB")
}

fn order(is_descending: bool, a: &[u8], b: &[u8]) -> Ordering {
    match is_descending {
        false => a.cmp(b),
        true => b.cmp(a),
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Makes blocks.
#[derive(Debug, Default)]
struct Blocks {
    block: Vec<u8>,
}

impl Blocks {
    /// Adds a record. Returns true if that is enough for a block.
    fn push(&mut self, (key, payload): (&[u8], &[u8])) -> bool {
        if self.block.is_empty() {
            self.block.resize(BLOCK_HEAD, 0);
        }
        let lengths = [short(key.len()), short(payload.len())];
        let lengths = lengths.into_iter().flat_map(u32::to_le_bytes);
        self.block.extend(lengths);
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(payload);
        self.block.len() >= BLOCK
    }

    /// Writes the block, if it has records.
    fn write(&mut self, file: &mut ScratchFile) -> Result<(), String> {
        if self.block.is_empty() {
            return Ok(());
        }
        let (head, records) = self.block.split_at_mut(BLOCK_HEAD);
        head[..4].copy_from_slice(&short(records.len()).to_le_bytes());
        head[4..].copy_from_slice(&checksum(records).to_le_bytes());
        file.append(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// Records, one after the other.
#[derive(Debug)]
struct Reader {
    /// Where blocks are that were not read yet.
    rest: Option<(Arc<ScratchFile>, Range<u64>)>,
    /// The records of a block.
    block: Vec<u8>,
    key: Range<usize>,
    payload: Range<usize>,
}

impl Reader {
    fn of_run(file: Arc<ScratchFile>, run: Range<u64>) -> Self {
        Self {
            rest: Some((file, run)),
            block: Vec::new(),
            key: 0..0,
            payload: 0..0,
        }
    }

    /// Returns those of a block that is in memory.
    fn of_bytes(block: Vec<u8>) -> Self {
        let start = BLOCK_HEAD.min(block.len());
        Self {
            rest: None,
            block,
            key: 0..0,
            payload: 0..start,
        }
    }

    /// Goes to the next record. Returns false behind the last one.
    fn advance(&mut self) -> Result<bool, String> {
        if self.payload.end == self.block.len() && !self.read()? {
            return Ok(false);
        }
        let start = self.payload.end + LENGTHS;
        let length = |at: usize| {
            let bytes = self.block.get(at..at + LENGTHS / 2)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let lengths = (length(start - LENGTHS), length(start - LENGTHS / 2));
        let (Some(key), Some(payload)) = lengths else {
            return Err(DAMAGED.to_owned());
        };
        self.key = start..start + key;
        self.payload = self.key.end..self.key.end + payload;
        match self.payload.end <= self.block.len() {
            true => Ok(true),
            false => Err(DAMAGED.to_owned()),
        }
    }

    fn key(&self) -> &[u8] {
        &self.block[self.key.clone()]
    }

    fn payload(&self) -> &[u8] {
        &self.block[self.payload.clone()]
    }

    /// Reads the next block. Returns false if there is none.
    fn read(&mut self) -> Result<bool, String> {
        let Some((file, run)) = &mut self.rest else {
            return Ok(false);
        };
        if run.is_empty() {
            return Ok(false);
        }
        let mut head = [0; BLOCK_HEAD];
        file.read_at(run.start, &mut head)?;
        let (length, sum) = head.split_first_chunk().expect("it is longer");
        let length = u32::from_le_bytes(*length);
        let start = run.start + BLOCK_HEAD as u64;
        let end = start + u64::from(length);
        if length == 0 || end > run.end {
            return Err(DAMAGED.to_owned());
        }
        self.block.resize(length as usize, 0);
        file.read_at(start, &mut self.block)?;
        if checksum(&self.block).to_le_bytes() != sum {
            return Err(DAMAGED.to_owned());
        }
        run.start = end;
        (self.key, self.payload) = (0..0, 0..0);
        Ok(true)
    }
}

const DAMAGED: &str = "a temporary file is damaged";

/// Makes fewer runs of many.
#[derive(Debug)]
struct Merging {
    from: Arc<ScratchFile>,
    /// Runs that are not merged yet: the next one is the last.
    left: Vec<Range<u64>>,
    /// Those that are merged now, in their order; and where each of them is.
    readers: Vec<Reader>,
    heads: BinaryHeap<Head>,
    runs_max: usize,
    is_descending: bool,
    blocks: Blocks,
    /// Where the run begins that is made of them.
    start: u64,
    made: Runs,
}

/// The next record of a run.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    key: Vec<u8>,
    run: usize,
    is_descending: bool,
}

impl Ord for Head {
    /// The greatest one comes out of a heap first.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = order(self.is_descending, &other.key, &self.key);
        keys.then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Merging {
    fn new(runs: Runs, made: Runs, (runs_max, is_descending): (usize, bool)) -> Self {
        let mut left = runs.places;
        left.reverse();
        Self {
            from: Arc::new(runs.file),
            left,
            readers: Vec::new(),
            heads: BinaryHeap::new(),
            runs_max,
            is_descending,
            blocks: Blocks::default(),
            start: 0,
            made,
        }
    }

    /// Merges about `records` short records, or fewer long ones. Returns true if all runs are
    /// merged.
    fn step(&mut self, records: usize) -> Result<bool, String> {
        let mut left = records * RECORD_COST;
        while left > 0 {
            let Some(mut head) = self.heads.peek_mut() else {
                if !self.begin()? {
                    return Ok(true);
                }
                continue;
            };
            let reader = &mut self.readers[head.run];
            let bytes = reader.key().len() + reader.payload().len();
            left = left.saturating_sub(RECORD_COST + bytes);
            if self.blocks.push((reader.key(), reader.payload())) {
                self.blocks.write(&mut self.made.file)?;
            }
            if reader.advance()? {
                head.key.clear();
                head.key.extend_from_slice(reader.key());
            } else {
                PeekMut::pop(head);
            }
        }
        Ok(false)
    }

    /// Ends a run, and begins the next one. Returns false if there is none.
    fn begin(&mut self) -> Result<bool, String> {
        self.blocks.write(&mut self.made.file)?;
        let end = self.made.file.len();
        if end > self.start {
            self.made.places.push(self.start..end);
            self.start = end;
        }
        self.readers.clear();
        while let Some(run) = self.left.pop() {
            let mut reader = Reader::of_run(self.from.clone(), run);
            if reader.advance()? {
                self.heads.push(Head {
                    key: reader.key().to_vec(),
                    run: self.readers.len(),
                    is_descending: self.is_descending,
                });
            }
            self.readers.push(reader);
            if self.readers.len() == self.runs_max {
                break;
            }
        }
        Ok(!self.readers.is_empty())
    }
}

/// Records in the order of their keys.
#[derive(Debug)]
pub(crate) struct Sorted(Reader);

/// Key and payload of a record.
pub(crate) type KeyAndPayload<'r> = (&'r [u8], &'r [u8]);

impl Sorted {
    /// Returns the next one; `None` behind the last one. May block.
    pub(crate) fn next(&mut self) -> Result<Option<KeyAndPayload<'_>>, String> {
        match self.0.advance()? {
            true => Ok(Some((self.0.key(), self.0.payload()))),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    fn sorter(memory: usize, is_descending: bool) -> Sorter {
        Sorter {
            memory,
            ..Sorter::new(Scratch::new(""), is_descending)
        }
    }

    fn settled(sorter: &mut Sorter, records: usize) -> Sorted {
        loop {
            if let Some(sorted) = sorter.settle(records).unwrap() {
                return sorted;
            }
        }
    }

    fn all(mut sorted: Sorted) -> Records {
        let mut all = Records::new();
        while let Some((key, payload)) = sorted.next().unwrap() {
            all.push((key.to_vec(), payload.to_vec()));
        }
        all
    }

    proptest! {
        #[test]
        fn records_come_in_the_order_of_their_keys(
            keys in prop::collection::vec(prop::collection::vec(0..3_u8, 0..4), 0..3000),
            memory in 64..60_000_usize,
            is_descending: bool,
            steps in 1..500_usize,
            long in 0..50_usize,
        ) {
            let mut sorter = sorter(memory, is_descending);
            let mut twin = Records::new();
            for (number, key) in keys.into_iter().enumerate() {
                let payload = number.to_le_bytes().repeat(1 + number % (long + 1));
                let (first, rest) = key.split_at(key.len() / 2);
                sorter.push(&[first, rest], &payload).unwrap();
                twin.push((key, payload));
            }
            prop_assert_eq!(sorter.len(), twin.len());
            twin.sort_by(|a, b| order(is_descending, &a.0, &b.0));
            let sorted = settled(&mut sorter, steps);
            prop_assert_eq!(all(sorted), twin);
            prop_assert_eq!(sorter.scratch.bytes(), 0);
        }
    }

    /// So many runs that they are merged three times, with records longer than a block.
    #[test]
    fn many_runs_are_merged_again_and_again() {
        let mut sorter = sorter(1, false);
        let count = RUNS * RUNS + 17;
        let payload = |number: usize| {
            vec![
                7;
                if number.is_multiple_of(1000) {
                    2 * BLOCK
                } else {
                    3
                }
            ]
        };
        for number in (0..count).rev() {
            sorter
                .push(&[&number.to_be_bytes()], &payload(number))
                .unwrap();
        }
        assert_eq!(sorter.runs.as_ref().unwrap().places.len(), count - 1);
        let mut sorted = settled(&mut sorter, 1000);
        for number in 0..count {
            let (key, found) = sorted.next().unwrap().unwrap();
            assert_eq!(
                (key, found),
                (&number.to_be_bytes()[..], &payload(number)[..])
            );
        }
        assert!(sorted.next().unwrap().is_none());
        assert!(sorter.scratch.bytes() > 0);
        drop(sorted);
        assert_eq!(sorter.scratch.bytes(), 0);
    }

    /// Blocks of long records, and the keys of these, are in memory for each run that is merged.
    #[test]
    fn few_runs_of_long_records_are_merged_at_a_time() {
        for (length, expected) in [(10, 5), (1 << 20, 3), (8 << 20, 2)] {
            let mut sorter = sorter(1, false);
            for number in (0..5_u8).rev() {
                let key = vec![number; length];
                sorter.push(&[&key], b"payload").unwrap();
            }
            assert!(sorter.settle(1).unwrap().is_none());
            let merging = sorter.merging.as_mut().unwrap();
            assert!(!merging.step(1).unwrap());
            assert_eq!(merging.readers.len(), expected, "{length}");
            let mut sorted = settled(&mut sorter, 1000);
            for number in 0..5 {
                let (key, _) = sorted.next().unwrap().unwrap();
                assert_eq!((key[0], key.len()), (number, length));
            }
        }
    }

    /// With little memory, records are written sooner.
    #[test]
    fn a_sort_takes_the_memory_that_it_may() {
        let scratch = Scratch::new("");
        scratch.set_sort_bytes(256 << 10);
        let mut sorter = Sorter::new(scratch.beside(), false);
        for number in 0..3000_u32 {
            sorter.push(&[&number.to_be_bytes()], &[7; 100]).unwrap();
            assert!(sorter.bytes.capacity() < 600 << 10, "{number}");
        }
        assert!(sorter.runs.is_some());
    }

    /// Others wait for the end of a turn.
    #[test]
    fn few_long_records_are_merged_in_a_turn() {
        let mut sorter = sorter(1, false);
        for number in 0..100_u8 {
            sorter.push(&[&[number]], &[7; BLOCK]).unwrap();
        }
        let mut turns = 0;
        while sorter.settle(1000).unwrap().is_none() {
            turns += 1;
        }
        assert!(turns > 10, "{turns}");
    }

    #[test]
    fn little_needs_no_file() {
        let mut sorter = sorter(4 << 20, false);
        for key in [b"b", b"a"] {
            sorter.push(&[key], &[0; LITTLE / 2 - 1]).unwrap();
        }
        let sorted = settled(&mut sorter, 1);
        assert!(sorted.0.rest.is_none());
        let keys: Vec<_> = all(sorted).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [b"a", b"b"]);
        let mut none = self::sorter(4 << 20, false);
        assert!(settled(&mut none, 1).next().unwrap().is_none());
    }

    #[test]
    fn a_block_that_rots_is_an_error() {
        let mut sorter = sorter(4 << 20, false);
        sorter.push(&[b"key"], &[5; LITTLE]).unwrap();
        let mut sorted = settled(&mut sorter, 1);
        let (file, run) = sorted.0.rest.clone().unwrap();
        let mut bytes = vec![0; usize::try_from(run.end).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        for place in [0, 3, 4, 11, 12, 19, 20, 5000] {
            let mut rotten = sorter.scratch.file().unwrap();
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            rotten.append(&changed).unwrap();
            let mut reader = Reader::of_run(Arc::new(rotten), run.clone());
            let read = reader.advance();
            assert_eq!(read, Err(DAMAGED.to_owned()), "{place}");
        }
        assert!(sorted.next().unwrap().is_some());
    }
}
