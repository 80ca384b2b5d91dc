//! Tests that every option of `serve` has its flag, key, variable, library setter and documented
//! default: compares the flags, the keys, `docs/configuration.md` and the library's source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::CommandFactory;

use crate::command_line::CommandLine;
use crate::layers::{KEYS, Layers};

/// Options that exist only in the server.
const OF_THE_SERVER: [&str; 10] = [
    "listen",
    "unix_socket",
    "unix_socket_mode",
    "threads",
    "requirepass",
    "metrics_listen",
    "tcp_keepalive",
    "stall_timeout",
    "log_level",
    "log_format",
];
/// Flags that are not options of the server.
const NO_OPTIONS: [&str; 3] = ["config", "help", "version"];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Returns the rows of the document's tables, without markup, by their first cell.
fn documented() -> BTreeMap<String, Vec<String>> {
    let text = read("docs/configuration.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells = row.trim_matches('|').split('|');
        let cells: Vec<_> = cells
            .map(|cell| cell.replace('`', "").trim().to_owned())
            .collect();
        (cells[0].clone(), cells)
    })
    .collect()
}

/// Returns the setters of the library, each with the text above it.
fn setters() -> BTreeMap<String, String> {
    let text = read("crates/pandodb/src/options.rs");
    let mut above = String::new();
    let mut setters = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            above.push_str(comment);
        } else if let Some(rest) = line.strip_prefix("pub fn ") {
            let (name, signature) = rest.split_once('(').unwrap();
            if signature.starts_with("mut self") && signature.contains("-> Self") {
                setters.insert(name.to_owned(), above.clone());
            }
            above.clear();
        } else if !line.starts_with("#[") {
            above.clear();
        }
    }
    setters
}

/// Returns the default that the help of each flag names, by flag.
fn flags() -> BTreeMap<String, Option<String>> {
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve").unwrap();
    let flags = serve.get_arguments().filter_map(|argument| {
        let flag = argument.get_long()?;
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let default = help.rsplit_once("[default: ");
        let default = default.map(|(_, rest)| rest.trim_end_matches(['.', ']']).to_owned());
        Some((flag.to_owned(), default))
    });
    flags
        .filter(|(flag, _)| !NO_OPTIONS.contains(&flag.as_str()))
        .collect()
}

#[test]
fn every_flag_is_a_key_and_every_key_a_flag() {
    let flags: BTreeSet<String> = flags()
        .into_keys()
        .map(|flag| flag.replace('-', "_"))
        .collect();
    let keys: BTreeSet<String> = KEYS.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(flags, keys);
}

#[test]
fn every_key_is_read_from_file_and_environment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pando.toml");
    for key in KEYS {
        std::fs::write(&path, format!("{key} = \"of the file\"\n")).unwrap();
        let variable = format!("PANDO_{}", key.to_uppercase());
        let texts = |environment: Vec<(String, String)>| {
            let layers = Layers::read(Some(&path), environment.into_iter(), Vec::new()).unwrap();
            layers.get(key).unwrap().texts.clone()
        };
        assert_eq!(texts(Vec::new()), ["of the file"], "{key}");
        let set = vec![(variable, "of the environment".to_owned())];
        assert_eq!(texts(set), ["of the environment"], "{key}");
    }
}

#[test]
fn every_key_is_documented_with_flag_variable_setter_and_default() {
    let (documented, flags, setters) = (documented(), flags(), setters());
    for key in KEYS {
        let flag = key.replace('_', "-");
        let Some(row) = documented.get(key) else {
            panic!("docs/configuration.md has no row for {key}");
        };
        assert_eq!(row[1], format!("--{flag}"));
        assert_eq!(row[2], format!("PANDO_{}", key.to_uppercase()));
        let default = flags[&flag].as_ref();
        let default = default.unwrap_or_else(|| panic!("the help of --{flag} names no default"));
        assert_eq!(
            &row[4], default,
            "default of {key} in docs/configuration.md"
        );
        match row[3].strip_prefix("Builder::") {
            // The builder has no setter for the directory: it is opened with it.
            Some("open") => assert_eq!(key, "dir"),
            Some(setter) => assert!(setters.contains_key(setter), "{key}: no Builder::{setter}"),
            None => assert!(
                OF_THE_SERVER.contains(&key),
                "{key} has no setter in the library"
            ),
        }
    }
}

#[test]
fn every_setter_of_the_library_is_documented_and_names_its_default() {
    let documented = documented();
    let setters = setters();
    assert!(setters.len() > 8, "{setters:?}");
    for (setter, text) in setters {
        let name = format!("Builder::{setter}");
        let found = documented.values().any(|row| row.contains(&name));
        assert!(found, "docs/configuration.md does not name {name}");
        let says = ["default", "in place of"]
            .iter()
            .any(|word| text.contains(word));
        assert!(says, "{name} does not name its default: {text}");
    }
}
