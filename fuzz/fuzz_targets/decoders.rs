//! Every decoder of a store's files, except those of pages, returns a value or an error for any
//! bytes, and never panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pando_format::catalogue::{GarbageRow, TreeRow};
use pando_format::chunks::BlobRef;
use pando_format::log::{BatchReader, RecordHeader, SegmentHeader};
use pando_format::mapping::{Group, decode_section};
use pando_format::superblock::Superblock;

fuzz_target!(|bytes: &[u8]| {
    let _ = Superblock::decode(bytes);
    let _ = Group::encoded_bytes(bytes);
    if let Ok((group, length)) = Group::decode(bytes) {
        let mut again = Vec::new();
        group.encode(&mut again);
        assert_eq!(again.len(), length);
    }
    if let Ok(words) = decode_section(7, bytes) {
        assert_eq!(words.count(), pando_format::mapping::SECTION_WORDS);
    }
    let _ = TreeRow::decode(bytes);
    let _ = GarbageRow::decode(bytes);
    let _ = BlobRef::decode(bytes);
    let _ = SegmentHeader::decode(bytes);
    let _ = RecordHeader::decode(bytes, 4096, 1 << 20, 1);
    if let Ok(batch) = BatchReader::new(bytes) {
        for operation in batch {
            if operation.is_err() {
                break;
            }
        }
    }
});
