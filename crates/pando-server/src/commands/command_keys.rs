//! The keys of commands, for COMMAND INFO, COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS.

use pando_resp::{Writer, parse_integer};

use super::key_table::{Begin, Find, KEY_TABLE, KeySpecification, counted, range};
use crate::context::{Command, Flags, Keys, behind_streams};

/// Returns the specifications of the keys of `command`, a subcommand of `container` if there is
/// one.
pub(super) fn specifications(container: Option<&str>, command: &Command) -> Vec<KeySpecification> {
    let name = match container {
        Some(container) => format!("{container}|{}", command.name),
        None => command.name.to_owned(),
    };
    match KEY_TABLE.binary_search_by(|(known, _)| (*known).cmp(&*name)) {
        Ok(at) => KEY_TABLE[at].1.to_vec(),
        Err(_) => derived(command),
    }
}

/// Returns what follows from the keys that the server knows, of a command that Redis 7.0 does not
/// have.
fn derived(command: &Command) -> Vec<KeySpecification> {
    let Keys {
        first,
        last,
        step,
        count_at,
    } = command.keys;
    let flags = match command.flags.has(Flags::WRITE) {
        true => "RW access update",
        false => "RO access",
    };
    let mut found = Vec::new();
    if first != 0 {
        let last = if last < 0 { last } else { last - first };
        found.push(range(flags, first, last, step));
    }
    if count_at != 0 {
        found.push(counted(flags, count_at));
    }
    found
}

/// Returns the first, the last and the step of the keys, as old clients know them; 0 if there are
/// none, or if they have no fixed places.
pub(super) fn fixed_places(specifications: &[KeySpecification]) -> (i32, i32, i32) {
    let ranges = specifications
        .iter()
        .filter_map(|of| match (of.begin, of.find) {
            (Begin::Index(first), Find::Range(last, step)) if last < 0 => Some((first, last, step)),
            (Begin::Index(first), Find::Range(last, step)) => Some((first, first + last, step)),
            _ => None,
        });
    ranges
        .reduce(|(first, last, step), next| {
            // Neighbours are one range for them.
            match last >= 0 && next.0 == last + 1 && next.2 == 1 {
                true => (first, next.1, step),
                false => (first, last, step),
            }
        })
        .unwrap_or((0, 0, 0))
}

/// Returns true if keys have places that only their command knows.
pub(super) fn are_movable(specifications: &[KeySpecification]) -> bool {
    specifications
        .iter()
        .any(|of| !matches!((of.begin, of.find), (Begin::Index(_), Find::Range(..))))
}

/// Returns true if any of them is a key, and not only written like one.
pub(super) fn has_keys(specifications: &[KeySpecification]) -> bool {
    specifications.iter().any(|of| of.flags != "not_key")
}

/// A key among arguments, with the names of its flags.
pub(super) type FlaggedKey<'a> = (&'a [u8], &'static str);

/// Returns the keys among `arguments` of the command called `name`; `None` if the arguments are not
/// those of the command.
pub(super) fn keys_of<'a>(
    name: &str,
    specifications: &[KeySpecification],
    arguments: &[&'a [u8]],
) -> Option<Vec<FlaggedKey<'a>>> {
    let mut found: Vec<FlaggedKey<'a>> = Vec::new();
    for of in specifications {
        if of.find == Find::FirstHalf {
            let places = behind_streams(arguments)?;
            found.extend(arguments[places].iter().map(|key| (*key, of.flags)));
            continue;
        }
        let first = match of.begin {
            Begin::Index(first) => usize::try_from(first).ok()?,
            Begin::Keyword(word, from) => match behind(word, from, arguments) {
                Some(first) => first,
                None => continue,
            },
            Begin::Unknown => continue,
        };
        let flags = flags_of(name, of.flags, arguments);
        match of.find {
            Find::Range(last, step) => {
                let end = match usize::try_from(last) {
                    Ok(last) => first + last + 1,
                    Err(_) => (arguments.len() + 1).checked_sub(last.unsigned_abs() as usize)?,
                };
                let step = usize::try_from(step).ok()?.max(1);
                let keys = arguments.get(first..end)?.iter().step_by(step);
                found.extend(keys.map(|key| (*key, flags)));
            }
            Find::Counted => {
                let count = parse_integer(arguments.get(first)?)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
                let end = first.checked_add(1)?.checked_add(count)?;
                let keys = arguments.get(first + 1..end)?;
                found.extend(keys.iter().map(|key| (*key, flags)));
            }
            Find::FirstHalf | Find::Unknown => {}
        }
    }
    if name == "sort" {
        found.extend(stored_at(arguments).map(|key| (key, "OW update")));
    }
    Some(found)
}

/// Returns the flags of a key where they depend on the arguments.
fn flags_of(name: &str, flags: &'static str, arguments: &[&[u8]]) -> &'static str {
    let has = |from: usize, word: &str| {
        let mut rest = arguments.iter().skip(from);
        rest.any(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    match name {
        "set" if has(3, "get") => "RW access update",
        "set" => "OW update",
        "bitfield" if has(2, "set") || has(2, "incrby") => "RW access update",
        "bitfield" => "RO access",
        _ => flags,
    }
}

/// Returns the place behind the first `word` from argument `from` on, if there is an argument.
fn behind(word: &str, from: i32, arguments: &[&[u8]]) -> Option<usize> {
    let from = usize::try_from(from).ok()?;
    let words = arguments.get(from..arguments.len() - 1)?;
    let is_word = |argument: &&[u8]| argument.eq_ignore_ascii_case(word.as_bytes());
    words.iter().position(is_word).map(|at| from + at + 1)
}

/// Returns the key behind STORE of SORT: the last one counts.
fn stored_at<'a>(arguments: &[&'a [u8]]) -> Option<&'a [u8]> {
    let is = |at: usize, word: &str| arguments[at].eq_ignore_ascii_case(word.as_bytes());
    let (mut at, mut found) = (2, None);
    while at + 1 < arguments.len() {
        if is(at, "store") {
            found = Some(arguments[at + 1]);
            at += 2;
        } else if is(at, "limit") {
            at += 3;
        } else if is(at, "by") || is(at, "get") {
            at += 2;
        } else {
            at += 1;
        }
    }
    found
}

/// Writes the names of flags as a set.
pub(super) fn write_flags(reply: &mut Writer<'_>, flags: &str) {
    reply.set(flags.split(' ').count());
    flags.split(' ').for_each(|flag| reply.simple(flag));
}

/// Writes specifications as COMMAND INFO shows them.
pub(super) fn describe_keys(reply: &mut Writer<'_>, specifications: &[KeySpecification]) {
    reply.set(specifications.len());
    for of in specifications {
        reply.map(3);
        reply.bulk(b"flags");
        write_flags(reply, of.flags);
        reply.bulk(b"begin_search");
        describe_begin(reply, of.begin);
        reply.bulk(b"find_keys");
        describe_find(reply, of.find);
    }
}

/// Writes a type and the fields of its description.
fn describe_as(reply: &mut Writer<'_>, kind: &str, fields: &[(&str, i32)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer((*value).into());
    }
}

fn describe_begin(reply: &mut Writer<'_>, begin: Begin) {
    match begin {
        Begin::Index(index) => describe_as(reply, "index", &[("index", index)]),
        Begin::Keyword(word, from) => {
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from.into());
        }
        Begin::Unknown => describe_as(reply, "unknown", &[]),
    }
}

fn describe_find(reply: &mut Writer<'_>, find: Find) {
    match find {
        Find::Range(last, step) => {
            let fields = [("lastkey", last), ("keystep", step), ("limit", 0)];
            describe_as(reply, "range", &fields);
        }
        Find::FirstHalf => {
            let fields = [("lastkey", -1), ("keystep", 1), ("limit", 2)];
            describe_as(reply, "range", &fields);
        }
        Find::Counted => {
            let fields = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            describe_as(reply, "keynum", &fields);
        }
        Find::Unknown => describe_as(reply, "unknown", &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::FAMILIES;

    #[test]
    fn the_table_is_in_order_and_names_commands() {
        assert!(KEY_TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let all = || FAMILIES.iter().flat_map(|family| family.iter());
        for (name, _) in KEY_TABLE {
            let (name, sub) = match name.split_once('|') {
                Some((container, sub)) => (container, Some(sub)),
                None => (*name, None),
            };
            let command = all().find(|command| command.name == name);
            let command = command.unwrap_or_else(|| panic!("no command {name}"));
            assert!(sub.is_none_or(|sub| command.subcommand(sub.as_bytes()).is_some()));
        }
    }

    /// What the server looks up ahead are keys for clients, too.
    #[test]
    fn the_server_knows_no_other_keys_than_its_clients() {
        for command in FAMILIES.iter().flat_map(|family| family.iter()) {
            let specifications = specifications(None, command);
            assert_eq!(
                command.keys != Keys::NONE,
                has_keys(&specifications),
                "{}",
                command.name
            );
        }
    }
}
