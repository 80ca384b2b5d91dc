//! COMMAND DOCS: what commands do and take, for people. redis-cli makes its help and hints of it.

mod deprecated;
mod syntax;

use pando_resp::Writer;

use self::deprecated::replacement;
use self::syntax::{Argument, Form, Repeats, Table};
use super::shown::{Named, check_reply, full_name, named};
use crate::context::{Command, Context, Run};

pub(super) fn docs(context: &mut Context<'_>) -> Run {
    let (index, syntax) = (context.commands, Table::read());
    let wanted: Vec<_> = if context.count() == 2 {
        index.all().iter().map(|command| (None, *command)).collect()
    } else {
        let names = context.arguments.from(2);
        names.filter_map(|name| named(index, name)).collect()
    };
    context.reply().map(wanted.len());
    for (container, command) in wanted {
        document(&mut context.reply(), &syntax, (container, command));
        check_reply(context)?;
    }
    Ok(())
}

/// What a field of a description is.
enum Field<'a> {
    Text(&'a str),
    Number(u8),
    Flags(Vec<&'static str>),
    Arguments(&'a [Argument]),
    /// Of the container with this name.
    Subcommands(&'static str, &'static [Command]),
}

/// Writes the name of a command, that of a subcommand behind its container, and what describes it.
fn document(reply: &mut Writer<'_>, syntax: &Table, (container, command): Named<'static>) {
    let name = full_name(container, command.name);
    let arguments = syntax.arguments(&name);
    let replacement = replacement(&name);
    let subcommands = command.subcommands;
    reply.bulk(name.as_bytes());
    let fields = [
        ("summary", Some(Field::Text(command.summary))),
        ("since", Some(Field::Text(command.since))),
        ("group", Some(Field::Text(command.group.name()))),
        ("complexity", Some(Field::Text(command.complexity))),
        (
            "doc_flags",
            replacement.map(|_| Field::Flags(vec!["deprecated"])),
        ),
        (
            "deprecated_since",
            replacement.map(|(since, _)| Field::Text(since)),
        ),
        (
            "replaced_by",
            replacement.map(|(_, what)| Field::Text(what)),
        ),
        (
            "arguments",
            (!arguments.is_empty()).then_some(Field::Arguments(&arguments)),
        ),
        (
            "subcommands",
            (!subcommands.is_empty()).then_some(Field::Subcommands(command.name, subcommands)),
        ),
    ];
    write(reply, syntax, fields);
}

/// Writes the fields that are there.
fn write<const N: usize>(
    reply: &mut Writer<'_>,
    syntax: &Table,
    fields: [(&str, Option<Field<'_>>); N],
) {
    let fields = fields
        .into_iter()
        .filter_map(|(name, field)| Some((name, field?)));
    let fields: Vec<_> = fields.collect();
    reply.map(fields.len());
    for (name, field) in fields {
        reply.bulk(name.as_bytes());
        match field {
            Field::Text(text) => reply.bulk(text.as_bytes()),
            Field::Number(number) => reply.integer(number.into()),
            Field::Flags(flags) => {
                reply.set(flags.len());
                flags.iter().for_each(|flag| reply.simple(flag));
            }
            Field::Arguments(arguments) => {
                reply.array(arguments.len());
                for argument in arguments {
                    describe(reply, syntax, argument);
                }
            }
            Field::Subcommands(container, subcommands) => {
                reply.map(subcommands.len());
                for subcommand in subcommands {
                    document(reply, syntax, (Some(container), subcommand));
                }
            }
        }
    }
}

fn describe(reply: &mut Writer<'_>, syntax: &Table, argument: &Argument) {
    let (form, parts) = match &argument.form {
        Form::Value(form) => (*form, None),
        Form::Token => ("pure-token", None),
        Form::OneOf(parts) => ("oneof", Some(parts)),
        Form::Block(parts) => ("block", Some(parts)),
    };
    let repeats: &[&str] = match argument.repeats {
        Repeats::Never => &[],
        Repeats::Often => &["multiple"],
        Repeats::WithToken => &["multiple", "multiple_token"],
    };
    let optional: &[&str] = if argument.is_optional {
        &["optional"]
    } else {
        &[]
    };
    let flags = [optional, repeats].concat();
    let name = &argument.name[..];
    let fields = [
        ("name", Some(Field::Text(name))),
        ("type", Some(Field::Text(form))),
        // Since 7.2, of what is no group.
        ("display_text", parts.is_none().then_some(Field::Text(name))),
        ("key_spec_index", argument.key.map(Field::Number)),
        ("token", argument.token.map(Field::Text)),
        ("since", argument.since.map(Field::Text)),
        (
            "deprecated_since",
            argument.deprecated_since.map(Field::Text),
        ),
        ("flags", (!flags.is_empty()).then_some(Field::Flags(flags))),
        ("arguments", parts.map(|parts| Field::Arguments(parts))),
    ];
    write(reply, syntax, fields);
}

#[cfg(test)]
mod tests {
    use super::deprecated::REPLACED;
    use super::syntax::{Argument, Form, Repeats, Table};
    use super::{Command, Named, full_name};
    use crate::commands::FAMILIES;
    use crate::commands::command_keys::specifications;

    /// Commands that take fewer words than Redis, whose arity this is, describes, or more.
    const OTHERWISE: [(&str, i32); 3] = [
        ("client|kill", -3),
        ("command|getkeysandflags", -4),
        ("quit", -1),
    ];

    /// All commands and subcommands.
    fn all() -> impl Iterator<Item = Named<'static>> {
        let commands = FAMILIES.iter().flat_map(|family| family.iter());
        commands.flat_map(|command: &'static Command| {
            let subcommands = command.subcommands.iter();
            let subcommands = subcommands.map(|subcommand| (Some(command.name), subcommand));
            std::iter::once((None, command)).chain(subcommands)
        })
    }

    /// The fewest words that `arguments` are, and whether they may be more.
    fn extent(arguments: &[Argument]) -> (i32, bool) {
        arguments
            .iter()
            .fold((0, false), |(fewest, may_be_more), argument| {
                let (words, more) = match &argument.form {
                    Form::Value(_) => (1 + i32::from(argument.token.is_some()), false),
                    Form::Token => (1, false),
                    Form::Block(parts) => {
                        let (words, more) = extent(parts);
                        (words + i32::from(argument.token.is_some()), more)
                    }
                    Form::OneOf(parts) => {
                        let parts = parts.iter().map(|part| extent(std::slice::from_ref(part)));
                        let fewest = parts.clone().map(|(words, _)| words).min().unwrap_or(0);
                        let more = parts.into_iter().any(|part| part != (fewest, false));
                        (fewest + i32::from(argument.token.is_some()), more)
                    }
                };
                match argument.is_optional {
                    true => (fewest, true),
                    false => (
                        fewest + words,
                        may_be_more || more || argument.repeats != Repeats::Never,
                    ),
                }
            })
    }

    fn key_indices(arguments: &[Argument], found: &mut Vec<usize>) {
        for argument in arguments {
            found.extend(argument.key.map(usize::from));
            if let Form::OneOf(parts) | Form::Block(parts) = &argument.form {
                key_indices(parts, found);
            }
        }
    }

    #[test]
    fn commands_take_as_many_arguments_as_are_described() {
        let table = Table::read();
        for (container, command) in all().filter(|(_, command)| command.subcommands.is_empty()) {
            let name = full_name(container, command.name);
            let arguments = table.arguments(&name);
            let (fewest, may_be_more) = extent(&arguments);
            let fewest = fewest + 1 + i32::from(container.is_some());
            let arity = if may_be_more { -fewest } else { fewest };
            let is_as_in_redis = OTHERWISE.contains(&(&name, command.arity));
            assert!(arity == command.arity || is_as_in_redis, "{name}: {arity}");
            let mut keys = Vec::new();
            key_indices(&arguments, &mut keys);
            let known = specifications(container, command).len();
            assert!(keys.iter().all(|key| *key < known), "{name}");
        }
    }

    #[test]
    fn what_is_described_are_commands() {
        let names = all().map(|(container, command)| full_name(container, command.name));
        let names: Vec<String> = names.collect();
        let of_scripts = ["eval", "fcall", "script|", "function|"];
        let replaced = REPLACED.iter().map(|(name, ..)| *name);
        for name in Table::read().names().chain(replaced) {
            let is_there = names.iter().any(|known| known == name);
            let is_left_out = of_scripts.iter().any(|of| name.starts_with(of));
            assert!(
                is_there || is_left_out && cfg!(not(feature = "scripts")),
                "{name}"
            );
        }
        assert!(REPLACED.is_sorted_by(|(before, ..), (behind, ..)| before < behind));
    }
}
