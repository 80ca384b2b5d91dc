//! RENAME, RENAMENX, COPY, MOVE: a value goes to another key, with its deadline.
//!
//! A string in chunks is copied, one chunk in memory at a time: its chunks belong to its key. The
//! elements of a large collection stay where they are when it gets another name, and are copied to
//! another database.

use pando_sync::Arc;

use crate::context::{Collection, Command, Context, Flags, Former, Found, Group, Interrupted};
use crate::context::{Keys, NewString, Part, Run, StreamCopy, TreeCopy, replies};
use crate::data::keyspace::{DATABASES, ValueType};
use crate::data::patches::Patches;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE,
        keys: Keys::TWO,
        group: Group::Generic,
        summary: "Renames a key and overwrites the destination.",
        value_type: None,
        ..Command::write("rename", 3, rename)
    },
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        keys: Keys::TWO,
        group: Group::Generic,
        summary: "Renames a key only when the target key name doesn't exist.",
        value_type: None,
        ..Command::write("renamenx", 3, rename_if_absent)
    },
    Command {
        since: "6.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: Keys::TWO,
        group: Group::Generic,
        complexity: "O(N) where N is the length of the value.",
        summary: "Copies the value of a key to a new key.",
        value_type: None,
        ..Command::write("copy", -3, copy)
    },
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        group: Group::Generic,
        summary: "Moves a key to another database.",
        value_type: None,
        ..Command::write("move", 3, move_to_database)
    },
];

/// A value on its way to another key.
struct Carried {
    found: Found,
    /// The string, unless it lies in chunks.
    bytes: Vec<u8>,
    /// What lies over its chunks, if anything does.
    patches: Option<Arc<Patches>>,
    /// The collection with all of its elements, if it is one.
    collection: Option<Collection>,
    /// All of the stream, if it is one.
    stream: Option<StreamCopy>,
    /// The collection or stream, if it is large, with its rows where they are.
    tree: Option<TreeCopy>,
}

impl Carried {
    /// Takes the value that was read last.
    fn new(context: &mut Context<'_>, found: Found) -> Result<Self, Interrupted> {
        let mut carried = Self {
            found,
            bytes: Vec::new(),
            patches: None,
            collection: None,
            stream: None,
            tree: None,
        };
        let tree = context.tree_copy(&carried.found)?;
        if tree.as_ref().is_some_and(TreeCopy::is_long) {
            carried.tree = tree;
            return Ok(carried);
        }
        // Its elements may be few, and long; or a stream has many consumers.
        let is_long = match carried.read(context) {
            Err(Interrupted::Refused(text))
                if tree.is_some() && text == replies::TOO_LONG_TO_LOAD =>
            {
                true
            }
            read => {
                read?;
                let stream = carried.stream.as_ref();
                stream.is_some_and(|stream| context.is_long_stream(stream))
            }
        };
        if is_long && tree.is_some() {
            (carried.stream, carried.tree) = (None, tree);
        }
        Ok(carried)
    }

    /// Reads all of it.
    fn read(&mut self, context: &mut Context<'_>) -> Run {
        match self.found.row {
            Some(row) if row.value_type == ValueType::Stream => {
                self.stream = Some(context.copied_stream(row)?);
            }
            Some(row) if row.value_type != ValueType::String => {
                let found = Found {
                    row: Some(row),
                    former: self.found.former,
                    ..Found::default()
                };
                let all = context.decoded(found, row.value_type, &Part::All)?;
                self.collection = Some(all);
            }
            Some(row) => match &self.found.large {
                Some(chunked) => {
                    self.patches = context.patches_at(chunked, &(0..chunked.len()))?;
                }
                None => self.bytes = context.payload(row).to_vec(),
            },
            None => {}
        }
        Ok(())
    }

    /// Records that fields which have expired do not come along.
    fn event_of_fields(&self, context: &mut Context<'_>, key: &[u8]) {
        if let Some(collection) = &self.collection {
            context.event_of_fields(key, collection);
        }
    }

    /// Writes it at `key` of the selected database, which has had `former`. Nothing is
    /// written if it is refused.
    fn put(&self, context: &mut Context<'_>, key: &[u8], former: Former) -> Run {
        let deadline = self.found.deadline();
        let row = self.found.row.expect("only a value that lives is carried");
        if let Some(chunked) = &self.found.large {
            if let Some(patches) = &self.patches {
                return context.put_patched_copy(key, (chunked, patches), (deadline, former));
            }
            let value = context.copied(key, &chunked.stream)?;
            return context.put(key, NewString::Large(&value), deadline, former);
        }
        if row.value_type == ValueType::String {
            // A long key leaves less room in the row: then it goes into chunks.
            return context.put(key, NewString::Bytes(&self.bytes), deadline, former);
        }
        if let Some(tree) = &self.tree {
            return context.put_tree_copy(key, tree, former);
        }
        if let Some(stream) = &self.stream {
            return context.put_stream_copy(key, stream, deadline, former);
        }
        let mut copy = context.replacement(&Found::default(), row.value_type);
        let collection = self.collection.as_ref().expect("it is no string");
        copy.encoding = collection.encoding;
        copy.strings = collection.strings.clone();
        copy.deadlines = collection.deadlines.clone();
        copy.found = Found {
            row: Some(row),
            former,
            ..Found::default()
        };
        context.put_collection(key, &copy)
    }
}

fn rename(context: &mut Context<'_>) -> Run {
    match rename_unless(context, false)? {
        Some(_) => context.ok(),
        None => context.fail(replies::NO_SUCH_KEY),
    }
}

fn rename_if_absent(context: &mut Context<'_>) -> Run {
    match rename_unless(context, true)? {
        Some(renamed) => context.integer(i64::from(renamed)),
        None => context.fail(replies::NO_SUCH_KEY),
    }
}

/// Renames a key, unless the new name exists and must not. Returns `None` if there is no such key.
fn rename_unless(
    context: &mut Context<'_>,
    must_be_absent: bool,
) -> Result<Option<bool>, Interrupted> {
    let (key, new_key) = (context.argument(1), context.argument(2));
    let found = context.find_partly(key)?;
    if found.row.is_none() {
        return Ok(None);
    }
    if key == new_key {
        return Ok(Some(!must_be_absent));
    }
    if found.former.tree.is_some() && found.large.is_none() {
        return rename_tree(context, &found, must_be_absent);
    }
    let carried = Carried::new(context, found)?;
    let there = context.find_head(new_key)?;
    if must_be_absent && there.row.is_some() {
        return Ok(Some(false));
    }
    carried.event_of_fields(context, key);
    carried.put(context, new_key, there.former.removed())?;
    context.remove(key, &carried.found)?;
    context.event(Class::Generic, "rename_from", key);
    context.event(Class::Generic, "rename_to", new_key);
    Ok(Some(true))
}

/// As [`rename_unless`], of a large collection or a string in pieces, which was read last: its
/// elements or pieces stay where they are.
fn rename_tree(
    context: &mut Context<'_>,
    found: &Found,
    must_be_absent: bool,
) -> Result<Option<bool>, Interrupted> {
    let (key, new_key) = (context.argument(1), context.argument(2));
    let row = found.row.expect("a collection that lives is renamed");
    let head = context.payload(row).to_vec();
    let there = context.find_head(new_key)?;
    if must_be_absent && there.row.is_some() {
        return Ok(Some(false));
    }
    let value_type = match found.pieces {
        Some(_) => ValueType::Pieces,
        None => row.value_type,
    };
    let value = (value_type, &head[..]);
    context.put_row(new_key, value, row.times(), there.former.removed())?;
    context.remove_row(key, found.former.but_tree())?;
    context.wake_readers(key);
    context.event(Class::Generic, "rename_from", key);
    context.event(Class::Generic, "rename_to", new_key);
    Ok(Some(true))
}

/// Returns the number of the database that argument `index` names.
pub(super) fn database_at(context: &Context<'_>, index: usize) -> Result<usize, &'static str> {
    let number = context.integer_at(index)?;
    if i32::try_from(number).is_err() {
        return Err(replies::NOT_AN_INT);
    }
    let number = usize::try_from(number).ok();
    let number = number.filter(|number| *number < DATABASES);
    number.ok_or(replies::DATABASE_OUT_OF_RANGE)
}

fn copy(context: &mut Context<'_>) -> Run {
    let (key, new_key) = (context.argument(1), context.argument(2));
    let (mut database, mut replaces) = (context.session.database, false);
    let mut at = 3;
    while at < context.count() {
        if context.is(at, "replace") {
            replaces = true;
        } else if context.is(at, "db") && at + 1 < context.count() {
            at += 1;
            database = match database_at(context, at) {
                Ok(number) => number,
                Err(text) => return context.fail(text),
            };
        } else {
            return context.fail(replies::SYNTAX);
        }
        at += 1;
    }
    if (database, new_key) == (context.session.database, key) {
        return context.fail(replies::SAME_OBJECTS);
    }
    let found = context.read(key)?;
    if found.row.is_none() {
        return context.integer(0);
    }
    let carried = Carried::new(context, found)?;
    let copied: Result<i64, Interrupted> = context.in_database(database, |context| {
        let there = context.find_head(new_key)?;
        if there.row.is_some() && !replaces {
            return Ok(0);
        }
        carried.put(context, new_key, there.former.removed())?;
        context.event(Class::Generic, "copy_to", new_key);
        Ok(1)
    });
    context.integer(copied?)
}

fn move_to_database(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let database = match database_at(context, 2) {
        Ok(number) => number,
        Err(text) => return context.fail(text),
    };
    if database == context.session.database {
        return context.fail(replies::SAME_OBJECTS);
    }
    let found = context.find(key)?;
    if found.row.is_none() {
        return context.integer(0);
    }
    let carried = Carried::new(context, found)?;
    let start = context.progress.events.mark();
    carried.event_of_fields(context, key);
    let moved = context.in_database(database, |context| {
        let there = context.find_head(key)?;
        if there.row.is_some() {
            context.progress.events.truncate(start);
            return Ok(0);
        }
        carried.put(context, key, there.former).map(|()| 1)
    });
    let moved = moved?;
    if moved > 0 {
        context.remove(key, &carried.found)?;
        context.event(Class::Generic, "move_from", key);
        context.in_database(database, |context| {
            context.event(Class::Generic, "move_to", key);
        });
    }
    context.integer(moved)
}
