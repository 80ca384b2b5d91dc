//! Numbers as texts of C: `%.14g`, and what `strtod` reads.

use crate::float::parse_lenient;

/// Returns a finite number as `%.{digits}g` of C prints it.
pub(super) fn general(number: f64, digits: usize) -> String {
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    let bare = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= most {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", bare(mantissa), exponent.abs());
    }
    let behind = usize::try_from(most - 1 - exponent).unwrap_or(0);
    bare(&format!("{number:.behind$}"))
}

/// Returns the number that a text begins with, and its bytes; `None` if it begins with none.
pub(super) fn leading(text: &[u8]) -> Option<(f64, usize)> {
    let is_negative = text.first() == Some(&b'-');
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let rest = &text[sign..];
    let begins = |word: &str| {
        rest.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    let signed = |number: f64| if is_negative { -number } else { number };
    for (word, number) in [
        ("infinity", f64::INFINITY),
        ("inf", f64::INFINITY),
        ("nan", f64::NAN),
    ] {
        if begins(word) {
            let marked = if word == "nan" { mark(rest) } else { 0 };
            return Some((signed(number), sign + word.len() + marked));
        }
    }
    let end = match begins("0x") {
        true => end_of(rest, 2, u8::is_ascii_hexdigit, b'p'),
        false => None,
    };
    // Without digits behind it, `0x` is a zero.
    let end = end.or_else(|| end_of(rest, 0, u8::is_ascii_digit, b'e'))?;
    Some((signed(parse_lenient(&rest[..end])?), sign + end))
}

/// Returns the length of what C takes behind `nan`: letters, digits and `_` in parentheses.
fn mark(text: &[u8]) -> usize {
    let Some(behind) = text[3..].strip_prefix(b"(") else {
        return 0;
    };
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let inside = behind.iter().take_while(is_part).count();
    match behind.get(inside) {
        Some(b')') => inside + 2,
        _ => 0,
    }
}

/// Returns the end of a number whose digits begin at `start`, and whose exponent is behind
/// `letter`; `None` if it has no digits.
fn end_of(text: &[u8], start: usize, is_digit: fn(&u8) -> bool, letter: u8) -> Option<usize> {
    let run = |from: usize, is_digit: fn(&u8) -> bool| {
        let digits = text[from.min(text.len())..].iter();
        digits.take_while(|byte| is_digit(byte)).count()
    };
    let whole = run(start, is_digit);
    let mut end = start + whole;
    let mut digits = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = run(end + 1, is_digit);
        digits += fraction;
        if digits > 0 {
            end += 1 + fraction;
        }
    }
    if digits == 0 {
        return None;
    }
    if (text.get(end)).is_some_and(|byte| byte.eq_ignore_ascii_case(&letter)) {
        let signs = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let exponent = run(end + 1 + signs, u8::is_ascii_digit);
        if exponent > 0 {
            end += 1 + signs + exponent;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (100.0, "100"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (1e14, "1e+14"),
            (1e13, "10000000000000"),
            (99_999_999_999_999.9, "1e+14"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(general(number, 14), text);
        }
        for (text, found) in [
            ("1", Some((1.0, 1))),
            ("-1.5e3x", Some((-1500.0, 6))),
            ("1e", Some((1.0, 1))),
            ("1.", Some((1.0, 2))),
            (".5", Some((0.5, 2))),
            (".", None),
            ("-", None),
            ("0x1fz", Some((31.0, 4))),
            ("0x1p3", Some((8.0, 5))),
            ("-0X.8P-1p", Some((-0.25, 8))),
            ("0x1.p", Some((1.0, 4))),
            ("0x20000000000003", Some((9_007_199_254_740_996.0, 16))),
            ("0x1p9999", Some((f64::INFINITY, 8))),
            ("0x", Some((0.0, 1))),
            ("0x.p1", Some((0.0, 1))),
            ("1e999", Some((f64::INFINITY, 5))),
            ("-inf", Some((f64::NEG_INFINITY, 4))),
        ] {
            assert_eq!(leading(text.as_bytes()), found, "{text}");
        }
        for (text, bytes) in [("nan", 3), ("-NAN(1_a)x", 9), ("nan(", 3), ("nan(-)", 3)] {
            let (number, end) = leading(text.as_bytes()).unwrap();
            assert!(number.is_nan() && end == bytes, "{text} {end}");
        }
    }
}
