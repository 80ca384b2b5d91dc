//! Opens a value of any length for reading: a value in pages is copied, one in chunks is registered
//! for (decision 052).

use pando_format::chunks::BlobRef;
use pando_tree::{Lookup, ValueReader};

use crate::blobs::readers::Registration;
use crate::blobs::readers::Registry;
use crate::changes::blobs::decode_blob_ref;
use crate::engine::Engine;
use crate::error::Result;
use crate::kept::settled::{KeptBlob, KeptFound};
use crate::read::at::{FoundAt, ReadAt};
use crate::read::point::{Copied, no_such_table, on_tree};
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::stripes::{Stamp, StripeUse};

/// What a key was found to have.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    /// The value was copied.
    Value,
    /// A blob reference, and the registration that keeps its chunks.
    Chunks(BlobRef, Registration),
}

/// What a key was found to have at a snapshot.
#[derive(Debug)]
pub(crate) enum FoundThen {
    Here(Found),
    /// A value in chunks of a checkpoint, which it keeps.
    Kept(KeptBlob),
}

impl From<Found> for FoundThen {
    fn from(found: Found) -> Self {
        Self::Here(found)
    }
}

impl From<KeptFound> for FoundThen {
    fn from(found: KeptFound) -> Self {
        match found {
            KeptFound::Nothing => Self::Here(Found::Nothing),
            KeptFound::Copied => Self::Here(Found::Value),
            KeptFound::Chunks(kept) => Self::Kept(kept),
        }
    }
}

impl Engine {
    /// Makes one attempt to open the value of `key`: `out` holds it if it is in pages.
    /// Linearizable. Never blocks.
    pub(crate) fn try_look(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(Found, Debt)> {
        let (first, copied) = self.look_at(table, key, reader, out)?;
        if !first.chunked {
            let debt = self.check_copied(copied, key)?;
            let found = match first.found {
                true => Found::Value,
                false => Found::Nothing,
            };
            return Ok((found, debt));
        }
        // Register, then look: from here on nothing that the leaf names is freed.
        let look = Registry::look(&self.store.registry, self.log.applied());
        let (second, copied) = self.look_at(table, key, reader, out)?;
        let debt = self.check_copied(copied, key)?;
        let found = match (second.found, second.chunked) {
            (false, _) => Found::Nothing,
            (true, false) => Found::Value,
            (true, true) => {
                let blob = decode_blob_ref(out)?;
                let registration = look.read(blob.chunks.iter().map(|chunk| chunk.page));
                Found::Chunks(blob, registration)
            }
        };
        Ok((found, debt))
    }

    /// Looks `key` up; `out` holds the value, or the encoded blob reference of a value in chunks.
    fn look_at(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(Lookup, Copied)> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = tree.try_get(&self.store.pool, key, reader, out);
        let lookup = on_tree(table, tree, lookup)?;
        Ok((lookup, Copied::of(tree.id, &lookup)))
    }

    /// As [`Engine::try_look`], with the stamp of the key's stripe from before the look.
    pub(crate) fn try_look_stamped(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(Found, Debt, Stamp)> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let stripe = self.stripes.of(tree.id, key);
        let Some(stamp) = self.stripes.stamp(stripe) else {
            return Err(WaitReason::Stripe(stripe, StripeUse::Read).into());
        };
        let (found, debt) = self.try_look(table, key, reader, out)?;
        Ok((found, debt, stamp))
    }

    /// Makes one attempt to open the value that `key` has at `snapshot`. Never blocks. `work` as in
    /// [`Engine::try_read_at`].
    pub(crate) fn try_look_then(
        &self,
        snapshot: &pando_versions::Registration,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<(Found, Debt)> {
        // Until the chunks are named, this keeps what the snapshot keeps. That had not ended when
        // the value was found, so it had not before this look began.
        let look = Registry::look(&self.store.registry, snapshot.lsn());
        let (found, debt) = self.try_read_at(snapshot, table, key, work, out)?;
        let found = match found {
            FoundAt::Nothing => Found::Nothing,
            FoundAt::Value => Found::Value,
            FoundAt::Chunks(blob) => {
                let registration = look.read(blob.chunks.iter().map(|chunk| chunk.page));
                Found::Chunks(blob, registration)
            }
        };
        Ok((found, debt))
    }

    /// Opens the value that `key` has at `snapshot`, and pays its debt. Blocks.
    pub(crate) fn look_then(
        &self,
        snapshot: &pando_versions::Registration,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Found> {
        let mut work = ReadAt::default();
        let (found, debt) = self.block(|blocked| {
            let found = self.try_look_then(snapshot, table, key, &mut work, out);
            blocked.wanted.append(&mut work.reader.wanted);
            found
        })?;
        self.count_get();
        self.pay(debt)?;
        Ok(found)
    }

    /// Opens the value of `key`, and pays its debt, so that it may be shown. Blocks.
    pub(crate) fn look(&self, table: &TableState, key: &[u8], out: &mut Vec<u8>) -> Result<Found> {
        let mut reader = ValueReader::new();
        let (found, debt) = self.block(|blocked| {
            let found = self.try_look(table, key, &mut reader, out);
            blocked.wanted.append(&mut reader.wanted);
            found
        })?;
        self.pay(debt)?;
        Ok(found)
    }

    /// Reads the whole value of `key`, which was found to be in chunks. Blocks.
    pub(crate) fn read_whole(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match self.look(table, key, out)? {
            Found::Nothing => {
                out.clear();
                Ok(false)
            }
            Found::Value => Ok(true),
            Found::Chunks(blob, _registration) => {
                self.store.read_blob(&blob, out)?;
                Ok(true)
            }
        }
    }
}
