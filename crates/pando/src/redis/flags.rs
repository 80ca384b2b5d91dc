//! The command line of redis-server among our own: a file as first argument, and `--name word ...`.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory as _;

use super::Directive;
use super::meaning::is_known;
use crate::command_line::CommandLine;
use crate::failure::Failure;

/// What is not for our own parser.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The redis.conf.
    pub(crate) file: Option<String>,
    /// A redis.conf comes through standard input, behind that of the file.
    pub(crate) reads_input: bool,
    pub(crate) directives: Vec<Directive>,
    /// Only the version is asked for.
    pub(crate) version: bool,
}

/// Returns the flags that our own parser has.
fn own_flags() -> Vec<String> {
    let command = CommandLine::command();
    let arguments = command.get_arguments().filter_map(|of| of.get_long());
    let arguments = arguments.map(str::to_owned);
    arguments
        .chain(["help".to_owned(), "version".to_owned()])
        .collect()
}

/// Separates the arguments of redis-server from those of our own parser, which are returned.
pub(crate) fn separate(mut arguments: Vec<OsString>) -> Result<(Vec<OsString>, Given), Failure> {
    let command = CommandLine::command();
    let mut given = Given::default();
    let first = arguments.get(1).and_then(|of| of.to_str());
    if matches!(first, Some("-v" | "--version")) {
        given.version = true;
        return Ok((arguments, given));
    }
    let is_command = |name: &str| name == "help" || command.find_subcommand(name).is_some();
    let from = match first {
        Some("serve") => 2,
        Some(name) if is_command(name) => return Ok((arguments, given)),
        _ => 1,
    };
    let own = own_flags();
    // As in Redis, `-` is the first argument or the last one.
    let is_input = |of: &mut OsString| of == "-";
    given.reads_input = arguments.len() > from && arguments.pop_if(is_input).is_some();
    if !given.reads_input && arguments.get(from).is_some_and(|of| of == "-") {
        arguments.remove(from);
        given.reads_input = true;
    }
    let mut rest = arguments.into_iter();
    let mut left: Vec<OsString> = rest.by_ref().take(from).collect();
    let mut rest = rest.peekable();
    // Anything else is a command that is spelled wrongly.
    let is_file = |of: &OsString| {
        let bytes = of.as_encoded_bytes();
        !bytes.starts_with(b"-") && (bytes.contains(&b'.') || Path::new(of).is_file())
    };
    if let Some(path) = rest.next_if(is_file) {
        let text = path.to_str().map(str::to_owned);
        let text = text.ok_or_else(|| Failure::usage("the name of the file is no text"))?;
        if text.ends_with(".toml") {
            left.extend(["--config".into(), path]);
        } else {
            given.file = Some(text);
        }
    }
    while let Some(argument) = rest.next() {
        let name = argument.to_str().and_then(|text| text.strip_prefix("--"));
        let name = name.map(str::to_ascii_lowercase);
        let is_ours = |name: &String| own.contains(name) || !is_known(name);
        let Some(name) = name.filter(|name| !is_ours(name)) else {
            left.push(argument);
            continue;
        };
        let mut words = Vec::new();
        while let Some(word) = rest.next_if(|of| !of.as_encoded_bytes().starts_with(b"--")) {
            let word = word.into_string();
            words.push(word.map_err(|_| Failure::usage(format!("--{name}: a word is no text")))?);
        }
        let origin = format!("--{name}");
        given.directives.push(Directive {
            name,
            words,
            origin,
        });
    }
    Ok((left, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(line: &str) -> (String, Given) {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        let (left, given) = separate(arguments).unwrap();
        let left: Vec<_> = left.iter().map(|of| of.to_string_lossy()).collect();
        (left.join(" "), given)
    }

    #[test]
    fn flags_of_redis_are_told_from_our_own() {
        let line = "pando x.conf --port 7 --dir d --save 900 1 300 10 --threads 2 \
                    --slowlog-log-slower-than -1";
        let (left, given) = separated(line);
        assert_eq!(left, "pando --dir d --threads 2");
        assert_eq!(given.file.as_deref(), Some("x.conf"));
        let shown: Vec<String> = given
            .directives
            .iter()
            .map(|of| format!("{}={}", of.name, of.words.join(" ")))
            .collect();
        assert_eq!(
            shown,
            ["port=7", "save=900 1 300 10", "slowlog-log-slower-than=-1"]
        );
        assert_eq!(separated("pando x.toml").0, "pando --config x.toml");
        assert_eq!(
            separated("pando serve --nosuch 1").0,
            "pando serve --nosuch 1"
        );
        for line in ["pando stat --port 7", "pando bench x", "pando help"] {
            assert_eq!(separated(line).0, line);
        }
        for (line, left, file) in [
            ("pando -", "pando", None),
            ("pando - --port 7 --threads 2", "pando --threads 2", None),
            (
                "pando x.conf --threads 2 -",
                "pando --threads 2",
                Some("x.conf"),
            ),
            ("pando serve -", "pando serve", None),
        ] {
            let (found, given) = separated(line);
            assert_eq!(found, left, "{line}");
            assert!(given.reads_input, "{line}");
            assert_eq!(given.file.as_deref(), file, "{line}");
        }
        assert!(!separated("pando bench -").1.reads_input);
    }

    #[test]
    fn the_version_is_asked_for_whatever_follows() {
        for line in [
            "pando -v",
            "pando --version",
            "pando --version --dir d",
            "pando -v 7",
        ] {
            assert!(separated(line).1.version, "{line}");
        }
        assert!(!separated("pando stat --version").1.version);
    }
}
