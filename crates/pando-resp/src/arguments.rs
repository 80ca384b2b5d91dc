//! The arguments of a command: ranges of the reader's buffer.

/// Where an argument lies in the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The bytes from `start` to before `end`.
    ///
    /// # Panics
    /// Behind 4 GiB; [`crate::Limits::request_bytes_max`] keeps requests below.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        let checked = |at| u32::try_from(at).expect("a request ends before 4 GiB");
        assert!(start <= end, "a span does not end before its start");
        Self {
            start: checked(start),
            end: checked(end),
        }
    }

    /// The bytes of `buffer` it names.
    #[inline]
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..self.end as usize]
    }

    /// The same span in a buffer where everything lies `by` bytes further.
    #[inline]
    pub fn shifted(self, by: usize) -> Self {
        Self::new(self.start as usize + by, self.end as usize + by)
    }
}

/// The arguments of one command: a buffer and where they lie in it. The first is the name.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Arguments at `spans` of `buffer`.
    #[inline]
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buffer, spans }
    }

    /// How many there are, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if not even a name is there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`; 0 is the name.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.buffer)
    }

    /// Argument `index`, if it is there.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.buffer))
    }

    /// All from `first` on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + 'a {
        let buffer = self.buffer;
        let spans = self.spans.get(first..).unwrap_or_default();
        spans.iter().map(move |span| span.of(buffer))
    }
}
