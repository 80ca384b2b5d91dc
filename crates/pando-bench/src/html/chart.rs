//! Line charts, as SVG.

use std::fmt::Write;

use super::escape::escape;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;
/// Colours of lines; when all are used, they start over with dashed lines.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b4513",
];

/// The range of an axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Labelled positions.
    pub(super) ticks: &'a [(f64, String)],
}

/// One line; its points are in the units of the axes.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl<'a> Axis<'a> {
    /// Creates an axis from 0 to the last of `ticks`.
    pub(super) fn from_zero(name: &'a str, ticks: &'a [(f64, String)]) -> Self {
        Self {
            name,
            min: 0.0,
            max: ticks.last().map_or(1.0, |(value, _)| *value),
            ticks,
        }
    }

    /// Returns the position of `value` between the ends, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        ((value - self.min) / (self.max - self.min)).clamp(0.0, 1.0)
    }
}

/// Draws a chart of `lines`; the name of each is in the legend, and in the tooltip.
pub(super) fn chart(x: Axis<'_>, y: Axis<'_>, lines: &[Line]) -> String {
    let legend = TOP + LEGEND * lines.len() as f64;
    let height = (legend + BOTTOM).max(HEIGHT);
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let at = |point: (f64, f64)| {
        let across = LEFT + x.share(point.0) * (right - LEFT);
        (across, bottom - y.share(point.1) * (bottom - TOP))
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n"
    );
    for (value, label) in x.ticks {
        let (across, label) = (at((*value, y.min)).0, escape(label));
        put(
            &mut out,
            format_args!("<path class=\"grid\" d=\"M{across:.1} {TOP}V{bottom}\"/>"),
        );
        let below = bottom + 16.0;
        put(
            &mut out,
            format_args!(
                "<text x=\"{across:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
            ),
        );
    }
    for (value, label) in y.ticks {
        let (down, label) = (at((x.min, *value)).1, escape(label));
        put(
            &mut out,
            format_args!("<path class=\"grid\" d=\"M{LEFT} {down:.1}H{right}\"/>"),
        );
        let (beside, middle) = (LEFT - 6.0, down + 4.0);
        put(
            &mut out,
            format_args!(
                "<text x=\"{beside}\" y=\"{middle:.1}\" text-anchor=\"end\">{label}</text>"
            ),
        );
    }
    let (centre, below) = ((LEFT + right) / 2.0, HEIGHT - 8.0);
    let name = escape(x.name);
    put(
        &mut out,
        format_args!("<text x=\"{centre}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"),
    );
    let (middle, name) = ((TOP + bottom) / 2.0, escape(y.name));
    put(
        &mut out,
        format_args!(
            "<text x=\"14\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 14 {middle})\">{name}</text>"
        ),
    );
    for (index, line) in lines.iter().enumerate() {
        draw(&mut out, index, line, &at);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, index: usize, line: &Line, at: &impl Fn((f64, f64)) -> (f64, f64)) {
    let colour = COLOURS[index % COLOURS.len()];
    let dash = match index / COLOURS.len() {
        0 => "",
        1 => " stroke-dasharray=\"6 3\"",
        _ => " stroke-dasharray=\"2 3\"",
    };
    let mut points = String::new();
    let finite = line
        .points
        .iter()
        .filter(|(x, y)| x.is_finite() && y.is_finite());
    for point in finite {
        let (across, down) = at(*point);
        let between = if points.is_empty() { "" } else { " " };
        write!(points, "{between}{across:.1},{down:.1}").expect("a string takes all");
    }
    let name = escape(&line.name);
    put(
        out,
        format_args!(
            "<polyline class=\"line\" stroke=\"{colour}\"{dash} points=\"{points}\">\
             <title>{name}</title></polyline>"
        ),
    );
    let (from, down) = (WIDTH - RIGHT + 14.0, TOP + LEGEND * (index as f64 + 0.5));
    let (to, text, base) = (from + 22.0, from + 28.0, down + 4.0);
    put(
        out,
        format_args!(
            "<path class=\"line\" stroke=\"{colour}\"{dash} d=\"M{from} {down}H{to}\"/>\
             <text x=\"{text}\" y=\"{base}\">{name}</text>"
        ),
    );
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes all");
}

/// Returns the labels of a logarithmic axis: powers of ten whose logarithms are from `min` to
/// `max`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "logarithms of finite numbers are small"
)]
pub(super) fn powers(min: f64, max: f64) -> Vec<(f64, String)> {
    let (first, last) = (min.floor() as i32, max.ceil() as i32);
    let label = |power: i32| match power {
        -3..=5 => format!("{}", 10_f64.powi(power)),
        _ => format!("1e{power}"),
    };
    (first..=last)
        .map(|power| (f64::from(power), label(power)))
        .collect()
}

/// Returns the labels of an axis from 0 to at least `max`, at round numbers; the last one is its
/// end.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there are at most five steps"
)]
pub(super) fn steps(max: f64) -> Vec<(f64, String)> {
    let max = if max.is_finite() && max > 0.0 {
        max
    } else {
        1.0
    };
    let power = 10_f64.powf((max / 5.0).log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power * 5.0 >= max);
    let step = fits.unwrap_or(10.0) * power;
    let count = (max / step).ceil() as u32;
    (0..=count)
        .map(|index| {
            let value = f64::from(index) * step;
            (value, number(value))
        })
        .collect()
}

/// Formats a number in few characters.
fn number(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "K"),
        v => (v, ""),
    };
    // Rounded, so that 3 * 0.1 is 0.3.
    format!("{}{unit}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::{Axis, Line, chart, powers, steps};

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let labels = |ticks: Vec<(f64, String)>| {
            let labels: Vec<_> = ticks.into_iter().map(|(_, label)| label).collect();
            labels.join(" ")
        };
        assert_eq!(labels(steps(9.0)), "0 2 4 6 8 10");
        assert_eq!(labels(steps(1_230_000.0)), "0 500K 1M 1.5M");
        assert_eq!(labels(steps(0.0)), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(labels(powers(-0.5, 2.1)), "0.1 1 10 100 1000");
        for max in [0.003, 1.0, 7.3, 99.0, 12_345.6, 8e9] {
            let ticks = steps(max);
            assert!(ticks.len() <= 7 && ticks[ticks.len() - 1].0 >= max * 0.999_999);
        }
    }

    #[test]
    fn points_lie_where_the_axes_say_and_infinite_ones_nowhere() {
        let ticks = steps(10.0);
        let axis = Axis::from_zero("n", &ticks);
        let line = Line {
            name: "<a>".to_owned(),
            points: vec![
                (0.0, 0.0),
                (f64::NAN, 1.0),
                (2.0, f64::INFINITY),
                (5.0, 10.0),
                (10.0, 99.0),
            ],
        };
        let svg = chart(axis, axis, &[line]);
        assert!(
            svg.contains("points=\"80.0,316.0 370.0,16.0 660.0,16.0\""),
            "{svg}"
        );
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"));
    }
}
