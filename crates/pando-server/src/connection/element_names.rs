//! Which arguments of a command name elements of the collection at its key.

use crate::context::Command;

/// Each `step`th argument, so that the last one but `behind` is among them, from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementNames {
    first: usize,
    step: usize,
    behind: usize,
}

impl ElementNames {
    /// Returns those of `command`; `None` if it names no elements, or only it knows where.
    pub(super) fn of(command: &Command) -> Option<Self> {
        let (first, step, behind) = match command.name {
            "hget" | "hmget" | "hexists" | "hstrlen" | "hdel" => (2, 1, 0),
            "hsetnx" | "hincrby" | "hincrbyfloat" => (2, 1, 1),
            "hset" | "hmset" => (2, 2, 1),
            "sismember" | "smismember" | "sadd" | "srem" => (2, 1, 0),
            "smove" => (3, 1, 0),
            "zscore" | "zmscore" | "zrank" | "zrevrank" | "zrem" => (2, 1, 0),
            // Of options before the scores, one may be taken for a member.
            "zadd" => (3, 2, 0),
            "zincrby" => (3, 1, 0),
            "geopos" | "geohash" => (2, 1, 0),
            "geoadd" => (4, 3, 0),
            _ => return None,
        };
        Some(Self {
            first,
            step,
            behind,
        })
    }

    /// Returns their places among so many arguments, the name of the command included.
    pub(super) fn places(self, arguments: usize) -> impl Iterator<Item = usize> {
        let end = arguments.saturating_sub(self.behind).max(self.first);
        let before = end.saturating_sub(self.first + 1) % self.step;
        (self.first + before..end).step_by(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::FAMILIES;
    use crate::context::CommandIndex;

    /// Returns the words of a request that name elements.
    fn named(request: &str) -> Vec<&str> {
        let words: Vec<&str> = request.split(' ').collect();
        let index = CommandIndex::new(FAMILIES);
        let (_, command) = index.find(words[0].as_bytes()).unwrap();
        let names = ElementNames::of(command).unwrap();
        names.places(words.len()).map(|at| words[at]).collect()
    }

    #[test]
    fn elements_are_named_where_each_command_has_them() {
        for (request, names) in [
            ("HGET k a", "a"),
            ("HMGET k a b c", "a b c"),
            ("HDEL k a b", "a b"),
            ("HSETNX k a v", "a"),
            ("HINCRBY k a 1", "a"),
            ("HSET k a v b w c x", "a b c"),
            ("SADD k a b", "a b"),
            ("SMOVE k l a", "a"),
            ("ZADD k 1 a 2 b", "a b"),
            ("ZADD k NX 1 a", "a"),
            ("ZADD k NX CH 1 a 2 b", "CH a b"),
            ("ZINCRBY k 1 a", "a"),
            ("GEOADD k 1 2 a 3 4 b", "a b"),
            ("GEOADD k NX 1 2 a", "a"),
            // They are refused, later.
            ("HSET k", ""),
            ("HSET k a", ""),
            ("ZADD k 1", ""),
            ("GEOADD k 1 2", ""),
            ("SMOVE k", ""),
        ] {
            assert_eq!(named(request).join(" "), names, "{request}");
        }
    }

    #[test]
    fn each_name_is_that_of_a_command() {
        let all = FAMILIES.iter().copied().flatten();
        let named = all.filter(|command| ElementNames::of(command).is_some());
        assert_eq!(named.count(), 25);
    }
}
