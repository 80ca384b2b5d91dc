//! Patterns of Lua 5.1, matched step by step, so that a search that takes long can be ended.
//!
//! What matches, and what is wrong with a pattern and when that is noticed, is what LuaJIT's
//! `lib_string.c` does, whose functions those here follow one by one. Patterns end at a zero, as
//! they do there: reading behind the end finds one.

/// Groups that a pattern may have.
const CAPTURES_MAX: usize = 32;
/// Nesting of calls, which is how much of the pattern is being tried.
const DEPTH_MAX: u32 = 200;
/// Steps between two looks at the clock: some tens of microseconds.
const STEPS_PER_LOOK: usize = 8192;
const ESCAPE: u8 = b'%';

/// Why a search has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// What is wrong with the pattern.
    Wrong(&'static str),
    /// Whoever looks at the clock has ended it.
    Ended,
}

type Tried = Result<Option<usize>, Stop>;

/// What a group has matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// It has begun here.
    Unfinished(usize),
    /// `()`.
    Position(usize),
    Bytes(usize, usize),
}

/// A match: `text[start..end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Looks for a pattern in a text.
pub(super) struct Search<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MAX],
    count: usize,
    depth: u32,
    steps: usize,
    /// Returns true if the search is to end.
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], is_over: &'a dyn Fn() -> bool) -> Self {
        Self {
            text,
            pattern,
            captures: [Capture::Position(0); CAPTURES_MAX],
            count: 0,
            depth: 0,
            steps: 0,
            is_over,
        }
    }

    /// What the groups of the last match are.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures[..self.count]
    }

    /// Returns the first match that begins at `from` or behind it; only there, if a `^` in front
    /// of the pattern means that.
    pub(super) fn first(&mut self, from: usize, anchors: bool) -> Result<Option<Found>, Stop> {
        let is_anchored = anchors && self.letter(0) == b'^';
        let last = if is_anchored { from } else { self.text.len() };
        for start in from..=last {
            (self.count, self.depth) = (0, 0);
            if let Some(end) = self.matched(start, usize::from(is_anchored))? {
                return Ok(Some(Found { start, end }));
            }
        }
        Ok(None)
    }

    fn letter(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn step(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps += steps;
        if self.steps >= STEPS_PER_LOOK {
            self.steps = 0;
            if (self.is_over)() {
                return Err(Stop::Ended);
            }
        }
        Ok(())
    }

    /// Returns the end of the pattern's item at `at`.
    fn item_end(&self, at: usize) -> Result<usize, Stop> {
        match self.letter(at) {
            ESCAPE if self.letter(at + 1) == 0 => {
                Err(Stop::Wrong("malformed pattern (ends with '%')"))
            }
            ESCAPE => Ok(at + 2),
            b'[' => {
                let mut end = at + 1;
                if self.letter(end) == b'^' {
                    end += 1;
                }
                loop {
                    let letter = self.letter(end);
                    if letter == 0 {
                        return Err(Stop::Wrong("malformed pattern (missing ']')"));
                    }
                    end += 1;
                    if letter == ESCAPE && self.letter(end) != 0 {
                        end += 1;
                    }
                    if self.letter(end) == b']' {
                        return Ok(end + 1);
                    }
                }
            }
            _ => Ok(at + 1),
        }
    }

    /// Returns true if a byte is in the set that begins at `at`, and whose `]` is at `end`.
    fn is_in_set(&self, byte: u8, mut at: usize, end: usize) -> bool {
        let is_positive = self.letter(at + 1) != b'^';
        if !is_positive {
            at += 1;
        }
        loop {
            at += 1;
            if at >= end {
                return !is_positive;
            }
            let letter = self.letter(at);
            if letter == ESCAPE {
                at += 1;
                if is_of_class(byte, self.letter(at)) {
                    return is_positive;
                }
            } else if self.letter(at + 1) == b'-' && at + 2 < end {
                at += 2;
                if (letter..=self.letter(at)).contains(&byte) {
                    return is_positive;
                }
            } else if letter == byte {
                return is_positive;
            }
        }
    }

    /// Returns true if there is a byte at `at` that the item from `item` to `end` matches.
    fn is_matched(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(at).copied() else {
            return false;
        };
        match self.letter(item) {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.letter(item + 1)),
            b'[' => self.is_in_set(byte, item, end - 1),
            letter => letter == byte,
        }
    }

    /// Returns where a match ends that begins at `at`, of the pattern from `item` on.
    fn matched(&mut self, at: usize, item: usize) -> Tried {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Stop::Wrong("pattern too complex"));
        }
        let tried = self.matched_here(at, item)?;
        self.depth -= 1;
        Ok(tried)
    }

    fn matched_here(&mut self, mut at: usize, mut item: usize) -> Tried {
        loop {
            self.step(1)?;
            match (self.letter(item), self.letter(item + 1)) {
                (b'(', b')') => return self.begun(at, item + 2, Capture::Position(at)),
                (b'(', _) => return self.begun(at, item + 1, Capture::Unfinished(at)),
                (b')', _) => return self.ended(at, item + 1),
                (ESCAPE, b'b') => {
                    let Some(end) = self.balanced(at, item + 2)? else {
                        return Ok(None);
                    };
                    (at, item) = (end, item + 4);
                }
                (ESCAPE, b'f') => {
                    let Some(behind) = self.frontier(at, item + 2)? else {
                        return Ok(None);
                    };
                    item = behind;
                }
                (ESCAPE, digit @ b'0'..=b'9') => {
                    let Some(end) = self.repeated(at, digit)? else {
                        return Ok(None);
                    };
                    (at, item) = (end, item + 2);
                }
                (0, _) => return Ok(Some(at)),
                (b'$', 0) => return Ok((at == self.text.len()).then_some(at)),
                _ => {
                    let end = self.item_end(item)?;
                    let is_matched = self.is_matched(at, item, end);
                    match self.letter(end) {
                        b'?' => {
                            if is_matched && let Some(end) = self.matched(at + 1, end + 1)? {
                                return Ok(Some(end));
                            }
                            item = end + 1;
                        }
                        b'*' => return self.longest(at, item, end),
                        b'+' if is_matched => return self.longest(at + 1, item, end),
                        b'-' => return self.shortest(at, item, end),
                        b'+' => return Ok(None),
                        _ if is_matched => (at, item) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// As many of an item as there are, or fewer.
    fn longest(&mut self, at: usize, item: usize, end: usize) -> Tried {
        let mut most = at;
        while self.is_matched(most, item, end) {
            most += 1;
            self.step(end - item)?;
        }
        for behind in (at..=most).rev() {
            if let Some(found) = self.matched(behind, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As few of an item as possible.
    fn shortest(&mut self, mut at: usize, item: usize, end: usize) -> Tried {
        loop {
            if let Some(found) = self.matched(at, end + 1)? {
                return Ok(Some(found));
            }
            self.step(end - item)?;
            if !self.is_matched(at, item, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    /// Begins a group.
    fn begun(&mut self, at: usize, item: usize, capture: Capture) -> Tried {
        let place = self.captures.get_mut(self.count);
        *place.ok_or(Stop::Wrong("too many captures"))? = capture;
        self.count += 1;
        let found = self.matched(at, item)?;
        if found.is_none() {
            self.count -= 1;
        }
        Ok(found)
    }

    /// Ends the innermost group.
    fn ended(&mut self, at: usize, item: usize) -> Tried {
        let open = self.captures[..self.count].iter().enumerate().rev();
        let mut open = open.filter_map(|(place, capture)| match capture {
            Capture::Unfinished(start) => Some((place, *start)),
            _ => None,
        });
        let (place, start) = open.next().ok_or(Stop::Wrong("invalid pattern capture"))?;
        self.captures[place] = Capture::Bytes(start, at);
        let found = self.matched(at, item)?;
        if found.is_none() {
            self.captures[place] = Capture::Unfinished(start);
        }
        Ok(found)
    }

    /// `%b()`: returns where what is balanced ends.
    fn balanced(&mut self, at: usize, item: usize) -> Tried {
        let (opening, closing) = (self.letter(item), self.letter(item + 1));
        if opening == 0 || closing == 0 {
            return Err(Stop::Wrong("unbalanced pattern"));
        }
        if self.byte(at) != opening {
            return Ok(None);
        }
        let mut open = 1_usize;
        for behind in at + 1..self.text.len() {
            self.step(1)?;
            if self.text[behind] == closing {
                open -= 1;
                if open == 0 {
                    return Ok(Some(behind + 1));
                }
            } else if self.text[behind] == opening {
                open += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: returns where the item ends if a set begins in the text at `at`.
    fn frontier(&mut self, at: usize, item: usize) -> Tried {
        if self.letter(item) != b'[' {
            return Err(Stop::Wrong("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(item)?;
        self.step(end - item)?;
        let before = at.checked_sub(1).map_or(0, |before| self.byte(before));
        let is_here =
            !self.is_in_set(before, item, end - 1) && self.is_in_set(self.byte(at), item, end - 1);
        Ok(is_here.then_some(end))
    }

    /// `%1`: returns where what a group has matched ends, if it is there again.
    fn repeated(&mut self, at: usize, digit: u8) -> Tried {
        let place = usize::from(digit).checked_sub(usize::from(b'1'));
        match place.and_then(|place| self.captures().get(place).copied()) {
            None | Some(Capture::Unfinished(_)) => Err(Stop::Wrong("invalid capture index")),
            Some(Capture::Position(_)) => Ok(None),
            Some(Capture::Bytes(start, end)) => {
                self.step((end - start) / 16)?;
                let is_there = self.text[at..].starts_with(&self.text[start..end]);
                Ok(is_there.then_some(at + (end - start)))
            }
        }
    }
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_member == class.is_ascii_lowercase()
}

/// Returns the length of texts in which a search takes about as many steps at most. It is too
/// short for most patterns, since it takes for granted that all that may repeat does.
pub(super) fn longest_text(pattern: &[u8], steps: f64) -> usize {
    let search = Search::new(&[], pattern, &|| false);
    let is_anchored = search.letter(0) == b'^';
    let mut at = usize::from(is_anchored);
    // Places in the text that are chosen independently of each other; what is tried at each.
    let (mut places, mut ways) = (usize::from(!is_anchored), 1.0_f64);
    let (mut run, mut run_max) = (1, 1);
    while at < pattern.len() {
        let (end, repeats) = match (search.letter(at), search.letter(at + 1)) {
            (b'(' | b')', _) => (at + 1, false),
            (ESCAPE, b'b') => (at + 4, true),
            (ESCAPE, b'f') => (search.item_end(at + 2).unwrap_or(at + 3), false),
            (ESCAPE, b'0'..=b'9') => (at + 2, true),
            (0, _) => break,
            _ => match search.item_end(at) {
                Ok(end) => (end, matches!(search.letter(end), b'*' | b'+' | b'-')),
                Err(_) => break,
            },
        };
        run = if repeats { end - at } else { run + end - at };
        run_max = run_max.max(run);
        places += usize::from(repeats);
        if search.letter(end) == b'?' {
            ways *= 2.0;
        }
        at = end;
        if matches!(search.letter(at), b'*' | b'+' | b'-' | b'?') {
            at += 1;
        }
    }
    let most = steps / (ways * float(run_max));
    // The ways to choose places in order, with repetition.
    let is_short = |length: usize| {
        let each = (1..=places).map(|place| float(length + place) / float(place));
        each.product::<f64>() <= most
    };
    let (mut short, mut long) = (0, TEXT_MAX.min(whole(steps) / pattern.len().max(1)) + 1);
    while short + 1 < long {
        let middle = usize::midpoint(short, long);
        match is_short(middle) {
            true => short = middle,
            false => long = middle,
        }
    }
    short
}

/// No text is longer.
const TEXT_MAX: usize = 1 << 31;

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number of steps is a constant, and whole"
)]
fn whole(steps: f64) -> usize {
    steps as usize
}
