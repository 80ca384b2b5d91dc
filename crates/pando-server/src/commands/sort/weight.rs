//! Numbers that SORT sorts by: what `strtod` of C takes, in its plain locale.

/// Returns the number that `text` is up to its first zero byte; empty text is 0. What is too large
/// or too small for a double is no number.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0);
    let text = &text[..end.unwrap_or(text.len())];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(|byte| is_space(byte)).count();
    let (is_negative, digits) = match &text[blanks..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let size = match digits {
        [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
        [b'0'..=b'9' | b'.', ..] => decimal(digits)?,
        _ if digits.eq_ignore_ascii_case(b"inf") => f64::INFINITY,
        _ if digits.eq_ignore_ascii_case(b"infinity") => f64::INFINITY,
        _ => return None,
    };
    Some(if is_negative { -size } else { size })
}

/// Returns the number unless it is out of the range of doubles.
fn in_range(number: f64, is_zero: bool) -> Option<f64> {
    (is_zero && number == 0.0 || number.is_normal()).then_some(number)
}

fn decimal(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    in_range(
        number,
        !mantissa.contains(|digit| ('1'..='9').contains(&digit)),
    )
}

/// Reads digits, a point among them, and an exponent of 2 behind a `p`.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (digits, exponent) = match text.find(['p', 'P']) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut scale) = (0_u64, exponent);
    let (mut has_digits, mut behind_point) = (false, false);
    for symbol in digits.chars() {
        if symbol == '.' && !behind_point {
            behind_point = true;
            continue;
        }
        let digit = u64::from(symbol.to_digit(16)?);
        has_digits = true;
        if mantissa >> 58 == 0 {
            mantissa = mantissa * 16 + digit;
            scale -= if behind_point { 4 } else { 0 };
        } else {
            // Digits that do not count but for rounding.
            mantissa |= u64::from(digit != 0);
            scale += if behind_point { 0 } else { 4 };
        }
    }
    if !has_digits {
        return None;
    }
    let mut number = mantissa as f64;
    while scale != 0 && number != 0.0 && number.is_finite() {
        let step = scale.clamp(-1000, 1000);
        number *= 2_f64.powi(i32::try_from(step).unwrap_or(0));
        scale -= step;
    }
    in_range(number, mantissa == 0)
}

/// Reads an exponent; one of many digits is as good as a large one.
fn exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    const MOST: i64 = 1 << 50;
    let size = digits.parse().map_or(MOST, |size: i64| size.min(MOST));
    Some(if text.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_those_of_strtod() {
        let good: [(&[u8], f64); 21] = [
            (b"", 0.0),
            (b"\0x", 0.0),
            (b"1\0x", 1.0),
            (b"1", 1.0),
            (b" \t\n1.50", 1.5),
            (b"-.5", -0.5),
            (b"+5.", 5.0),
            (b"1e3", 1000.0),
            (b"1E-3", 0.001),
            (b"0e999", 0.0),
            (b"-0", 0.0),
            (b"007", 7.0),
            (b"inf", f64::INFINITY),
            (b"-InFinity", f64::NEG_INFINITY),
            (b"0x10", 16.0),
            (b"-0X.8p1", -1.0),
            (b"0x1p-1022", f64::MIN_POSITIVE),
            (b"0x0p99999999999999999999", 0.0),
            (b"0x1.fffffffffffffp1023", f64::MAX),
            (b"9223372036854775807", 9_223_372_036_854_775_807.0),
            (b"0x20000000000001", 9_007_199_254_740_993_u64 as f64),
        ];
        for (text, value) in good {
            assert_eq!(number(text), Some(value), "{}", text.escape_ascii());
        }
        let bad: [&[u8]; 24] = [
            b" ",
            b"a",
            b"1a",
            b"1 ",
            b"1e",
            b"1e+",
            b"+-1",
            b"--1",
            b".",
            b"e5",
            b"nan",
            b"nan(1)",
            b"1e999",
            b"1e-999",
            b"5e-324",
            b"0x",
            b"0x.",
            b"0x1p",
            b"0xg",
            b"0x1p1024",
            b"0x1p-1080",
            b"0x1p99999999999999999999",
            b"1.2.3",
            b"\xff",
        ];
        for text in bad {
            assert_eq!(number(text), None, "{}", text.escape_ascii());
        }
    }
}
