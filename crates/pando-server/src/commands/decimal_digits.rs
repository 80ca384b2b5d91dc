//! Sums of numbers that do not fit into 128 bits, digit by digit.

/// Digits in front of the point: those of the largest double, and one for what is carried.
const WHOLE: usize = 310;
/// Digits behind the point that are shown.
const SHOWN: usize = 17;
/// Digits behind the point that are added; what lies behind them cannot be seen.
const PLACES: usize = 40;

const DIGITS: usize = WHOLE + PLACES;

struct Number {
    negative: bool,
    /// From 0 to 9 each, the one of the highest power first.
    digits: [u8; DIGITS],
}

/// Returns the sum of two texts that are finite doubles, to 17 digits behind the point, without
/// trailing zeros.
pub(super) fn sum(a: &str, b: &str) -> String {
    let (a, b) = (parse(a), parse(b));
    let sum = if a.negative == b.negative {
        add(a, &b.digits)
    } else if a.digits < b.digits {
        subtract(b, &a.digits)
    } else {
        subtract(a, &b.digits)
    };
    show(sum)
}

/// Digits that lie outside of the array are left out: zeros in front of it, and what is too small.
fn parse(text: &str) -> Number {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i16>()),
        None => (text, Ok(0)),
    };
    let mut number = Number {
        negative: mantissa.starts_with('-'),
        digits: [0; DIGITS],
    };
    // What has such an exponent, and is a finite double, is zero or next to it.
    let Ok(exponent) = exponent else {
        return number;
    };
    let mantissa = mantissa.trim_start_matches(['+', '-']);
    let whole = mantissa.find('.').unwrap_or(mantissa.len());
    // The place of the first digit; zeros in front of the others may lie before the array.
    let first = WHOLE.cast_signed() - whole.cast_signed() - isize::from(exponent);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    for (place, digit) in (first..).zip(digits) {
        let place = usize::try_from(place).ok();
        if let Some(place) = place.and_then(|place| number.digits.get_mut(place)) {
            *place = digit - b'0';
        }
    }
    number
}

fn add(mut a: Number, b: &[u8; DIGITS]) -> Number {
    let mut carry = 0;
    for (digit, other) in a.digits.iter_mut().zip(b).rev() {
        let sum = *digit + other + carry;
        (*digit, carry) = (sum % 10, sum / 10);
    }
    a
}

/// Subtracts digits that are not larger.
fn subtract(mut a: Number, b: &[u8; DIGITS]) -> Number {
    let mut borrow = 0;
    for (digit, other) in a.digits.iter_mut().zip(b).rev() {
        let difference = *digit + 10 - other - borrow;
        (*digit, borrow) = (difference % 10, u8::from(difference < 10));
    }
    a
}

fn show(number: Number) -> String {
    let mut half = [0; DIGITS];
    half[WHOLE + SHOWN] = 5;
    let rounded = add(number, &half);
    let digit = |digit: &u8| char::from(b'0' + digit);
    let whole: String = rounded.digits[..WHOLE].iter().map(digit).collect();
    let places: String = rounded.digits[WHOLE..WHOLE + SHOWN]
        .iter()
        .map(digit)
        .collect();
    let (whole, places) = (whole.trim_start_matches('0'), places.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    let sign = if rounded.negative && (whole, places) != ("0", "") {
        "-"
    } else {
        ""
    };
    let point = if places.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{places}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_added_where_they_stand() {
        for (a, b, expected) in [
            ("1e30", "1", "1000000000000000000000000000001"),
            ("-1e30", "1", "-999999999999999999999999999999"),
            ("1", "-1e30", "-999999999999999999999999999999"),
            ("-1e30", "-1.5", "-1000000000000000000000000000001.5"),
            ("1e-20", "0.3", "0.3"),
            ("-1e-20", "0", "0"),
            ("0", "-0.000000000000000005", "-0.00000000000000001"),
            ("0.99999999999999999", "5e-18", "1"),
            ("+12.5E-1", "1.e2", "101.25"),
            (".5", "-0e0", "0.5"),
            ("1e-99999999999999999999", "1", "1"),
            ("0e99999999999999999999", "1", "1"),
            ("1e-2147483648", "1", "1"),
            ("0e2147483647", "1", "1"),
            ("-1e25", "1e25", "0"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
        let largest = format!("17{}", "0".repeat(307));
        assert_eq!(sum("1.7e308", "0"), largest);
        assert_eq!(sum("0.017e310", "-0"), largest);
        let long = format!("0.3{}1", "0".repeat(4000));
        assert_eq!(sum(&long, "1e22"), "10000000000000000000000.3");
        let small = format!("{}e-4000", "1".repeat(4001));
        assert_eq!(sum(&small, "0"), "1.11111111111111111");
    }

    #[test]
    fn sums_are_those_of_integers() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i128::from(seed.cast_signed()) * i128::from(seed.rotate_left(31).cast_signed() >> 7)
        };
        for _ in 0..2000 {
            let (a, b) = (next(), next());
            let (left, right) = (format!("{a}e-3"), format!("{b}e-3"));
            let expected = sum(&format!("{}e-3", a + b), "0");
            assert_eq!(sum(&left, &right), expected, "{a} + {b}");
            assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
        }
    }
}
