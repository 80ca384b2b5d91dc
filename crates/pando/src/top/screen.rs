//! The view in a terminal. It is redrawn after each answer, key and change of size; the terminal is
//! restored when it ends, whatever ends it.

use std::collections::VecDeque;
use std::io;

use pando_sync::Arc;
use pando_sync::time::Duration;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Paragraph, Sparkline, Widget};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::connection::Trouble;
use super::figures::Figures;
use super::keys::{Key, Keys};
use super::panels::{Panel, Row, panels, title};
use super::plain::{COLUMNS, command_cells};
use super::quantities::count;
use super::sample::Sample;
use super::watch::watch;
use crate::failure::{Code, Failure};
use crate::quantity::whole;
use crate::target::Target;

/// Longest time until a key is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Number of rates that are kept for the curve.
const HISTORY: usize = 512;
/// Width of one panel, including its border.
const PANEL_WIDTH: u16 = 44;
/// Height of the curve, including its border.
const CURVE_HEIGHT: u16 = 6;
const BAR_WIDTH: usize = 8;
/// Characters of a bar.
const FULL: &str = "\u{2588}";
const EMPTY: &str = "\u{2591}";
/// Maximum height of the drawing; the screen shows a window of it.
const CANVAS_HEIGHT: u16 = 400;
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// State of the screen.
struct View {
    address: String,
    newest: Option<Arc<Sample>>,
    before: Option<Arc<Sample>>,
    trouble: Option<Trouble>,
    /// Commands per second, the newest last.
    rates: VecDeque<u64>,
    /// First line that is shown.
    scroll: u16,
    /// Number of lines of the drawing.
    height: u16,
}

/// Shows the server until the user or a signal ends it.
///
/// # Errors
/// The terminal cannot be used.
pub(crate) fn run(target: &Target, interval: Duration) -> Result<(), Failure> {
    let failed = |what: &'static str| {
        move |error: io::Error| Failure::new(Code::Io, format!("{what}: {error}"))
    };
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(failed("signals"))?;
    let terminal = ratatui::try_init().map_err(failed("the terminal"))?;
    let result = show(terminal, signals, target, interval);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(failed("the terminal"))
}

fn show(
    mut terminal: DefaultTerminal,
    mut signals: Signals,
    target: &Target,
    interval: Duration,
) -> io::Result<()> {
    let seen = watch(target.clone(), interval)?;
    let mut view = View {
        address: target.to_string(),
        newest: None,
        before: None,
        trouble: None,
        rates: VecDeque::new(),
        scroll: 0,
        height: 0,
    };
    let mut keys = Keys::new()?;
    let (mut round, mut is_old) = (0, true);
    loop {
        let seen_now = seen.lock();
        if seen_now.round != round {
            round = seen_now.round;
            view.newest = seen_now.newest.clone();
            view.before = seen_now.before.clone();
            view.trouble = seen_now.trouble.clone();
            drop(seen_now);
            view.remember();
            is_old = true;
        } else {
            drop(seen_now);
        }
        if is_old {
            terminal.draw(|frame| view.draw(frame))?;
            is_old = false;
        }
        let Some(pressed) = keys.wait(TICK)? else {
            return Ok(());
        };
        for key in pressed {
            match key {
                Key::Quit => return Ok(()),
                key => view.scroll_by(key, terminal.size()?.height),
            }
            is_old = true;
        }
        for signal in signals.pending() {
            match signal {
                // The size has changed.
                SIGWINCH => is_old = true,
                _ => return Ok(()),
            }
        }
    }
}

impl View {
    fn figures(&self) -> Option<Figures<'_>> {
        let newest = self.newest.as_deref()?;
        Some(Figures::new(newest, self.before.as_deref()))
    }

    /// Adds the newest rate to the curve; adds nothing while the server does not answer.
    fn remember(&mut self) {
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        let figures = match self.trouble {
            None => self.figures(),
            Some(_) => None,
        };
        let rate = figures.and_then(|figures| figures.rate("total_commands_processed"));
        self.rates.push_back(whole(rate.unwrap_or(0.0)));
    }

    fn scroll_by(&mut self, key: Key, lines: u16) {
        let end = self.height.saturating_sub(lines.saturating_sub(2));
        let page = lines.saturating_sub(3).max(1);
        let wanted = match key {
            Key::Down => self.scroll.saturating_add(1),
            Key::Up => self.scroll.saturating_sub(1),
            Key::PageDown => self.scroll.saturating_add(page),
            Key::PageUp => self.scroll.saturating_sub(page),
            Key::First => 0,
            Key::Last => end,
            Key::Quit => self.scroll,
        };
        self.scroll = wanted.min(end);
    }

    /// Draws one line about the server, one with help or trouble, and a window of the rest.
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.height < 2 || area.width == 0 {
            return;
        }
        let line = |y| Rect::new(0, y, area.width, 1);
        let about = match self.figures() {
            Some(figures) => title(&figures),
            None => "no answer yet".to_owned(),
        };
        let buffer = frame.buffer_mut();
        Paragraph::new(format!("{}: {about}", self.address))
            .style(BOLD)
            .render(line(0), buffer);
        let (text, style) = match &self.trouble {
            Some(Trouble::Lost(why)) => (
                format!(
                    "{} does not answer ({why}); trying again. q: quit",
                    self.address
                ),
                Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            ),
            Some(Trouble::Refused(why)) => (
                format!("{}: {why}. q: quit", self.address),
                Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            ),
            None => ("q: quit, up and down: scroll".to_owned(), DIM),
        };
        Paragraph::new(text)
            .style(style)
            .render(line(area.height - 1), buffer);
        let window = Rect::new(0, 1, area.width, area.height - 2);
        let mut canvas = Buffer::empty(Rect::new(0, 0, area.width, CANVAS_HEIGHT));
        self.height = self.draw_all(&mut canvas);
        let end = self.height.saturating_sub(window.height);
        self.scroll = self.scroll.min(end);
        for y in 0..window.height.min(CANVAS_HEIGHT - self.scroll) {
            for x in 0..window.width {
                buffer[(x, window.y + y)] = canvas[(x, self.scroll + y)].clone();
            }
        }
        if self.trouble.is_some() {
            buffer.set_style(window, DIM);
        }
    }

    /// Draws everything from the top of `canvas` on; returns the number of lines it took.
    fn draw_all(&self, canvas: &mut Buffer) -> u16 {
        let Some(figures) = self.figures() else {
            return 0;
        };
        let width = canvas.area.width;
        let curve = Rect::new(0, 0, width, CURVE_HEIGHT);
        let most = self.rates.iter().max().copied().unwrap_or(0);
        let block = Block::bordered().title(format!(
            " commands per second, at most {} ",
            count(most as f64)
        ));
        let inner = usize::from(block.inner(curve).width);
        let skipped = self.rates.len().saturating_sub(inner);
        Sparkline::default()
            .data(self.rates.iter().skip(skipped))
            .style(Style::new().fg(Color::Cyan))
            .block(block)
            .render(curve, canvas);
        let panels = panels(&figures);
        let columns = (width / PANEL_WIDTH).clamp(1, 4);
        let mut heights = vec![CURVE_HEIGHT; usize::from(columns)];
        let panel_width = width / columns;
        for panel in &panels {
            let shortest = (0..heights.len()).min_by_key(|column| heights[*column]);
            let column = shortest.expect("there is a column");
            let x = panel_width * on_screen(column);
            let height = on_screen(panel.rows.len() + 2);
            let area = Rect::new(x, heights[column], panel_width, height);
            draw_panel(panel, area, canvas);
            heights[column] += height;
        }
        let top = heights.into_iter().max().unwrap_or(CURVE_HEIGHT);
        top + draw_commands(
            &figures,
            Rect::new(0, top, width, CANVAS_HEIGHT - top),
            canvas,
        )
    }
}

/// Returns a number of cells as the screen counts them. What is beyond its end is not drawn.
fn on_screen(cells: usize) -> u16 {
    u16::try_from(cells).unwrap_or(u16::MAX)
}

fn draw_panel(panel: &Panel, area: Rect, canvas: &mut Buffer) {
    let block = Block::bordered().title(format!(" {} ", panel.title));
    let inner = block.inner(area);
    block.render(area, canvas);
    for (index, row) in panel.rows.iter().enumerate() {
        let y = inner.y.saturating_add(on_screen(index));
        canvas.set_stringn(inner.x, y, &row.label, inner.width.into(), DIM);
        let text = with_bar(row);
        let length = on_screen(text.chars().count());
        let x = inner.right().saturating_sub(length).max(inner.x);
        canvas.set_stringn(x, y, &text, inner.width.into(), BOLD);
    }
}

/// Returns the value, after a bar if the row has a share.
fn with_bar(row: &Row) -> String {
    let Some(share) = row.share else {
        return row.value.clone();
    };
    let filled = whole((share.clamp(0.0, 1.0) * BAR_WIDTH as f64).round());
    let filled = usize::try_from(filled).expect("at most BAR_WIDTH");
    let (full, empty) = (FULL.repeat(filled), EMPTY.repeat(BAR_WIDTH - filled));
    format!("{full}{empty} {}", row.value)
}

fn draw_commands(figures: &Figures<'_>, area: Rect, canvas: &mut Buffer) -> u16 {
    let cells = command_cells(figures);
    let height = on_screen(cells.len() + 3).min(area.height);
    let area = Rect { height, ..area };
    let block = Block::bordered().title(" Commands ");
    let inner = block.inner(area);
    block.render(area, canvas);
    let titles = COLUMNS.map(str::to_owned);
    let lines = [titles].into_iter().chain(cells);
    for (index, cells) in lines.take(inner.height.into()).enumerate() {
        let (y, style) = (
            inner.y.saturating_add(on_screen(index)),
            if index == 0 { DIM } else { Style::new() },
        );
        canvas.set_stringn(inner.x, y, &cells[0], inner.width.into(), style);
        // As many columns as fit to the right of the name.
        for (column, cell) in cells[1..].iter().enumerate() {
            let end = on_screen(20 + (column + 1) * 10);
            if end <= inner.width {
                let x = inner.x + end.saturating_sub(on_screen(cell.chars().count()));
                canvas.set_stringn(x, y, cell, 10, style);
            }
        }
    }
    height
}
