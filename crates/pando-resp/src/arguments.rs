//! The arguments of a command: ranges of the reader's buffer.

/// The range of an argument in the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Creates the span of the bytes from `start` to `end`, without `end`.
    ///
    /// # Panics
    /// If the end is beyond 4 GiB; [`crate::Limits::request_bytes_max`] keeps requests below.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        let checked = |at| u32::try_from(at).expect("a request ends before 4 GiB");
        assert!(start <= end, "a span does not end before its start");
        Self {
            start: checked(start),
            end: checked(end),
        }
    }

    /// Returns its bytes in `buffer`.
    #[inline]
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..self.end as usize]
    }
}

/// The arguments of one command: a buffer, and their spans in it. The first argument is the name.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Creates the arguments at `spans` of `buffer`.
    #[inline]
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buffer, spans }
    }

    /// Returns the number of arguments, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there is not even a name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns argument `index`; 0 is the name.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.buffer)
    }

    /// Returns argument `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.buffer))
    }

    /// Iterates over all arguments from `first` on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + 'a {
        let buffer = self.buffer;
        let spans = self.spans.get(first..).unwrap_or_default();
        spans.iter().map(move |span| span.of(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_bytes_of_their_spans() {
        let spans = [(0, 3), (3, 3), (4, 6)].map(|(start, end)| Span::new(start, end));
        let arguments = Arguments::new(b"GET ab", &spans);
        assert_eq!(arguments.len(), 3);
        assert!(!arguments.is_empty());
        let all: [&[u8]; 3] = [b"GET", b"", b"ab"];
        for (index, argument) in all.into_iter().enumerate() {
            assert_eq!(arguments.at(index), argument);
            assert_eq!(arguments.get(index), Some(argument));
            assert!(arguments.from(index).eq(all[index..].iter().copied()));
        }
        assert_eq!(arguments.get(3), None);
        assert_eq!(arguments.from(4).count(), 0);
        let none = Arguments::new(b"", &[]);
        assert!(none.is_empty() && none.get(0).is_none());
    }
}
