//! Integers in the form that Redis accepts: an optional minus, no plus, no leading zero, no space,
//! 64 bits.

/// Returns the integer that `text` spells, or `None` if `text` is anything else.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    if digits[0] == b'0' {
        return (digits.len() == 1 && !negative).then_some(0);
    }
    let mut value: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        // Negative numbers are built downwards, since the negation of the smallest one does not
        // fit.
        value = if negative {
            value.checked_sub(digit)?
        } else {
            value.checked_add(digit)?
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_taken_as_redis_takes_them() {
        let good = [
            ("0", 0),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in good {
            assert_eq!(parse_integer(text.as_bytes()), Some(value), "{text}");
        }
        let bad = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "abc",
            "-9223372036854775809",
            "00",
        ];
        for text in bad {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }
}
