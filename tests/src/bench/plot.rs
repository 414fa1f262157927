//! Cost against size, as a picture (SVG) and as characters.

use std::fmt::Write;

/// Points of one line, from the smallest size to the largest.
pub struct Series {
    /// What the sizes are of: "names".
    pub title: String,
    /// Size, above 0, and cost.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
/// Around the area of the curve: left, top, right, bottom.
const MARGIN: [f64; 4] = [52.0, 34.0, 18.0, 44.0];

/// A panel for each series, side by side: sizes to the right, as powers of ten, costs upwards from zero. The panels
/// have the same height of costs.
pub fn svg(series: &[Series], unit: &str) -> String {
    let top = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(1.0, f64::max);
    let step = step(top);
    let top = (top / step).ceil() * step;
    let width = WIDTH * series.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for (at, series) in series.iter().enumerate() {
        panel(&mut text, series, at as f64 * WIDTH, top, step, unit);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, series: &Series, left: f64, top: f64, step: f64, unit: &str) {
    let [margin_left, margin_top, margin_right, margin_bottom] = MARGIN;
    let (x0, x1) = (left + margin_left, left + WIDTH - margin_right);
    let (y0, y1) = (HEIGHT - margin_bottom, margin_top);
    let decades = |size: f64| size.max(1.0).log10();
    let first = series.points.first().map_or(0.0, |point| decades(point.0).floor());
    let last = series.points.last().map_or(1.0, |point| decades(point.0).ceil()).max(first + 1.0);
    let x = |size: f64| x0 + (decades(size) - first) / (last - first) * (x1 - x0);
    let y = |cost: f64| y0 - cost / top * (y0 - y1);
    let mut cost = 0.0;
    while cost <= top {
        let at = y(cost);
        let _ = writeln!(
            text,
            "<line x1=\"{x0:.1}\" x2=\"{x1:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{cost:.0}</text>",
            x0 - 6.0,
            at + 4.0
        );
        cost += step;
    }
    for decade in first as i32..=last as i32 {
        let size = 10f64.powi(decade);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(size),
            y0 + 16.0,
            thousands(size)
        );
    }
    let line: Vec<String> =
        series.points.iter().map(|&(size, cost)| format!("{:.1},{:.1}", x(size), y(cost))).collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"2\"/>",
        line.join(" ")
    );
    for &(size, cost) in &series.points {
        let _ = writeln!(
            text,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#06c\"/>\n<text x=\"{0:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{cost:.0}</text>",
            x(size),
            y(cost),
            y(cost) - 8.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n<text x=\"{x0:.1}\" y=\"16\">{unit}</text>",
        f64::midpoint(x0, x1),
        y0 + 34.0,
        series.title
    );
}

/// The same as bars of characters, a line for each point.
pub fn text(series: &[Series], unit: &str) -> String {
    const BAR: f64 = 50.0;
    let top = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(1.0, f64::max);
    let mut text = String::new();
    for Series { title, points } in series {
        let _ = writeln!(text, "{title}");
        for &(size, cost) in points {
            let bar = "#".repeat((cost.max(0.0) / top * BAR).round() as usize);
            let _ = writeln!(text, "{:>10} | {bar} {cost:.1} {unit}", thousands(size));
        }
    }
    text
}

/// Between marks: 1, 2 or 5 of some power of ten, so that there are at most six.
fn step(top: f64) -> f64 {
    let magnitude = 10f64.powf((top / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter()
        .find(|step| top / step <= 6.0)
        .unwrap_or(top)
}

fn thousands(size: f64) -> String {
    match size {
        _ if size >= 1e6 => format!("{} M", size / 1e6),
        _ if size >= 1e3 => format!("{} k", size / 1e3),
        _ => format!("{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_mark_for_each_point() {
        let series =
            [Series { title: "names".into(), points: vec![(1.0, 40.0), (1000.0, 50.0), (1e6, 60.5)] }];
        let picture = svg(&series, "ns");
        assert_eq!(picture.matches("<circle").count(), 3);
        // From the left edge to the right one, and down from the top at 70.
        assert!(picture.contains("points=\"52.0,"), "{picture}");
        assert!(picture.contains(" 402.0,"), "{picture}");
        assert_eq!(picture.matches("<svg").count(), picture.matches("</svg>").count());
        let lines = text(&series, "ns");
        assert!(
            lines.contains("       1 M | ################################################## 60.5 ns"),
            "{lines}"
        );
        assert_eq!([1.0, 7.0, 60.5, 130.0].map(step), [0.2, 2.0, 20.0, 50.0]);
    }
}
