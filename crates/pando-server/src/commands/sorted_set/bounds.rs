//! The bounds of ranges: of scores, of members, of ranks.

use std::ops::Range;

use super::order::SortedSet;
use crate::context::{Context, Found, Interrupted, Part, Stored, is_too_long, replies};
use crate::data::elements;
use crate::data::keyspace::ValueType;
use crate::data::shown_rows::Shown;
use crate::data::tree_head::TreeHead;
use crate::float::parse_bound;

/// The end of a range of scores: a score, and whether the range has it not.
#[derive(Debug, Clone, Copy)]
struct ScoreEdge {
    score: f64,
    excluded: bool,
}

impl ScoreEdge {
    fn parse(text: &[u8]) -> Option<Self> {
        let (excluded, number) = match text {
            [b'(', number @ ..] => (true, number),
            number => (false, number),
        };
        let score = parse_bound(number)?;
        Some(Self { score, excluded })
    }

    /// Returns what the keys of elements with this score begin with, or a key `behind` them.
    fn key(self, behind: bool) -> Vec<u8> {
        let ordered = u64::from_be_bytes(elements::ordered(self.score));
        (ordered + u64::from(behind)).to_be_bytes().to_vec()
    }
}

/// The end of a range of members.
#[derive(Debug, Clone, Copy)]
enum MemberEdge<'a> {
    /// Before all members.
    Lowest,
    /// Behind all members.
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> MemberEdge<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            // Redis looks no further than a zero byte.
            [b'-'] | [b'-', 0, ..] => Some(Self::Lowest),
            [b'+'] | [b'+', 0, ..] => Some(Self::Highest),
            [b'[', member @ ..] => Some(Self::Included(member)),
            [b'(', member @ ..] => Some(Self::Excluded(member)),
            _ => None,
        }
    }

    /// Returns true if it is a member of more than `most` bytes.
    fn is_longer(self, most: usize) -> bool {
        match self {
            Self::Lowest | Self::Highest => false,
            Self::Included(member) | Self::Excluded(member) => member.len() > most,
        }
    }

    /// Returns the key of this end of a range among members of the score `score`.
    fn key(self, score: f64, is_end: bool) -> Vec<u8> {
        let ordered = elements::ordered(score);
        match self {
            Self::Lowest => Vec::new(),
            Self::Highest => vec![u8::MAX; 8],
            Self::Included(member) if is_end => [&ordered, member, &[0]].concat(),
            Self::Excluded(member) if !is_end => [&ordered, member, &[0]].concat(),
            Self::Included(member) | Self::Excluded(member) => [&ordered, member].concat(),
        }
    }

    /// Returns true if `member` is before a range that begins here.
    fn is_behind(self, member: &[u8]) -> bool {
        match self {
            Self::Lowest => false,
            Self::Highest => true,
            Self::Included(first) => member < first,
            Self::Excluded(first) => member <= first,
        }
    }

    /// Returns true if `member` is behind a range that ends here.
    fn is_before(self, member: &[u8]) -> bool {
        match self {
            Self::Lowest => true,
            Self::Highest => false,
            Self::Included(last) => member > last,
            Self::Excluded(last) => member >= last,
        }
    }
}

/// What a range is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Member,
}

/// A range of a sorted set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a>(Edges<'a>);

#[derive(Debug, Clone, Copy)]
enum Edges<'a> {
    Ranks(i64, i64),
    Scores(ScoreEdge, ScoreEdge),
    Members(MemberEdge<'a>, MemberEdge<'a>),
}

/// What has become of a range that is to be stored.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a command has one, and most are in memory"
)]
pub(super) enum Selected {
    /// It is among the elements that were read, at these places.
    InMemory(SortedSet, Range<usize>),
    /// A thread has made it.
    Stored(Stored),
}

impl Bounds<'static> {
    /// The range of the scores whose whole parts are in `range`.
    pub(super) fn of_whole_scores(range: Range<u64>) -> Self {
        let edge = |score: u64, excluded| ScoreEdge {
            score: score as f64,
            excluded,
        };
        Self(Edges::Scores(
            edge(range.start, false),
            edge(range.end, true),
        ))
    }
}

impl<'a> Bounds<'a> {
    /// Reads the bounds at two arguments.
    pub(super) fn parse(
        context: &Context<'a>,
        by: By,
        first: usize,
        last: usize,
    ) -> Result<Self, &'static str> {
        let (low, high) = (context.argument(first), context.argument(last));
        Ok(Self(match by {
            By::Rank => Edges::Ranks(context.integer_at(first)?, context.integer_at(last)?),
            By::Score => match (ScoreEdge::parse(low), ScoreEdge::parse(high)) {
                (Some(low), Some(high)) => Edges::Scores(low, high),
                _ => return Err(replies::NOT_FLOAT_BOUNDS),
            },
            By::Member => match (MemberEdge::parse(low), MemberEdge::parse(high)) {
                (Some(low), Some(high)) => Edges::Members(low, high),
                _ => return Err(replies::NOT_MEMBER_BOUNDS),
            },
        }))
    }

    /// Returns the ranks of the range; those of a range of ranks count from the highest one if it
    /// is reversed.
    pub(super) fn ranks(self, set: &SortedSet, reversed: bool) -> Range<usize> {
        match self.0 {
            Edges::Ranks(first, last) => {
                let ranks = between(first, last, set.len());
                match reversed {
                    true => set.len() - ranks.end..set.len() - ranks.start,
                    false => ranks,
                }
            }
            Edges::Scores(low, high) => {
                let start = set.rank_behind(|(score, _)| match low.excluded {
                    true => *score <= low.score,
                    false => *score < low.score,
                });
                let end = set.rank_behind(|(score, _)| match high.excluded {
                    true => *score < high.score,
                    false => *score <= high.score,
                });
                start..end.max(start)
            }
            Edges::Members(low, high) => of_members(set, low, high, reversed),
        }
    }
}

impl<'a> Bounds<'a> {
    /// Reads what `limited` leaves of the range of the sorted set `found`, which was read last, and
    /// no more of a large one. Returns the places of that among what was read.
    pub(super) fn select(
        self,
        context: &mut Context<'_>,
        found: Found,
        reversed: bool,
        limited: impl Fn(Range<usize>) -> Range<usize>,
    ) -> Result<(SortedSet, Range<usize>), Interrupted> {
        let ranks = self.large_ranks(context, &found, reversed, &limited)?;
        let ranks = ranks.map(|(_, ranks)| ranks);
        self.load(context, (found, ranks), reversed, limited)
    }

    /// As [`Bounds::select`], for a reply with the elements at `key`: if they are many, they are
    /// read while it is sent.
    pub(super) fn select_to_show(
        self,
        context: &mut Context<'_>,
        (key, found): (&[u8], Found),
        (shown, reversed): (Shown, bool),
        limited: impl Fn(Range<usize>) -> Range<usize>,
    ) -> Result<(SortedSet, Range<usize>), Interrupted> {
        let Some((head, ranks)) = self.large_ranks(context, &found, reversed, &limited)? else {
            return self.load(context, (found, None), reversed, limited);
        };
        let asked = || (head, ranks.clone());
        context.ask_for_places(key, asked(), (shown, reversed), false)?;
        match self.load(context, (found, Some(ranks.clone())), reversed, limited) {
            Err(interrupted) if is_too_long(&interrupted) => {
                context.ask_for_places(key, asked(), (shown, reversed), true)?;
                Err(interrupted)
            }
            loaded => loaded,
        }
    }

    /// As [`Bounds::select`], for a range that is stored at `key`: if it is long, a thread does it.
    pub(super) fn select_to_store(
        self,
        context: &mut Context<'_>,
        (key, found): (&[u8], Found),
        reversed: bool,
        limited: impl Fn(Range<usize>) -> Range<usize>,
    ) -> Result<Selected, Interrupted> {
        let large = self.large_ranks(context, &found, reversed, &limited)?;
        let ranks = large.as_ref().map(|(_, ranks)| ranks.clone());
        if let Some(large) = large.clone()
            && let Some(stored) = context.put_range(key, large, false)?
        {
            return Ok(Selected::Stored(stored));
        }
        let loaded = self.load(context, (found, ranks), reversed, limited);
        if let (Err(interrupted), Some(large)) = (&loaded, large)
            && is_too_long(interrupted)
            && let Some(stored) = context.put_range(key, large, true)?
        {
            return Ok(Selected::Stored(stored));
        }
        loaded.map(|(set, places)| Selected::InMemory(set, places))
    }

    /// Returns the head and the ranks of what `limited` leaves of the range, of a large sorted set;
    /// `None` if it is not large, or they cannot be told without reading all of it.
    fn large_ranks(
        self,
        context: &mut Context<'_>,
        found: &Found,
        reversed: bool,
        limited: &impl Fn(Range<usize>) -> Range<usize>,
    ) -> Result<Option<(TreeHead, Range<usize>)>, Interrupted> {
        let Some(head) = context.tree_head(found)? else {
            return Ok(None);
        };
        let ranks = self.ranks_of_tree(context, head, reversed)?;
        Ok(ranks.map(|ranks| (head, limited(ranks))))
    }

    /// Reads the elements at these ranks of what was found; all, if they are not known, and returns
    /// the places of those of the range.
    fn load(
        self,
        context: &mut Context<'_>,
        (found, ranks): (Found, Option<Range<usize>>),
        reversed: bool,
        limited: impl Fn(Range<usize>) -> Range<usize>,
    ) -> Result<(SortedSet, Range<usize>), Interrupted> {
        let Some(ranks) = ranks else {
            let all = context.decoded(found, ValueType::SortedSet, &Part::All)?;
            let set = SortedSet::checked(all)?;
            let ranks = limited(self.ranks(&set, reversed));
            return Ok((set, ranks));
        };
        let part = Part::Places(&|_| ranks.clone());
        let part = context.decoded(found, ValueType::SortedSet, &part)?;
        Ok((SortedSet::checked(part)?, 0..ranks.len()))
    }

    /// Returns the number of elements in the range of the sorted set `found`, which was read last.
    pub(super) fn count(
        self,
        context: &mut Context<'_>,
        found: Found,
    ) -> Result<usize, Interrupted> {
        if let Some(head) = context.tree_head(&found)?
            && let Some(ranks) = self.ranks_of_tree(context, head, false)?
        {
            return Ok(ranks.len());
        }
        let all = context.decoded(found, ValueType::SortedSet, &Part::All)?;
        Ok(self.ranks(&SortedSet::checked(all)?, false).len())
    }

    /// As [`Bounds::ranks`], of a large sorted set; `None` if they cannot be told without reading
    /// all of it.
    fn ranks_of_tree(
        self,
        context: &mut Context<'_>,
        head: TreeHead,
        reversed: bool,
    ) -> Result<Option<Range<usize>>, Interrupted> {
        let (low, high) = match self.0 {
            Edges::Ranks(first, last) => {
                let ranks = between(first, last, head.len());
                return Ok(Some(match reversed {
                    true => head.len() - ranks.end..head.len() - ranks.start,
                    false => ranks,
                }));
            }
            Edges::Scores(low, high) => (low.key(low.excluded), high.key(!high.excluded)),
            Edges::Members(low, high) => {
                let most = context.engine().element_keys.whole_member_bytes_max();
                if low.is_longer(most) || high.is_longer(most) {
                    return Ok(None);
                }
                let first = context.first_score(head)?;
                (low.key(first, false), high.key(first, true))
            }
        };
        let Some(start) = context.rank_of_score(head, &low)? else {
            return Ok(None);
        };
        let end = context.rank_of_score(head, &high)?;
        Ok(end.map(|end| start..end.max(start)))
    }
}

/// Returns the ranks from `first` to `last`, both included; negative ones count from the end.
fn between(first: i64, last: i64, count: usize) -> Range<usize> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let absolute = |rank: i64| if rank < 0 { rank + count } else { rank };
    let (first, last) = (absolute(first).max(0), absolute(last).min(count - 1));
    match (usize::try_from(first), usize::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => first..last + 1,
        _ => 0..0,
    }
}

/// Returns the ranks of members between two, found from the end where the range begins: as all
/// scores should be the same, which nobody checks, what is found if they differ depends on that.
fn of_members(
    set: &SortedSet,
    low: MemberEdge<'_>,
    high: MemberEdge<'_>,
    reversed: bool,
) -> Range<usize> {
    let is_below = |rank: &usize| low.is_behind(set.member(*rank));
    let is_above = |rank: &usize| high.is_before(set.member(*rank));
    let count = set.len();
    if count == 0 || is_below(&(count - 1)) || is_above(&0) {
        return 0..0;
    }
    if reversed {
        let end = (0..count).rev().find(|rank| !is_above(rank));
        let end = end.map_or(0, |last| last + 1);
        let below = (0..end).rev().find(is_below);
        return below.map_or(0, |below| below + 1)..end;
    }
    let start = (0..count).find(|rank| !is_below(rank)).unwrap_or(count);
    let end = (start..count).find(is_above).unwrap_or(count);
    start..end
}

#[cfg(test)]
mod tests {
    #[test]
    fn ranks_are_cut_as_in_redis() {
        let between = super::between;
        assert_eq!(between(0, -1, 5), 0..5);
        assert_eq!(between(-2, -1, 5), 3..5);
        assert_eq!(between(1, 100, 5), 1..5);
        assert_eq!(between(5, 9, 5), 0..0);
        assert_eq!(between(3, 2, 5), 0..0);
        assert_eq!(between(0, -9, 5), 0..0);
        assert_eq!(between(i64::MIN, i64::MAX, 5), 0..5);
        assert_eq!(between(i64::MAX, i64::MIN, 5), 0..0);
        assert_eq!(between(0, -1, 0), 0..0);
    }
}
