//! Images: private copies of pages on their way to disk.
//!
//! A page is copied under its latch. The copy is written out of place, compressed where that saves
//! blocks. A frame has at most one image in flight. Write-back threads of the engine take images,
//! give them extents, write them and report back with [`Pool::complete_image`], which changes the
//! place of the page.

use pando_device::IoBuf;
use pando_format::bytes::{put_u32, put_u64, u32_at};
use pando_format::page;
use pando_format::{Epoch, Extent, FrameIndex, PageEncoder, PageId, StoredKind, StoredPage};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::access::Exclusive;
use crate::image_buffers::{Image, Started, Stashed};
use crate::options::{CheckImages, ImageFacts};
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// A page in memory that must not be written, because it is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadImage {
    /// The page.
    pub page: PageId,
    /// What is wrong with the page.
    pub what: String,
}

/// Bytes of a page that are ready to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealed {
    /// Number of bytes to write: whole blocks.
    pub(crate) stored: usize,
    /// What the place of the page keeps of the image's checksum.
    pub(crate) tag: u32,
    /// What the tree reported when it prepared the page.
    pub(crate) facts: ImageFacts,
}

fn copy_words(words: &[AtomicU64], bytes: &mut [u8]) {
    let (chunks, _) = bytes.as_chunks_mut::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        // Relaxed: nobody writes the words meanwhile.
        *chunk = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

impl Pool {
    /// Copies the content of `frame` at `version` and hands the copy to the write-back threads. The
    /// caller holds the exclusive latch. Without a free buffer the copy goes to a free frame.
    pub(crate) fn start_image(&self, frame: FrameIndex, version: u64, epoch: Epoch) -> Attempt<()> {
        let images = self.images();
        let buffer = images.buffers.lock().pop();
        let Some(buffer) = buffer else {
            return self.stash(frame, version, epoch);
        };
        self.claim_image(frame, version);
        let image = self.copy_image(frame, version, epoch, buffer);
        self.add_started(|started| started.images.push(image));
        Ok(())
    }

    fn claim_image(&self, frame: FrameIndex, version: u64) {
        let claimed = self.header(frame).claim_image(version);
        assert!(claimed, "an image is in flight");
    }

    fn add_started(&self, add: impl FnOnce(&mut Started)) {
        let images = self.images();
        let mut started = images.started.lock();
        add(&mut started);
        // No wake-up: the running checkpoint takes the images between two of its writes.
        images.note_started(&started);
    }

    /// Copies the content of `frame` to a frame that nobody needs at the moment, so that a writer
    /// that changes many pages right after a cut does not wait for the device. Other users of
    /// frames come first.
    fn stash(&self, frame: FrameIndex, version: u64, epoch: Epoch) -> Attempt<()> {
        let none = Restart::Wait(Resource::Images);
        let images = self.images();
        // The cleaner evicts until as many frames are free; none fewer, or both would wait.
        let is_short = self.free_count() < self.options().free_frames_high();
        if is_short || self.copies() >= self.copies_max() {
            self.work().notify_all();
            return Err(none);
        }
        let copy = self.take_frame().map_err(|_| none)?;
        let copy_frame = copy.frame();
        for (from, to) in self
            .frame_words(frame)
            .iter()
            .zip(self.frame_words(copy_frame))
        {
            // Relaxed: both frames are latched exclusively. Late readers of the copy fail to
            // validate.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        drop(copy);
        self.claim_image(frame, version);
        self.epochs().image_began(epoch);
        images.stashed_count.fetch_add(1, Ordering::Relaxed);
        let stashed = Stashed {
            page: self.header(frame).page(),
            frame,
            version,
            epoch,
            rebuilt: self.header(frame).take_rebuilt(),
            copy: copy_frame,
        };
        self.add_started(|started| started.stashed.push_back(stashed));
        Ok(())
    }

    /// Makes the image of a stashed copy, and frees the frame of the copy.
    fn image_of_stashed(&self, stashed: &Stashed, mut bytes: IoBuf) -> Image {
        copy_words(self.frame_words(stashed.copy), &mut bytes);
        self.give_back_frame(stashed.copy);
        self.images().stashed_count.fetch_sub(1, Ordering::Relaxed);
        Image {
            page: stashed.page,
            frame: stashed.frame,
            version: stashed.version,
            epoch: stashed.epoch,
            tag: 0,
            facts: ImageFacts::default(),
            rebuilt: stashed.rebuilt,
            stored: bytes.len(),
            bytes,
        }
    }

    fn copy_image(&self, frame: FrameIndex, version: u64, epoch: Epoch, mut bytes: IoBuf) -> Image {
        // The caller holds the latch, shared or exclusive.
        copy_words(self.frame_words(frame), &mut bytes);
        let header = self.header(frame);
        let page = header.page();
        self.epochs().image_began(epoch);
        Image {
            page,
            frame,
            version,
            epoch,
            tag: 0,
            facts: ImageFacts::default(),
            rebuilt: header.take_rebuilt(),
            stored: bytes.len(),
            bytes,
        }
    }

    /// Returns how many frames may hold copies for a running checkpoint.
    pub fn copies_max(&self) -> usize {
        self.frames_in_use_max() / 4
    }

    /// Returns the number of frames that hold copies for a running checkpoint.
    pub fn copies(&self) -> usize {
        // Relaxed: a bound that need not be exact.
        self.images().stashed_count.load(Ordering::Relaxed)
    }

    /// Moves images that writers have started to `images`, until it holds `most`.
    pub fn take_started_images(&self, images: &mut Vec<Image>, most: usize) {
        let own = self.images();
        // Relaxed: a caller that comes too early calls again.
        if own.started_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let stashed = {
            let mut started = own.started.lock();
            let take = started.images.len().min(most.saturating_sub(images.len()));
            images.extend(started.images.drain(..take));
            let room = most.saturating_sub(images.len());
            let mut buffers = own.buffers.lock();
            let take = started.stashed.len().min(room).min(buffers.len());
            let left = buffers.len() - take;
            let stashed: Vec<_> = started
                .stashed
                .drain(..take)
                .zip(buffers.drain(left..))
                .collect();
            own.note_started(&started);
            stashed
        };
        // Copies outside the lock, which writers take.
        images.extend(
            stashed
                .into_iter()
                .map(|(stashed, buffer)| self.image_of_stashed(&stashed, buffer)),
        );
    }

    /// Makes an image of a dirty frame, of any epoch or only of `epoch`. Returns None if the frame
    /// is clean, latched or has an image in flight, or if no buffer is free.
    pub fn image_of(&self, frame: FrameIndex, epoch: Option<Epoch>) -> Option<Image> {
        let header = self.header(frame);
        let wanted = |dirty: Option<Epoch>| match (dirty, epoch) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(dirty), Some(epoch)) => dirty == epoch,
        };
        if !wanted(header.dirty_epoch()) || header.image().is_some() {
            return None;
        }
        let buffer = self.images().buffers.lock().pop()?;
        let Some(version) = header.latch.try_shared() else {
            self.images().give_back(buffer);
            return None;
        };
        let dirty = header.dirty_epoch();
        let image = match dirty {
            Some(dirty_epoch) if wanted(dirty) && header.claim_image(version) => {
                Some(self.copy_image(frame, version, dirty_epoch, buffer))
            }
            _ => {
                self.images().give_back(buffer);
                None
            }
        };
        header.latch.release_shared();
        if epoch.is_none() && image.is_some() {
            self.statistics().tick(Ticker::EvictionsDirty, 1);
        }
        image
    }

    /// Makes an image ready to be written: sets the epoch, zeroes hints, compresses, adds the
    /// checksum. The caller holds no latch.
    ///
    /// # Errors
    /// [`BadImage`]: the image must not be written. The caller abandons it.
    pub fn seal_image(&self, image: &mut Image, encoder: &mut PageEncoder) -> Result<(), BadImage> {
        let (page, epoch, rebuilt) = (image.page, image.epoch, image.rebuilt);
        let sealed = self.seal(&mut image.bytes, page, epoch, rebuilt, encoder)?;
        image.facts = sealed.facts;
        image.stored = sealed.stored;
        image.tag = sealed.tag;
        Ok(())
    }

    /// Makes the bytes of `page`, in an image or elsewhere, ready to be written in `epoch`.
    pub(crate) fn seal(
        &self,
        bytes: &mut [u8],
        page: PageId,
        epoch: Epoch,
        rebuilt: bool,
        encoder: &mut PageEncoder,
    ) -> Result<Sealed, BadImage> {
        put_u64(bytes, page::WORD_EPOCH * 8, epoch.0);
        let facts = (self.options().prepare_image)(bytes);
        self.check_unsealed(bytes, page, epoch, rebuilt)
            .map_err(|what| BadImage { page, what })?;
        let options = self.options();
        let stored = encoder.encode(bytes, options.block_bytes, options.compression);
        if stored < bytes.len() {
            self.statistics().tick(Ticker::PagesCompressed, 1);
        }
        let checksum = page::checksum(&bytes[..stored]);
        put_u32(bytes, 0, checksum);
        Ok(Sealed {
            stored,
            tag: StoredPage::tag_of(checksum),
            facts,
        })
    }

    /// Checks what `Pool::check_loaded` will check when the page is read, except for what sealing
    /// adds.
    fn check_unsealed(
        &self,
        bytes: &[u8],
        page: PageId,
        epoch: Epoch,
        rebuilt: bool,
    ) -> Result<(), String> {
        let found = PageId(u32_at(bytes, page::WORD_ID * 8 + 4));
        if found != page {
            return Err(format!("calls itself {found}"));
        }
        let options = self.options();
        if rebuilt || options.check_images == CheckImages::All {
            (options.check_page)(bytes).map_err(str::to_owned)?;
        }
        page::check_marks(bytes, self.epochs().ceiling(epoch)).map_err(|damage| damage.what)
    }

    /// Records that `image` was written to `extent`: the place of the page moves there, its old
    /// extent is retired, and the frame becomes clean if the page has not changed since the copy.
    /// The caller wakes [`Pool::image_waiters`], once for a whole batch of images.
    ///
    /// # Errors
    /// Returns the image when the frame is latched. The caller tries again.
    pub fn complete_image(&self, image: Image, extent: Extent) -> Result<(), Image> {
        let header = self.header(image.frame);
        let Some(version) = header.latch.read() else {
            return Err(image);
        };
        if !header.latch.try_exclusive(version) {
            return Err(image);
        }
        let latched = Exclusive::of_frame(self, image.frame, version);
        let freed = header.freed_epoch();
        assert_eq!(
            header.page(),
            freed.map_or(image.page, |_| PageId::NONE),
            "the frame of an image in flight was reused"
        );
        assert_eq!(header.image(), Some(image.version), "two images in flight");
        header.clear_image();
        let stored = StoredPage {
            extent,
            tag: image.tag,
            names_chunks: image.facts.names_pages,
            kind: StoredKind::Page,
        };
        let epochs = self.epochs();
        assert_eq!(
            extent.blocks as usize * self.options().block_bytes,
            image.stored,
            "{} lies in an extent of another length",
            image.page
        );
        let (old, old_epoch) = (header.stored(), header.stored_epoch());
        if let Some(old) = old {
            assert_ne!(old.extent, extent, "{} was written over itself", image.page);
            epochs.retire(old.extent, Some(old_epoch), image.epoch);
        }
        if let Some(freed) = freed {
            if image.epoch < freed {
                epochs.push_pair(image.epoch, image.page, Some(stored));
            }
            epochs.retire(extent, Some(image.epoch), freed);
            latched.release_to_free_list(image.page);
        } else {
            epochs.push_pair(image.epoch, image.page, Some(stored));
            header.set_stored(Some(stored), image.epoch);
            if version == image.version {
                assert_eq!(header.dirty_epoch(), Some(image.epoch));
                header.set_dirty_epoch(None);
                epochs.dirty_ended(image.epoch);
            }
            drop(latched);
        }
        epochs.image_ended(image.epoch);
        self.statistics().tick(Ticker::PageWrites, 1);
        self.statistics()
            .tick(Ticker::PageWriteBytes, image.stored as u64);
        self.images().buffers.lock().push(image.bytes);
        Ok(())
    }

    /// Gives up `image`, whose write has not begun, if a running checkpoint needs a later image of
    /// the page: the page has changed since the copy, in the epoch that has ended meanwhile. Until
    /// this image is gone, nobody can change the page. The caller wakes [`Pool::image_waiters`].
    ///
    /// # Errors
    /// Returns the image if it is still needed, or if the frame is latched.
    pub fn give_up_outdated(&self, image: Image) -> Result<(), Image> {
        let header = self.header(image.frame);
        let Some(version) = header.latch.read() else {
            return Err(image);
        };
        // A page that was freed is not dirty.
        let is_outdated = version != image.version && header.dirty_epoch() == Some(image.epoch);
        // The latch of a page that keeps its image is not taken, since that changes the version.
        if !is_outdated
            || image.epoch == self.epochs().current()
            || !header.latch.try_exclusive(version)
        {
            return Err(image);
        }
        let _latched = Exclusive::of_frame(self, image.frame, version);
        assert_eq!(header.image(), Some(image.version), "two images in flight");
        header.clear_image();
        if image.rebuilt {
            header.set_rebuilt(true);
        }
        self.epochs().image_ended(image.epoch);
        self.images().give_back(image.bytes);
        Ok(())
    }

    /// No checkpoint ends from here on: changes of pages that are dirty in an earlier epoch no
    /// longer need an image of their previous content, and so do not wait for one.
    ///
    /// Whoever ends a checkpoint looks, after it has seen that no frame is dirty in its epoch,
    /// whether this was called: it sees what the caller of this function wrote before.
    pub fn end_checkpoints(&self) {
        // Release: pairs with the Acquire of a change, whose dirty_ended follows it.
        self.images().are_over.store(true, Ordering::Release);
    }

    /// Gives up an image whose write failed. The engine is poisoned, and the page stays dirty.
    pub fn abandon_image(&self, image: Image) {
        self.epochs().image_ended(image.epoch);
        self.images().give_back(image.bytes);
    }
}
