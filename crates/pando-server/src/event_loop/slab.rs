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

    /// Takes the value out that `token` names, and keeps its place for [`Slab::give_back`]: until
    /// then `token` names nothing.
    pub(crate) fn lend(&mut self, token: Token) -> Option<Box<T>> {
        let Token::Connection { index, generation } = token else {
            return None;
        };
        match self.places.get_mut(index as usize) {
            Some((current, value)) if *current == generation => value.take(),
            _ => None,
        }
    }

    /// Puts a value back that was lent.
    pub(crate) fn give_back(&mut self, token: Token, lent: Box<T>) {
        let Token::Connection { index, generation } = token else {
            unreachable!("only values are lent");
        };
        let (current, value) = &mut self.places[index as usize];
        assert!(
            *current == generation && value.is_none(),
            "the place of a lent value is kept"
        );
        *value = Some(lent);
    }

    /// Frees the place of a lent value, which does not come back.
    pub(crate) fn end_loan(&mut self, token: Token) {
        if let Token::Connection { index, generation } = token {
            let (current, value) = &mut self.places[index as usize];
            assert!(
                *current == generation && value.is_none(),
                "the place of a lent value is kept"
            );
            *current = current.wrapping_add(1);
            self.free.push(index);
        }
    }

    /// Returns the token of the value that is or was last at `index`.
    pub(crate) fn token_of(&self, index: usize) -> Option<Token> {
        let (generation, _) = self.places.get(index)?;
        Some(Token::Connection {
            index: u32::try_from(index).ok()?,
            generation: *generation,
        })
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

    #[test]
    fn the_place_of_a_lent_value_is_kept() {
        let mut slab = Slab::new();
        let lent = slab.insert(|_| "lent");
        let value = slab.lend(lent).unwrap();
        assert!(slab.get(lent).is_none() && slab.lend(lent).is_none() && !slab.is_empty());
        assert!(slab.at(0).is_none());
        assert_eq!(slab.token_of(0), Some(lent));
        let other = slab.insert(|_| "other");
        assert_ne!(other, lent);
        assert_eq!(slab.tokens(), [other]);
        slab.give_back(lent, value);
        assert_eq!(slab.remove(lent).as_deref(), Some(&"lent"));
    }
}
