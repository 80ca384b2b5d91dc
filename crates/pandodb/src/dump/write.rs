//! Writing a dump: the rows of a snapshot, as text.

use std::io::Write;

use pando_device::Error as DeviceError;
use pando_format::checksum::crc32c_append;

use crate::api::iter::LeafRow;
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::dump::header::Header;
use crate::dump::report::{DumpReport, DumpedTable};
use crate::dump::text::{FIELD_END, LINE_END, escape};
use crate::error::{Error, Result};
use crate::streams::stream::ValueStream;

/// Text is handed on when it has this many bytes, or a little more.
const TEXT_BYTES: usize = 256 << 10;
/// Bytes of a long value that become text at once.
const PIECE_BYTES: usize = 64 << 10;

impl Snapshot {
    /// Writes all tables as they are at this moment to `out`, as text from which [`load_dump`]
    /// makes a store (`docs/format.md`, section 9). `out` needs no buffer of its own. Calls
    /// `progress` now and then with the number of rows written, and of about all rows. Takes a
    /// megabyte or so of memory, and a chunk of the value at hand. Blocks.
    ///
    /// [`Db::snapshot_settled`] makes the snapshot for it: writes go on meanwhile, and save nothing
    /// for the dump.
    ///
    /// The text ends with a line that says so: a dump that was cut off is refused when it is
    /// loaded. Flushing `out`, and syncing the file if it is one, is the caller's.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// db.table("fruit")?.put(b"apple", b"red")?;
    /// let mut text = Vec::new();
    /// let report = db.snapshot_settled()?.dump(&mut text, |_, _| ())?;
    /// assert_eq!(report.rows(), 1);
    /// assert!(String::from_utf8(text)?.contains("table plain fruit\napple\tred\nend 1 "));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if the disk had no room for what commits replaced meanwhile;
    /// [`Error::CorruptPage`] for a damaged page, [`Error::Io`] and [`Error::Full`] if `out` fails.
    /// What was written until then is no dump.
    ///
    /// [`load_dump`]: crate::load_dump()
    /// [`Db::snapshot_settled`]: crate::Db::snapshot_settled
    pub fn dump(&self, mut out: impl Write, progress: impl FnMut(u64, u64)) -> Result<DumpReport> {
        let out = |text: &[u8]| {
            out.write_all(text).map_err(|error| {
                Error::io("writing a dump")(DeviceError::from_io("write", "dump", error))
            })
        };
        self.dump_to(out, progress)
    }

    /// As [`Snapshot::dump`], with a function that takes the text piece by piece.
    pub(super) fn dump_to(
        &self,
        out: impl FnMut(&[u8]) -> Result<()>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<DumpReport> {
        let header = Header::of(self.db(), self.lsn());
        let mut text = Text::new(out);
        text.add(header.text().as_bytes())?;
        let sum = text.checksum()?;
        text.add(format!("checksum {sum:08x}\n").as_bytes())?;
        let mut report = DumpReport {
            lsn: self.lsn(),
            tables: Vec::new(),
        };
        for name in self.tables()? {
            let table = self.table(&name)?;
            let before = report.rows();
            let mut told = |rows| progress(before + rows, header.rows);
            let dumped = dump_table(self, &table, &mut text, &mut told)?;
            report.tables.push(dumped);
        }
        text.add(format!("whole {}\n", report.tables.len()).as_bytes())?;
        text.hand_on()?;
        Ok(report)
    }
}

/// Writes one table.
fn dump_table(
    snapshot: &Snapshot,
    table: &Table,
    text: &mut Text<impl FnMut(&[u8]) -> Result<()>>,
    progress: &mut dyn FnMut(u64),
) -> Result<DumpedTable> {
    let kind = match (table.is_weighted(), table.is_counted()) {
        (true, _) => "weighted",
        (false, true) => "counted",
        (false, false) => "plain",
    };
    text.begin_checksum()?;
    text.add(format!("table {kind} ").as_bytes())?;
    text.last_field(table.name().as_bytes())?;
    let mut dumped = DumpedTable {
        name: table.name().to_owned(),
        rows: 0,
        bytes: 0,
    };
    let mut rows = snapshot.iter(table);
    while let Some(row) = rows.next_row().transpose()? {
        let bytes = match row {
            LeafRow::Short(key, value) => {
                text.field(key)?;
                text.last_field(value)?;
                key.len() + value.len()
            }
            LeafRow::Long(key) => {
                let value = snapshot.get_reader(table, key)?;
                let mut value = value.expect("a snapshot has the values of its keys");
                text.field(key)?;
                long_value(&mut value, text)?;
                key.len() + usize::try_from(value.len()).expect("values have 512 MiB at most")
            }
        };
        dumped.rows += 1;
        dumped.bytes += bytes as u64;
        if dumped.rows.is_multiple_of(4096) {
            progress(dumped.rows);
        }
    }
    let sum = text.checksum()?;
    text.add(format!("end {} {sum:08x}\n", dumped.rows).as_bytes())?;
    progress(dumped.rows);
    Ok(dumped)
}

/// Writes a value that does not lie in its leaf, piece by piece. One in chunks has three fields:
/// what lies with its key, the number of bytes in chunks, and these.
fn long_value(
    value: &mut ValueStream,
    text: &mut Text<impl FnMut(&[u8]) -> Result<()>>,
) -> Result<()> {
    let mut at = 0;
    if value.is_chunked() {
        at = value.head().len() as u64;
        text.field(value.head())?;
        text.field((value.len() - at).to_string().as_bytes())?;
    }
    loop {
        let piece = value.piece_at(at)?;
        if piece.is_empty() {
            return text.last_field(&[]);
        }
        for part in piece.chunks(PIECE_BYTES) {
            text.part(part)?;
        }
        at += piece.len() as u64;
    }
}

/// Text on its way out, with a checksum of what was added since [`Text::begin_checksum`].
struct Text<O> {
    out: O,
    bytes: Vec<u8>,
    sum: u32,
}

impl<O: FnMut(&[u8]) -> Result<()>> Text<O> {
    fn new(out: O) -> Self {
        Self {
            out,
            bytes: Vec::with_capacity(TEXT_BYTES + 4 * PIECE_BYTES),
            sum: 0,
        }
    }

    /// Adds bytes as they are.
    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.hand_on_if_full()
    }

    /// Adds bytes as text.
    fn part(&mut self, bytes: &[u8]) -> Result<()> {
        escape(bytes, &mut self.bytes);
        self.hand_on_if_full()
    }

    /// Adds a field that is followed by another one.
    fn field(&mut self, bytes: &[u8]) -> Result<()> {
        self.part(bytes)?;
        self.add(&[FIELD_END])
    }

    /// Adds the last field of a line.
    fn last_field(&mut self, bytes: &[u8]) -> Result<()> {
        self.part(bytes)?;
        self.add(&[LINE_END])
    }

    fn hand_on_if_full(&mut self) -> Result<()> {
        match self.bytes.len() < TEXT_BYTES {
            true => Ok(()),
            false => self.hand_on(),
        }
    }

    /// Hands on all text so far.
    fn hand_on(&mut self) -> Result<()> {
        self.sum = crc32c_append(self.sum, &self.bytes);
        let written = (self.out)(&self.bytes);
        self.bytes.clear();
        written
    }

    /// Begins a checksum with the text that follows.
    fn begin_checksum(&mut self) -> Result<()> {
        self.hand_on()?;
        self.sum = 0;
        Ok(())
    }

    /// Returns the checksum of the text since it began.
    fn checksum(&mut self) -> Result<u32> {
        self.hand_on()?;
        Ok(self.sum)
    }
}
