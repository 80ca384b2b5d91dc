//! Connections by index. Indices are reused; a generation tells the users of an index apart.

use crate::loop_handle::Token;

/// Values at reusable indices.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<Box<T>>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Inserts the value that `make` makes of its token.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Token) -> T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("connections are bounded by open files")
        });
        let place = &mut self.places[index as usize];
        let generation = place.0;
        let token = Token::Connection { index, generation };
        assert!(place.1.is_none(), "a free place is empty");
        place.1 = Some(Box::new(make(token)));
        token
    }

    /// Returns the value at `index`, whatever its generation.
    pub(crate) fn at(&mut self, index: usize) -> Option<(Token, &mut T)> {
        let (generation, value) = self.places.get_mut(index)?;
        let token = Token::Connection {
            index: u32::try_from(index).ok()?,
            generation: *generation,
        };
        value.as_deref_mut().map(|value| (token, value))
    }

    /// Returns the value that `token` names, if it is still there.
    #[inline]
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut T> {
        let Token::Connection { index, generation } = token else {
            return None;
        };
        match self.places.get_mut(index as usize) {
            Some((current, value)) if *current == generation => value.as_deref_mut(),
            _ => None,
        }
    }

    /// Removes and returns the value that `token` names.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<T>> {
        let Token::Connection { index, generation } = token else {
            return None;
        };
        match self.places.get_mut(index as usize) {
            Some((current, value)) if *current == generation && value.is_some() => {
                *current = current.wrapping_add(1);
                self.free.push(index);
                value.take()
            }
            _ => None,
        }
    }

    /// Returns the number of indices, free or not: the bound of what [`Slab::at`] accepts.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// Returns the tokens of all values.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        for (index, (generation, value)) in self.places.iter().enumerate() {
            if value.is_some() {
                tokens.push(Token::Connection {
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    generation: *generation,
                });
            }
        }
        tokens
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_does_not_name_the_successor() {
        let mut slab = Slab::new();
        let first = slab.insert(|_| "first");
        assert_eq!(slab.remove(first).as_deref(), Some(&"first"));
        let second = slab.insert(|_| "second");
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&mut "second"));
        assert_eq!(slab.at(0), Some((second, &mut "second")));
        slab.remove(second);
        assert!(slab.is_empty());
    }
}
