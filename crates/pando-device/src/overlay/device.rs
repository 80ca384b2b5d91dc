//! The device.

use std::collections::BTreeMap;
use std::io;

use pando_sync::{Arc, Mutex, Rank};

use super::channel::OverlayChannel;
use super::content::{Base, Content, Room};
use super::file::OverlayFile;
use crate::device::{ChannelOptions, Create, Device, OpenOptions};
use crate::error::{Error, Result};
use crate::name;

/// A device that reads an inner one, and keeps in memory what is written, up to a limit. What was
/// written is gone with the last handle.
#[derive(Debug, Clone)]
pub struct OverlayDevice<D: Device> {
    inner: D,
    shared: Arc<Shared<D::File>>,
}

#[derive(Debug)]
struct Shared<F> {
    /// Files that were opened, made or renamed, by name; None for names that were removed.
    names: Mutex<BTreeMap<String, Option<Arc<Content<F>>>>>,
    room: Arc<Room>,
}

impl<D: Device> OverlayDevice<D> {
    /// Reads `inner`, and keeps at most `limit` bytes of memory for what is written. Blocks of
    /// zeros take none.
    pub fn new(inner: D, limit: u64) -> Self {
        Self {
            inner,
            shared: Arc::new(Shared {
                names: Mutex::new(Rank::Leaf, BTreeMap::new()),
                room: Arc::new(Room::new(limit)),
            }),
        }
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the largest number of bytes that may be kept.
    pub fn limit(&self) -> u64 {
        self.shared.room.limit
    }

    /// Returns the number of bytes that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.shared.room.used()
    }

    /// Returns whether a write has failed because it would have been more than the limit.
    pub fn ran_out(&self) -> bool {
        self.shared.room.ran_out()
    }

    /// Returns the content of the file `name`, if there is one.
    fn content(&self, name: &str) -> Result<Option<Arc<Content<D::File>>>> {
        if let Some(known) = self.shared.names.lock().get(name) {
            return Ok(known.clone());
        }
        let file = match self.inner.open(name, OpenOptions::read()) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = crate::device::File::len(&file)?;
        let base = Base {
            name: name.to_owned(),
            file,
        };
        let room = self.shared.room.clone();
        let found = Arc::new(Content::new(name, Some(base), len, room));
        // Another thread may have opened or removed it meanwhile: this one goes without the lock.
        let mut names = self.shared.names.lock();
        let known = names.entry(name.to_owned());
        let known = known.or_insert_with(|| Some(found.clone())).clone();
        drop(names);
        Ok(known)
    }

    /// Makes an empty file, unless another thread has made it meanwhile.
    fn make(&self, name: &str) -> Arc<Content<D::File>> {
        let mut names = self.shared.names.lock();
        let entry = names.entry(name.to_owned()).or_default();
        let room = &self.shared.room;
        let made = entry.get_or_insert_with(|| Arc::new(Content::new(name, None, 0, room.clone())));
        made.clone()
    }
}

impl<D: Device> Device for OverlayDevice<D> {
    type File = OverlayFile<D::File>;
    type Channel = OverlayChannel<D::Channel>;

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<Self::File> {
        name::check_open(name, options)?;
        self.inner.check_process()?;
        let fail = |operation, kind| Err(Error::from_kind(operation, name, kind));
        let content = match (self.content(name)?, options.create) {
            (Some(_), Create::New) => return fail("create", io::ErrorKind::AlreadyExists),
            (Some(content), _) => content,
            (None, Create::Never) => return fail("open", io::ErrorKind::NotFound),
            (None, _) => self.make(name),
        };
        let direct = match &content.base {
            Some(base) if options.direct => {
                let how = OpenOptions::read().direct();
                Some(self.inner.open(&base.name, how)?)
            }
            _ => None,
        };
        Ok(OverlayFile::new(content, direct, options.write))
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        self.inner.check_process()?;
        if self.content(name)?.is_none() {
            return Err(Error::from_kind("remove", name, io::ErrorKind::NotFound));
        }
        let removed = self.shared.names.lock().insert(name.to_owned(), None);
        // Its memory is given back without the lock.
        drop(removed);
        Ok(())
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        name::check_rename(name, to)?;
        self.inner.check_process()?;
        let Some(content) = self.content(name)? else {
            return Err(Error::from_kind("rename", name, io::ErrorKind::NotFound));
        };
        let replaced = {
            let mut names = self.shared.names.lock();
            names.insert(name.to_owned(), None);
            names.insert(to.to_owned(), Some(content))
        };
        drop(replaced);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut list = self.inner.list()?;
        let names = self.shared.names.lock();
        list.retain(|name| !names.contains_key(name));
        let here = names.iter().filter(|(_, content)| content.is_some());
        list.extend(here.map(|(name, _)| name.clone()));
        list.sort_unstable();
        Ok(list)
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn channel(&self, options: ChannelOptions) -> Result<Self::Channel> {
        let (depth, notify) = (options.depth, options.notify.clone());
        let inner = self.inner.channel(options)?;
        Ok(OverlayChannel::new(inner, depth, notify))
    }

    /// Bytes of memory that are left.
    fn free_bytes(&self) -> Result<u64> {
        let room = &self.shared.room;
        Ok(room.limit.saturating_sub(room.used()))
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        self.inner.check_process()
    }
}
