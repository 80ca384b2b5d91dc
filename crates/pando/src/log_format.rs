//! Whether lines of the log are text or JSON.

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogFormat {
    /// Time, level, target, message, and the fields as `name=value`.
    #[default]
    Text,
    /// One object per line.
    Json,
}

impl LogFormat {
    /// Reads a name, in any case. The error says which names there are.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("'{text}': there are text and json")),
        }
    }
}
