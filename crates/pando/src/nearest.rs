//! The known name that is nearest to a mistyped one.

pub(crate) use strsim::levenshtein as distance;

/// Returns the name in `known` with the smallest distance to `name`.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> &'a str {
    known
        .iter()
        .min_by_key(|candidate| distance(name, candidate))
        .expect("there are names")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mistyped name leads to the known name with the smallest edit distance.
    #[test]
    fn a_letter_that_is_missing_or_another_one_leads_to_the_name() {
        let known = ["dir", "max_memory", "threads"];
        for (typed, meant) in [
            ("max_memry", "max_memory"),
            ("did", "dir"),
            ("thraeds", "threads"),
        ] {
            assert_eq!(nearest(typed, &known), meant);
        }
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
