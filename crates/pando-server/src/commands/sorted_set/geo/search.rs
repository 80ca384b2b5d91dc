//! GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS and GEORADIUSBYMEMBER.
//!
//! The members in some ranges of scores are compared with the shape (`cells.rs`); of a large sorted
//! set no others are read, and many are left to a thread. Without ASC, DESC or COUNT they come in
//! the order of their geohashes, where Redis promises none.

use super::super::order::{SortedSet, end_store, store};
use super::arguments;
use super::cells::covering;
use super::describe::{reading, writing};
use super::found::{Found, Match};
use super::look::place_of;
use super::reply;
use crate::context::{Command, Context, Interrupted, Keys, Part, Run, Seen, is_too_long, replies};
use crate::data::earth::Place;
use crate::data::near_walk::Search;
use crate::data::shape::{Around, Order, Shape};
use crate::data::shown_near::{Extras, Show};
use crate::data::tree_head::TreeHead;

const OF_CIRCLE: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of \
     the circular area delimited by center and radius and M is the number of items inside the \
     index.";
const OF_SHAPE: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding \
     box area around the shape provided as the filter and M is the number of items inside the \
     shape";
/// Members that are shown, or stored, from memory, at most: they hold the loop.
const SHOWN_MAX: usize = 16 << 10;
const STORED_MAX: usize = 4096;
const NO_MEMBER: &str = "ERR could not decode requested zset member";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: OF_SHAPE,
        summary: "Queries a geospatial index for members inside an area of a box or a circle.",
        ..reading("geosearch", -7, "6.2.0", |context| {
            search(context, Form::Search)
        })
    },
    Command {
        keys: Keys::TWO,
        complexity: OF_SHAPE,
        summary: "Queries a geospatial index for members inside an area of a box or a circle, \
                  optionally stores the result.",
        ..writing("geosearchstore", -8, "6.2.0", |context| {
            search(context, Form::SearchStore)
        })
    },
    Command {
        complexity: OF_CIRCLE,
        summary: "Queries a geospatial index for members within a distance from a coordinate, \
                  optionally stores the result.",
        ..writing("georadius", -6, "3.2.0", |context| {
            search(context, Form::Radius)
        })
    },
    Command {
        complexity: OF_CIRCLE,
        summary: "Queries a geospatial index for members within a distance from a member, \
                  optionally stores the result.",
        ..writing("georadiusbymember", -5, "3.2.0", |context| {
            search(context, Form::RadiusByMember)
        })
    },
    Command {
        complexity: OF_CIRCLE,
        summary: "Returns members from a geospatial index that are within a distance from a \
                  coordinate.",
        ..reading("georadius_ro", -6, "3.2.10", |context| {
            search(context, Form::Radius)
        })
    },
    Command {
        complexity: OF_CIRCLE,
        summary: "Returns members from a geospatial index that are within a distance from a \
                  member.",
        ..reading("georadiusbymember_ro", -5, "3.2.10", |context| {
            search(context, Form::RadiusByMember)
        })
    },
];

/// Which command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Search,
    SearchStore,
    Radius,
    RadiusByMember,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }
}

/// What is asked for.
#[derive(Default)]
struct Request<'a> {
    center: Option<Place>,
    /// Members of FROMMEMBER: the center is the place of the last one, unknown if there is no key.
    members: Vec<&'a [u8]>,
    /// The state of the sorted set in which the center was read as the place of a member.
    seen: Option<Seen>,
    shape: Option<Shape>,
    /// Meters of the unit.
    unit: f64,
    extras: Extras,
    is_descending: Option<bool>,
    count: Option<usize>,
    any: bool,
    destination: Option<&'a [u8]>,
    /// The distances are stored, and not the geohashes.
    stores_distances: bool,
}

impl<'a> Request<'a> {
    /// Reads what comes before the options; `set` has the member that this names. Also returns
    /// where the options begin.
    fn begin(
        context: &Context<'a>,
        form: Form,
        set: &SortedSet,
    ) -> Result<(Self, usize), Interrupted> {
        let mut request = Self {
            unit: 1.0,
            ..Self::default()
        };
        let at = match form {
            Form::Search => 2,
            Form::SearchStore => {
                request.destination = Some(context.argument(1));
                3
            }
            Form::Radius => {
                request.center = Some(arguments::place(context, 2)?);
                request.take(arguments::circle(context, 4)?);
                6
            }
            Form::RadiusByMember => {
                // Without a key nothing is asked of the member and the radius.
                if set.exists() {
                    let place = place_of(set, context.argument(2));
                    request.center = Some(place.ok_or(NO_MEMBER)?);
                    request.take(arguments::circle(context, 3)?);
                }
                5
            }
        };
        Ok((request, at))
    }

    fn take(&mut self, (shape, unit): (Shape, f64)) {
        self.shape = Some(shape);
        self.unit = unit;
    }

    /// Reads what is asked for of the sorted set of `key`, and where its center is. This look at
    /// the key is the one that counts as a hit or a miss.
    fn parse(context: &mut Context<'a>, form: Form, key: &[u8]) -> Result<Self, Interrupted> {
        let named = match form {
            Form::RadiusByMember => vec![context.argument(2)],
            _ => Vec::new(),
        };
        let last_swap = context.last_swap();
        let set = SortedSet::read_part(context, key, &Part::Named(&named))?;
        let (mut request, at) = Self::begin(context, form, &set)?;
        if form == Form::RadiusByMember {
            request.seen = Some((set.tree_head(), last_swap));
        }
        let options = request.options(context, form, at);
        // A member that is missing was found missing before an option behind it.
        request.find_members(context, key)?;
        options?;
        request.check(context, form)?;
        Ok(request)
    }

    fn options(&mut self, context: &Context<'a>, form: Form, mut at: usize) -> Run {
        while at < context.count() {
            at += match self.plain_option(context, at)? {
                0 if form.is_search() => self.search_option(context, at, form)?,
                0 => self.store_option(context, at)?,
                taken => taken,
            };
        }
        Ok(())
    }

    /// Finds the members of FROMMEMBER, which may be given again and again: the last one counts,
    /// and all must be there if there is a set.
    fn find_members(&mut self, context: &mut Context<'_>, key: &[u8]) -> Run {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut names = self.members.clone();
        names.sort_unstable();
        names.dedup();
        let last_swap = context.last_swap();
        let set = SortedSet::find_part(context, key, &Part::Named(&names))?;
        self.seen = Some((set.tree_head(), last_swap));
        if !set.exists() {
            return Ok(());
        }
        for score in set.scores_of(&self.members) {
            self.center = Some(Place::of_score(score.ok_or(NO_MEMBER)?));
        }
        Ok(())
    }

    /// Reads an option that all forms have. Returns the number of its arguments; 0: it is none.
    fn plain_option(&mut self, context: &Context<'_>, at: usize) -> Result<usize, Interrupted> {
        match () {
            () if context.is(at, "withdist") => self.extras.distance = true,
            () if context.is(at, "withhash") => self.extras.hash = true,
            () if context.is(at, "withcoord") => self.extras.coordinates = true,
            () if context.is(at, "any") => self.any = true,
            () if context.is(at, "asc") => self.is_descending = Some(false),
            () if context.is(at, "desc") => self.is_descending = Some(true),
            () if context.is(at, "count") && at + 1 < context.count() => {
                let count = context.integer_at(at + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = Some(count.ok_or("ERR COUNT must be > 0")?);
                return Ok(2);
            }
            () => return Ok(0),
        }
        Ok(1)
    }

    /// Reads an option of GEORADIUS.
    fn store_option(&mut self, context: &Context<'a>, at: usize) -> Result<usize, Interrupted> {
        let stores = context.is(at, "store") || context.is(at, "storedist");
        let may_store = context.command.writes_values() && at + 1 < context.count();
        if !stores || !may_store {
            return Err(replies::SYNTAX.into());
        }
        self.stores_distances = context.is(at, "storedist");
        self.destination = Some(context.argument(at + 1));
        Ok(2)
    }

    /// Reads an option of GEOSEARCH.
    fn search_option(
        &mut self,
        context: &Context<'a>,
        at: usize,
        form: Form,
    ) -> Result<usize, Interrupted> {
        let left = context.count() - at - 1;
        let is_circle = matches!(self.shape, Some(Shape::Circle { .. }));
        let is_rectangle = matches!(self.shape, Some(Shape::Rectangle { .. }));
        let from_place = self.center.is_some();
        if context.is(at, "frommember") && left >= 1 && !from_place {
            self.members.push(context.argument(at + 1));
            return Ok(2);
        }
        if context.is(at, "fromlonlat") && left >= 2 && self.members.is_empty() {
            self.center = Some(arguments::place(context, at + 1)?);
            return Ok(3);
        }
        if context.is(at, "byradius") && left >= 2 && !is_rectangle {
            self.take(arguments::circle(context, at + 1)?);
            return Ok(3);
        }
        if context.is(at, "bybox") && left >= 3 && !is_circle {
            self.take(arguments::rectangle(context, at + 1)?);
            return Ok(4);
        }
        if context.is(at, "storedist") && form == Form::SearchStore {
            self.stores_distances = true;
            return Ok(1);
        }
        Err(replies::SYNTAX.into())
    }

    /// Refuses options that do not go together.
    fn check(&self, context: &Context<'_>, form: Form) -> Result<(), Interrupted> {
        let Extras {
            distance,
            hash,
            coordinates,
        } = self.extras;
        let shows_more = distance || hash || coordinates;
        if self.destination.is_some() && shows_more {
            let what = match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            let options = "WITHDIST, WITHHASH and WITHCOORD options";
            return Err(format!("ERR {what} is not compatible with {options}").into());
        }
        let name = replies::shown(context.argument(0));
        if form.is_search() && self.center.is_none() && self.members.is_empty() {
            let what = "exactly one of FROMMEMBER or FROMLONLAT can be specified for";
            return Err(format!("ERR {what} {name}").into());
        }
        if form.is_search() && self.shape.is_none() {
            let what = "exactly one of BYRADIUS and BYBOX can be specified for";
            return Err(format!("ERR {what} {name}").into());
        }
        if self.any && self.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        Ok(())
    }

    /// Returns what is looked for; `None`: nothing, since there is no center.
    fn around(&self) -> Option<Around> {
        let count = self.count.unwrap_or(usize::MAX);
        let by_default = (self.count.is_some() && !self.any).then_some(false);
        let is_descending = self.is_descending.or(by_default);
        Some(Around {
            center: self.center?,
            shape: self.shape?,
            unit: self.unit,
            enough: if self.any { count } else { usize::MAX },
            order: is_descending.map(|is_descending| Order {
                is_descending,
                count,
            }),
        })
    }

    /// Returns the members that were asked for, which lie in these ranges; `None` if a thread has
    /// stored them.
    fn matches(
        &self,
        context: &mut Context<'_>,
        (key, around): (&[u8], Around),
        large: &mut Option<TreeHead>,
    ) -> Result<Option<Vec<Match>>, Interrupted> {
        let ranges = covering(around.center, around.shape);
        let row = context.find(key)?;
        *large = context.tree_head(&row)?;
        let mut found = Found::new(context, around);
        let Some(head) = *large else {
            let set = SortedSet::found_part(context, row, &Part::All)?;
            found.look(&set, &ranges)?;
            return Ok(Some(found.in_order(around.order)));
        };
        if self.leave(context, (key, head), around, false)? {
            return Ok(None);
        }
        let most = match self.destination {
            Some(_) => STORED_MAX,
            None => SHOWN_MAX,
        };
        let wanted = around.order.map_or(usize::MAX, |order| order.count);
        let may_be_many = wanted.min(around.enough) > most;
        if may_be_many && context.may_leave_near(head, self.destination.is_some())? {
            let mut first = Found::new(
                context,
                Around {
                    enough: most,
                    order: None,
                    ..around
                },
            );
            match first.look_at_large(context, (head, &ranges)) {
                Ok(()) if first.len() < most => return Ok(Some(first.in_order(around.order))),
                Err(interrupted) if !is_too_long(&interrupted) => return Err(interrupted),
                _ => {}
            }
            if self.leave(context, (key, head), around, true)? {
                return Ok(None);
            }
        }
        match found.look_at_large(context, (head, &ranges)) {
            Ok(()) => Ok(Some(found.in_order(around.order))),
            Err(interrupted) if is_too_long(&interrupted) => {
                let is_left = self.leave(context, (key, head), around, true)?;
                if is_left { Ok(None) } else { Err(interrupted) }
            }
            Err(interrupted) => Err(interrupted),
        }
    }

    /// Leaves the search of the large sorted set with this head, which was read last, to a thread,
    /// if it `must`, or was left to one to be stored. Returns true if that has stored what it has
    /// found, and false if it is to be done in memory.
    fn leave(
        &self,
        context: &mut Context<'_>,
        (key, head): (&[u8], TreeHead),
        around: Around,
        must: bool,
    ) -> Result<bool, Interrupted> {
        if !must && self.destination.is_none() {
            return Ok(false);
        }
        let ranges = covering(around.center, around.shape);
        let ranges = ranges
            .iter()
            .map(|range| range.start as f64..range.end as f64);
        let ranges = ranges.collect();
        let search = Search { around, ranges };
        let Some(destination) = self.destination else {
            let show = Show {
                write: reply::found,
                extras: self.extras,
            };
            context.ask_for_near((key, head), self.seen, (search, show))?;
            return Ok(false);
        };
        match context.put_near(destination, head, (search, self.stores_distances), must)? {
            Some(stored) => end_store(context, destination, &stored).map(|()| true),
            None => Ok(false),
        }
    }
}

fn search(context: &mut Context<'_>, form: Form) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let source = if form == Form::SearchStore { 2 } else { 1 };
    let key = context.argument(source);
    let request = Request::parse(context, form, key)?;
    let (around, mut large) = (request.around(), None);
    let found = match around {
        Some(around) => request.matches(context, (key, around), &mut large)?,
        None => Some(Vec::new()),
    };
    let Some(found) = found else {
        return Ok(());
    };
    if let Some(key) = request.destination {
        let elements = found.iter().map(|found| match request.stores_distances {
            true => (found.distance, found.member().name),
            false => (found.score, found.member().name),
        });
        let elements = elements.collect();
        return store(context, key, elements);
    }
    context.reply().array(found.len());
    for found in &found {
        reply::found(&mut context.reply(), found.member(), request.extras);
        let checked = context.check_reply();
        if let (Err(_), Some(head), Some(around)) = (&checked, large, around) {
            request.leave(context, (key, head), around, true)?;
        }
        checked?;
    }
    Ok(())
}
