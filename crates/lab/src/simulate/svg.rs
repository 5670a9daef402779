//! A report as a picture: how long jobs of each size waited, one bar for each policy, and below how much of the cluster was
//! in use in the course of time, one panel for each policy beside the other.
//!
//! Invariant: equal reports give equal bytes, all text is escaped, and nothing is fetched: no script, font or style from
//! elsewhere. Called by [`super::Report::svg`]; policies beyond the first few are left out and counted.

use std::fmt::Write as _;

use super::figures::{Figures, Spread};
use super::table::time;
use super::{Report, Run};

/// Policies in one picture.
const RUNS_MAX: usize = 6;
/// One of each policy, told apart by people who don't see all colours (Okabe and Ito).
const COLOURS: [&str; RUNS_MAX] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const INK: &str = "#222";
const PALE: &str = "#ddd";

const WIDTH: f64 = 1_080.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Upper edge of the panel of waits, in pixels.
const WAITS_TOP: f64 = 110.0;
const WAITS_HEIGHT: f64 = 250.0;
/// Upper edge of the panels of use, in pixels.
const USE_TOP: f64 = 440.0;
const USE_HEIGHT: f64 = 150.0;
const HEIGHT: f64 = 660.0;
/// Pixels between two panels of use.
const GAP: f64 = 24.0;
/// Ticks of the axis of waits, in seconds.
const TICKS: [f64; 9] = [1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0];

/// The picture, as one document.
pub(super) fn render(report: &Report) -> String {
    let shown = &report.runs[..report.runs.len().min(RUNS_MAX)];
    let mut drawing = Drawing(String::new());
    let _ = write!(
        drawing.0,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    head(&mut drawing, report, shown);
    waits(&mut drawing, shown);
    in_use(&mut drawing, report, shown);
    drawing.0.push_str("</svg>\n");
    drawing.0
}

fn head(drawing: &mut Drawing, report: &Report, shown: &[Run]) {
    let Report { trace, jobs, pods, nodes, cores, load, .. } = report;
    drawing.text(at(LEFT, 28.0), "start", 18, &format!("{trace}: {jobs} jobs, {pods} pods"));
    let about = format!("{nodes} nodes, {cores} cores, offered load {load:.2}");
    let left_out = report.runs.len() - shown.len();
    let about = if left_out > 0 { format!("{about}; {left_out} more policies are not shown") } else { about };
    drawing.text(at(LEFT, 48.0), "start", 12, &about);
    let mut x = LEFT;
    for (run, colour) in shown.iter().zip(COLOURS) {
        drawing.bar(at(x, 62.0), 12.0, 12.0, colour, 1.0);
        drawing.text(at(x + 17.0, 72.0), "start", 12, &run.policy);
        x += 40.0 + 7.0 * run.policy.chars().take(40).count() as f64;
    }
}

/// Bars to the ninetieth percentile, a line on to the ninety-ninth, a notch at the middle.
fn waits(drawing: &mut Drawing, shown: &[Run]) {
    drawing.text(
        at(LEFT, WAITS_TOP - 12.0),
        "start",
        13,
        "wait by size of the job: bar to p90, line to p99, notch at p50, dot at the mean",
    );
    let sizes: Vec<&str> =
        shown.first().into_iter().flat_map(|run| &run.figures.by_size).map(|(name, _)| name.as_str()).collect();
    let of = |run: &Run, size: &str| spread(&run.figures, size);
    let longest = shown.iter().flat_map(|run| sizes.iter().filter_map(|size| of(run, size))).map(|spread| spread.p99);
    let longest = longest.fold(60.0, f64::max);
    // A second and less lie on the axis; it is logarithmic from there.
    let bottom = WAITS_TOP + WAITS_HEIGHT;
    let y = |seconds: f64| bottom - WAITS_HEIGHT * (seconds.max(1.0).ln() / longest.ln()).min(1.0);
    for tick in TICKS.into_iter().filter(|tick| *tick <= longest) {
        drawing.line(at(LEFT, y(tick)), at(WIDTH - RIGHT, y(tick)), PALE, 1.0);
        drawing.text(at(LEFT - 8.0, y(tick) + 4.0), "end", 11, &time(tick));
    }
    let slot = (WIDTH - LEFT - RIGHT) / sizes.len().max(1) as f64;
    let width = (slot * 0.8 / shown.len().max(1) as f64).min(60.0);
    for (place, size) in sizes.iter().enumerate() {
        let middle = LEFT + slot * (place as f64 + 0.5);
        let jobs = shown.first().and_then(|run| run.figures.by_size.iter().find(|(name, _)| name == size));
        let jobs = jobs.map_or(0, |(_, of)| of.jobs);
        drawing.text(at(middle, bottom + 18.0), "middle", 12, &format!("{size} ({jobs} jobs)"));
        for (index, (run, colour)) in shown.iter().zip(COLOURS).enumerate() {
            let Some(spread) = of(run, size) else { continue };
            let x = middle + width * (index as f64 - shown.len() as f64 / 2.0);
            drawing.bar(at(x + 2.0, y(spread.p90)), width - 4.0, bottom - y(spread.p90), colour, 0.75);
            let centre = x + width / 2.0;
            drawing.line(at(centre, y(spread.p90)), at(centre, y(spread.p99)), colour, 2.0);
            drawing.line(at(x + 2.0, y(spread.p50)), at(x + width - 2.0, y(spread.p50)), INK, 2.0);
            drawing.dot(at(centre, y(spread.mean)));
        }
    }
    drawing.line(at(LEFT, bottom), at(WIDTH - RIGHT, bottom), INK, 1.0);
}

fn spread(figures: &Figures, size: &str) -> Option<Spread> {
    figures.by_size.iter().find(|(name, _)| name == size).map(|(_, of)| of.wait_s)
}

fn in_use(drawing: &mut Drawing, report: &Report, shown: &[Run]) {
    drawing.text(at(LEFT, USE_TOP - 28.0), "start", 13, "use of all cores in the course of time");
    let panels = shown.len().max(1) as f64;
    let width = (WIDTH - LEFT - RIGHT - GAP * (panels - 1.0)) / panels;
    let bottom = USE_TOP + USE_HEIGHT;
    for (place, (run, colour)) in shown.iter().zip(COLOURS).enumerate() {
        let left = LEFT + place as f64 * (width + GAP);
        drawing.text(at(left, USE_TOP - 8.0), "start", 12, &run.policy);
        for part in [0.0, 0.5, 1.0] {
            let y = bottom - USE_HEIGHT * part;
            drawing.line(at(left, y), at(left + width, y), PALE, 1.0);
            if place == 0 {
                drawing.text(at(LEFT - 8.0, y + 4.0), "end", 11, &format!("{:.0} %", part * 100.0));
            }
        }
        let values = run.in_use.as_deref().unwrap_or_default();
        let step = width / values.len().max(1) as f64;
        let mut outline = format!("M{left:.1} {bottom:.1}");
        for (index, value) in values.iter().enumerate() {
            let y = bottom - USE_HEIGHT * value.clamp(0.0, 1.0);
            let (from, to) = (left + step * index as f64, left + step * (index + 1) as f64);
            let _ = write!(outline, "L{from:.1} {y:.1}L{to:.1} {y:.1}");
        }
        let _ = write!(outline, "L{:.1} {bottom:.1}Z", left + width);
        let _ = writeln!(drawing.0, "<path d=\"{outline}\" fill=\"{colour}\" fill-opacity=\"0.75\"/>");
        drawing.line(at(left, bottom), at(left + width, bottom), INK, 1.0);
        drawing.text(at(left, bottom + 16.0), "start", 11, "0");
        drawing.text(at(left + width, bottom + 16.0), "end", 11, &time(report.measured_to_s));
        let used = format!("{:.1} % of what was offered", run.figures.utilisation * 100.0);
        drawing.text(at(left, bottom + 34.0), "start", 11, &used);
        let ends = format!("all ended after {}", time(run.figures.makespan_s));
        drawing.text(at(left, bottom + 50.0), "start", 11, &ends);
    }
}

/// A place in the picture, from its upper left corner.
#[derive(Debug, Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

fn at(x: f64, y: f64) -> Point {
    Point { x, y }
}

/// Elements, one a line.
struct Drawing(String);

impl Drawing {
    // Writing to a String never fails.
    fn text(&mut self, Point { x, y }: Point, anchor: &str, size: u32, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
        );
    }

    fn line(&mut self, Point { x, y }: Point, to: Point, colour: &str, width: f64) {
        let _ = writeln!(
            self.0,
            "<path d=\"M{x:.1} {y:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            to.x, to.y
        );
    }

    fn bar(&mut self, Point { x, y }: Point, width: f64, height: f64, colour: &str, opacity: f64) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
             fill-opacity=\"{opacity}\"/>"
        );
    }

    fn dot(&mut self, Point { x, y }: Point) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#fff\" stroke=\"{INK}\"/>");
    }
}

/// As XML takes it; what it can't hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\u{7}\n"), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
