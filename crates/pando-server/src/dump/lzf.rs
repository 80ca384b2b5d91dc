//! Expands what LZF has compressed.
//!
//! A control byte below 32 is followed by one more bytes than it says, as they are. Another one
//! says in its upper three bits how many bytes are repeated, less two (7: the next byte adds to
//! it), and in the others and the next byte how far back these begin, less one.

/// Returns the `length` bytes that `packed` is; `None` if it is something else.
pub(super) fn expand(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    // Three bytes are 264 at most, so this is never too little. Nothing else bounds the memory.
    if length > packed.len().saturating_mul(132) {
        return None;
    }
    let mut out = Vec::with_capacity(length);
    let mut rest = packed;
    while let Some((control, behind)) = rest.split_first() {
        rest = behind;
        let low = usize::from(control & 31);
        if *control < 32 {
            let (literal, behind) = rest.split_at_checked(low + 1)?;
            out.extend_from_slice(literal);
            rest = behind;
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if count == 9 {
                count += usize::from(take(&mut rest)?);
            }
            let back = (low << 8) + usize::from(take(&mut rest)?) + 1;
            let start = out.len().checked_sub(back)?;
            // They may be bytes that are only written here.
            for at in start..start + count {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (byte, behind) = rest.split_first()?;
    *rest = behind;
    Some(*byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_expanded() {
        assert_eq!(expand(b"\x02abc", 3).as_deref(), Some(&b"abc"[..]));
        // One byte, repeated from itself.
        assert_eq!(expand(b"\0a\x20\0", 4).as_deref(), Some(&b"aaaa"[..]));
        let long = expand(b"\0a\xe0\xff\0", 265);
        assert_eq!(long, Some(vec![b'a'; 265]));
        assert_eq!(expand(b"", 0).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn what_is_not_compressed_is_none() {
        for (packed, length) in [
            (&b"\x02ab"[..], 3),
            (b"\x02abc", 2),
            (b"\x02abc", 4),
            (b"\0a\x20", 4),
            (b"\0a\xe0", 4),
            (b"\0a\x20\x01", 4),
            (b"\x20\0", 3),
            (b"\0a", usize::MAX),
        ] {
            assert_eq!(expand(packed, length), None, "{packed:?}");
        }
    }

    #[test]
    fn any_bytes_end_in_a_result() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let packed: Vec<u8> = (0..random.usize(..12)).map(|_| random.u8(..)).collect();
            let length = random.usize(..600);
            if let Some(out) = expand(&packed, length) {
                assert_eq!(out.len(), length);
            }
        }
    }
}
