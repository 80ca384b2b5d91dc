//! The content of a batch record: operations that name trees and keys, never pages.
//!
//! ```text
//! bytes
//!   0..4   number of operations
//!   4      flags: bit 0: the batch touches more than one leaf; bit 1: it names extents
//!   5..    operations: one byte of code, then fields in the order below
//!
//! code  operation      fields
//!  1    put            tree, key, value
//!  2    delete         tree, key
//!  3    create table   name, tree
//!  4    drop table     name, tree
//!  5    replace table  name, old tree, new tree
//!  6    swap tables    first name, first tree, second name, second tree
//!  7    put chunks     tree, key, head, bytes in chunks, log2 of the bytes of a chunk, runs
//!  8    take tree      name, old tree, new tree, root page, entries (u64)
//! ```
//!
//! A run describes a number of consecutive chunks: a varint of twice their number, plus one if they
//! are the chunks at the same places of the previous value; otherwise first block (u32) and CRC-32C
//! (u32) of each follow. Together the runs describe all chunks of the value.
//!
//! Trees are varints; keys, values and names are a varint of their length and the bytes. A varint
//! has seven bits in each byte, the lowest first; the top bit says that another follows.

use crate::bytes::{Reader, put_u32, u32_at};
use crate::cast::u32_of_len;
use crate::catalogue::TABLE_NAME_BYTES_MAX;
use crate::chunks::{ChunkPart, ChunkShape, HEAD_BYTES_MAX, NewChunk};
use crate::{Damage, PageId, TreeId};

const HEADER_BYTES: usize = 5;
const FLAG_MULTI_LEAF: u8 = 1;
const FLAG_NAMES_EXTENTS: u8 = 2;
const FLAGS: u8 = FLAG_MULTI_LEAF | FLAG_NAMES_EXTENTS;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CREATE_TABLE: u8 = 3;
const DROP_TABLE: u8 = 4;
const REPLACE_TABLE: u8 = 5;
const SWAP_TABLES: u8 = 6;
const PUT_CHUNKS: u8 = 7;
const TAKE_TREE: u8 = 8;
/// Bytes of a new chunk in a run.
const NEW_CHUNK_BYTES: usize = 8;

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Sets a key.
    Put {
        /// The tree of the table.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// The tree of the table.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
    },
    /// Sets a key to a value in chunks.
    PutChunks {
        /// The tree of the table.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: ChunkedValue<'a>,
    },
    /// Creates an empty table.
    CreateTable {
        /// Its name.
        name: &'a [u8],
        /// Its tree, never used before.
        tree: TreeId,
    },
    /// Drops a table with all its records.
    DropTable {
        /// Its name.
        name: &'a [u8],
        /// Its tree.
        tree: TreeId,
    },
    /// Empties a table by giving it a new tree.
    ReplaceTable {
        /// Its name.
        name: &'a [u8],
        /// The tree that is dropped.
        old_tree: TreeId,
        /// Its tree from now on, never used before.
        new_tree: TreeId,
    },
    /// Exchanges the contents of two tables.
    SwapTables {
        /// Name of the first.
        first: &'a [u8],
        /// Its tree before.
        first_tree: TreeId,
        /// Name of the second.
        second: &'a [u8],
        /// Its tree before.
        second_tree: TreeId,
    },
    /// Gives an empty table a tree that was filled without the log and waits in the garbage table.
    TakeTree {
        /// Its name.
        name: &'a [u8],
        /// The tree that is dropped.
        old_tree: TreeId,
        /// Its tree from now on.
        new_tree: TreeId,
        /// The root of that tree.
        root: PageId,
        /// Number of its entries.
        entries: u64,
    },
}

/// A value in chunks, in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedValue<'a> {
    /// The bytes of the value before those of the chunks.
    pub head: &'a [u8],
    /// How the rest is cut into chunks.
    pub shape: ChunkShape,
    /// The runs, which were checked to be complete.
    runs: &'a [u8],
}

impl<'a> ChunkedValue<'a> {
    /// Returns the part for each chunk.
    pub fn parts(&self) -> impl Iterator<Item = ChunkPart> + 'a {
        let mut rest = Reader::new(self.runs);
        let (mut left, mut kept) = (0, false);
        std::iter::from_fn(move || {
            if left == 0 {
                let run = varint(&mut rest)?;
                (left, kept) = (run >> 1, run & 1 == 1);
            }
            left = left.checked_sub(1)?;
            if kept {
                return Some(ChunkPart::Kept);
            }
            Some(ChunkPart::New(NewChunk {
                block: rest.u32()?,
                checksum: rest.u32()?,
            }))
        })
    }

    /// Takes the runs of `shape.count()` chunks from the front of `rest`.
    fn runs(shape: ChunkShape, rest: &mut Reader<'a>) -> Option<&'a [u8]> {
        let all = *rest;
        let mut left = shape.count();
        while left > 0 {
            let run = varint(rest)?;
            let count = (run >> 1) as usize;
            left = left.checked_sub(count).filter(|_| count > 0)?;
            if run & 1 == 0 {
                rest.take(count * NEW_CHUNK_BYTES)?;
            }
        }
        let mut runs = all;
        runs.take(all.remaining() - rest.remaining())
    }
}

/// Builds the payload of a batch record.
#[derive(Debug, Clone)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    operations: u32,
}

impl Default for BatchWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchWriter {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::reusing(Vec::new())
    }

    /// Makes an empty batch in the memory of `bytes`, whose content is dropped.
    pub fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        Self {
            bytes,
            operations: 0,
        }
    }

    /// Forgets all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        self.operations = 0;
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Returns whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Returns the length of the payload so far in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the size of its memory in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Marks the batch as touching more than one leaf.
    pub fn set_multi_leaf(&mut self) {
        self.bytes[4] |= FLAG_MULTI_LEAF;
    }

    /// Appends any operation.
    ///
    /// # Panics
    /// When a table's name is longer than [`TABLE_NAME_BYTES_MAX`].
    pub fn push(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Put { tree, key, value } => self.put(tree, key, value),
            Operation::Delete { tree, key } => self.delete(tree, key),
            Operation::PutChunks { tree, key, value } => {
                let parts: Vec<ChunkPart> = value.parts().collect();
                self.put_chunks(tree, key, value.head, value.shape, &parts);
            }
            Operation::CreateTable { name, tree } => {
                self.begin(CREATE_TABLE);
                self.name(name);
                self.varint(tree.0);
            }
            Operation::DropTable { name, tree } => {
                self.begin(DROP_TABLE);
                self.name(name);
                self.varint(tree.0);
            }
            Operation::ReplaceTable {
                name,
                old_tree,
                new_tree,
            } => {
                self.begin(REPLACE_TABLE);
                self.name(name);
                self.varint(old_tree.0);
                self.varint(new_tree.0);
            }
            Operation::SwapTables {
                first,
                first_tree,
                second,
                second_tree,
            } => {
                self.begin(SWAP_TABLES);
                self.name(first);
                self.varint(first_tree.0);
                self.name(second);
                self.varint(second_tree.0);
            }
            Operation::TakeTree {
                name,
                old_tree,
                new_tree,
                root,
                entries,
            } => {
                self.begin(TAKE_TREE);
                self.name(name);
                self.varint(old_tree.0);
                self.varint(new_tree.0);
                self.varint(root.0);
                self.bytes.extend_from_slice(&entries.to_le_bytes());
            }
        }
    }

    /// Appends [`Operation::Put`].
    #[inline]
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.begin(PUT);
        self.varint(tree.0);
        self.slice(key);
        self.slice(value);
    }

    /// Appends [`Operation::Delete`].
    #[inline]
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.begin(DELETE);
        self.varint(tree.0);
        self.slice(key);
    }

    /// Appends [`Operation::PutChunks`], with as many parts as `shape` has chunks.
    ///
    /// # Panics
    /// When the number of parts differs, or the head is longer than [`HEAD_BYTES_MAX`].
    pub fn put_chunks(
        &mut self,
        tree: TreeId,
        key: &[u8],
        head: &[u8],
        shape: ChunkShape,
        parts: &[ChunkPart],
    ) {
        assert_eq!(parts.len(), shape.count(), "parts of a value");
        assert!(head.len() <= HEAD_BYTES_MAX, "head of {}", head.len());
        self.begin(PUT_CHUNKS);
        self.varint(tree.0);
        self.slice(key);
        self.slice(head);
        self.varint(u32::try_from(shape.bytes).expect("shapes have at most 512 MiB"));
        let shift = shape.chunk_bytes.trailing_zeros();
        self.bytes
            .push(u8::try_from(shift).expect("a number has at most 32 zeros"));
        let is_kept = |part: &ChunkPart| *part == ChunkPart::Kept;
        for run in parts.chunk_by(|one, other| is_kept(one) == is_kept(other)) {
            self.varint(u32_of_len(run.len()) << 1 | u32::from(is_kept(&run[0])));
            for part in run {
                if let ChunkPart::New(chunk) = part {
                    self.bytes.extend_from_slice(&chunk.block.to_le_bytes());
                    self.bytes.extend_from_slice(&chunk.checksum.to_le_bytes());
                    self.bytes[4] |= FLAG_NAMES_EXTENTS;
                }
            }
        }
    }

    /// Returns the payload. More operations may be appended afterwards.
    pub fn payload(&mut self) -> &[u8] {
        put_u32(&mut self.bytes, 0, self.operations);
        &self.bytes
    }

    /// Returns the payload with its memory.
    pub fn into_payload(mut self) -> Vec<u8> {
        self.payload();
        self.bytes
    }

    fn begin(&mut self, code: u8) {
        self.operations += 1;
        self.bytes.push(code);
    }

    fn name(&mut self, name: &[u8]) {
        assert!(
            name.len() <= TABLE_NAME_BYTES_MAX,
            "table name of {} bytes",
            name.len()
        );
        self.slice(name);
    }

    #[inline]
    fn slice(&mut self, slice: &[u8]) {
        let length = u32::try_from(slice.len()).expect("keys and values are shorter than 4 GiB");
        self.varint(length);
        self.bytes.extend_from_slice(slice);
    }

    #[inline]
    fn varint(&mut self, value: u32) {
        match u8::try_from(value) {
            Ok(byte) if byte < 0x80 => self.bytes.push(byte),
            _ => self.long_varint(value),
        }
    }

    fn long_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }
}

/// Reads the operations of a batch from untrusted bytes. After damage it yields nothing.
#[derive(Debug, Clone)]
pub struct BatchReader<'a> {
    rest: Reader<'a>,
    operations: u32,
    read: u32,
    flags: u8,
    ended: bool,
}

impl<'a> BatchReader<'a> {
    /// Reads the batch in `payload`.
    ///
    /// # Errors
    /// [`Damage`] when its header is not that of a batch.
    pub fn new(payload: &'a [u8]) -> Result<Self, Damage> {
        let Some((header, operations)) = payload.split_at_checked(HEADER_BYTES) else {
            return Err(Damage::new(format!("batch of {} bytes", payload.len())));
        };
        if header[4] & !FLAGS != 0 {
            return Err(Damage::new(format!(
                "batch with unknown flags {:#04x}",
                header[4]
            )));
        }
        Ok(Self {
            rest: Reader::new(operations),
            operations: u32_at(header, 0),
            read: 0,
            flags: header[4],
            ended: false,
        })
    }

    /// Returns the number of operations according to the header.
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Returns whether the batch is marked as touching more than one leaf.
    pub fn multi_leaf(&self) -> bool {
        self.flags & FLAG_MULTI_LEAF != 0
    }

    /// Returns whether an operation names extents. These must be marked as allocated before
    /// anything is allocated.
    pub fn names_extents(&self) -> bool {
        self.flags & FLAG_NAMES_EXTENTS != 0
    }

    fn tree(&mut self) -> Option<TreeId> {
        varint(&mut self.rest).map(TreeId)
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = varint(&mut self.rest)?;
        self.rest.take(length as usize)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        self.slice()
            .filter(|name| name.len() <= TABLE_NAME_BYTES_MAX)
    }

    fn chunked_value(&mut self) -> Option<ChunkedValue<'a>> {
        let head = self.slice()?;
        let bytes = u64::from(varint(&mut self.rest)?);
        let chunk_bytes = 1_u32.checked_shl(self.rest.u8()?.into())?;
        let shape = ChunkShape::new(bytes, chunk_bytes)?;
        let runs = ChunkedValue::runs(shape, &mut self.rest)?;
        let value = ChunkedValue { head, shape, runs };
        let names_extents = value.parts().any(|part| part != ChunkPart::Kept);
        let known = self.names_extents() || !names_extents;
        (known && head.len() <= HEAD_BYTES_MAX).then_some(value)
    }

    fn fields(&mut self, code: u8) -> Option<Operation<'a>> {
        Some(match code {
            PUT => Operation::Put {
                tree: self.tree()?,
                key: self.slice()?,
                value: self.slice()?,
            },
            DELETE => Operation::Delete {
                tree: self.tree()?,
                key: self.slice()?,
            },
            PUT_CHUNKS => Operation::PutChunks {
                tree: self.tree()?,
                key: self.slice()?,
                value: self.chunked_value()?,
            },
            CREATE_TABLE => Operation::CreateTable {
                name: self.name()?,
                tree: self.tree()?,
            },
            DROP_TABLE => Operation::DropTable {
                name: self.name()?,
                tree: self.tree()?,
            },
            REPLACE_TABLE => Operation::ReplaceTable {
                name: self.name()?,
                old_tree: self.tree()?,
                new_tree: self.tree()?,
            },
            SWAP_TABLES => Operation::SwapTables {
                first: self.name()?,
                first_tree: self.tree()?,
                second: self.name()?,
                second_tree: self.tree()?,
            },
            TAKE_TREE => Operation::TakeTree {
                name: self.name()?,
                old_tree: self.tree()?,
                new_tree: self.tree()?,
                root: PageId(varint(&mut self.rest)?),
                entries: self.rest.u64()?,
            },
            _ => return None,
        })
    }

    fn operation(&mut self) -> Result<Operation<'a>, Damage> {
        let place = self.read;
        let cut = || {
            Damage::new(format!(
                "operation {place} of a batch is cut short or says what cannot be"
            ))
        };
        match self.rest.u8().ok_or_else(cut)? {
            code @ PUT..=TAKE_TREE => self.fields(code).ok_or_else(cut),
            code => Err(Damage::new(format!(
                "operation {place} of a batch has unknown code {code}"
            ))),
        }
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<Operation<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.read == self.operations {
            self.ended = true;
            let behind = self.rest.remaining();
            let damage = || Err(Damage::new(format!("{behind} bytes behind a batch")));
            return (behind != 0).then(damage);
        }
        let operation = self.operation();
        self.read += 1;
        self.ended = operation.is_err();
        Some(operation)
    }
}

/// Takes the next varint. Returns `None` if it is cut short or exceeds 32 bits.
fn varint(bytes: &mut Reader<'_>) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        let byte = bytes.u8()?;
        let bits = u32::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
