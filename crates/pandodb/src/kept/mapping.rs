//! The mapping of a kept checkpoint: the base file that was merged for it. It is never written
//! again, and stays readable through its open file when the file is removed.

use pando_device::{AnyDevice, AnyFile, File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::mapping::{SECTION_BYTES, SECTION_WORDS, decode_section, sections};
use pando_format::{PageId, StoredPage};
use pando_space::BlockSet;

use crate::error::{Error, Result};
use crate::files::mapping::open;
use crate::files::names::base_name;

/// Where the pages of a kept checkpoint are stored.
#[derive(Debug)]
pub(crate) struct KeptMapping {
    name: String,
    base: AnyFile,
    /// One past the largest page id.
    pages: u64,
}

impl KeptMapping {
    /// Opens the base of mapping `number`, which has `pages` pages and is durable.
    pub(crate) fn open(device: &AnyDevice, number: u64, pages: u64) -> Result<Self> {
        let name = base_name(number);
        let base = open(device, &name)?;
        Ok(Self { name, base, pages })
    }

    /// One past the largest page id.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns where `page` is stored; None if the checkpoint has no such page. Blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn stored(&self, page: PageId) -> Result<Option<StoredPage>> {
        let id = u64::from(page.0);
        if id >= self.pages {
            return Ok(None);
        }
        let mut section = IoBuf::new(SECTION_BYTES);
        let mut words = self.section(id / SECTION_WORDS as u64, &mut section)?;
        let word = words.nth(usize_of(id % SECTION_WORDS as u64));
        Ok(word.and_then(StoredPage::decode))
    }

    /// Returns the blocks that the checkpoint uses. Blocks: reads the whole mapping.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn blocks(&self) -> Result<BlockSet> {
        let mut blocks = BlockSet::new();
        let mut bytes = IoBuf::new(SECTION_BYTES);
        for section in 0..sections(self.pages) {
            let first = section * SECTION_WORDS as u64;
            let words = usize_of((self.pages - first).min(SECTION_WORDS as u64));
            for word in self.section(section, &mut bytes)?.take(words) {
                if let Some(stored) = StoredPage::decode(word) {
                    blocks.insert(stored.extent);
                }
            }
        }
        Ok(blocks)
    }

    /// Reads a section into `bytes` and returns its words.
    fn section<'b>(
        &self,
        number: u64,
        bytes: &'b mut IoBuf,
    ) -> Result<impl Iterator<Item = u64> + 'b> {
        let read = self.base.read_at(bytes, number * SECTION_BYTES as u64);
        read.map_err(|error| Error::corrupt(&self.name, error))?;
        decode_section(number, bytes)
            .map_err(|damage| Error::corrupt(format!("{}, section {number}", self.name), damage))
    }
}
