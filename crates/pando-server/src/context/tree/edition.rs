//! The next edition of a collection: a hash of all that a command writes of it.
//!
//! It starts from the edition before and the seed of the command, which nobody else knows, and so
//! is another number than any other command gives. Another run of the same command gives the same
//! one only if it has written the same. Nobody can choose what collides, and 64 bits are enough for
//! what does by chance, so one multiplication for eight bytes will do.

/// Odd, and without a pattern in its bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of what was written so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edition(u64);

impl Edition {
    /// Begins that of a command with this seed, behind the edition `before`.
    pub(super) fn behind(before: u64, seed: u64) -> Self {
        let mut edition = Self(seed);
        edition.add_number(before);
        edition
    }

    /// Adds that the row at `key` gets this value, or goes.
    pub(super) fn add(&mut self, key: &[u8], row: Option<&[u8]>) {
        self.add_bytes(key);
        match row {
            Some(row) => self.add_bytes(row),
            None => self.add_number(u64::MAX),
        }
    }

    /// Returns the edition.
    pub(super) fn finish(self) -> u64 {
        mixed(self.0, FACTOR)
    }

    /// Adds a length and so many bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add_number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words
            .iter()
            .for_each(|word| self.add_number(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add_number(u64::from_le_bytes(last));
        }
    }

    fn add_number(&mut self, number: u64) {
        // The product alone would stay 0 once it is.
        self.0 = mixed(self.0.rotate_left(23) ^ number, FACTOR).wrapping_add(self.0 ^ FACTOR);
    }
}

/// Returns both halves of a product together.
fn mixed(number: u64, factor: u64) -> u64 {
    let product = u128::from(number) * u128::from(factor);
    let high = u64::try_from(product >> 64).unwrap_or_default();
    number.wrapping_mul(factor) ^ high
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use proptest::prelude::*;

    /// What is to give different editions: seed, edition before, and rows.
    type Written = (u64, u64, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn edition_of((seed, before, rows): &Written) -> u64 {
        let mut edition = Edition::behind(*before, *seed);
        for (key, row) in rows {
            edition.add(key, row.as_deref());
        }
        edition.finish()
    }

    /// Few values, so that many are nearly the same.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..2_u8, 0..20)
    }

    proptest! {
        #[test]
        fn what_differs_gives_another_edition(
            all in prop::collection::vec(
                (
                    0..2_u64,
                    0..2_u64,
                    prop::collection::vec((bytes(), prop::option::of(bytes())), 0..4),
                ),
                0..50,
            ),
        ) {
            let different: HashSet<Written> = all.into_iter().collect();
            let editions: HashSet<u64> = different.iter().map(edition_of).collect();
            prop_assert_eq!(editions.len(), different.len());
        }
    }

    #[test]
    fn neighbours_give_editions_all_over() {
        let mut seen = HashSet::new();
        let mut changed = 0;
        for number in 0..10_000_u64 {
            let mut edition = Edition::behind(number % 10, number % 7);
            edition.add(&number.to_be_bytes(), Some(&[0; 40]));
            let one = edition.finish();
            edition.add(&number.to_be_bytes(), None);
            let other = edition.finish();
            assert!(seen.insert(one) && seen.insert(other), "{number}");
            changed += (one ^ other).count_ones();
        }
        assert!(
            (310_000..330_000).contains(&changed),
            "{changed} of 640,000"
        );
    }
}
