//! Rows of the table `functions` (`function_table.rs`): libraries, what functions they have, and
//! the list of libraries (docs/format.md, 7; decision 089).
//!
//! - `d`: the list. Whoever changes a library changes it, so such changes never pass each other.
//! - `l` and the name of a library: its functions and its code.
//! - `f`, the number of a copy, and the name of a function: what a call needs. A loop reads the
//!   copy of its number: a commit writes to the stripes of what was read (decision 006), and loops
//!   that call one function would else all write to the same one.

use std::collections::BTreeMap;

/// Number of copies of what a call needs.
pub(crate) const COPIES: u8 = 8;
/// Number of libraries.
pub(crate) const LIBRARIES_MAX: usize = 1000;
/// Number of functions of a library.
pub(crate) const LIBRARY_FUNCTIONS_MAX: usize = 1000;
/// Length of the name of a library or a function.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Length of the description of a function.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;
/// Key of the list of libraries.
pub(crate) const LIST_KEY: &[u8] = b"d";

/// First byte of every value.
const VERSION: u8 = 1;
/// What the list has of a library, and each row beside its contents, take at most.
const LIBRARY_BYTES: usize = 512;
const ROW_BYTES: usize = 64;

/// What functions say of themselves, by their bits.
pub(crate) const FLAGS: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];
const NO_WRITES: u8 = 1;

/// A function, as its library registers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) name: Vec<u8>,
    pub(crate) description: Option<Vec<u8>>,
    /// Bits of [`FLAGS`].
    pub(crate) flags: u8,
}

/// A library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// In the order of their names.
    pub(crate) functions: Vec<Registered>,
    /// The whole text.
    pub(crate) code: Vec<u8>,
}

/// What a call needs to know of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionRow {
    pub(crate) flags: u8,
    /// SHA-1 of the code of the library.
    pub(crate) code_name: [u8; 20],
    pub(crate) library: Vec<u8>,
}

/// What the list says of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Number of its functions.
    pub(crate) functions: u32,
    /// What all its rows take in the log, at most.
    pub(crate) bytes: u64,
}

/// The list of libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Libraries(pub(crate) BTreeMap<Vec<u8>, Listed>);

/// Returns what the row at `key` is, for people.
pub(crate) fn described(key: &[u8]) -> String {
    match key {
        [b'l', name @ ..] => format!("library {}", name.escape_ascii()),
        [b'f', _, name @ ..] => format!("function {}", name.escape_ascii()),
        _ => "libraries".to_owned(),
    }
}

/// Returns the part of a library's text that Lua runs. The end of the first line stays, so that
/// lines have their numbers.
pub(crate) fn body_of(code: &[u8]) -> &[u8] {
    let end = code.iter().position(|byte| *byte == b'\n');
    &code[end.unwrap_or(code.len())..]
}

/// Returns the key of the row of a library.
pub(crate) fn library_key(name: &[u8]) -> Vec<u8> {
    [b"l", name].concat()
}

/// Returns the key of a copy of the row of a function. Functions are called by their names in any
/// case, so that a name is in lower case here.
pub(crate) fn function_key(copy: u8, name: &[u8]) -> Vec<u8> {
    [&[b'f', copy], &name.to_ascii_lowercase()[..]].concat()
}

/// Takes fields from the front of a value.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn of(value: &'a [u8]) -> Option<Self> {
        let (version, rest) = value.split_first()?;
        (*version == VERSION).then_some(Self(rest))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn long(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A text behind its length.
    fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::try_from(self.number()?).ok()?;
        self.take(bytes)
    }
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    // All that is written is far shorter than this.
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len());
    out.extend_from_slice(text);
}

impl Library {
    /// Returns its row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.functions.len());
        for function in &self.functions {
            put_text(&mut out, &function.name);
            out.push(function.flags);
            out.push(u8::from(function.description.is_some()));
            put_text(
                &mut out,
                function.description.as_deref().unwrap_or_default(),
            );
        }
        out.extend_from_slice(&self.code);
        out
    }

    /// Returns the library of a row; `None` if the row is damaged.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        let count = usize::try_from(fields.number()?).ok()?;
        let mut functions = Vec::new();
        for _ in 0..count {
            let name = fields.text()?.to_vec();
            let flags = fields.byte()?;
            let is_described = fields.byte()? == 1;
            let description = fields.text()?.to_vec();
            functions.push(Registered {
                name,
                description: is_described.then_some(description),
                flags,
            });
        }
        let code = fields.0.to_vec();
        Some(Self { functions, code })
    }

    /// Returns what the list says of it, if it is called `name`.
    pub(crate) fn listed(&self, name: &[u8]) -> Listed {
        let of_function = |of: &Registered| {
            let row = ROW_BYTES + of.name.len() + name.len();
            let described = of.description.as_ref().map_or(0, Vec::len);
            ROW_BYTES + of.name.len() + described + usize::from(COPIES) * row
        };
        let functions: usize = self.functions.iter().map(of_function).sum();
        Listed {
            functions: u32::try_from(self.functions.len()).unwrap_or(u32::MAX),
            bytes: (LIBRARY_BYTES + self.code.len() + functions) as u64,
        }
    }
}

impl FunctionRow {
    /// Returns the row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&[VERSION, self.flags], &self.code_name[..], &self.library].concat()
    }

    /// Returns what a row says; `None` if it is damaged.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(Self {
            flags: fields.byte()?,
            code_name: fields.take(20)?.try_into().ok()?,
            library: fields.0.to_vec(),
        })
    }

    /// Returns true if the function must not write.
    pub(crate) fn no_writes(&self) -> bool {
        self.flags & NO_WRITES != 0
    }
}

impl Libraries {
    /// Returns the row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.0.len());
        for (name, listed) in &self.0 {
            put_text(&mut out, name);
            out.extend_from_slice(&listed.functions.to_le_bytes());
            out.extend_from_slice(&listed.bytes.to_le_bytes());
        }
        out
    }

    /// Returns the list that a row is; `None` if it is damaged.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        let mut libraries = BTreeMap::new();
        for _ in 0..fields.number()? {
            let name = fields.text()?.to_vec();
            let (functions, bytes) = (fields.number()?, fields.long()?);
            libraries.insert(name, Listed { functions, bytes });
        }
        fields.0.is_empty().then_some(Self(libraries))
    }

    /// Returns the number of functions of all.
    pub(crate) fn functions(&self) -> u64 {
        self.0.values().map(|of| u64::from(of.functions)).sum()
    }

    /// Returns the bytes that all take.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.0.values().map(|of| of.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Library {
        let registered = |name: &[u8], description: Option<&[u8]>| Registered {
            name: name.to_vec(),
            description: description.map(<[u8]>::to_vec),
            flags: 3,
        };
        Library {
            functions: vec![registered(b"a", None), registered(b"bc", Some(b""))],
            code: b"#!lua name=x\n\0\xff".to_vec(),
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let library = library();
        assert_eq!(Library::decode(&library.encode()), Some(library.clone()));
        let row = FunctionRow {
            flags: 1,
            code_name: [7; 20],
            library: b"x".to_vec(),
        };
        assert_eq!(FunctionRow::decode(&row.encode()), Some(row));
        let mut libraries = Libraries::default();
        assert_eq!(
            Libraries::decode(&libraries.encode()),
            Some(libraries.clone())
        );
        libraries.0.insert(b"x".to_vec(), library.listed(b"x"));
        libraries.0.insert(b"yz".to_vec(), library.listed(b"yz"));
        assert_eq!(
            Libraries::decode(&libraries.encode()),
            Some(libraries.clone())
        );
        assert_eq!(libraries.functions(), 4);
        // For each of two functions eight rows name the library, whose name has another letter.
        let bytes = library.listed(b"x").bytes;
        assert_eq!(libraries.bytes(), 2 * bytes + 16);
        assert!(bytes > library.encode().len() as u64);
        assert_eq!(body_of(&library.code), b"\n\0\xff");
        assert_eq!(body_of(b"x"), b"");
    }

    #[test]
    fn rows_that_are_damaged_are_none() {
        let mut libraries = Libraries::default();
        libraries.0.insert(b"x".to_vec(), library().listed(b"x"));
        let list = libraries.encode();
        for end in 0..list.len() {
            assert_eq!(Libraries::decode(&list[..end]), None, "{end}");
        }
        assert_eq!(Libraries::decode(&[&list[..], b"x"].concat()), None);
        let row = library().encode();
        for end in 0..row.len() - library().code.len() {
            assert_eq!(Library::decode(&row[..end]), None, "{end}");
        }
        // Counts and lengths that nothing follows.
        assert_eq!(Library::decode(&[1, 255, 255, 255, 255]), None);
        assert_eq!(
            Library::decode(&[1, 1, 0, 0, 0, 255, 255, 255, 255, 0]),
            None
        );
        assert_eq!(Libraries::decode(&[1, 255, 255, 255, 255]), None);
        assert_eq!(Library::decode(&[2, 0, 0, 0, 0]), None, "another version");
        assert_eq!(FunctionRow::decode(&[1; 21]), None);
    }

    #[test]
    fn any_bytes_end_in_a_result() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = vec![1];
            bytes.extend((0..random.usize(..40)).map(|_| random.u8(..3)));
            let _ = (Library::decode(&bytes), Libraries::decode(&bytes));
            let _ = FunctionRow::decode(&bytes);
        }
    }
}
