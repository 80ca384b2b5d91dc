//! Page images: an image that passes the structural check can be prepared for writing again and
//! survives compression. Any stored bytes decode to a page or to an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pando_format::compression::{BODY_BYTES_AT, CODEC_AT};
use pando_format::{Compression, PageDecoder, PageEncoder, PageSize};

const PAGE: usize = 4096;
const BLOCK: usize = 512;

fuzz_target!(|bytes: &[u8]| {
    let size = PageSize::new(PAGE).expect("4096 is the size of a page");
    let mut decoder = PageDecoder::default();

    let mut image = vec![0; PAGE];
    let length = bytes.len().min(image.len());
    image[..length].copy_from_slice(&bytes[..length]);
    if pando_tree::check_page(&image).is_ok() {
        let _ = pando_tree::prepare_image(&mut image);
        assert!(pando_tree::check_page(&image).is_ok());
    }

    // Arbitrary stored bytes. `decode` does not verify the checksum.
    let stored = length.next_multiple_of(BLOCK).clamp(BLOCK, PAGE);
    if let Ok(page) = decoder.decode(&image[..stored], size, BLOCK) {
        assert_eq!(page.len(), PAGE);
        let _ = pando_tree::check_page(page);
    }
    // The same bytes as a body whose length field is right, so that the codecs see them.
    let mut body = vec![0; stored];
    let used = length.min(stored - 64);
    body[64..64 + used].copy_from_slice(&bytes[..used]);
    body[BODY_BYTES_AT..64].copy_from_slice(&(used as u32).to_le_bytes());
    for codec in 1..4 {
        body[CODEC_AT] = codec;
        if let Ok(page) = decoder.decode(&body, size, BLOCK) {
            assert_eq!(page.len(), PAGE);
        }
    }

    image[CODEC_AT] = 0;
    image[BODY_BYTES_AT..64].fill(0);
    let mut encoder = PageEncoder::default();
    for how in [Compression::Lz4, Compression::Snappy, Compression::Zstd(1)] {
        let mut stored = image.clone();
        let length = encoder.encode(&mut stored, BLOCK, how);
        let page = decoder.decode(&stored[..length], size, BLOCK);
        assert_eq!(page.as_deref(), Ok(&image[..]));
    }
});
