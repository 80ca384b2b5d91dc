//! An RDB file that is being written. It has its name when all of it is there.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use pando_server::rdb;

use crate::failure::{Code, Failure};
use crate::rdb_mark as mark;

/// Versions of the format, and how files of them begin: what Redis reads from 7.0 on, and from 7.4
/// on.
const VERSIONS: [(u16, &[u8]); 2] = [(10, b"REDIS0010"), (12, b"REDIS0012")];

/// A file under a name of its own, until it is finished. Removed if that does not happen.
pub(super) struct RdbFile {
    out: BufWriter<File>,
    /// Its name, and that of the whole file.
    part: PathBuf,
    path: PathBuf,
    at: Place,
    is_finished: bool,
}

/// What was written so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    bytes: u64,
    /// For each version, since the sum is also that of the first bytes.
    sums: [u64; VERSIONS.len()],
    /// Index of the least version that has all of it.
    version: usize,
}

impl RdbFile {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(format!("{}: {error}", path.display()));
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let open = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part);
        let file = open.map_err(|error| Failure::io(format!("{}: {error}", part.display())))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!("{}: another export writes it", part.display());
                return Err(Failure::new(Code::InUse, text));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // What one that was killed has left.
        file.set_len(0).map_err(failed)?;
        let mut made = Self {
            out: BufWriter::with_capacity(1 << 20, file),
            part,
            path: path.to_owned(),
            at: Place {
                bytes: 0,
                sums: [0; VERSIONS.len()],
                version: 0,
            },
            is_finished: false,
        };
        let (_, head) = VERSIONS[0];
        made.out
            .write_all(head)
            .map_err(|error| made.lost(&error))?;
        made.at.bytes = head.len() as u64;
        made.at.sums = VERSIONS.map(|(_, head)| rdb::sum(0, head));
        Ok(made)
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {error}", self.part.display()))
    }

    /// Returns the present place, for [`RdbFile::undo`].
    pub(super) fn place(&self) -> Place {
        self.at
    }

    /// Forgets what was written since `place`.
    pub(super) fn undo(&mut self, place: Place) -> Result<(), Failure> {
        let cut = self.out.flush().and_then(|()| {
            let file = self.out.get_mut();
            file.set_len(place.bytes)?;
            file.seek(SeekFrom::Start(place.bytes))
        });
        cut.map_err(|error| self.lost(&error))?;
        self.at = place;
        Ok(())
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| self.lost(&error))?;
        self.at.bytes += bytes.len() as u64;
        for sum in &mut self.at.sums {
            *sum = rdb::sum(*sum, bytes);
        }
        Ok(())
    }

    pub(super) fn put_length(&mut self, length: u64) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(9);
        rdb::put_length(&mut bytes, length);
        self.put(&bytes)
    }

    pub(super) fn put_string(&mut self, string: &[u8]) -> Result<(), Failure> {
        self.put_length(string.len() as u64)?;
        self.put(string)
    }

    /// Has the keys that follow be of this database.
    pub(super) fn select(&mut self, database: u64) -> Result<(), Failure> {
        self.put(&[mark::DATABASE])?;
        self.put_length(database)
    }

    /// Begins a key, whose value follows, with its deadline if it has one: in milliseconds.
    pub(super) fn begin_key(
        &mut self,
        key: &[u8],
        kind: u8,
        deadline: Option<u64>,
    ) -> Result<(), Failure> {
        if let Some(deadline) = deadline {
            self.put(&[mark::DEADLINE])?;
            self.put(&deadline.to_le_bytes())?;
        }
        self.put(&[kind])?;
        self.put_string(key)
    }

    /// Notes that what is written needs this version of the format.
    pub(super) fn needs(&mut self, version: u16) {
        let needed = VERSIONS.iter().position(|(known, _)| *known >= version);
        self.at.version = self.at.version.max(needed.unwrap_or(VERSIONS.len() - 1));
    }

    /// Completes the file, and gives it its name in place of what had that before. It is there
    /// after a power cut, too.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.put(&[mark::END])?;
        let sum = self.at.sums[self.at.version];
        self.put(&sum.to_le_bytes())?;
        let finished = self.complete();
        finished.map_err(|error| self.lost(&error))?;
        self.is_finished = true;
        Ok(self.at.bytes)
    }

    fn complete(&mut self) -> io::Result<()> {
        let (_, head) = VERSIONS[self.at.version];
        self.out.rewind()?;
        self.out.write_all(head)?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.part, &self.path)?;
        let directory = self.path.parent().filter(|of| !of.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

impl Drop for RdbFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If it cannot be removed, the next export begins with it.
            let _ = fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was undone is not in the file, nor in its sum and version.
    #[test]
    fn what_is_undone_leaves_nothing_behind() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("dump.rdb");
        let mut made = Vec::new();
        for undoes in [false, true] {
            let mut file = RdbFile::create(&path).unwrap();
            file.select(3).unwrap();
            if undoes {
                let place = file.place();
                file.begin_key(b"gone", 4, Some(77)).unwrap();
                file.needs(12);
                file.put(&vec![7; 3 << 20]).unwrap();
                file.undo(place).unwrap();
            }
            file.begin_key(b"key", 0, None).unwrap();
            file.put_string(b"value").unwrap();
            file.finish().unwrap();
            made.push(fs::read(&path).unwrap());
        }
        assert_eq!(made[0], made[1]);
        let (content, sum) = made[0].split_last_chunk().unwrap();
        assert_eq!(content, b"REDIS0010\xfe\x03\0\x03key\x05value\xff");
        assert_eq!(rdb::sum(0, content), u64::from_le_bytes(*sum));
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
    }
}
