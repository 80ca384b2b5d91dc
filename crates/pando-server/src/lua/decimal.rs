//! Numbers as texts of C: `%.14g`, and what `strtod` reads.

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
            return Some((signed(number), sign + word.len()));
        }
    }
    if begins("0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit());
        let (mut number, mut count) = (0.0, 0);
        for digit in digits {
            number = number * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0));
            count += 1;
        }
        return Some((signed(number), sign + 2 + count));
    }
    let run = |from: usize| {
        let digits = rest[from.min(rest.len())..].iter();
        digits.take_while(|byte| byte.is_ascii_digit()).count()
    };
    let whole = run(0);
    let mut end = whole;
    let mut digits = whole;
    if rest.get(end) == Some(&b'.') {
        let fraction = run(end + 1);
        digits += fraction;
        if digits > 0 {
            end += 1 + fraction;
        }
    }
    if digits == 0 {
        return None;
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let signs = usize::from(matches!(rest.get(end + 1), Some(b'-' | b'+')));
        let exponent = run(end + 1 + signs);
        if exponent > 0 {
            end += 1 + signs + exponent;
        }
    }
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((signed(number), sign + end))
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
            ("-inf", Some((f64::NEG_INFINITY, 4))),
        ] {
            assert_eq!(leading(text.as_bytes()), found, "{text}");
        }
    }
}
