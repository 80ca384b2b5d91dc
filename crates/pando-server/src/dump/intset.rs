//! Intsets: how many bytes each number has (2, 4 or 8), how many there are, four bytes each, and
//! the numbers in ascending order, all little-endian.

use super::Put;
use super::input::{Input, Refused};
use super::listpack::signed;

/// Has `put` take all numbers of an intset as strings.
pub(super) fn read(intset: &[u8], put: Put<'_>) -> Result<(), Refused> {
    let mut input = Input::new(intset, 0);
    let of_one = u32::from_le_bytes(input.array()?) as usize;
    let count = u32::from_le_bytes(input.array()?) as usize;
    if !matches!(of_one, 2 | 4 | 8) {
        return Err(Refused::Damaged);
    }
    let (mut digits, mut before) = (itoa::Buffer::new(), None);
    for _ in 0..count {
        let number = signed(input.bytes(of_one)?);
        if before.is_some_and(|before| before >= number) {
            return Err(Refused::Damaged);
        }
        before = Some(number);
        put(digits.format(number).as_bytes())?;
    }
    match input.is_empty() {
        true => Ok(()),
        false => Err(Refused::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(intset: &[u8]) -> Result<Vec<String>, Refused> {
        let mut all = Vec::new();
        read(intset, &mut |text| {
            all.push(String::from_utf8_lossy(text).into_owned());
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn numbers_of_each_length_are_read() {
        let head = |of_one: u8, count: u8| vec![of_one, 0, 0, 0, count, 0, 0, 0];
        for (of_one, numbers) in [
            (2, [i64::from(i16::MIN), -1, 300]),
            (4, [i64::from(i32::MIN), 5, 70_000]),
            (8, [i64::MIN, 0, i64::MAX]),
        ] {
            let mut bytes = head(of_one, 3);
            for number in numbers {
                bytes.extend(&number.to_le_bytes()[..of_one.into()]);
            }
            let texts = numbers.map(|number| number.to_string());
            assert_eq!(strings(&bytes), Ok(texts.to_vec()));
            for end in 0..bytes.len() {
                assert_eq!(strings(&bytes[..end]), Err(Refused::Damaged));
            }
        }
        let unordered = [head(2, 2), vec![1, 0, 1, 0]].concat();
        assert_eq!(strings(&unordered), Err(Refused::Damaged));
        assert_eq!(strings(&head(3, 0)), Err(Refused::Damaged));
    }
}
