//! What an export has with the server.

use std::io;

use pando_resp::{Answer, Client, ClientOptions};
use pando_server::rdb::FOOTER_BYTES;
use pando_sync::time::Duration;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::refused;
use crate::target::Target;

use super::file::RdbFile;

/// Keys whose values are asked for at once.
const BATCH: usize = 100;
/// Names that are asked for at once.
const NAMES: &str = "1000";
/// For how long the server keeps the moment while this program writes to a slow disk.
const PATIENCE_MS: &str = "600000";
/// The longest value is a string of half a gigabyte.
const OPTIONS: ClientOptions = ClientOptions {
    timeout: Duration::from_secs(300),
    reply_bytes_max: 600 << 20,
};
/// What replies begin with when the moment is no longer kept.
const ENDED: [&str; 3] = ["SNAPSHOTENDED", "CONFLICT", "DEADLOCK"];

/// What has become of the contents of a server.
#[derive(Debug, Default)]
pub(super) struct Exported {
    pub(super) keys: u64,
    pub(super) refused: u64,
    pub(super) bytes: u64,
}

/// An export from a server.
pub(super) struct Exporter {
    pub(super) client: Client,
    target: Target,
    pub(super) file: RdbFile,
    /// Number of keys when it began, for the progress.
    expected: u64,
    databases: u64,
    done: Exported,
    progress: Progress,
}

/// Why a key is not in the file.
pub(super) enum Missing {
    /// The server cannot say what it has; the others are not concerned.
    Refused(String),
    Failed(Failure),
}

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Exporter {
    /// Begins with what is asked for outside of the one moment.
    pub(super) fn open(target: &Target, file: RdbFile) -> Result<Self, Failure> {
        let client = target.connect(OPTIONS)?;
        let mut exporter = Self {
            client,
            target: target.clone(),
            file,
            expected: 0,
            databases: 0,
            done: Exported::default(),
            progress: Progress::new(),
        };
        exporter.databases = exporter.count_databases()?;
        for database in 0..exporter.databases {
            exporter.select(database)?;
            if let Answer::Integer(keys) = exporter.call(&["DBSIZE"])? {
                exporter.expected += u64::try_from(keys).unwrap_or(0);
            }
        }
        Ok(exporter)
    }

    fn count_databases(&mut self) -> Result<u64, Failure> {
        let answer = self.call(&["CONFIG", "GET", "databases"])?;
        let count = match &answer {
            Answer::Array(words) => words.get(1).and_then(text),
            _ => None,
        };
        let count = count.and_then(|count| count.parse().ok());
        count.ok_or_else(|| self.unexpected("CONFIG GET databases", &answer))
    }

    /// Writes all that there is.
    pub(super) fn all(&mut self) -> Result<(), Failure> {
        self.libraries()?;
        let begin = [
            "PANDO",
            "BEGIN",
            "SNAPSHOT",
            "READONLY",
            "TIMEOUT",
            PATIENCE_MS,
        ];
        self.expect_ok(&begin)?;
        for database in 0..self.databases {
            self.database(database)?;
        }
        // If the moment had not been kept to the end, this would say so.
        self.expect_ok(&["PANDO", "COMMIT"])
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<Exported, Failure> {
        self.done.bytes = self.file.finish()?;
        Ok(self.done)
    }

    /// Shows no more.
    pub(super) fn hide(&self) {
        self.progress.finish();
    }

    /// Writes the libraries of functions: what FUNCTION DUMP has is what a file has.
    fn libraries(&mut self) -> Result<(), Failure> {
        match self.call(&["FUNCTION", "DUMP"])? {
            Answer::Bulk(payload) if payload.len() >= FOOTER_BYTES => {
                self.file.put(&payload[..payload.len() - FOOTER_BYTES])
            }
            // A server that was built without scripts.
            Answer::Error(text) if text.starts_with("ERR unknown command") => Ok(()),
            other => Err(self.unexpected("FUNCTION DUMP", &other)),
        }
    }

    fn select(&mut self, database: u64) -> Result<(), Failure> {
        self.expect_ok(&["SELECT", &database.to_string()])
    }

    fn database(&mut self, database: u64) -> Result<(), Failure> {
        self.select(database)?;
        let mut is_named = false;
        let mut cursor = "0".to_owned();
        loop {
            let (next, names) = self.names(&cursor)?;
            for names in names.chunks(BATCH) {
                if !std::mem::replace(&mut is_named, true) {
                    self.file.select(database)?;
                }
                self.keys(names)?;
                let done = self.done.keys + self.done.refused;
                let share = done as f64 / self.expected.max(1) as f64;
                self.progress.update("keys exported", share);
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Returns the next cursor, and the names of some keys.
    fn names(&mut self, cursor: &str) -> Result<(String, Vec<Vec<u8>>), Failure> {
        let answer = self.call(&["SCAN", cursor, "COUNT", NAMES])?;
        if let Answer::Array(parts) = &answer
            && let [next, Answer::Array(names)] = &parts[..]
            && let Some(next) = text(next)
        {
            let names = names.iter().map(|name| match name {
                Answer::Bulk(name) => Some(name.clone()),
                _ => None,
            });
            if let Some(names) = names.collect() {
                return Ok((next, names));
            }
        }
        Err(self.unexpected("SCAN", &answer))
    }

    /// Writes these keys.
    fn keys(&mut self, names: &[Vec<u8>]) -> Result<(), Failure> {
        for name in names {
            self.client.push(&[b"PEXPIRETIME", &name[..]]);
            self.client.push(&[b"DUMP", &name[..]]);
        }
        self.client.send().map_err(|error| self.lost(&error))?;
        let mut refused = Vec::new();
        for name in names {
            let (deadline, payload) = (self.reply()?, self.reply()?);
            let deadline = match deadline {
                Answer::Integer(deadline) => u64::try_from(deadline).ok(),
                // A key that cannot be read; it would live for ever.
                Answer::Error(text) => {
                    self.refuse(name, &text);
                    continue;
                }
                other => return Err(self.unexpected("PEXPIRETIME", &other)),
            };
            match payload {
                Answer::Bulk(payload) if payload.len() > FOOTER_BYTES => {
                    self.payload((name, deadline), &payload)?;
                }
                Answer::Error(text) => refused.push((name, deadline, text)),
                // It had expired when the moment came, and nobody has removed it.
                Answer::Null => {}
                other => return Err(self.unexpected("DUMP", &other)),
            }
        }
        for (name, deadline, text) in refused {
            self.long((name, deadline), text)?;
        }
        Ok(())
    }

    fn payload(&mut self, key: (&[u8], Option<u64>), payload: &[u8]) -> Result<(), Failure> {
        let (value, footer) = payload.split_at(payload.len() - FOOTER_BYTES);
        self.file.begin_key(key.0, value[0], key.1)?;
        self.file.put(&value[1..])?;
        self.file.needs(u16::from_le_bytes([footer[0], footer[1]]));
        self.done.keys += 1;
        Ok(())
    }

    /// Writes a key whose value as a whole the server refuses, piece by piece; `why` it does.
    fn long(&mut self, key: (&[u8], Option<u64>), why: String) -> Result<(), Failure> {
        let place = self.file.place();
        match self.pieces(key) {
            Ok(true) => self.done.keys += 1,
            Ok(false) => self.refuse(key.0, &why),
            Err(Missing::Refused(why)) => {
                self.file.undo(place)?;
                self.refuse(key.0, &why);
            }
            Err(Missing::Failed(failure)) => return Err(failure),
        }
        Ok(())
    }

    fn refuse(&mut self, name: &[u8], why: &str) {
        self.done.refused += 1;
        refused::tell(
            self.done.refused,
            name,
            why,
            "others could not be read, too",
        );
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {error}", self.target))
    }

    /// Sends a command, and returns its reply.
    pub(super) fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Answer, Failure> {
        self.client.push(words);
        self.client.send().map_err(|error| self.lost(&error))?;
        self.reply()
    }

    /// Returns the next reply, unless it says that the moment is over.
    fn reply(&mut self) -> Result<Answer, Failure> {
        let answer = self.client.reply().map_err(|error| self.lost(&error))?;
        match &answer {
            Answer::Error(text) if ENDED.iter().any(|ended| text.starts_with(ended)) => {
                Err(Failure::io(format!("{}: {text}", self.target)))
            }
            _ => Ok(answer),
        }
    }

    fn expect_ok(&mut self, words: &[&str]) -> Result<(), Failure> {
        match self.call(words)? {
            Answer::Simple(text) if text == "OK" => Ok(()),
            other => Err(self.unexpected(&words.join(" "), &other)),
        }
    }

    fn unexpected(&self, command: &str, answer: &Answer) -> Failure {
        let shown = match answer {
            Answer::Error(text) => text.clone(),
            _ => "a reply of another kind than expected".to_owned(),
        };
        Failure::io(format!("{}: {command}: {shown}", self.target))
    }
}

/// Returns the text that a reply is.
pub(super) fn text(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        Answer::Simple(text) => Some(text.clone()),
        _ => None,
    }
}
