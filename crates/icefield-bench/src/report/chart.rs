//! Charts as SVG, whose colours follow the page or the reader's light or dark mode.
//!
//! The drawing library supports only fixed colours. Each colour has a role, such as text or the first series. A role is
//! drawn in its own placeholder colour, which is then replaced by a CSS variable.

use maud::{PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::{Error, Outcome};

/// The size in pixels. It is about the width of a column on the page, or of a phone.
const SIZE: (u32, u32) = (600, 340);
const FONT: i32 = 17;
/// The approximate width of a character.
const LETTER: usize = 8;
/// Space for the labels of the vertical axis.
const UP_AREA: u32 = 68;

const INK: RGBColor = RGBColor(1, 1, 1);
const FAINT: RGBColor = RGBColor(2, 2, 2);
const CEILING: RGBColor = RGBColor(3, 3, 3);
/// The number of colours for series; more would be hard to distinguish.
pub(super) const SERIES: usize = 10;

/// A style sheet with the colours of light and dark mode. Colour-blind readers can distinguish the colours.
pub(super) const COLOURS: &str = "\
:root{--ink:#1b1f24;--faint:#d8dee4;--paper:#ffffff;--ceiling:#6e7781;--s0:#0b63c5;--s1:#d1495b;--s2:#2a9d6f;\
--s3:#b7791f;--s4:#7b4fc9;--s5:#0e8a9a;--s6:#9a3b8f;--s7:#6b6b00;--s8:#a0522d;--s9:#50617a}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#30363d;--paper:#0d1117;--ceiling:#8b949e;\
--s0:#58a6ff;--s1:#ff7b86;--s2:#56d4a0;--s3:#e3b341;--s4:#bc8cff;--s5:#39c5cf;--s6:#f778ba;--s7:#c9c94d;--s8:#e0986b;\
--s9:#a5b4c8}}";

fn series_colour(number: usize) -> RGBColor {
    RGBColor(4, 4, 4 + (number % SERIES) as u8)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    Bars,
    #[default]
    Lines,
}

/// Points: a position along the horizontal axis, and a value.
pub(super) type Points = Vec<(f64, f64)>;

/// Values at named positions along the horizontal axis, or over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    pub title: String,
    pub across: String,
    pub up: String,
    /// The names of the positions 0, 1, 2, ...; empty for values over time.
    pub places: Vec<String>,
    /// The name of each series, with its points.
    pub series: Vec<(String, Points)>,
    /// The upper bound of the values at each position, drawn as a separate line, with its name.
    pub ceiling: Option<(String, Points)>,
    /// A period that the chart shades.
    pub marked: Option<(f64, f64)>,
    pub style: Style,
    pub logarithmic: bool,
}

/// Returns the points of the values at positions 0, 1, 2, ..., without the positions that have no value.
pub(super) fn points(values: impl IntoIterator<Item = Option<f64>>) -> Points {
    let values = values.into_iter().enumerate();
    values.filter_map(|(at, value)| Some((at as f64, value?))).collect()
}

impl Chart {
    pub fn is_empty(&self) -> bool {
        !self.points().any(|(_, value)| value > 0.0)
    }

    /// Returns whether the names of the positions are too long to fit side by side.
    fn is_crowded(&self) -> bool {
        self.places.len() * (self.longest_place() + 1) * LETTER > SIZE.0 as usize - UP_AREA as usize
    }

    /// Returns the length in characters of the longest name of a position.
    fn longest_place(&self) -> usize {
        self.places.iter().map(|place| place.chars().count()).max().unwrap_or(0)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.series.iter().chain(&self.ceiling).flat_map(|(_, points)| points);
        all.copied().filter(|(_, value)| value.is_finite())
    }

    /// Returns the chart as an SVG document.
    pub fn svg(&self) -> Outcome<String> {
        let values = || self.points().map(|(_, value)| value);
        let most = values().fold(0.0, f64::max);
        if self.logarithmic {
            let least = values().filter(|value| *value > 0.0).fold(most, f64::min);
            let decades = 10f64.powf(least.log10().floor())..10f64.powf(most.log10().ceil());
            let decades = decades.start..decades.end.max(decades.start * 10.0);
            let edges = (decades.start, decades.end);
            return canvas(|root| self.draw(root, decades.clone().log_scale(), edges));
        }
        canvas(|root| self.draw(root, 0.0..most * 1.06, (0.0, most * 1.06)))
    }

    /// Draws the whole chart. `floor` and `top` are the ends of the vertical axis.
    fn draw<Y>(&self, root: &Area<'_>, up: Y, (floor, top): (f64, f64)) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let end = self.points().map(|(at, _)| at).fold(f64::MIN_POSITIVE, f64::max);
        let over_time = self.places.is_empty();
        let width = if over_time { 0.0..end } else { -0.5..self.places.len() as f64 - 0.5 };
        let upright = self.is_crowded();
        let named = if self.style == Style::Lines { self.series.as_slice() } else { &[] };
        let mut chart = frame(root, if upright { self.longest_place() } else { 0 })
            .margin_right(label_area(named.iter().map(|(name, _)| name.as_str())))
            .build_cartesian_2d(width, up)?;
        let label = |x: &f64| match self.places.get(x.round().max(0.0) as usize) {
            _ if over_time => format!("{x:.0}"),
            Some(place) if (x - x.round()).abs() < 0.01 && *x >= 0.0 && !upright => place.clone(),
            _ => String::new(),
        };
        let labels = if over_time { 8 } else { self.places.len() * 2 + 1 };
        mesh(&mut chart, (&self.across, &self.up), labels, &label)?;
        if upright {
            let below = Pos::new(HPos::Left, VPos::Center);
            let words = font(FONT - 1).transform(FontTransform::Rotate90).pos(below);
            for (at, place) in self.places.iter().enumerate() {
                let (x, y) = chart.backend_coord(&(at as f64, floor));
                root.draw(&Text::new(place.as_str(), (x, y + LETTER as i32), words.clone()))?;
            }
        }
        if let Some((from, until)) = self.marked {
            let corners = [(from, floor), (until.min(end), top)];
            chart.draw_series([Rectangle::new(corners, FAINT.filled())])?;
        }
        let mut ends = Vec::new();
        for (number, (name, points)) in self.series.iter().enumerate() {
            let (colour, points) = (series_colour(number), points.iter().copied());
            match self.style {
                Style::Lines => {
                    if let Some(last) = points.clone().next_back() {
                        ends.push(LineEnd::new(name, number, chart.backend_coord(&last)));
                    }
                    let dots = points.clone().filter(|_| !over_time);
                    chart.draw_series(dots.map(|point| Circle::new(point, 3, colour.filled())))?;
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                }
                Style::Bars => {
                    let share = 0.84 / self.series.len().max(1) as f64;
                    chart.draw_series(points.map(|(at, value)| {
                        let left = at - 0.42 + share * number as f64;
                        let corners = [(left, floor), (left + share * 0.9, value.max(floor))];
                        Rectangle::new(corners, colour.filled())
                    }))?;
                }
            }
        }
        for (at, value) in self.ceiling.iter().flat_map(|(_, points)| points.iter().copied()) {
            let ends = [(at - 0.46, value), (at + 0.46, value)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, CEILING.stroke_width(2)))?;
        }
        label_ends(root, ends)
    }
}

/// The end of a line in the chart, with the line's name and number.
struct LineEnd {
    name: String,
    number: usize,
    x: i32,
    y: i32,
}

/// The longest name beside a line, in characters.
const LONGEST_LABEL: usize = 20;
/// The least vertical distance between two names.
const LABEL_HEIGHT: i32 = FONT;

impl LineEnd {
    fn new(name: &str, number: usize, (x, y): (i32, i32)) -> Self {
        Self { name: label(name), number, x, y }
    }
}

fn label(name: &str) -> String {
    if name.chars().count() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(LONGEST_LABEL - 1).collect();
    short.push('…');
    short
}

/// Returns the width of the space for the names of lines, on the right.
fn label_area<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    let longest = names.map(|name| label(name).chars().count()).max();
    longest.map_or(8, |letters| (letters * LETTER + 14) as u32)
}

/// Writes each line's name at its end, and moves names apart where ends are close.
fn label_ends(root: &Area<'_>, mut ends: Vec<LineEnd>) -> Drawn {
    ends.sort_by_key(|end| end.y);
    let lowest = SIZE.1 as i32 - LABEL_HEIGHT;
    for at in 1..ends.len() {
        ends[at].y = ends[at].y.max(ends[at - 1].y + LABEL_HEIGHT);
    }
    // Moves names up again, starting with the lowest, in case the last ones are below the picture.
    let mut below = lowest + LABEL_HEIGHT;
    for end in ends.iter_mut().rev() {
        end.y = end.y.min(below - LABEL_HEIGHT);
        below = end.y;
    }
    let middle = Pos::new(HPos::Left, VPos::Center);
    for LineEnd { name, number, x, y } in ends {
        let words = ("sans-serif", FONT - 2).into_font().color(&series_colour(number)).pos(middle);
        root.draw(&Text::new(name, (x + 8, y), words))?;
    }
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws a chart, then replaces the placeholder colours of roles by CSS variables.
fn canvas(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Outcome<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = draw(&root).and_then(|()| Ok(root.present()?));
        drawn.map_err(|error| Error::failed(format!("a chart cannot be drawn: {error}")))?;
    }
    let mut roles =
        vec![(INK, "ink".to_owned()), (FAINT, "faint".to_owned()), (CEILING, "ceiling".to_owned())];
    roles.extend((0..SERIES).map(|number| (series_colour(number), format!("s{number}"))));
    for (RGBColor(red, green, blue), role) in roles {
        let colour = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
        svg = svg.replace(&colour, &format!("\"var(--{role})\""));
    }
    Ok(svg)
}

/// Returns the chart as a separate document with a background, a title and a legend. The legend names what each colour
/// means.
pub(super) fn standalone(svg: &str, title: &str, legend: &[(String, &str)]) -> String {
    const LINE: usize = 26;
    let (width, height) = (SIZE.0 as usize, SIZE.1 as usize);
    let (mut across, mut down) = (0, height + 2 * LINE);
    let mut keys = Vec::new();
    for (role, name) in legend {
        let wide = 3 * LINE / 2 + LETTER * name.chars().count();
        if across > 0 && across + wide > width {
            (across, down) = (0, down + LINE);
        }
        keys.push((across, down, format!("var(--{role})"), name));
        across += wide;
    }
    let below = down + LINE / 2;
    let picture = html! {
        svg width=(width) height=(below) viewBox={ "0 0 " (width) " " (below) } xmlns="http://www.w3.org/2000/svg" {
            style { (PreEscaped(COLOURS)) ".words{font:15px sans-serif;fill:var(--ink)}" }
            rect width="100%" height="100%" fill="var(--paper)" {}
            g .words {
                text x="13" y=(LINE) font-weight="bold" { (title) }
                @for (x, y, colour, name) in keys {
                    rect x=(x + LINE / 2) y=(y - 11) width="12" height="12" fill=(colour) {}
                    text x=(x + LINE + 4) y=(y) { (name) }
                }
            }
            g transform={ "translate(0 " (LINE) ")" } { (PreEscaped(svg)) }
        }
    };
    picture.into_string()
}

/// Returns the frame of a chart, with space below it for vertical labels of `letters` characters.
fn frame<'a, 'b>(root: &'a Area<'b>, letters: usize) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut frame = ChartBuilder::on(root);
    frame
        .margin(8)
        .x_label_area_size((50 + letters * LETTER * 3 / 4) as u32)
        .y_label_area_size(UP_AREA);
    frame
}

type Plane<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>;

/// Draws the axes, their labels, and faint lines at the ticks of the vertical axis.
fn mesh<Y>(
    chart: &mut Plane<'_, Y>,
    (across, up): (&str, &str),
    labels: usize,
    label: &dyn Fn(&f64) -> String,
) -> Drawn
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_labels(labels)
        .y_labels(6)
        .x_label_formatter(label)
        .y_label_formatter(&|value| short(*value))
        .label_style(font(FONT - 1))
        .axis_desc_style(font(FONT))
        .x_desc(across)
        .y_desc(up)
        .draw()?;
    Ok(())
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Formats a number in short: `0.25`, `12`, `3.5k`, `40M`.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => return format!("{scaled:.1e}{unit}"),
    };
    let text = format!("{scaled:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "get".to_owned(),
            across: "threads".to_owned(),
            up: "M/s".to_owned(),
            places: vec!["1".to_owned(), "2".to_owned()],
            series: vec![
                ("dlht".to_owned(), points([Some(30.0), Some(55.0)])),
                ("papaya".to_owned(), points([Some(10.0), None])),
            ],
            ceiling: Some(("read-ring-64".to_owned(), points([Some(60.0), Some(110.0)]))),
            ..Chart::default()
        }
    }

    #[test]
    fn colours_are_the_readers() {
        for style in [Style::Bars, Style::Lines] {
            for logarithmic in [false, true] {
                let drawn = Chart { style, logarithmic, ..chart() };
                let svg = drawn.svg().expect("a chart");
                for role in ["ink", "faint", "ceiling", "s0", "s1"] {
                    assert!(
                        svg.contains(&format!("var(--{role})")),
                        "{style:?} lacks {role}: {svg}"
                    );
                }
                assert!(!svg.contains("\"#0"), "a fixed colour is left: {svg}");
                assert!(svg.contains("threads") && svg.contains("M/s"));
                let legend = [("s0".to_owned(), "a < b"), ("ceiling".to_owned(), "the ring")];
                let whole = standalone(&svg, "get", &legend);
                for part in ["prefers-color-scheme:dark", ">get<", ">a &lt; b<", ">the ring<"] {
                    assert!(whole.contains(part), "{part} is missing: {whole}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_no_chart_and_one_value_is_one() {
        assert!(Chart { series: Vec::new(), ceiling: None, ..chart() }.is_empty());
        let one =
            Chart { series: vec![("a".to_owned(), vec![(0.0, 7.0)])], ceiling: None, ..chart() };
        assert!(Chart { logarithmic: true, ..one.clone() }.svg().is_ok() && one.svg().is_ok());
        let series = vec![("get".to_owned(), vec![(0.0, 1.0), (5.0, 2.0)])];
        let timeline = Chart { series, marked: Some((1.0, 9.0)), ..Chart::default() };
        assert!(!timeline.is_empty() && timeline.svg().is_ok());
    }

    #[test]
    fn lines_have_their_names_at_their_ends() {
        let close = |value| (format!("table-{value}"), points([Some(1.0), Some(value)]));
        let series: Vec<_> = [9.0, 9.01, 9.02, 0.0, 0.01].into_iter().map(close).collect();
        let lines = Chart { series, ceiling: None, style: Style::Lines, ..chart() };
        let svg = lines.svg().expect("a chart");
        let mut heights: Vec<i32> = Vec::new();
        for part in svg.split("<text ").filter(|part| part.contains("table-")) {
            let y = part.split("y=\"").nth(1).and_then(|rest| rest.split('"').next());
            heights.push(y.and_then(|y| y.parse().ok()).expect("a height"));
        }
        heights.sort_unstable();
        assert_eq!(heights.len(), 5, "{svg}");
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_HEIGHT), "{heights:?}");
        assert!(heights[4] <= SIZE.1 as i32, "{heights:?}");
        assert_eq!(label("a name that is longer than others"), "a name that is long…");
        let bars = Chart { style: Style::Bars, ..chart() };
        assert!(!bars.svg().expect("a chart").contains("papaya"));
    }

    #[test]
    fn numbers_are_short() {
        let told: Vec<_> = [0.0, 0.25, 7.0, 12.34, 350.2, 12_500.0, 4e7, 2.5e9, 0.00002]
            .into_iter()
            .map(short)
            .collect();
        assert_eq!(told, ["0", "0.25", "7", "12.3", "350", "12.5k", "40M", "2.5G", "2.0e-5"]);
    }
}
