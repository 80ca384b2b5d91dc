//! Values that are too long for one payload: a key gets its elements one after the other, under a
//! name of its own until it has all of them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Read;

use pando_resp::Answer;
use pando_server::rdb;

use crate::failure::Failure;

use super::file::{Key, RdbFile};
use super::importer::{Importer, Sent};
use super::values::Piece;

/// An element may have 512 MiB, and be compressed in a listpack.
const EXPANDED_BYTES_MAX: usize = 2 << 30;
/// What an import that has died leaves behind lives for so many milliseconds.
const LEFT_BEHIND_MS: &[u8] = b"3600000";
const BUSY: &str = "BUSYKEY Target key name already exists.";
const TOO_LONG: &str = "it has an element that is too long, or is damaged";

impl Importer {
    /// Sends a key, of whose value `piece` is the first one; the others are read here.
    pub(super) fn long<R: Read>(
        &mut self,
        file: &mut RdbFile<R>,
        mut key: Key,
        mut piece: Piece,
    ) -> Result<(), Failure> {
        self.flush()?;
        self.part_refused = match !self.replaces && self.exists(&key.name)? {
            true => Some(BUSY.to_owned()),
            false => None,
        };
        let random = RandomState::new().build_hasher().finish();
        let name = format!("pando-import:{random:016x}");
        let name = name.as_bytes();
        // With the byte of its kind.
        let mut bytes = 1;
        loop {
            bytes += piece.length;
            if self.part_refused.is_none() {
                self.part(name, &key, &piece)?;
            }
            if key.value.is_over() {
                break;
            }
            piece = match file.piece(&mut key.value) {
                Ok(piece) => piece,
                Err(fault) => {
                    let failure = self.fault(fault);
                    self.remove(name)?;
                    return Err(failure);
                }
            };
            self.show(file);
        }
        self.flush()?;
        if self.part_refused.is_none() {
            return self.adopt(name, &key, bytes);
        }
        self.give_up(name, &key)
    }

    fn exists(&mut self, name: &[u8]) -> Result<bool, Failure> {
        let answer = self.client.call(&[b"EXISTS", name]);
        let answer = answer.map_err(|error| self.lost(&error))?;
        Ok(matches!(answer, Answer::Integer(1)))
    }

    /// Adds what `piece` has of the value of `key` to that of `name`.
    fn part(&mut self, name: &[u8], key: &Key, piece: &Piece) -> Result<(), Failure> {
        let (mut lost, mut is_first) = (None, true);
        let mut say = |words: &[&[u8]]| {
            lost = self.push(words, Sent::Part).err();
            // Sent with it: whenever this program dies, what there is ends by itself.
            if std::mem::take(&mut is_first) && lost.is_none() {
                let expire = [b"PEXPIRE", name, LEFT_BEHIND_MS];
                lost = self.push(&expire, Sent::Part).err();
            }
            lost.is_none() && self.part_refused.is_none()
        };
        let is_read = key.value.parts(piece, &mut |part| {
            rdb::commands(part, name, EXPANDED_BYTES_MAX, &mut say)
        });
        if !is_read && lost.is_none() {
            self.part_refused.get_or_insert_with(|| TOO_LONG.to_owned());
        }
        lost.map_or(Ok(()), Err)
    }

    /// Makes the value of `name` that of `key`, which has so many bytes in the file.
    fn adopt(&mut self, name: &[u8], key: &Key, bytes: u64) -> Result<(), Failure> {
        self.client.push(&["MULTI"]);
        match key.deadline.map(|deadline| deadline.to_string()) {
            Some(deadline) => self.client.push(&[b"PEXPIREAT", name, deadline.as_bytes()]),
            None => self.client.push(&[b"PERSIST", name]),
        }
        let rename: &[u8] = match self.replaces {
            true => b"RENAME",
            false => b"RENAMENX",
        };
        self.client.push(&[rename, name, &key.name]);
        self.client.push(&["EXEC"]);
        self.client.send().map_err(|error| self.lost(&error))?;
        let mut last = Answer::Null;
        for _ in 0..4 {
            last = self.client.reply().map_err(|error| self.lost(&error))?;
        }
        let renamed = match last {
            Answer::Array(mut answers) => answers.pop().unwrap_or(Answer::Null),
            other => other,
        };
        match renamed {
            Answer::Simple(_) | Answer::Integer(1) => {
                self.done.keys += 1;
                self.done.bytes += bytes;
                return Ok(());
            }
            // Its deadline has passed meanwhile, or those of all its fields.
            Answer::Error(text) if text == "ERR no such key" => {
                self.done.expired += 1;
                return Ok(());
            }
            Answer::Error(text) => self.part_refused = Some(text),
            _ => self.part_refused = Some(BUSY.to_owned()),
        }
        self.give_up(name, key)
    }

    /// Ends with a value that was refused.
    fn give_up(&mut self, name: &[u8], key: &Key) -> Result<(), Failure> {
        self.remove(name)?;
        let why = self.part_refused.take().unwrap_or_default();
        self.refuse(&key.name, &why);
        Ok(())
    }

    /// Removes what there is of a value.
    fn remove(&mut self, name: &[u8]) -> Result<(), Failure> {
        let answer = self.client.call(&[b"UNLINK", name]);
        answer.map(|_| ()).map_err(|error| self.lost(&error))
    }
}
