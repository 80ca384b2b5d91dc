//! Bytes that are no text, inside of texts: an error reply that quotes what a client has sent has
//! its bytes, as in Redis, though the server makes it as a `String` (decision 121).
//!
//! [`text_of`] writes each byte that is no UTF-8 as one of the 128 last characters, U+10FF80 to
//! U+10FFFF, which have no meaning; [`Writer::error`](crate::Writer::error) makes the bytes of them
//! again. Where a client sends such a character, its four bytes are taken for no text, so that all
//! bytes come back as they were.

use std::borrow::Cow;

/// The character that stands for byte 0, if that needed one.
const FIRST: u32 = 0x0010_FF00;
/// The first byte of those characters, and of some others.
const LEADING: u8 = 0xF4;

fn stands_for(letter: char) -> Option<u8> {
    let byte = u32::from(letter).checked_sub(FIRST)?;
    u8::try_from(byte).ok().filter(|byte| !byte.is_ascii())
}

fn push_byte(text: &mut String, byte: u8) {
    text.extend(char::from_u32(FIRST + u32::from(byte)));
}

/// Returns `bytes` as a text, from which an error reply makes the same bytes.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match stands_for(letter) {
                None => text.push(letter),
                Some(_) => {
                    let mut sent = [0; 4];
                    let sent = letter.encode_utf8(&mut sent).as_bytes();
                    sent.iter().for_each(|byte| push_byte(&mut text, *byte));
                }
            }
        }
        let invalid = chunk.invalid().iter();
        invalid.for_each(|byte| push_byte(&mut text, *byte));
    }
    text
}

/// Returns the bytes that `text` stands for.
pub(crate) fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if memchr::memchr(LEADING, text.as_bytes()).is_none() {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match stands_for(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_stay_texts() {
        for text in ["", "abc", "äß€😀", "\u{10FF00}\u{10FF7F}", "a\0\r\n"] {
            assert_eq!(text_of(text.as_bytes()), text);
            assert_eq!(*bytes_of(text), *text.as_bytes());
        }
        assert_eq!(text_of(b"a\xFF\x80"), "a\u{10FFFF}\u{10FF80}");
    }

    proptest! {
        #[test]
        fn all_bytes_come_back(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0xF4), Just(0x8F), Just(0xBF), Just(0x80)], 0..40
        )) {
            let text = text_of(&bytes);
            prop_assert_eq!(bytes_of(&text), bytes);
        }

        #[test]
        fn what_stands_for_bytes_comes_back_if_it_was_sent(byte in 0x80_u32..0x100) {
            let sent = char::from_u32(FIRST + byte).map(String::from).unwrap_or_default();
            let text = text_of(sent.as_bytes());
            prop_assert_eq!(bytes_of(&text), sent.as_bytes());
        }
    }
}
