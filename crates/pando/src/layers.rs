//! Where values come from: defaults < file < environment < flags. Each value knows its origin, so
//! that an error can name the place to change.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::failure::{Code, Failure};
use crate::nearest::{distance, nearest};
use crate::redis::Meaning;

/// All configuration keys; flags have `-` instead of `_`.
pub(crate) const KEYS: [&str; 20] = [
    "dir",
    "listen",
    "unix_socket",
    "unix_socket_mode",
    "max_memory",
    "durability",
    "periodic_ms",
    "page_size",
    "block_size",
    "compression",
    "io_backend",
    "queue_depth",
    "completion_threads",
    "threads",
    "requirepass",
    "metrics_listen",
    "tcp_keepalive",
    "stall_timeout",
    "log_level",
    "log_format",
];
/// The table of the file that names parameters of CONFIG SET.
pub(crate) const PARAMETERS: &str = "config";
/// Parameters that are keys of their own: their places in other layers would not count.
const OWN_KEYS: [(&str, &str); 12] = [
    ("durability", "durability"),
    ("appendfsync", "durability"),
    ("tcp-keepalive", "tcp_keepalive"),
    ("stall-timeout", "stall_timeout"),
    ("loglevel", "log_level"),
    ("requirepass", "requirepass"),
    ("maxmemory", "max_memory"),
    ("dir", "dir"),
    ("port", "listen"),
    ("bind", "listen"),
    ("unixsocket", "unix_socket"),
    ("unixsocketperm", "unix_socket_mode"),
];
/// The configuration file that is read by default.
const FILE: &str = "pando.toml";
const PREFIX: &str = "PANDO_";

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    /// One text; several for `listen`.
    pub(crate) texts: Vec<String>,
    /// Description for people: flag, variable, or key and file.
    pub(crate) origin: String,
}

/// The values of all layers; for each key, that of the strongest layer.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    values: BTreeMap<&'static str, Value>,
    /// Path of the configuration file that was read; empty if there was none.
    pub(crate) file: String,
    /// Parameters of CONFIG SET, in the order of the file.
    pub(crate) parameters: Vec<(String, String)>,
    /// The file is a redis.conf.
    pub(crate) is_redis: bool,
    /// The file of the log.
    pub(crate) log_file: Option<String>,
    /// Who may call DEBUG.
    pub(crate) debug_commands: Option<String>,
    /// What people should know, for the log.
    pub(crate) notes: Vec<String>,
    /// Directives of redis-server without an effect.
    pub(crate) without_effect: Vec<String>,
}

impl Layers {
    /// Reads all layers of a server that was started as redis-server is: a redis.conf, if one was
    /// given, stands for our own file, and its flags for our own, which come after them.
    pub(crate) fn read_as_redis(
        redis_file: Option<&str>,
        (of_file, of_flags): (Meaning, Meaning),
        environment: impl Iterator<Item = (String, impl Into<OsString>)>,
        flags: Vec<(&'static str, Vec<String>)>,
    ) -> Result<Self, Failure> {
        let mut layers = Self::default();
        match redis_file {
            None => layers.add_own_file(None)?,
            Some(path) => {
                path.clone_into(&mut layers.file);
                layers.is_redis = true;
            }
        }
        layers.add_meaning(of_file);
        layers.add_environment(environment)?;
        layers.add_meaning(of_flags);
        layers.add_flags(flags);
        Ok(layers)
    }

    /// Adds what directives of redis-server mean.
    pub(crate) fn add_meaning(&mut self, meaning: Meaning) {
        for (key, texts, origin) in meaning.values {
            match texts.is_empty() {
                true => self.values.remove(key),
                false => self.values.insert(key, Value { texts, origin }),
            };
        }
        self.parameters.extend(meaning.parameters);
        self.notes.extend(meaning.notes);
        self.without_effect.extend(meaning.without_effect);
        self.log_file = meaning.log_file.or_else(|| self.log_file.take());
        self.debug_commands = meaning
            .debug_commands
            .or_else(|| self.debug_commands.take());
    }

    /// Adds our own flags.
    pub(crate) fn add_flags(&mut self, flags: Vec<(&'static str, Vec<String>)>) {
        for (key, texts) in flags {
            let origin = format!("--{}", key.replace('_', "-"));
            self.values.insert(key, Value { texts, origin });
        }
    }

    /// Reads all layers.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, impl Into<OsString>)>,
        flags: Vec<(&'static str, Vec<String>)>,
    ) -> Result<Self, Failure> {
        let mut layers = Self::default();
        layers.add_own_file(file)?;
        layers.add_environment(environment)?;
        layers.add_flags(flags);
        Ok(layers)
    }

    fn add_own_file(&mut self, file: Option<&Path>) -> Result<(), Failure> {
        let named = file.is_some();
        let path = file.unwrap_or_else(|| Path::new(FILE));
        if named || path.exists() {
            let shown = path.display().to_string();
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::new(Code::Usage, format!("--config {shown}: {error}")))?;
            self.add_file(&shown, &text)?;
            self.file = shown;
        }
        Ok(())
    }

    fn add_file(&mut self, path: &str, text: &str) -> Result<(), Failure> {
        let table: toml::Table = text
            .parse()
            .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        for (name, value) in table {
            if name == PARAMETERS {
                self.add_parameters(path, &value)?;
                continue;
            }
            let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
                let known = nearest(&name, &KEYS);
                let text = format!("{path}: unknown key '{name}'; the nearest is '{known}'");
                return Err(Failure::usage(text));
            };
            let texts = match &value {
                toml::Value::Array(values) if key == "listen" => {
                    values.iter().map(text_of).collect()
                }
                one => text_of(one).map(|text| vec![text]),
            };
            let origin = format!("{key} in {path}");
            let Some(texts) = texts else {
                let what = format!("{origin}: a text or a number is needed");
                return Err(Failure::usage(what));
            };
            self.values.insert(key, Value { texts, origin });
        }
        Ok(())
    }

    fn add_parameters(&mut self, path: &str, value: &toml::Value) -> Result<(), Failure> {
        let Some(table) = value.as_table() else {
            let text = format!("{path}: {PARAMETERS} is a table of parameters of CONFIG SET");
            return Err(Failure::usage(text));
        };
        for (name, value) in table {
            let own = OWN_KEYS
                .iter()
                .find(|(of, _)| of.eq_ignore_ascii_case(name));
            if let Some((_, key)) = own {
                let text = format!("{path}: {name} in [{PARAMETERS}]: use the key {key}");
                return Err(Failure::usage(text));
            }
            let text = match value {
                toml::Value::Boolean(on) => Some(if *on { "yes" } else { "no" }.to_owned()),
                value => text_of(value),
            };
            let Some(text) = text else {
                let text = format!("{path}: {name}: a text, a number, true or false is needed");
                return Err(Failure::usage(text));
            };
            self.parameters.push((name.clone(), text));
        }
        Ok(())
    }

    /// Adds variables with our prefix. Those that are no keys are ignored, since they belong to
    /// others (tests, for example), unless they look like a mistyped key.
    fn add_environment(
        &mut self,
        environment: impl Iterator<Item = (String, impl Into<OsString>)>,
    ) -> Result<(), Failure> {
        for (name, text) in environment {
            let Some(wanted) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let wanted = wanted.to_ascii_lowercase();
            let Some(key) = KEYS.into_iter().find(|key| *key == wanted) else {
                let known = nearest(&wanted, &KEYS);
                if distance(&wanted, known) <= 2 {
                    let known = format!("{PREFIX}{}", known.to_ascii_uppercase());
                    let text = format!("unknown variable {name}; the nearest is {known}");
                    return Err(Failure::usage(text));
                }
                continue;
            };
            // Without it the server would be another one: one without a password, for instance.
            let text = text.into().into_string().map_err(|_| {
                Failure::usage(format!("{name}: the value is not UTF-8; write it as UTF-8"))
            })?;
            let texts = match key {
                "listen" => text.split(',').map(|one| one.trim().to_owned()).collect(),
                _ => vec![text],
            };
            self.values.insert(
                key,
                Value {
                    texts,
                    origin: name,
                },
            );
        }
        Ok(())
    }

    /// Returns the value of `key`, one of [`KEYS`].
    pub(crate) fn get(&self, key: &'static str) -> Option<&Value> {
        debug_assert!(KEYS.contains(&key), "{key}");
        self.values.get(key)
    }
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Layers, Value};
    use crate::failure::Failure;
    use crate::redis::Meaning;
    use std::fs;

    fn read(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Layers, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        fs::write(&path, file).unwrap();
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let flags = flags
            .iter()
            .map(|(key, text)| (*key, vec![(*text).to_owned()]));
        Layers::read(Some(&path), environment.iter().map(own), flags.collect())
    }

    fn text(layers: &Layers, key: &'static str) -> String {
        layers
            .get(key)
            .map_or_else(String::new, |value| value.texts.join("|"))
    }

    /// Flags override the environment, and the environment overrides the file.
    #[test]
    fn a_directive_can_take_back_what_was_said_before() {
        let mut layers = Layers::default();
        let mut says = |texts: &[&str]| {
            let mut meaning = Meaning::default();
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            meaning.values.push(("max_memory", texts, "x".to_owned()));
            layers.add_meaning(meaning);
            layers.get("max_memory").is_some()
        };
        assert!(says(&["64"]));
        assert!(!says(&[]));
        assert!(says(&["32"]));
    }

    #[test]
    fn later_layers_win() {
        let file = "threads = 1\nmax_memory = \"1g\"\ndir = 'a'\nlisten = ['a:1', 'b:2']\n";
        let environment = [("PANDO_THREADS", "2"), ("PANDO_DIR", "b"), ("OTHER", "x")];
        let layers = read(file, &environment, &[("threads", "3")]).unwrap();
        assert_eq!(text(&layers, "threads"), "3");
        assert_eq!(text(&layers, "dir"), "b");
        assert_eq!(text(&layers, "max_memory"), "1g");
        assert_eq!(text(&layers, "listen"), "a:1|b:2");
        assert_eq!(text(&layers, "requirepass"), "");
        let origin = |key| layers.get(key).map(|value: &Value| value.origin.clone());
        assert_eq!(origin("threads").as_deref(), Some("--threads"));
        assert_eq!(origin("dir").as_deref(), Some("PANDO_DIR"));
        assert!(origin("max_memory").unwrap().starts_with("max_memory in "));
    }

    #[test]
    fn unknown_keys_name_the_nearest_known_one() {
        let error = |result: Result<Layers, Failure>| result.unwrap_err().text;
        assert!(error(read("max_memry = 1\n", &[], &[])).contains("nearest is 'max_memory'"));
        let environment = [("PANDO_MAX_MEMROY", "1g")];
        assert!(error(read("", &environment, &[])).contains("PANDO_MAX_MEMORY"));
        assert!(read("", &[("PANDO_SEEDS", "4")], &[]).is_ok());
        assert!(error(read("dir = [1]\n", &[], &[])).contains("dir in "));
        assert!(error(read("dir = \n", &[], &[])).contains("x.toml"));
    }

    #[test]
    fn parameters_of_config_set_are_a_table() {
        let layers = read("[config]\nmaxclients = 7\ndynamic-hz = true\n", &[], &[]).unwrap();
        let own = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(
            layers.parameters,
            [own("dynamic-hz", "yes"), own("maxclients", "7")]
        );
        let error = read("[config]\nappendfsync = 'no'\n", &[], &[]).unwrap_err();
        assert!(error.text.contains("use the key durability"), "{error:?}");
        assert!(read("config = 1\n", &[], &[]).is_err());
        assert!(read("[config]\nhz = [1]\n", &[], &[]).is_err());
    }

    /// A list in an environment variable is separated by commas.
    #[test]
    fn lists_in_the_environment_have_commas() {
        let layers = read("", &[("PANDO_LISTEN", "a:1, b:2")], &[]).unwrap();
        assert_eq!(text(&layers, "listen"), "a:1|b:2");
    }
}
