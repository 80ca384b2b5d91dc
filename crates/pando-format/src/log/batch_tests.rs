//! Batches survive encoding and decoding. Hostile bytes end in [`Damage`], never in a panic.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Owned {
    Put(u32, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>),
    Create(Vec<u8>, u32),
    Drop(Vec<u8>, u32),
    Replace(Vec<u8>, u32, u32),
    Swap(Vec<u8>, u32, Vec<u8>, u32),
    Take(Vec<u8>, [u32; 3], u64),
}

/// A put of a value in chunks. `last` is what the last chunk lacks to its full length.
#[derive(Debug, Clone)]
struct Large {
    tree: u32,
    key: Vec<u8>,
    head: Vec<u8>,
    parts: Vec<ChunkPart>,
    last: u32,
}

impl Large {
    fn put(&self, writer: &mut BatchWriter) {
        let bytes = self.parts.len() as u64 * 4096 - u64::from(self.last);
        let shape = ChunkShape::new(bytes, 4096).unwrap();
        writer.put_chunks(TreeId(self.tree), &self.key, &self.head, shape, &self.parts);
    }
}

fn large() -> impl Strategy<Value = Large> {
    let part = prop_oneof![
        Just(ChunkPart::Kept),
        (any::<u32>(), any::<u32>())
            .prop_map(|(block, checksum)| ChunkPart::New(NewChunk { block, checksum })),
    ];
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let parts = prop::collection::vec(part, 1..20);
    (any::<u32>(), bytes(), bytes(), parts, 0_u32..4096).prop_map(
        |(tree, key, head, parts, last)| Large {
            tree,
            key,
            head,
            parts,
            last,
        },
    )
}

impl Owned {
    fn borrow(&self) -> Operation<'_> {
        match self {
            Self::Put(tree, key, value) => Operation::Put {
                tree: TreeId(*tree),
                key,
                value,
            },
            Self::Delete(tree, key) => Operation::Delete {
                tree: TreeId(*tree),
                key,
            },
            Self::Create(name, tree) => Operation::CreateTable {
                name,
                tree: TreeId(*tree),
            },
            Self::Drop(name, tree) => Operation::DropTable {
                name,
                tree: TreeId(*tree),
            },
            Self::Replace(name, old, new) => Operation::ReplaceTable {
                name,
                old_tree: TreeId(*old),
                new_tree: TreeId(*new),
            },
            Self::Swap(first, first_tree, second, second_tree) => Operation::SwapTables {
                first,
                first_tree: TreeId(*first_tree),
                second,
                second_tree: TreeId(*second_tree),
            },
            Self::Take(name, [old, new, root], entries) => Operation::TakeTree {
                name,
                old_tree: TreeId(*old),
                new_tree: TreeId(*new),
                root: PageId(*root),
                entries: *entries,
            },
        }
    }
}

fn operations() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let name = || prop::collection::vec(any::<u8>(), 0..=TABLE_NAME_BYTES_MAX);
    let operation = prop_oneof![
        (any::<u32>(), bytes(), bytes()).prop_map(|(t, k, v)| Owned::Put(t, k, v)),
        (0_u32..200, bytes()).prop_map(|(t, k)| Owned::Delete(t, k)),
        (name(), any::<u32>()).prop_map(|(n, t)| Owned::Create(n, t)),
        (name(), any::<u32>()).prop_map(|(n, t)| Owned::Drop(n, t)),
        (name(), any::<u32>(), any::<u32>()).prop_map(|(n, o, t)| Owned::Replace(n, o, t)),
        (name(), any::<u32>(), name(), any::<u32>())
            .prop_map(|(a, t, b, u)| Owned::Swap(a, t, b, u)),
        (name(), any::<[u32; 3]>(), any::<u64>()).prop_map(|(n, t, e)| Owned::Take(n, t, e)),
    ];
    prop::collection::vec(operation, 0..12)
}

fn written(operations: &[Owned]) -> Vec<u8> {
    let mut writer = BatchWriter::reusing(vec![1, 2, 3]);
    for operation in operations {
        writer.push(operation.borrow());
    }
    writer.into_payload()
}

/// Reads all operations. Returns their number, or the damage that ends them.
fn read_all(payload: &[u8]) -> Result<usize, Damage> {
    let mut reader = BatchReader::new(payload)?;
    let mut count = 0;
    for operation in reader.by_ref() {
        operation?;
        count += 1;
    }
    assert!(reader.next().is_none());
    Ok(count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_survives_its_bytes(operations in operations()) {
        let payload = written(&operations);
        let read: Result<Vec<_>, _> = BatchReader::new(&payload).unwrap().collect();
        let expected: Vec<_> = operations.iter().map(Owned::borrow).collect();
        prop_assert_eq!(read, Ok(expected));
    }

    #[test]
    fn puts_of_chunks_survive_their_bytes(
        puts in prop::collection::vec(large(), 1..4),
        cut in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let mut writer = BatchWriter::new();
        puts.iter().for_each(|put| put.put(&mut writer));
        let named = |put: &Large| put.parts.iter().any(|part| *part != ChunkPart::Kept);
        let mut payload = writer.into_payload();
        let reader = BatchReader::new(&payload).unwrap();
        prop_assert_eq!(reader.names_extents(), puts.iter().any(named));
        let mut again = BatchWriter::new();
        for (read, put) in reader.zip(&puts) {
            let operation = read.unwrap();
            again.push(operation);
            let Operation::PutChunks { tree, key, value } = operation else {
                panic!("{operation:?}");
            };
            prop_assert_eq!((tree.0, key, value.head), (put.tree, &put.key[..], &put.head[..]));
            prop_assert_eq!(value.parts().collect::<Vec<_>>(), put.parts.clone());
        }
        prop_assert_eq!(again.into_payload(), payload.clone());
        prop_assert!(read_all(&payload[..cut.index(payload.len())]).is_err());
        let bit = flip.index(payload.len() * 8);
        payload[bit / 8] ^= 1 << (bit % 8);
        let _ = read_all(&payload);
    }

    #[test]
    fn a_cut_or_longer_batch_is_damage(
        operations in operations(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut payload = written(&operations);
        prop_assert!(read_all(&payload[..cut.index(payload.len())]).is_err());
        payload.push(0);
        prop_assert!(read_all(&payload).is_err());
    }

    #[test]
    fn flipped_bits_never_panic(
        operations in operations(),
        flips in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let mut payload = written(&operations);
        let bits = payload.len() * 8;
        for flip in flips {
            let bit = flip.index(bits);
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        let _ = read_all(&payload);
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_all(&bytes);
    }

    #[test]
    fn varints_of_all_sizes_survive(value in any::<u32>(), shift in 0_u32..32) {
        let mut writer = BatchWriter::new();
        writer.varint(value >> shift);
        let mut reader = Reader::new(&writer.bytes[HEADER_BYTES..]);
        prop_assert_eq!(varint(&mut reader), Some(value >> shift));
        prop_assert_eq!(reader.remaining(), 0);
    }
}

#[test]
fn short_operations_and_unknown_codes_are_damage() {
    for code in [0, PUT_CHUNKS, TAKE_TREE, 9, 255] {
        assert!(read_all(&[1, 0, 0, 0, 0, code, 0, 0, 0, 0]).is_err());
    }
}

#[test]
fn a_varint_beyond_32_bits_is_refused() {
    let mut too_large = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]);
    assert_eq!(varint(&mut too_large), None);
    let mut too_long = Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]);
    assert_eq!(varint(&mut too_long), None);
    let mut largest = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(varint(&mut largest), Some(u32::MAX));
}

#[test]
fn a_cleared_writer_writes_an_empty_batch() {
    let mut writer = BatchWriter::new();
    writer.put(TreeId(3), b"key", b"value");
    writer.set_multi_leaf();
    assert!(BatchReader::new(writer.payload()).unwrap().multi_leaf());
    writer.clear();
    assert!(writer.is_empty());
    assert!(!BatchReader::new(writer.payload()).unwrap().multi_leaf());
    assert_eq!(read_all(writer.payload()), Ok(0));
}

#[test]
#[should_panic(expected = "table name")]
fn a_name_that_is_too_long_is_refused_when_written() {
    BatchWriter::new().push(Operation::CreateTable {
        name: &[0; TABLE_NAME_BYTES_MAX + 1],
        tree: TreeId(20),
    });
}

#[test]
fn extents_that_the_flags_do_not_tell_of_are_damage() {
    let mut writer = BatchWriter::new();
    let shape = ChunkShape::new(100, 4096).unwrap();
    let part = ChunkPart::New(NewChunk {
        block: 7,
        checksum: 8,
    });
    writer.put_chunks(TreeId(3), b"key", b"head", shape, &[part]);
    let mut payload = writer.into_payload();
    assert_eq!(read_all(&payload), Ok(1));
    payload[4] = 0;
    assert!(read_all(&payload).is_err());
}
