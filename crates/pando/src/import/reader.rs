//! The bytes of an RDB file, which are summed as they are read, and kept if they are wanted.

use std::io::{self, BufReader, ErrorKind, Read};

use pando_server::rdb;

/// Bytes that are read at a time of what is long: no length is believed before its bytes came.
const PIECE_BYTES: u64 = 64 << 10;

/// Why a file cannot be read further.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    /// It is damaged, or has what cannot be skipped.
    Content(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Content("it ends in the middle".to_owned()),
            _ => Self::Io(error),
        }
    }
}

/// A length, or the number of another form of string: see `dump/input.rs` of the server.
pub(super) enum Head {
    Length(u64),
    Form(u8),
}

/// A file that is being read.
pub(super) struct Reader<R> {
    input: BufReader<R>,
    /// CRC64 of all bytes so far.
    pub(super) sum: u64,
    /// Number of bytes so far.
    pub(super) place: u64,
    /// What was read since it was last taken, but for what is longer than `kept_max`.
    kept: Vec<u8>,
    kept_max: u64,
    /// Number of bytes since then, and how many more these are when they are expanded.
    since: u64,
    expanded: u64,
}

impl<R: Read> Reader<R> {
    /// Returns one that keeps up to `kept_max` bytes at a time.
    pub(super) fn new(input: R, kept_max: u64) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 20, input),
            sum: 0,
            place: 0,
            kept: Vec::new(),
            kept_max,
            since: 0,
            expanded: 0,
        }
    }

    /// Forgets what was kept, and begins anew.
    pub(super) fn keep(&mut self) {
        self.kept.clear();
        self.since = 0;
        self.expanded = 0;
    }

    /// Takes what was read since [`Reader::keep`], and its length; `None` if that is too much.
    pub(super) fn kept(&mut self) -> (Option<Vec<u8>>, u64) {
        let kept = std::mem::take(&mut self.kept);
        ((self.since <= self.kept_max).then_some(kept), self.since)
    }

    /// Number of bytes since [`Reader::keep`].
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Number of these bytes when they are expanded.
    pub(super) fn weight(&self) -> u64 {
        self.since.saturating_add(self.expanded)
    }

    fn note(&mut self, bytes: &[u8]) {
        self.sum = rdb::sum(self.sum, bytes);
        self.place += bytes.len() as u64;
        self.since += bytes.len() as u64;
        if self.since <= self.kept_max {
            self.kept.extend_from_slice(bytes);
        } else {
            self.kept = Vec::new();
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.note(&bytes);
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads `count` bytes, whatever they are.
    pub(super) fn pass(&mut self, count: u64) -> Result<(), Fault> {
        let (mut left, mut piece) = (count, Vec::new());
        while left > 0 {
            piece.clear();
            let wanted = left.min(PIECE_BYTES);
            let found = (&mut self.input).take(wanted).read_to_end(&mut piece)? as u64;
            if found < wanted {
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
            self.note(&piece);
            left -= wanted;
        }
        Ok(())
    }

    pub(super) fn head(&mut self) -> Result<Head, Fault> {
        let first = self.byte()?;
        let low = u64::from(first & 63);
        Ok(match first {
            0..0x40 => Head::Length(low),
            0x40..0x80 => Head::Length(low << 8 | u64::from(self.byte()?)),
            0x80 => Head::Length(u32::from_be_bytes(self.array()?).into()),
            0x81 => Head::Length(u64::from_be_bytes(self.array()?)),
            0x82..0xc0 => return Err(self.damaged("a length of no known form")),
            0xc0.. => Head::Form(first & 63),
        })
    }

    pub(super) fn length(&mut self) -> Result<u64, Fault> {
        match self.head()? {
            Head::Length(length) => Ok(length),
            Head::Form(_) => Err(self.damaged("a string where a length is")),
        }
    }

    /// Reads a string, whatever its form.
    pub(super) fn pass_string(&mut self) -> Result<(), Fault> {
        let bytes = match self.head()? {
            Head::Length(length) => length,
            Head::Form(0) => 1,
            Head::Form(1) => 2,
            Head::Form(2) => 4,
            Head::Form(3) => {
                let (packed, whole) = (self.length()?, self.length()?);
                let more = whole.saturating_sub(packed);
                self.expanded = self.expanded.saturating_add(more);
                packed
            }
            Head::Form(_) => return Err(self.damaged("a string of no known form")),
        };
        self.pass(bytes)
    }

    /// Reads a string, and returns it; it is lost to what is kept.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, Fault> {
        self.keep();
        self.pass_string()?;
        let (kept, _) = self.kept();
        let most = usize::try_from(self.kept_max).unwrap_or(usize::MAX);
        let string = kept.and_then(|encoded| rdb::string(&encoded, most));
        string.ok_or_else(|| self.damaged("a string that is no string, or is too long"))
    }

    /// Returns the error for `what` at this place.
    pub(super) fn damaged(&self, what: &str) -> Fault {
        Fault::Content(format!("byte {}: {what}", self.place))
    }
}
