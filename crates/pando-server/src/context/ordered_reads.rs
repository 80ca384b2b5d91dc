//! Reading the keys of a command in the order of their rows.
//!
//! A run that waits for a page begins again, and what it has read is played back. For a command of
//! many keys whose rows are not in memory that is too slow: the time grows with the square of their
//! number, and the same page is read for one key and then for another. So when such a command, or
//! an EXEC, has to wait, its next run reads all rows page after page, each page once. What was read
//! stays in the transaction, which answers in any order from then on, and the command itself reads
//! no page.

use pando_resp::Arguments;
use pandodb::Error;
use pandodb::nonblocking::{Pending, Polled};

use super::key_order::KeyOrder;
use super::{Command, CommandIndex, Context, Interrupted, Kind, Run, look_ahead};
use crate::client::session::Session;

/// Number of keys from which on a command reads them so.
const KEYS_MIN: usize = 128;
/// Bytes that are read of a row: about what a leaf has of one at most.
const ROW_BYTES: usize = 2048;
/// Number of keys that are read before others get a turn.
const KEYS_PER_TURN: usize = 4096;
/// So many times the memory for a reply may rows take. Whoever needs more reads the rest as it
/// comes.
const MEMORY_SHARES: usize = 4;

/// Appends the keys of a command that is on its own, or, of EXEC, of those that are queued, up to
/// one that may change the database.
fn collect<'k>(
    (command, arguments): (&Command, Arguments<'k>),
    (session, commands): (&'k Session, &CommandIndex),
    keys: &mut Vec<&'k [u8]>,
) {
    if command.kind != Kind::Exec {
        return keys.extend(command.keys.of(arguments));
    }
    let Some(multi) = &session.multi else {
        return;
    };
    for place in 0..multi.len() {
        let (index, arguments) = multi.at(place);
        let queued = commands.at(index);
        if !is_of_rows(queued.kind) {
            return;
        }
        keys.extend(queued.keys.of(arguments));
    }
}

fn is_of_rows(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Read | Kind::ReadMany | Kind::ReadAll | Kind::Transaction
    )
}

impl Context<'_> {
    /// Reads keys, if an earlier run has found that this has to be done first.
    #[cold]
    pub(super) fn read_in_order(&mut self) -> Run {
        let Some(mut of) = self.progress.key_order.take() else {
            return Ok(());
        };
        let run = self.read_keys(&mut of);
        self.progress.key_order = Some(of);
        run
    }

    /// Has the next run read the keys in their order, if the command has many and waits for a page.
    #[cold]
    pub(super) fn note_wait(&mut self, pending: &Pending) {
        if let Some(index) = self.exec_index {
            self.progress.waiting_index = index;
        }
        let may_have_many = self.arguments.len() > KEYS_MIN || self.command.kind == Kind::Exec;
        if may_have_many && pending.is_for_page() {
            self.order_keys();
        }
    }

    #[cold]
    fn order_keys(&mut self) {
        let kind = self.command.kind;
        let has_rows = kind == Kind::Exec || is_of_rows(kind) && !self.command.is_script();
        let is_part = self.is_together || self.exec_index.is_some();
        if !has_rows || is_part || self.progress.key_order.is_some() {
            return;
        }
        // A step of a transaction is not a run of its own.
        let data = self.data.as_mut();
        let batch = data.and_then(|data| data.batch.as_deref_mut());
        if batch.is_none_or(|batch| batch.transaction().is_some()) {
            return;
        }
        let mut keys = Vec::new();
        let of = (self.command, self.arguments);
        collect(of, (self.session, self.commands), &mut keys);
        if keys.len() < KEYS_MIN {
            return;
        }
        let mut order: Vec<u32> = keys.iter().zip(0..).map(|(_, number)| number).collect();
        order.sort_by_key(|number| keys[*number as usize]);
        self.progress.key_order = Some(Box::new(KeyOrder { order, done: 0 }));
    }

    fn read_keys(&mut self, of: &mut KeyOrder) -> Run {
        let Some(data) = &mut self.data else {
            return Ok(());
        };
        let Some(batch) = data.batch.as_deref_mut() else {
            return Ok(());
        };
        if !of.goes_on() && batch.answers_in_any_order() {
            return Ok(());
        }
        let mut keys = Vec::new();
        let command = (self.command, self.arguments);
        collect(command, (self.session, self.commands), &mut keys);
        let most = MEMORY_SHARES * data.engine.reply_bytes_max;
        let table = &data.engine.databases[self.session.database].keys;
        if !batch.answers_in_any_order() {
            batch.answer_in_any_order();
            of.done = 0;
        }
        let (folder, scratch) = (&data.engine.folder, &mut *data.scratch);
        let (stored, row) = (&mut scratch.stored, &mut scratch.value);
        let behind = of.order.len().min(of.done + KEYS_PER_TURN);
        while of.done < behind {
            if batch.read_bytes() > most {
                of.done = of.order.len();
                return Ok(());
            }
            folder.store(keys[of.order[of.done] as usize], stored);
            let mut pending = match batch.get_head(table, stored, ROW_BYTES, row) {
                Ok(Polled::Ready(_)) | Err(Error::InChunks) => {
                    of.done += 1;
                    continue;
                }
                Ok(Polled::Pending(pending)) => pending,
                Err(error) => return Err(error.into()),
            };
            let behind = of.order[of.done + 1..].iter();
            let put_key = |number: &u32, key: &mut Vec<u8>| {
                folder.store(keys[*number as usize], key);
            };
            let buffers = (&mut *stored, &mut *row);
            look_ahead::add_pages_of(behind, (table, ROW_BYTES), put_key, buffers, &mut pending)?;
            return Err(Interrupted::Pending(pending));
        }
        match of.goes_on() {
            true => Err(Interrupted::Yield),
            false => Ok(()),
        }
    }
}
