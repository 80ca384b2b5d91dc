//! INFO.

use pandodb::nonblocking::{Polled, Reads};

use super::info_text;
use super::info_text::Shown;
use crate::context::{Command, Context, Flags, Interrupted, Run};
use crate::data::elements::END_OF_GIVEN_UP;
use crate::shared::Shared;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::LOADING,
    summary: "Returns information and statistics about the server.",
    ..Command::new("info", -1, info)
}];

/// Returns all sections except those that must be asked for by name.
pub(crate) fn info_all(shared: &Shared) -> String {
    let mut text = String::new();
    let wanted = |section: &info_text::Section| section.shown != Shown::ByName;
    render(shared, &mut text, RowCounts::default(), wanted);
    text
}

/// What rows of the store tell; without a store that is open, nothing.
#[derive(Default, Clone, Copy)]
struct RowCounts {
    functions: Option<FunctionCounts>,
    /// Number of large collections that were given up, and still have elements.
    pending: Option<u64>,
}

/// Number of libraries of functions, and that of their functions.
type FunctionCounts = (u64, u64);

/// Returns how many functions there are; `None` if the store is not open.
#[cfg(feature = "scripts")]
fn count_functions(context: &mut Context<'_>) -> Result<Option<FunctionCounts>, Interrupted> {
    use crate::data::functions::{LIST_KEY, Libraries};

    let Some(data) = context.data.as_ref() else {
        return Ok(None);
    };
    let Some(table) = data.engine.functions.table() else {
        return Ok(Some((0, 0)));
    };
    let (mut list, mut shown_from) = (Vec::new(), None);
    let is_there = match Reads::of(table).get(LIST_KEY, &mut list, &mut shown_from) {
        Ok(Polled::Ready(is_there)) => is_there,
        Ok(Polled::Pending(pending)) => return Err(Interrupted::Pending(pending)),
        // What else there is to know of a store that has failed is shown.
        Err(_) => return Ok(None),
    };
    context.progress.show_from(shown_from);
    let libraries = is_there.then(|| Libraries::decode(&list));
    // A list that is damaged has no figures.
    let count = |of: Libraries| (of.0.len() as u64, of.functions());
    Ok(libraries.map_or(Some((0, 0)), |of| of.map(count)))
}

#[cfg(not(feature = "scripts"))]
fn count_functions(_: &mut Context<'_>) -> Result<Option<FunctionCounts>, Interrupted> {
    Ok(None)
}

/// Returns how many collections the cleaners have to remove; `None` if the store is not open.
fn count_pending(context: &Context<'_>) -> Result<Option<u64>, Interrupted> {
    let Some(data) = context.data.as_ref() else {
        return Ok(None);
    };
    let databases = data.engine.databases.iter();
    let tables = databases.filter_map(|database| database.members.table());
    let mut pending = 0;
    for table in tables.filter(|table| !table.is_empty()) {
        match Reads::of(table).rank(&END_OF_GIVEN_UP) {
            Ok(Polled::Ready(count)) => pending += count,
            Ok(Polled::Pending(pending)) => return Err(Interrupted::Pending(pending)),
            // What else there is to know of a store that has failed is shown.
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(pending))
}

fn render(
    shared: &Shared,
    text: &mut String,
    counts: RowCounts,
    wanted: impl Fn(&info_text::Section) -> bool,
) {
    for section in info_text::SECTIONS.iter().filter(|section| wanted(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str("# ");
        text.push_str(section.name);
        text.push_str("\r\n");
        (section.write)(shared, text);
        if section.name != "Memory" {
            continue;
        }
        if let Some((libraries, functions)) = counts.functions {
            info_text::field(text, "number_of_functions", functions);
            info_text::field(text, "number_of_libraries", libraries);
        }
        if let Some(pending) = counts.pending {
            info_text::field(text, "lazyfree_pending_objects", pending);
        }
    }
}

fn info(context: &mut Context<'_>) -> Run {
    let mut text = String::new();
    let wanted: Vec<Vec<u8>> = context
        .arguments
        .from(1)
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    let is_wanted = |section: &info_text::Section| {
        let named = |word: &str| wanted.iter().any(|name| name == word.as_bytes());
        let all = named("all") || named("everything");
        let default = all || wanted.is_empty() || named("default");
        let shown = match section.shown {
            Shown::ByDefault => default,
            Shown::WithAll => all,
            Shown::ByName => false,
        };
        shown || named(&section.name.to_ascii_lowercase())
    };
    let mut sections = info_text::SECTIONS.iter();
    let counts = match sections.any(|of| of.name == "Memory" && is_wanted(of)) {
        true => RowCounts {
            functions: count_functions(context)?,
            pending: count_pending(context)?,
        },
        false => RowCounts::default(),
    };
    render(context.shared, &mut text, counts, is_wanted);
    context.reply().verbatim(&text);
    Ok(())
}
