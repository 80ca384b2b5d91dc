//! How the keys of operations are distributed.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Distribution of the chosen keys.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub enum Distribution {
    /// All keys equally often.
    #[default]
    Uniform,
    /// By Zipf's law with this exponent; frequent keys are spread over the key space.
    Zipf(f64),
    /// By Zipf's law; the newest keys are the most frequent.
    Latest,
}

impl Distribution {
    /// Parses `uniform`, `zipf:S` or `latest`.
    ///
    /// # Errors
    /// Anything else.
    pub fn from_name(name: &str) -> Result<Self> {
        let exponent = |text: &str| text.parse().ok().filter(|s| (0.01..=10.0).contains(s));
        match name {
            "uniform" => Ok(Self::Uniform),
            "latest" => Ok(Self::Latest),
            _ => name
                .strip_prefix("zipf:")
                .and_then(exponent)
                .map(Self::Zipf)
                .ok_or_else(|| {
                    let what =
                        format!("'{name}' is not uniform, latest or zipf:S, S in 0.01 to 10");
                    Error::option("distribution", what)
                }),
        }
    }

    /// Returns its name in records.
    pub fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".to_owned(),
            Self::Zipf(exponent) => format!("zipf:{exponent}"),
            Self::Latest => "latest".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Distribution;

    /// Parsing the name of a distribution returns that distribution.
    #[test]
    fn names_come_back() {
        for name in ["uniform", "latest", "zipf:0.99"] {
            assert_eq!(Distribution::from_name(name).unwrap().name(), name);
        }
    }

    #[test]
    fn what_is_no_distribution_is_said() {
        assert!(Distribution::from_name("zipf:x").is_err());
        assert!(Distribution::from_name("zipf:-1").is_err());
    }
}
