//! Classes of events, as the letters of `notify-keyspace-events` name them.

/// A class of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Class {
    Generic = 1 << 0,
    String = 1 << 1,
    List = 1 << 2,
    Set = 1 << 3,
    Hash = 1 << 4,
    SortedSet = 1 << 5,
    Expired = 1 << 6,
    /// There are none: keys are never evicted.
    Evicted = 1 << 7,
    Stream = 1 << 8,
    /// There are none: there are no modules.
    Module = 1 << 9,
    New = 1 << 10,
    Miss = 1 << 11,
}

/// Their letters, in the order in which Redis shows them.
const LETTERS: [(u8, Class); 11] = [
    (b'g', Class::Generic),
    (b'$', Class::String),
    (b'l', Class::List),
    (b's', Class::Set),
    (b'h', Class::Hash),
    (b'z', Class::SortedSet),
    (b'x', Class::Expired),
    (b'e', Class::Evicted),
    (b't', Class::Stream),
    (b'd', Class::Module),
    (b'n', Class::New),
];
/// Those of `A`: all but new keys and misses.
const ALL: u32 = (Class::New as u32) - 1;
/// Events go to the channel of their key.
const KEYSPACE: u32 = 1 << 12;
/// Events go to the channel of their name.
const KEYEVENT: u32 = 1 << 13;

/// What is asked for, as the setting says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Classes(u32);

impl Classes {
    /// Reads letters; `None` if one of them is unknown.
    pub(crate) fn parse(letters: &[u8]) -> Option<Self> {
        let bits = |letter: &u8| {
            let named = LETTERS.iter().find(|(known, _)| known == letter);
            match letter {
                b'A' => Some(ALL),
                b'K' => Some(KEYSPACE),
                b'E' => Some(KEYEVENT),
                b'm' => Some(Class::Miss as u32),
                _ => named.map(|(_, class)| *class as u32),
            }
        };
        let add = |sum: u32, letter| Some(sum | bits(letter)?);
        letters.iter().try_fold(0, add).map(Self)
    }

    /// Returns its letters as CONFIG GET of Redis shows them: with `A`, it hides `n`.
    pub(crate) fn letters(self) -> String {
        let mut letters = String::new();
        if self.0 & ALL == ALL {
            letters.push('A');
        } else {
            let own = LETTERS
                .iter()
                .filter(|(_, class)| self.0 & *class as u32 != 0);
            letters.extend(own.map(|(letter, _)| char::from(*letter)));
        }
        for (letter, bit) in [('K', KEYSPACE), ('E', KEYEVENT), ('m', Class::Miss as u32)] {
            if self.0 & bit != 0 {
                letters.push(letter);
            }
        }
        letters
    }

    /// Returns it as a word of which [`Classes::wants`] can be asked without a second look: without
    /// a kind of channels no class is left.
    pub(super) fn effective(self) -> u32 {
        match self.0 & (KEYSPACE | KEYEVENT) {
            0 => 0,
            _ => self.0,
        }
    }

    /// Returns what [`Classes::effective`] has returned.
    pub(super) fn of_word(word: u32) -> Self {
        Self(word)
    }

    /// Returns true if events of this class are published.
    #[inline]
    pub(crate) fn wants(self, class: Class) -> bool {
        self.0 & class as u32 != 0
    }

    pub(super) fn by_key(self) -> bool {
        self.0 & KEYSPACE != 0
    }

    pub(super) fn by_name(self) -> bool {
        self.0 & KEYEVENT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_shown_as_redis_shows_them() {
        for (letters, shown) in [
            ("", ""),
            ("AnKE", "AKE"),
            ("AKEm", "AKEm"),
            ("KEg$lshzxetdnm", "AKEm"),
            ("Kd", "dK"),
            ("nmEx", "xnEm"),
        ] {
            let classes = Classes::parse(letters.as_bytes()).expect("all are known");
            assert_eq!(classes.letters(), shown, "{letters}");
        }
        assert_eq!(Classes::parse(b"KEq"), None);
    }

    #[test]
    fn without_a_kind_of_channels_nothing_is_wanted() {
        let wants = |letters: &[u8], class| {
            let word = Classes::parse(letters).expect("all are known").effective();
            Classes::of_word(word).wants(class)
        };
        assert!(!wants(b"Am", Class::Generic) && !wants(b"Am", Class::Miss));
        assert!(wants(b"AK", Class::Generic) && wants(b"gE", Class::Generic));
        assert!(!wants(b"AK", Class::New) && !wants(b"AK", Class::Miss));
    }
}
