//! The formats of `struct`: what their letters mean, how long it is and where it begins.

/// Longest integer, in bytes.
const INTEGER_MAX: u32 = 32;
/// Alignment of `!` without a number.
const ALIGNMENT: u32 = 8;

/// What a letter of a format stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned,
    Signed,
    Float,
    Double,
    /// A byte that has no meaning.
    Filler,
    /// A string of as many bytes; 0 means a length that is found elsewhere.
    Fixed,
    /// A string that ends with a zero.
    Terminated,
    /// It changes what follows.
    Control,
}

/// A part of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) letter: u8,
    pub(super) kind: Kind,
    pub(super) size: usize,
    /// Zeros in front of it.
    pub(super) padding: usize,
}

/// A format, and what its letters have said so far.
pub(super) struct Format<'a> {
    rest: &'a [u8],
    pub(super) is_big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    /// A format ends at a zero, as strings of C do.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let end = text.iter().position(|byte| *byte == 0);
        Self {
            rest: &text[..end.unwrap_or(text.len())],
            is_big_endian: false,
            alignment: 1,
        }
    }

    fn number(&mut self, otherwise: u32) -> Result<u32, String> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
        let count = count.count();
        if count == 0 {
            return Ok(otherwise);
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let number = digits.iter().try_fold(0_i32, |all, digit| {
            all.checked_mul(10)?.checked_add(i32::from(digit - b'0'))
        });
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| "integral size overflow".to_owned())
    }

    /// Returns the part that begins at offset `at`; `None` at the end.
    ///
    /// # Errors
    /// A number is out of bounds.
    pub(super) fn part(&mut self, at: usize) -> Result<Option<Part>, String> {
        let Some((letter, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        let (kind, size) = match letter {
            b'b' => (Kind::Signed, 1),
            b'B' => (Kind::Unsigned, 1),
            b'h' => (Kind::Signed, 2),
            b'H' => (Kind::Unsigned, 2),
            b'l' => (Kind::Signed, 8),
            b'L' | b'T' => (Kind::Unsigned, 8),
            b'i' => (Kind::Signed, self.integer_size()?),
            b'I' => (Kind::Unsigned, self.integer_size()?),
            b'f' => (Kind::Float, 4),
            b'd' => (Kind::Double, 8),
            b'x' => (Kind::Filler, 1),
            b'c' => (Kind::Fixed, self.number(1)?),
            b's' => (Kind::Terminated, 0),
            _ => (Kind::Control, 0),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let padding = match kind {
            Kind::Fixed => 0,
            _ => padding(at, size.min(self.alignment)),
        };
        let letter = *letter;
        Ok(Some(Part {
            letter,
            kind,
            size,
            padding,
        }))
    }

    fn integer_size(&mut self) -> Result<u32, String> {
        let size = self.number(4)?;
        if size > INTEGER_MAX {
            let text = format!("integral size {size} is larger than limit of {INTEGER_MAX}");
            return Err(text);
        }
        Ok(size)
    }

    /// Obeys a letter that changes what follows. Returns false if it means nothing.
    ///
    /// # Errors
    /// Its number is out of bounds.
    pub(super) fn obey(&mut self, letter: u8) -> Result<bool, String> {
        match letter {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(format!("alignment {alignment} is not a power of 2"));
                }
                self.alignment = usize::try_from(alignment).unwrap_or(usize::MAX);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns the bytes from `at` to the next place for something of this size. Of sizes that are no
/// powers of two, it is what Redis makes of them.
fn padding(at: usize, size: usize) -> usize {
    let mask = size.wrapping_sub(1);
    match size {
        0 => 0,
        _ => size.wrapping_sub(at & mask) & mask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of(text: &str) -> Result<usize, String> {
        let (mut format, mut at) = (Format::new(text.as_bytes()), 0);
        while let Some(part) = format.part(at)? {
            if part.kind == Kind::Control {
                format.obey(part.letter)?;
            }
            at += part.padding + part.size;
        }
        Ok(at)
    }

    #[test]
    fn parts_begin_where_they_are_aligned() {
        for (text, size) in [
            ("", 0),
            ("bBhHlLTfdx", 1 + 1 + 2 + 2 + 8 + 8 + 8 + 4 + 8 + 1),
            ("!bi", 8),
            ("!4bd", 12),
            ("!bd", 16),
            ("!bc5l", 16),
            ("bi3", 4),
            ("i32", 32),
            ("b\0zzz", 1),
        ] {
            assert_eq!(size_of(text), Ok(size), "{text}");
        }
        for (text, problem) in [
            ("i33", "integral size 33 is larger than limit of 32"),
            ("c2147483648", "integral size overflow"),
            ("!0", "alignment 0 is not a power of 2"),
            ("!3", "alignment 3 is not a power of 2"),
        ] {
            assert_eq!(size_of(text), Err(problem.to_owned()), "{text}");
        }
    }
}
