//! Making a store from a dump.

use std::io::Read;
use std::path::Path;

use pando_device::AnyDevice;

use crate::api::batch::Batch;
use crate::api::db::Db;
use crate::api::table::Table;
use crate::api::table_options::TableOptions;
use crate::dump::header::{Header, MARK, VERSION};
use crate::dump::lines::Lines;
use crate::dump::report::{DumpReport, DumpedTable};
use crate::dump::text::FieldEnd;
use crate::error::{Error, Result};
use crate::files::filling;
use crate::options::{Builder, Durability, VALUE_BYTES_MAX, WriteOptions};

/// Bytes of a line that is none of a row, at most.
const LINE_BYTES_MAX: usize = 16 << 10;
/// A batch is written when it has this many bytes,
const BATCH_BYTES: usize = 128 << 10;
/// or this many rows.
const BATCH_ROWS: usize = 512;
const QUICK: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Makes a store in `directory` from a dump ([`Snapshot::dump`]) that `input` has, and closes it.
/// `input` needs no buffer of its own. The directory is empty or absent, or has what an earlier
/// load has left that did not end: then it begins anew.
///
/// The new store has the tables, the rows and the hash key of the old one, its size of pages, and
/// its compression unless `options` choose another one; other `options` are those of the new store.
/// `max_memory` limits how long a value may be that does not lie in chunks: see
/// [`Db::plain_bytes_max`]. Calls `progress` now and then with the number of rows loaded, and of
/// about all rows.
///
/// Until it has ended well, the directory is not opened: half a dump is no store. The files are on
/// disk when it returns.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let db = pandodb::Db::builder().open_in_memory()?;
/// db.table("fruit")?.put(b"apple", b"red")?;
/// let mut text = Vec::new();
/// db.snapshot_settled()?.dump(&mut text, |_, _| ())?;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let options = pandodb::Db::builder();
/// pandodb::load_dump(&text[..], path, options, |_, _| ())?;
/// let copy = pandodb::Db::open(path)?;
/// assert_eq!(copy.table("fruit")?.get(b"apple")?.as_deref(), Some(&b"red"[..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidDump`] for a text that is no dump, or not a whole one;
/// [`Error::InvalidOption`] for a directory that is not empty, or if `max_memory` is too little;
/// and what opening, writing and closing a store may fail with.
///
/// [`Snapshot::dump`]: crate::Snapshot::dump
pub fn load_dump(
    input: impl Read,
    directory: impl AsRef<Path>,
    options: Builder,
    mut progress: impl FnMut(u64, u64),
) -> Result<DumpReport> {
    let open = |options: &Builder| {
        let directory = directory.as_ref().to_owned();
        let threads = options.completion_threads;
        options.io_backend.open_device(directory, threads)
    };
    load(&mut Lines::new(input), open, options, &mut progress)
}

impl DumpReport {
    /// As [`load_dump`], for a store on a device of the caller.
    ///
    /// # Errors
    /// As [`load_dump`].
    pub fn load_into(input: impl Read, into: AnyDevice, options: Builder) -> Result<Self> {
        let open = |_: &Builder| Ok(into);
        load(&mut Lines::new(input), open, options, &mut |_, _| ())
    }
}

fn load(
    lines: &mut Lines<impl Read>,
    open_into: impl FnOnce(&Builder) -> Result<AnyDevice>,
    mut options: Builder,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<DumpReport> {
    // What would end it later ends it before anything is made.
    options.check()?;
    let header = read_header(lines)?;
    let into = open_into(&options)?;
    let empty = "a dump is loaded into an empty directory";
    filling::begin(&into, "dir", empty)?;
    options.durability = Durability::None;
    options.page_size = Some(header.page_bytes);
    options.hash_key = Some(header.hash_key);
    options.compression.get_or_insert(header.compression);
    options.is_loading = true;
    let db = Db::open_device(options, into.clone())?;
    let mut report = DumpReport {
        lsn: header.lsn,
        tables: Vec::new(),
    };
    let mut told = |rows| progress(rows, header.rows);
    let loaded = load_tables(lines, &db, &mut report, &mut told);
    let closed = db.close();
    loaded?;
    closed?;
    filling::end(&into)?;
    Ok(report)
}

/// Reads a line that is none of a row.
fn read_line(lines: &mut Lines<impl Read>, line: &mut String) -> Result<()> {
    let mut bytes = std::mem::take(line).into_bytes();
    let end = lines.field(LINE_BYTES_MAX, "", &mut bytes)?;
    take_line(lines, end, bytes, line)
}

/// Makes a line of the first field of one, which is all of it.
fn take_line(
    lines: &Lines<impl Read>,
    end: FieldEnd,
    bytes: Vec<u8>,
    line: &mut String,
) -> Result<()> {
    match (end, String::from_utf8(bytes)) {
        (FieldEnd::Line, Ok(text)) => {
            *line = text;
            Ok(())
        }
        _ => Err(lines.wrong("it is no line of a dump")),
    }
}

/// Reads the lines before the first table.
fn read_header(lines: &mut Lines<impl Read>) -> Result<Header> {
    let mut line = String::new();
    read_line(lines, &mut line).map_err(|error| match error {
        Error::InvalidDump { .. } => no_dump(),
        other => other,
    })?;
    match line.strip_prefix(MARK).map(str::trim) {
        None => return Err(no_dump()),
        Some(version) if version.parse() == Ok(VERSION) => {}
        Some(version) => {
            return Err(lines.wrong(format!(
                "it is of version '{version}', and this program reads version {VERSION}"
            )));
        }
    }
    let mut header = Header::default();
    loop {
        let sum = lines.checksum();
        read_line(lines, &mut line)?;
        if let Some(said) = line.strip_prefix("checksum ") {
            if said != format!("{sum:08x}") {
                return Err(lines.wrong(format!(
                    "the checksum of the lines before it is {sum:08x}, not '{}': they were changed",
                    said.escape_debug()
                )));
            }
            header.check().map_err(|what| lines.wrong(what))?;
            return Ok(header);
        }
        header.take(&line).map_err(|what| lines.wrong(what))?;
    }
}

fn no_dump() -> Error {
    Error::InvalidDump {
        line: 1,
        what: format!("it does not begin with '{MARK}': it is no dump"),
    }
}

/// Loads all tables.
fn load_tables(
    lines: &mut Lines<impl Read>,
    db: &Db,
    report: &mut DumpReport,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let line = &mut String::new();
    loop {
        lines.begin_checksum();
        read_line(lines, line)?;
        let Some(table) = line.strip_prefix("table ") else {
            break;
        };
        let table = make_table(lines, table, db)?;
        let before = report.rows();
        let mut told = |rows| progress(before + rows);
        let mut filler = Filler::new(db, &table);
        filler.fill(lines, line, &mut told)?;
        report.tables.push(filler.dumped);
    }
    let whole = format!("whole {}", report.tables.len());
    if *line != whole {
        return Err(lines.wrong(format!(
            "there is '{}' where 'table' begins another one or '{whole}' ends the dump",
            line.escape_debug()
        )));
    }
    match lines.is_at_end()? {
        true => Ok(()),
        false => Err(lines.wrong("there is more behind the end of the dump")),
    }
}

/// Makes the table of a line that begins one.
fn make_table(lines: &Lines<impl Read>, text: &str, db: &Db) -> Result<Table> {
    let options = TableOptions::new();
    let (kind, name) = text.split_once(' ').unwrap_or((text, ""));
    let options = match kind {
        "plain" => options,
        "counted" => options.counted(true),
        "weighted" => options.weighted(true),
        _ => {
            return Err(lines.wrong(format!(
                "the table is '{}', neither plain nor counted nor weighted",
                kind.escape_debug()
            )));
        }
    };
    if db.existing_table(name).is_some() {
        return Err(lines.wrong(format!("there are two tables '{}'", name.escape_debug())));
    }
    db.table_with(name, options)
}

/// Fills a table with rows.
struct Filler<'a> {
    db: &'a Db,
    table: &'a Table,
    batch: Batch,
    batch_bytes: usize,
    dumped: DumpedTable,
}

impl<'a> Filler<'a> {
    fn new(db: &'a Db, table: &'a Table) -> Self {
        let dumped = DumpedTable {
            name: table.name().to_owned(),
            rows: 0,
            bytes: 0,
        };
        Self {
            db,
            table,
            batch: Batch::new(),
            batch_bytes: 0,
            dumped,
        }
    }

    /// Takes the rows of the table, and the line that ends it.
    fn fill(
        &mut self,
        lines: &mut Lines<impl Read>,
        line: &mut String,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let most = self.db.key_bytes_max().max(LINE_BYTES_MAX);
        loop {
            let sum = lines.checksum();
            if lines.field(most, "", &mut key)? == FieldEnd::Line {
                take_line(lines, FieldEnd::Line, key, line)?;
                self.flush()?;
                progress(self.dumped.rows);
                return self.check_end(lines, line, sum);
            }
            match lines.field(
                self.value_bytes_max(),
                "; it needs more max_memory",
                &mut value,
            )? {
                FieldEnd::Line => {
                    self.make_room(key.len() + value.len())?;
                    self.batch.put(self.table, &key, &value);
                }
                FieldEnd::Field => self.put_chunks(lines, &key, &value)?,
            }
            self.dumped.rows += 1;
            if self.dumped.rows.is_multiple_of(4096) {
                progress(self.dumped.rows);
            }
        }
    }

    /// Bytes of a value that need not lie in chunks, at most.
    fn value_bytes_max(&self) -> usize {
        self.db.plain_bytes_max().max(LINE_BYTES_MAX)
    }

    /// Takes the rest of a row whose value lies in chunks, behind `head`.
    fn put_chunks(&mut self, lines: &mut Lines<impl Read>, key: &[u8], head: &[u8]) -> Result<()> {
        let mut text = Vec::new();
        let end = lines.field(32, "", &mut text)?;
        let said = String::from_utf8_lossy(&text).parse();
        let bytes: u64 = match (end, said) {
            (FieldEnd::Field, Ok(bytes)) if (1..=VALUE_BYTES_MAX as u64).contains(&bytes) => bytes,
            _ => return Err(lines.wrong("the third field of a row is no number of bytes")),
        };
        let mut writer = self.db.value_writer(bytes)?;
        let mut more = 0;
        let end = lines.pieces(&mut |piece| {
            let taken = usize::try_from(writer.missing()).unwrap_or(usize::MAX);
            let taken = taken.min(piece.len());
            more += piece.len() - taken;
            writer.write(&piece[..taken])
        })?;
        let missing = writer.missing();
        if end != FieldEnd::Line || missing > 0 || more > 0 {
            return Err(lines.wrong(format!(
                "a value of {bytes} bytes was announced; {missing} are missing, and {more} are too \
                 many"
            )));
        }
        let value = writer.finish_with_head(head.to_vec())?;
        let bytes = usize::try_from(value.len()).unwrap_or(usize::MAX);
        self.make_room(key.len().saturating_add(bytes))?;
        self.batch.put_large(self.table, key, value);
        Ok(())
    }

    /// Makes room in the batch for a row of `bytes`, and counts these.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        // A long value gets a batch of its own: the record of a batch has a maximum length.
        if self.batch_bytes.saturating_add(bytes) > BATCH_BYTES || self.batch.len() >= BATCH_ROWS {
            self.flush()?;
        }
        self.batch_bytes = self.batch_bytes.saturating_add(bytes);
        self.dumped.bytes += bytes as u64;
        Ok(())
    }

    /// Writes the batch.
    fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.db.write(&mut self.batch, QUICK)?;
            self.batch.clear();
        }
        self.batch_bytes = 0;
        Ok(())
    }

    /// Checks what the line that ends the table says of it; `sum` is the checksum of its text. A
    /// line without a checksum says that the text was changed by hand.
    fn check_end(&self, lines: &Lines<impl Read>, line: &str, sum: u32) -> Result<()> {
        let DumpedTable { name, rows, .. } = &self.dumped;
        let mut words = line.split(' ');
        if words.next() != Some("end") {
            return Err(lines.wrong(format!(
                "there is '{}' where a row is, or 'end' ends table '{name}'",
                line.escape_debug()
            )));
        }
        let said = words.next().unwrap_or_default();
        if said != rows.to_string() || self.table.len() != *rows {
            return Err(lines.wrong(format!(
                "table '{name}' is said to have '{}' rows; there are {rows}, with {} keys",
                said.escape_debug(),
                self.table.len()
            )));
        }
        let said = words.next();
        let is_right = said.is_none_or(|said| said == format!("{sum:08x}"));
        match (is_right, words.next()) {
            (true, None) => Ok(()),
            _ => Err(lines.wrong(format!(
                "the checksum of table '{name}' is {sum:08x}, not what its last line says: its text \
                 was changed. If that was meant, the line is 'end {rows}'"
            ))),
        }
    }
}
