//! Page images: what the structural check lets pass can be made ready for the device again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut image = vec![0; 4096];
    let length = bytes.len().min(image.len());
    image[..length].copy_from_slice(&bytes[..length]);
    if pando_tree::check_page(&image).is_ok() {
        let _ = pando_tree::prepare_image(&mut image);
        assert!(pando_tree::check_page(&image).is_ok());
    }
});
