//! GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS and GEORADIUSBYMEMBER.
//!
//! The members in some ranges of scores are compared with the shape (`cells.rs`); of a large sorted
//! set no others are read. Without ASC, DESC or COUNT they come in the order of their geohashes,
//! where Redis promises none.

use super::super::bounds::Bounds;
use super::super::order::{SortedSet, store};
use super::arguments;
use super::cells::covering;
use super::describe::{reading, writing};
use super::look::place_of;
use super::reply;
use crate::context::{Command, Context, Interrupted, Keys, Near, Part, Run, replies};
use crate::data::earth::{Place, whole};
use crate::data::shape::{Around, Order, Shape};

const OF_CIRCLE: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of \
     the circular area delimited by center and radius and M is the number of items inside the \
     index.";
const OF_SHAPE: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding \
     box area around the shape provided as the filter and M is the number of items inside the \
     shape";
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
    shape: Option<Shape>,
    /// Meters of the unit.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_coordinates: bool,
    is_descending: Option<bool>,
    count: Option<usize>,
    any: bool,
    destination: Option<&'a [u8]>,
    /// The distances are stored, and not the geohashes.
    stores_distances: bool,
}

/// A member that was found.
struct Match {
    distance: f64,
    score: f64,
    member: Vec<u8>,
}

/// Bytes that a match takes besides those of its member.
const MATCH_BYTES: usize = size_of::<Match>();

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
        let set = SortedSet::read_part(context, key, &Part::Named(&named))?;
        let (mut request, at) = Self::begin(context, form, &set)?;
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
        let set = SortedSet::find_part(context, key, &Part::Named(&names))?;
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
            () if context.is(at, "withdist") => self.with_distance = true,
            () if context.is(at, "withhash") => self.with_hash = true,
            () if context.is(at, "withcoord") => self.with_coordinates = true,
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
        let shows_more = self.with_distance || self.with_hash || self.with_coordinates;
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

    /// Returns the members that were asked for.
    fn matches(&self, context: &mut Context<'_>, key: &[u8]) -> Result<Vec<Match>, Interrupted> {
        let (Some(center), Some(shape)) = (self.center, self.shape) else {
            return Ok(Vec::new());
        };
        let count = self.count.unwrap_or(usize::MAX);
        let by_default = (self.count.is_some() && !self.any).then_some(false);
        let is_descending = self.is_descending.or(by_default);
        let around = Around {
            center,
            shape,
            unit: self.unit,
            enough: if self.any { count } else { usize::MAX },
            order: is_descending.map(|is_descending| Order {
                is_descending,
                count,
            }),
        };
        let mut found = Found {
            bytes_max: context.engine().reply_bytes_max,
            around,
            bytes: 0,
            list: Vec::new(),
        };
        found.look(context, key)?;
        let mut found = found.list;
        if let Some(order) = around.order {
            found.sort_by(|a, b| order.compare(a.distance, b.distance));
        }
        found.truncate(count);
        Ok(found)
    }

    fn put(&self, context: &mut Context<'_>, found: &Match) {
        let options = [self.with_distance, self.with_hash, self.with_coordinates];
        let options = options.into_iter().filter(|option| *option).count();
        if options > 0 {
            context.reply().array(options + 1);
        }
        context.reply().bulk(&found.member);
        if self.with_distance {
            reply::distance(context, found.distance);
        }
        if self.with_hash {
            let hash = i64::try_from(whole(found.score));
            context.reply().integer(hash.unwrap_or(i64::MAX));
        }
        if self.with_coordinates {
            reply::coordinates(context, Place::of_score(found.score));
        }
    }
}

/// What is found, and where it is looked for.
struct Found {
    bytes_max: usize,
    around: Around,
    bytes: usize,
    list: Vec<Match>,
}

impl Found {
    /// Looks at the sorted set of `key`. What a large one has is read before any of it is compared
    /// again, so that a run which goes on after a wait does nothing twice.
    fn look(&mut self, context: &mut Context<'_>, key: &[u8]) -> Run {
        let ranges = covering(self.around.center, self.around.shape);
        let row = context.find(key)?;
        let Some(head) = context.tree_head(&row)? else {
            let set = SortedSet::found_part(context, row, &Part::All)?;
            for range in ranges {
                let ranks = Bounds::of_whole_scores(range).ranks(&set, false);
                ranks
                    .map(|rank| set.element(rank))
                    .try_for_each(|of| self.take(of))?;
            }
            return Ok(());
        };
        let (mut near, mut count) = (Vec::new(), 0);
        for range in ranges {
            let around = Around {
                enough: self.around.enough - count,
                ..self.around
            };
            if around.enough == 0 {
                break;
            }
            let scores = range.start as f64..range.end as f64;
            let found = context.near(head, scores, around)?;
            count += found.len();
            near.push(found);
        }
        let mut members = near.iter().flat_map(Near::members);
        members.try_for_each(|member| self.take(member?))
    }

    /// Takes a member if it lies in the shape, and it is not enough.
    fn take(&mut self, (score, member): (f64, &[u8])) -> Run {
        let distance = self.around.distance(score);
        let Some(distance) = distance.filter(|_| self.list.len() < self.around.enough) else {
            return Ok(());
        };
        self.bytes += MATCH_BYTES + member.len();
        if self.bytes > self.bytes_max {
            return Err(replies::TOO_MANY_LONG.into());
        }
        self.list.push(Match {
            distance,
            score,
            member: member.to_vec(),
        });
        if let Some(order) = self.around.order
            && order.is_to_be_cut(self.list.len())
        {
            self.cut_to(order);
        }
        Ok(())
    }

    /// Drops those that are not wanted.
    fn cut_to(&mut self, order: Order) {
        let distances: Vec<f64> = self.list.iter().map(|found| found.distance).collect();
        let (places, _) = order.cut(&distances);
        let (mut place, mut kept) = (0, places.into_iter().peekable());
        self.list.retain(|_| {
            place += 1;
            kept.next_if_eq(&(place - 1)).is_some()
        });
        let bytes = self
            .list
            .iter()
            .map(|found| MATCH_BYTES + found.member.len());
        self.bytes = bytes.sum();
    }
}

fn search(context: &mut Context<'_>, form: Form) -> Run {
    let source = if form == Form::SearchStore { 2 } else { 1 };
    let key = context.argument(source);
    let request = Request::parse(context, form, key)?;
    let found = request.matches(context, key)?;
    if let Some(key) = request.destination {
        let element = |found: &Match| match request.stores_distances {
            true => found.distance,
            false => found.score,
        };
        let elements = found
            .iter()
            .map(|found| (element(found), &found.member[..]));
        let elements = elements.collect();
        return store(context, key, elements);
    }
    context.reply().array(found.len());
    for found in &found {
        request.put(context, found);
        context.check_reply()?;
    }
    Ok(())
}
