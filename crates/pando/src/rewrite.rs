//! CONFIG REWRITE: puts the parameters into the configuration file. Lines that say something else
//! stay as they are, comments included.

use std::fs;
use std::io;
use std::path::Path;

use pando_server::{ConfigRewriter, Parameter};
use toml::{Table, Value};

use crate::atomic_file::replace;
use crate::layers::PARAMETERS;

/// Parameters that are keys of their own in the file.
const KEYS: [(&str, &str); 5] = [
    ("appendfsync", "durability"),
    ("tcp-keepalive", "tcp_keepalive"),
    ("stall-timeout", "stall_timeout"),
    ("loglevel", "log_level"),
    ("requirepass", "requirepass"),
];

/// Returns what writes the file at `path`; nothing if that is empty.
pub(crate) fn rewriter(path: &str) -> Option<ConfigRewriter> {
    if path.is_empty() {
        return None;
    }
    // The server has one file as long as it lives. What is relative now stays the same file.
    let path = std::path::absolute(path).ok()?;
    let rewrite = move |parameters: &[Parameter]| rewrite(&path, parameters);
    Some(ConfigRewriter(Box::leak(Box::new(rewrite))))
}

fn rewrite(path: &Path, parameters: &[Parameter]) -> Result<(), String> {
    let old = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| error.to_string())?,
    };
    let new = rewritten(&old, parameters)?;
    replace(path, new.as_bytes()).map_err(|error| error.to_string())
}

/// Returns the text of a file with the parameters: those that it names, and those that have
/// changed.
fn rewritten(old: &str, parameters: &[Parameter]) -> Result<String, String> {
    let mut expected: Table = old.parse().map_err(|error| format!("{error}"))?;
    let mut text = old.to_owned();
    for parameter in parameters {
        let own = KEYS.iter().find(|(name, _)| *name == parameter.name);
        let value = match parameter.name {
            "appendfsync" => durability(&parameter.value),
            "loglevel" => log_level(&parameter.value),
            _ => &parameter.value,
        };
        let (section, key) = match own {
            Some((_, key)) => (None, *key),
            None => (Some(PARAMETERS), parameter.name),
        };
        let table = match section {
            None => Some(&mut expected),
            Some(_) if parameter.is_changed && !expected.contains_key(PARAMETERS) => {
                expected.insert(PARAMETERS.to_owned(), Value::Table(Table::new()));
                expected.get_mut(PARAMETERS).and_then(Value::as_table_mut)
            }
            Some(_) => expected.get_mut(PARAMETERS).and_then(Value::as_table_mut),
        };
        let Some(table) = table else { continue };
        let was = table.get(key);
        if was.is_none() && !parameter.is_changed || was.is_some_and(|was| is(was, value)) {
            continue;
        }
        table.insert(key.to_owned(), Value::String(value.to_owned()));
        let line = format!("{key} = {}", Value::String(value.to_owned()));
        text = with_line(&text, section, key, &line);
    }
    // The file may say it in a form that lines do not show: then it stays as it is.
    match text.parse::<Table>() {
        Ok(found) if found == expected => Ok(text),
        _ => Err("the file has a form in which values cannot be replaced line by line".to_owned()),
    }
}

/// Returns true if a value of the file says `text`.
fn is(value: &Value, text: &str) -> bool {
    match value {
        Value::String(of) => of == text,
        Value::Boolean(on) => text == if *on { "yes" } else { "no" },
        other => other.to_string() == text,
    }
}

fn durability(flush: &str) -> &'static str {
    match flush {
        "always" => "durable",
        "everysec" => "periodic",
        _ => "none",
    }
}

fn log_level(name: &str) -> &str {
    match name {
        "nothing" => "off",
        "warning" => "warn",
        "notice" => "info",
        name => name,
    }
}

/// Returns the table that a line begins, if it does.
fn section_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let name = line.strip_prefix('[')?.split(']').next()?;
    Some(name.trim())
}

/// Returns what is behind `key =` in a line that has it.
fn value_in<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let quoted = [format!("\"{key}\""), format!("'{key}'"), key.to_owned()];
    let rest = quoted
        .iter()
        .find_map(|key| line.strip_prefix(key.as_str()))?;
    rest.trim_start().strip_prefix('=')
}

/// Returns the comment at the end of what is behind `key =`, with the blanks in front of it.
fn comment_of(rest: &str) -> &str {
    let is_value = |text: &str| format!("k ={text}").parse::<Table>().is_ok();
    let mut signs = rest.match_indices('#');
    let found = signs.find(|(at, _)| is_value(&rest[..*at]));
    found.map_or("", |(at, _)| &rest[rest[..at].trim_end().len()..])
}

/// Returns `text` with `line` in the place of the line of `key`, or at the end of its table.
fn with_line(text: &str, section: Option<&str>, key: &str, line: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut inside, mut end) = (section.is_none(), section.is_none().then_some(0));
    for (at, of) in lines.iter_mut().enumerate() {
        if let Some(name) = section_of(of) {
            inside = Some(name) == section;
            if inside {
                end = Some(at + 1);
            }
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(rest) = value_in(of, key) {
            *of = format!("{line}{}", comment_of(rest));
            return joined(&lines);
        }
        if !of.trim().is_empty() {
            end = Some(at + 1);
        }
    }
    match (end, section) {
        (Some(end), _) => lines.insert(end, line.to_owned()),
        (None, name) => {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(format!("[{}]", name.unwrap_or_default()));
            lines.push(line.to_owned());
        }
    }
    joined(&lines)
}

fn joined(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &'static str, value: &str, is_changed: bool) -> Parameter {
        Parameter {
            name,
            value: value.to_owned(),
            is_changed,
        }
    }

    #[test]
    fn values_are_replaced_and_all_else_stays() {
        let old = "# mine\ndir = \"d\" # here\nrequirepass = 'a#b'  # secret\n\n[config]\n# hz\nhz = 10\n";
        let new = rewritten(
            old,
            &[
                parameter("requirepass", "c\"d", true),
                parameter("appendfsync", "everysec", true),
                parameter("loglevel", "notice", false),
                parameter("hz", "20", true),
                parameter("maxclients", "7", true),
                parameter("timeout", "0", false),
            ],
        );
        let expected = "# mine\ndir = \"d\" # here\nrequirepass = 'c\"d'  # secret\n\
                        durability = \"periodic\"\n\n[config]\n# hz\nhz = \"20\"\n\
                        maxclients = \"7\"\n";
        assert_eq!(new.as_deref(), Ok(expected));
        let again = rewritten(expected, &[parameter("hz", "20", true)]);
        assert_eq!(again.as_deref(), Ok(expected));
        // What a file names is written also if it is what it was at first.
        let back = rewritten("[config]\nhz = 20", &[parameter("hz", "10", false)]);
        assert_eq!(back.as_deref(), Ok("[config]\nhz = \"10\"\n"));
    }

    #[test]
    fn a_file_gets_what_it_lacks() {
        let changed = [
            parameter("maxclients", "7", true),
            parameter("appendfsync", "no", true),
        ];
        let expected = "durability = \"none\"\n\n[config]\nmaxclients = \"7\"\n";
        let from_nothing = rewritten("", &changed).unwrap();
        assert_eq!(
            from_nothing.parse::<Table>().unwrap(),
            expected.parse::<Table>().unwrap()
        );
        assert_eq!(rewritten("", &[parameter("hz", "1", false)]).unwrap(), "");
    }

    /// What looks like a line of the file may be part of a text.
    #[test]
    fn a_form_that_lines_do_not_show_is_refused() {
        let old = "dir = \"\"\"\nrequirepass = 'x'\n\"\"\"\n";
        assert!(rewritten(old, &[parameter("requirepass", "y", true)]).is_err());
        let inline = "config = { hz = 10 }\n";
        assert!(rewritten(inline, &[parameter("hz", "20", true)]).is_err());
        assert!(rewritten("no toml", &[]).is_err());
    }
}
