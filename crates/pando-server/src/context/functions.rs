//! Reading and writing libraries of functions, through the command's transaction.

use pandodb::Table;
use pandodb::nonblocking::{Polled, ValidatedBatch};

use super::{Context, Interrupted, Run};
use crate::data::functions::{COPIES, LIST_KEY, function_key, library_key};
use crate::data::functions::{FunctionRow, Libraries, Library};

/// What is read of two moments is found out by the commit, so this is seen of true damage only.
const DAMAGED: &str = "ERR the libraries of functions of this store are damaged; FUNCTION FLUSH \
                       deletes them, and FUNCTION RESTORE with FLUSH puts others in their place";

impl<'a> Context<'a> {
    /// Returns the table. Who only looks makes it, too: else a look that finds none would not be
    /// known to the commit, beside the first FUNCTION LOAD of the store.
    fn function_table(&mut self) -> Result<&'a Table, Interrupted> {
        let functions = &self.engine().functions;
        if let Some(table) = functions.table() {
            return Ok(table);
        }
        let functions = functions.clone();
        Err(self.make_table(move |db| functions.make(db)))
    }

    fn function_batch(&mut self) -> &mut ValidatedBatch {
        let batch = self.data().batch.as_deref_mut();
        batch.expect("commands about functions have a transaction")
    }

    /// Returns the value at `key`, as the transaction sees it.
    fn function_value(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Interrupted> {
        let table = self.function_table()?;
        let mut value = Vec::new();
        match self.function_batch().get(table, key, &mut value)? {
            Polled::Ready(found) => Ok(found.then_some(value)),
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
        }
    }

    /// Returns the function called `name`.
    pub(crate) fn function(&mut self, name: &[u8]) -> Result<Option<FunctionRow>, Interrupted> {
        let number = self.shared.number_of(self.local) % usize::from(COPIES);
        let copy = u8::try_from(number).unwrap_or(0);
        match self.function_value(&function_key(copy, name))? {
            None => Ok(None),
            Some(value) => match FunctionRow::decode(&value) {
                None => Err(DAMAGED.into()),
                row => Ok(row),
            },
        }
    }

    /// Returns the library called `name`.
    pub(crate) fn library(&mut self, name: &[u8]) -> Result<Option<Library>, Interrupted> {
        match self.function_value(&library_key(name))? {
            None => Ok(None),
            Some(value) => match Library::decode(&value) {
                None => Err(DAMAGED.into()),
                library => Ok(library),
            },
        }
    }

    /// Returns a library that the list has.
    pub(crate) fn listed_library(&mut self, name: &[u8]) -> Result<Library, Interrupted> {
        self.library(name)?.ok_or_else(|| DAMAGED.into())
    }

    /// Returns the list of libraries.
    pub(crate) fn libraries(&mut self) -> Result<Libraries, Interrupted> {
        match self.function_value(LIST_KEY)? {
            None => Ok(Libraries::default()),
            Some(value) => Libraries::decode(&value).ok_or_else(|| DAMAGED.into()),
        }
    }

    fn put_function_value(&mut self, key: &[u8], value: &[u8]) -> Run {
        let table = self.function_table()?;
        self.function_batch().put(table, key, value)?;
        Ok(())
    }

    fn delete_function_value(&mut self, key: &[u8]) -> Run {
        let table = self.function_table()?;
        self.function_batch().delete(table, key);
        Ok(())
    }

    /// Writes a library, whose code has the SHA-1 `code_name`, and its functions.
    pub(crate) fn put_library(
        &mut self,
        name: &[u8],
        library: &Library,
        code_name: [u8; 20],
    ) -> Run {
        self.put_function_value(&library_key(name), &library.encode())?;
        // Of those whose names differ in case only the first one stays, and is called.
        for function in library.functions.iter().rev() {
            let row = FunctionRow {
                flags: function.flags,
                code_name,
                library: name.to_vec(),
            };
            let row = row.encode();
            for copy in 0..COPIES {
                self.put_function_value(&function_key(copy, &function.name), &row)?;
            }
        }
        Ok(())
    }

    /// Deletes a library and its functions.
    pub(crate) fn delete_library(&mut self, name: &[u8], library: &Library) -> Run {
        self.delete_function_value(&library_key(name))?;
        for function in &library.functions {
            for copy in 0..COPIES {
                self.delete_function_value(&function_key(copy, &function.name))?;
            }
        }
        Ok(())
    }

    /// Deletes all libraries, and whatever else the table has; reads nothing.
    pub(crate) fn delete_libraries(&mut self) {
        if let Some(table) = self.engine().functions.table() {
            self.function_batch().clear_table(table);
        }
    }

    /// Writes the list of libraries.
    pub(crate) fn put_libraries(&mut self, libraries: &Libraries) -> Run {
        match libraries.0.is_empty() {
            true => self.delete_function_value(LIST_KEY),
            false => self.put_function_value(LIST_KEY, &libraries.encode()),
        }
    }
}
