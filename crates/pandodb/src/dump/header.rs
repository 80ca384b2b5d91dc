//! The first lines of a dump: what the new store needs to know before its first row.

use std::str::FromStr;

use pando_format::{Compression, Lsn, PageSize};

use crate::api::db::Db;

/// The first word of a dump.
pub(super) const MARK: &str = "pando-dump";
/// The version of the text that this program writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;

/// What the lines before the first table say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of a page: keys may have a quarter of it, and programs may have chosen keys by that.
    pub(super) page_bytes: usize,
    /// How the store compressed pages.
    pub(super) compression: Compression,
    /// The store's key for hashes, on which the order of rows may depend.
    pub(super) hash_key: [u64; 2],
    /// The moment that the dump is of.
    pub(super) lsn: Lsn,
    /// About how many rows follow, to tell of progress.
    pub(super) rows: u64,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            page_bytes: 0,
            compression: Compression::None,
            hash_key: [0; 2],
            lsn: Lsn(0),
            rows: 0,
        }
    }
}

impl Header {
    /// Makes the header of a dump of `db` as it was at `lsn`.
    pub(super) fn of(db: &Db, lsn: Lsn) -> Self {
        let engine = db.engine();
        let tables = engine.store.tables.all();
        Self {
            page_bytes: engine.store.pool.page_size().bytes(),
            compression: engine.options.compression.unwrap_or_default(),
            hash_key: db.hash_key(),
            lsn,
            rows: tables.iter().map(|table| table.count()).sum(),
        }
    }

    /// Returns the lines.
    pub(super) fn text(&self) -> String {
        let Self {
            page_bytes,
            compression,
            hash_key: [first, second],
            lsn,
            rows,
        } = self;
        format!(
            "{MARK} {VERSION}\npage-size {page_bytes}\ncompression {compression}\n\
             hash-key {first:016x}{second:016x}\nlsn {}\nrows-about {rows}\n",
            lsn.0
        )
    }

    /// Takes a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn take(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "page-size" => self.page_bytes = number(name, value)?,
            "compression" => self.compression = Compression::parse(value)?,
            "hash-key" => self.hash_key = key(value)?,
            "lsn" => self.lsn = Lsn(number(name, value)?),
            "rows-about" => self.rows = number(name, value)?,
            _ => {
                return Err(format!(
                    "there is '{}' before the line with the checksum",
                    line.escape_debug()
                ));
            }
        }
        Ok(())
    }

    /// Checks that all is there that a store needs.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn check(&self) -> Result<(), String> {
        match PageSize::new(self.page_bytes) {
            Some(_) => Ok(()),
            None => Err(format!(
                "page-size is {}, or missing: it is a power of two from {} to {}",
                self.page_bytes,
                PageSize::MIN,
                PageSize::MAX
            )),
        }
    }
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
    let wrong = |_| format!("{name} is '{text}', which is no number that it can be");
    text.parse().map_err(wrong)
}

fn key(text: &str) -> Result<[u64; 2], String> {
    let half = |range| {
        let digits: Option<&str> = text.get(range);
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok())
    };
    match (text.len(), half(0..16), half(16..32)) {
        (32, Some(first), Some(second)) => Ok([first, second]),
        _ => Err(format!("hash-key is '{text}', not 32 hexadecimal digits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let header = Header {
            page_bytes: 16384,
            compression: Compression::Lz4,
            hash_key: [7, u64::MAX],
            lsn: Lsn(123),
            rows: 45,
        };
        let text = header.text();
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, "pando-dump 1");
        let mut read = Header::default();
        assert!(read.check().unwrap_err().contains("page-size is 0"));
        for line in rest.lines() {
            assert_eq!(read.take(line), Ok(()), "{line}");
        }
        assert_eq!((&read, read.check()), (&header, Ok(())));
        for (line, why) in [
            ("table plain t", "there is 'table plain t' before"),
            ("lsn -1", "lsn is '-1'"),
            ("page-size", "page-size is ''"),
            ("compression fast", "'fast'"),
            ("hash-key 12", "hash-key is '12'"),
            (
                "hash-key 0000000000000000000000000000000\u{e9}",
                "not 32 hexadecimal",
            ),
        ] {
            let refused = read.take(line).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
