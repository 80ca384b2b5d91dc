//! INFO.

use super::info_text;
use super::info_text::Shown;
use crate::context::{Command, Context, Flags, Run};
use crate::shared::Shared;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::LOADING,
    summary: "Returns information and statistics about the server.",
    ..Command::new("info", -1, info)
}];

/// Returns all sections except those that must be asked for by name.
pub(crate) fn info_all(shared: &Shared) -> String {
    let mut text = String::new();
    render(shared, &mut text, |section| section.shown != Shown::ByName);
    text
}

fn render(shared: &Shared, text: &mut String, wanted: impl Fn(&info_text::Section) -> bool) {
    for section in info_text::SECTIONS.iter().filter(|section| wanted(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str("# ");
        text.push_str(section.name);
        text.push_str("\r\n");
        (section.write)(shared, text);
    }
}

fn info(context: &mut Context<'_>) -> Run {
    let mut text = String::new();
    let wanted: Vec<Vec<u8>> = context
        .arguments
        .from(1)
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    render(context.shared, &mut text, |section| {
        let named = |word: &str| wanted.iter().any(|name| name == word.as_bytes());
        let all = named("all") || named("everything");
        let default = all || wanted.is_empty() || named("default");
        let shown = match section.shown {
            Shown::ByDefault => default,
            Shown::WithAll => all,
            Shown::ByName => false,
        };
        shown || named(&section.name.to_ascii_lowercase())
    });
    context.reply().verbatim(&text);
    Ok(())
}
