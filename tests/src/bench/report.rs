//! Figures with their goals: printed as they are taken, then written as JSON and as Markdown.
//!
//! A program that measures is started as `bench-NAME [--quick] FILE.json` ([`Order`]). It makes a [`Report`], opens
//! sections, adds [`Figure`]s, and ends with [`Report::write`], which also writes `FILE.md` beside. `cargo xtask
//! bench` puts the files of all programs together.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

mod markdown;

/// What a program that measures is told.
#[derive(Clone, Default, Debug)]
pub struct Order {
    /// Fewer cases and shorter runs: the whole of `cargo xtask bench --quick` takes under two minutes.
    pub quick: bool,
    /// Where the JSON goes. Without it figures are printed only.
    pub file: Option<PathBuf>,
}

impl Order {
    /// From the command line: `[--quick] [FILE]`.
    ///
    /// # Errors
    /// When it says something else.
    pub fn from_command_line() -> Result<Self> {
        let mut order = Self::default();
        for argument in std::env::args_os().skip(1) {
            if argument == "--quick" {
                order.quick = true;
            } else {
                let flag = argument.to_string_lossy().starts_with('-');
                ensure!(!flag && order.file.is_none(), "usage: [--quick] [FILE.json], not {argument:?}");
                order.file = Some(argument.into());
            }
        }
        Ok(order)
    }
}

/// What a figure should be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(goal) => value <= goal,
            Self::AtLeast(goal) => value >= goal,
        }
    }

    const fn words(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(goal) => ("at most", goal),
            Self::AtLeast(goal) => ("at least", goal),
        }
    }
}

/// One number that was found. What is judged, or compared from run to run, is a ratio or a difference measured in
/// one run, the median of several; [`Figure::base`] says to what.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<String>,
    value: f64,
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

impl Figure {
    /// A value that is not judged; the unit is empty for a ratio.
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self {
            name: name.into(),
            column: None,
            value,
            unit: unit.into(),
            base: None,
            spread: None,
            goal: None,
            met: None,
        }
    }

    /// The column that it stands in: figures of one section with the same name are one row of its table.
    #[must_use]
    pub fn column(self, column: impl Into<String>) -> Self {
        Self { column: Some(column.into()), ..self }
    }

    /// What the value is a ratio to, or a difference from: "the reflector, in the same run".
    #[must_use]
    pub fn base(self, base: impl Into<String>) -> Self {
        Self { base: Some(base.into()), ..self }
    }

    /// The least and the greatest of those that the value is the median of.
    #[must_use]
    pub fn spread(self, least: f64, greatest: f64) -> Self {
        Self { spread: Some([least, greatest]), ..self }
    }

    /// Judged: it should not be above.
    #[must_use]
    pub fn at_most(self, goal: f64) -> Self {
        self.goal(Goal::AtMost(goal))
    }

    /// Judged: it should not be below.
    #[must_use]
    pub fn at_least(self, goal: f64) -> Self {
        self.goal(Goal::AtLeast(goal))
    }

    /// Judged.
    #[must_use]
    pub fn goal(self, goal: Goal) -> Self {
        // What is no number meets nothing.
        Self { goal: Some(goal), met: Some(goal.is_met(self.value)), ..self }
    }

    /// Name and column.
    fn title(&self) -> String {
        self.column.as_ref().map_or_else(|| self.name.clone(), |column| format!("{}, {column}", self.name))
    }
}

/// What a section holds, in order.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Item {
    Figure(Figure),
    Note { name: String, text: String },
    Paragraph(String),
    Block(String),
    Picture { file: String, caption: String },
}

#[derive(Clone, Debug, Default, Serialize)]
struct Section {
    title: String,
    items: Vec<Item>,
}

/// Figures in the order they were taken.
#[derive(Serialize)]
pub struct Report {
    subject: String,
    seconds: f64,
    sections: Vec<Section>,
    #[serde(skip)]
    begun: Instant,
}

impl Default for Report {
    fn default() -> Self {
        Self::new("Figures")
    }
}

impl Report {
    /// An empty one; the subject is its headline: "One query in the XDP program".
    pub fn new(subject: &str) -> Self {
        Self { subject: subject.into(), seconds: 0.0, sections: Vec::new(), begun: Instant::now() }
    }

    /// What comes after belongs to this section.
    pub fn section(&mut self, title: &str) {
        println!("\n{title}");
        self.sections.push(Section { title: title.into(), items: Vec::new() });
    }

    /// A figure.
    pub fn add(&mut self, figure: Figure) {
        let title = figure.title();
        let spread = figure.spread.map_or_else(String::new, |[least, greatest]| {
            format!("  ({} to {})", number(least), number(greatest))
        });
        let judged = figure.goal.map_or_else(String::new, |goal| {
            let (words, goal) = goal.words();
            let judged = if figure.met == Some(true) { "met" } else { "MISSED" };
            format!("  goal: {words} {}: {judged}", with_unit(goal, &figure.unit))
        });
        println!("  {title:<76} {:>14}{spread}{judged}", with_unit(figure.value, &figure.unit));
        self.push(Item::Figure(figure));
    }

    /// A time, and what it should not be above.
    pub fn time(&mut self, what: &str, time: Duration, goal: Option<Duration>) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        self.figure(what, milliseconds(time), "ms", goal.map(milliseconds));
    }

    /// Anything else with a unit, and what it should not be above.
    pub fn figure(&mut self, what: &str, found: f64, unit: &str, goal: Option<f64>) {
        let figure = Figure::new(what, found, unit);
        self.add(match goal {
            Some(goal) => figure.at_most(goal),
            None => figure,
        });
    }

    /// Something that was counted.
    pub fn count(&mut self, what: &str, count: u64) {
        self.add(Figure::new(what, count as f64, ""));
    }

    /// A text that belongs among the figures, such as a version.
    pub fn note(&mut self, what: &str, note: &str) {
        println!("  {what:<76} {note}");
        self.push(Item::Note { name: what.into(), text: note.into() });
    }

    /// Sentences, in Markdown.
    pub fn paragraph(&mut self, text: &str) {
        println!("  {text}");
        self.push(Item::Paragraph(text.into()));
    }

    /// Text whose lines and spaces stay: a plot of characters.
    pub fn block(&mut self, text: &str) {
        println!("{text}");
        self.push(Item::Block(text.into()));
    }

    /// A picture, whose file the program writes beside its JSON.
    pub fn picture(&mut self, file: &str, caption: &str) {
        self.push(Item::Picture { file: file.into(), caption: caption.into() });
    }

    fn push(&mut self, item: Item) {
        if self.sections.is_empty() {
            self.sections.push(Section::default());
        }
        self.sections.last_mut().expect("made just now").items.push(item);
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|section| &section.items).filter_map(|item| match item {
            Item::Figure(figure) => Some(figure),
            _ => None,
        })
    }

    fn missed(&self) -> Vec<String> {
        self.figures().filter(|figure| figure.met == Some(false)).map(Figure::title).collect()
    }

    /// Everything as Markdown: a headline of the second level, and a table for each section.
    pub fn markdown(&self) -> String {
        markdown::of(self)
    }

    /// Everything as JSON, and whether every goal was met.
    pub fn finish(mut self) -> (Value, bool) {
        self.seconds = self.begun.elapsed().as_secs_f64();
        let met = self.missed().is_empty();
        // Strings and numbers: nothing in it can fail.
        (serde_json::to_value(&self).unwrap_or_default(), met)
    }

    /// Writes JSON, and Markdown beside it.
    ///
    /// # Errors
    /// When a file cannot be written, or a goal was missed (the files are written then).
    pub fn write(self, order: &Order) -> Result<()> {
        let (missed, markdown) = (self.missed(), self.markdown());
        let (figures, _) = self.finish();
        if let Some(file) = &order.file {
            let put = |path: &PathBuf, text: String| {
                fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
            };
            put(file, serde_json::to_string_pretty(&figures)? + "\n")?;
            put(&file.with_extension("md"), markdown)?;
        }
        if !missed.is_empty() {
            bail!("missed: {}", missed.join("; "));
        }
        Ok(())
    }
}

/// A number with as many digits as say something, and its unit.
fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// Whole numbers with thousands apart; three digits of others.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "none".into();
    }
    let size = value.abs();
    let digits = match size {
        _ if value.fract() == 0.0 || size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((&*text, ""), |(whole, rest)| (whole, rest));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::from(sign);
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

/// How long something takes, and what comes out.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// Processor time of this process so far: what a time would be on a machine that does nothing else.
pub fn processor() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The middle one of some times.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        for (value, text) in [
            (0.0, "0"),
            (0.8567, "0.857"),
            (7.0, "7"),
            (63.456, "63.46"),
            (123.45, "123.5"),
            (999_999.6, "1,000,000"),
            (3_412_345.0, "3,412,345"),
            (-1234.0, "-1,234"),
            (f64::NAN, "none"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_goal_is_judged_and_what_is_no_number_misses_it() {
        let mut report = Report::new("Test");
        report.add(Figure::new("a", 70.0, "ns").at_most(70.0));
        report.add(Figure::new("b", 0.85, "").at_least(0.85));
        assert!(report.missed().is_empty());
        report.add(Figure::new("c", f64::NAN, "").column("d").at_most(1.0));
        report.add(Figure::new("e", 0.84, "").at_least(0.85));
        assert_eq!(report.missed(), ["c, d", "e"]);
        let (value, met) = report.finish();
        assert!(!met);
        let figure = &value["sections"][0]["items"][0]["figure"];
        assert_eq!(figure["goal"]["at_most"], 70.0);
        assert_eq!(figure["met"], true);
    }
}
