//! A parameter: how it is read, checked and changed.

use super::form::{Form, Refusal, integer};
use crate::data::limits::Limit;
use crate::settings::Settings;
use crate::shared::Shared;

/// Checks a value, and applies it if the last argument is true.
pub(super) type Set = fn(&Shared, &[u8], bool) -> Result<(), Refusal>;

/// A setting that is a number.
pub(super) struct Number {
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) get: fn(&Settings) -> i64,
    pub(super) set: fn(&Settings, i64),
}

pub(super) enum Value {
    /// Never changes. Setting it to the value that it has does nothing.
    Fixed(&'static str),
    /// Cannot be set.
    Computed(fn(&Shared) -> String),
    /// Has a form, and one value: all others are refused for a reason.
    Only(Form, &'static str, &'static str),
    Settable(fn(&Shared) -> String, Set),
    Number(Number),
    /// Up to which size a collection has a compact encoding.
    Limit(Limit),
    /// Has no effect; with its form, and its value at first.
    Remembered(Form, &'static str),
    /// Another name of a parameter.
    Alias(&'static str),
}

impl Value {
    /// Returns the value of the parameter `name` as CONFIG GET shows it.
    pub(super) fn get(&self, shared: &Shared, name: &str) -> String {
        let settings = &shared.settings;
        match self {
            Self::Fixed(text) | Self::Only(_, text, _) => (*text).to_owned(),
            Self::Computed(get) | Self::Settable(get, _) => get(shared),
            Self::Number(number) => (number.get)(settings).to_string(),
            Self::Limit(limit) => settings.encoding_limits.get(*limit).to_string(),
            Self::Remembered(_, first) => settings
                .remembered(name)
                .unwrap_or_else(|| (*first).to_owned()),
            Self::Alias(_) => unreachable!("an alias is followed first"),
        }
    }

    /// Returns true if it can be set to another value than the one it has.
    pub(super) fn is_settable(&self) -> bool {
        matches!(
            self,
            Self::Settable(..) | Self::Number(_) | Self::Limit(_) | Self::Remembered(..)
        )
    }

    /// Returns true if no value but the current one can be set, whatever its form.
    pub(super) fn is_immutable(&self) -> bool {
        matches!(self, Self::Fixed(_) | Self::Computed(_))
    }

    /// Checks a value of the parameter `name`, and sets it if `apply`.
    ///
    /// # Errors
    /// The value is refused.
    pub(super) fn set(
        &self,
        shared: &Shared,
        name: &'static str,
        value: &[u8],
        apply: bool,
    ) -> Result<(), Refusal> {
        match self {
            Self::Fixed(_) | Self::Computed(_) => Ok(()),
            Self::Only(form, only, reason) => match form.read(value)? == *only {
                true => Ok(()),
                false => Err((*reason).into()),
            },
            Self::Settable(_, set) => set(shared, value, apply),
            Self::Number(number) => {
                let value = integer(value, number.least, number.most)?;
                if apply {
                    (number.set)(&shared.settings, value);
                }
                Ok(())
            }
            Self::Limit(limit) => set_limit(shared, *limit, value, apply),
            Self::Remembered(form, _) => {
                let text = form.read(value)?;
                if apply {
                    shared.settings.remember(name, text);
                }
                Ok(())
            }
            Self::Alias(_) => unreachable!("an alias is followed first"),
        }
    }
}

fn set_limit(shared: &Shared, limit: Limit, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let number = match limit {
        Limit::ListSize => integer(value, i32::MIN.into(), i32::MAX.into())?,
        Limit::HashBytes | Limit::SetBytes | Limit::SortedSetBytes => {
            let bytes = Form::Bytes(0, i64::MAX).read(value)?;
            integer(bytes.as_bytes(), 0, i64::MAX)?
        }
        _ => integer(value, 0, i64::MAX)?,
    };
    if apply {
        shared.settings.encoding_limits.set(limit, number);
    }
    Ok(())
}
