//! All parameters, as one table.

use super::effective::EFFECTIVE;
use super::form::Refusal;
use super::parameter::Value;
use super::remembered::REMEMBERED;
use crate::options::Parameter;
use crate::shared::Shared;

const IMMUTABLE: &str = "can't set immutable config";

/// A parameter by one of its names.
#[derive(Clone, Copy)]
pub(super) struct Named {
    /// The name that was asked for.
    pub(super) name: &'static str,
    /// The name under which its value is remembered.
    own_name: &'static str,
    value: &'static Value,
}

impl Named {
    /// Returns the value as CONFIG GET shows it.
    pub(super) fn get(&self, shared: &Shared) -> String {
        self.value.get(shared, self.own_name)
    }

    /// Checks that it can be set to `value`, whether that is valid or not.
    ///
    /// # Errors
    /// It never changes.
    pub(super) fn check_mutable(&self, shared: &Shared, value: &[u8]) -> Result<(), Refusal> {
        match self.value.is_immutable() && self.get(shared).as_bytes() != value {
            true => Err(IMMUTABLE.into()),
            false => Ok(()),
        }
    }

    /// Checks `value`, and sets it if `apply`.
    ///
    /// # Errors
    /// The value is refused.
    pub(super) fn set(&self, shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
        self.value.set(shared, self.own_name, value, apply)
    }
}

fn follow(name: &'static str, value: &'static Value) -> Named {
    let Value::Alias(own_name) = value else {
        return Named {
            name,
            own_name: name,
            value,
        };
    };
    let own = find(own_name.as_bytes()).expect("an alias names a parameter");
    Named { name, ..own }
}

/// Returns the parameter called `name`, in any case.
pub(super) fn find(name: &[u8]) -> Option<Named> {
    let all = EFFECTIVE.iter().chain(REMEMBERED);
    let mut all = all.map(|(known, value)| (*known, value));
    let (known, value) = all.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))?;
    Some(follow(known, value))
}

/// Returns all parameters, by name.
pub(super) fn all() -> Vec<Named> {
    let all = EFFECTIVE.iter().chain(REMEMBERED);
    let mut all: Vec<Named> = all.map(|(name, value)| follow(name, value)).collect();
    all.sort_unstable_by_key(|named| named.name);
    all
}

/// Returns the values of all parameters that can be set, each under one name.
fn values(shared: &Shared) -> Vec<(&'static str, String)> {
    let mut all = all();
    all.retain(|named| named.value.is_settable() && named.name == named.own_name);
    // The durability and the budget of the next start have keys of their own in the file.
    all.retain(|named| !matches!(named.name, "durability" | "maxmemory"));
    let value = |named: Named| match named.name {
        "requirepass" => shared.settings.password(),
        _ => named.get(shared),
    };
    all.into_iter()
        .map(|named| (named.name, value(named)))
        .collect()
}

/// Returns the other names of a parameter.
fn other_names(own_name: &str) -> Vec<&'static str> {
    let all = EFFECTIVE.iter().chain(REMEMBERED);
    all.filter(|(_, value)| matches!(value, Value::Alias(of) if *of == own_name))
        .map(|(name, _)| *name)
        .collect()
}

/// Returns what a configuration file is to say of the parameters.
pub(super) fn to_be_written(shared: &Shared) -> Vec<Parameter> {
    let first = shared.first_parameters.lock().clone();
    let now = values(shared).into_iter();
    let parameters = now.map(|(name, value)| Parameter {
        name,
        other_names: other_names(name),
        is_changed: !first.iter().any(|(of, was)| *of == name && *was == value),
        value,
    });
    parameters.collect()
}

/// Sets the parameters that the options of the server name, and remembers what all were before.
///
/// # Errors
/// The name of one that is not known, or is refused, and why.
pub(crate) fn start(shared: &Shared) -> Result<(), (String, String)> {
    let first = values(shared);
    *shared.first_parameters.lock() = first;
    for (name, value) in &shared.options.parameters {
        let set = |value: &[u8]| {
            let named = find(name.as_bytes()).ok_or("there is no such parameter")?;
            named.check_mutable(shared, value)?;
            named.set(shared, value, true)
        };
        set(value.as_bytes()).map_err(|reason: Refusal| (name.clone(), reason.into_owned()))?;
    }
    Ok(())
}

/// Returns whether the parameter of CONFIG with this name, in any case, takes other values than the
/// one that the server gives it; `None` if there is none.
pub fn is_settable(name: &str) -> Option<bool> {
    find(name.as_bytes()).map(|named| !named.value.is_immutable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_there_once_and_aliases_lead_somewhere() {
        let all = all();
        assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(
            all.iter()
                .all(|named| !matches!(named.value, Value::Alias(_)))
        );
        assert_eq!(is_settable("MaxMemory"), Some(true));
        assert_eq!(is_settable("databases"), Some(false));
        assert_eq!(is_settable("max_memory"), None);
    }

    /// The value that a parameter has at first is one that it would take.
    #[test]
    fn first_values_have_their_form() {
        for (name, value) in EFFECTIVE.iter().chain(REMEMBERED) {
            if let Value::Remembered(form, first) | Value::Only(form, first, _) = value {
                let read = form.read(first.as_bytes());
                assert_eq!(read.as_deref(), Ok(*first), "{name}");
            }
        }
    }
}
