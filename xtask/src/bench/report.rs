//! One report of all subjects: the machine on top, what was judged, then each subject's own figures.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// Figures of several subjects.
pub struct Whole {
    folder: PathBuf,
    quick: bool,
    machine: Vec<(&'static str, String)>,
    subjects: Map<String, Value>,
    /// Markdown of the subjects.
    texts: Vec<String>,
    judged: Vec<Judged>,
    /// Subjects that have no figures, and why.
    failed: Vec<(String, String)>,
    begun: Instant,
}

/// A figure that has a goal.
struct Judged {
    subject: String,
    name: String,
    value: String,
    goal: String,
    met: bool,
}

impl Whole {
    /// Nothing yet; files go to `folder`.
    pub fn new(folder: &Path, quick: bool, machine: Vec<(&'static str, String)>) -> Self {
        Self {
            folder: folder.into(),
            quick,
            machine,
            subjects: Map::new(),
            texts: Vec::new(),
            judged: Vec::new(),
            failed: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// On the terminal.
    pub fn print_machine(&self) {
        println!("\nMachine");
        for (name, value) in &self.machine {
            println!("  {name:<26} {value}");
        }
    }

    /// Takes what a subject left in the folder. One that failed and left figures has missed a goal; one that left
    /// none could not be measured, which is said in the report.
    ///
    /// # Errors
    /// When the figures cannot be read.
    pub fn add(&mut self, subject: &str, load: &str, done: Result<()>) -> Result<()> {
        let file = self.folder.join(subject).with_extension("json");
        let text = match (fs::read_to_string(&file), done) {
            (Ok(text), _) => text,
            (Err(_), Err(error)) => {
                eprintln!("{subject} was not measured: {error:#}");
                self.texts.push(format!("## {subject}\n\nNot measured: {error:#}\n"));
                self.failed.push((subject.into(), format!("{error:#}")));
                return Ok(());
            }
            (Err(error), Ok(())) => bail!("{subject} left no figures in {}: {error}", file.display()),
        };
        let mut figures: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))?;
        for figure in judged(&figures) {
            self.judged.push(Judged::of(subject, figure));
        }
        if let Some(figures) = figures.as_object_mut() {
            figures.insert("load_before".into(), load.into());
        }
        self.subjects.insert(subject.into(), figures);
        let text = fs::read_to_string(file.with_extension("md")).unwrap_or_default();
        self.texts.push(format!("{}\nBefore it began: {load}.\n", text));
        Ok(())
    }

    /// Prints what was judged, and writes `report.json` and `report.md`.
    ///
    /// # Errors
    /// When a file cannot be written, a goal was missed, or a subject could not be measured.
    pub fn write(self) -> Result<()> {
        println!("\nGoals");
        for Judged { subject, name, value, goal, met } in &self.judged {
            let name = format!("{subject}: {name}");
            println!("  {:<6} {name:<70} {value:>12}  {goal}", if *met { "met" } else { "MISSED" });
        }
        for (subject, why) in &self.failed {
            println!("  FAILED {subject}: {why}");
        }
        let minutes = self.begun.elapsed().as_secs_f64() / 60.0;
        let missed = self.judged.iter().filter(|judged| !judged.met).count();
        println!("\n{} goals, {missed} missed; {minutes:.1} minutes.", self.judged.len());
        let files = [
            ("report.json", serde_json::to_string_pretty(&self.json())? + "\n"),
            ("report.md", self.markdown(minutes)),
        ];
        for (name, text) in files {
            let path = self.folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        match (missed, self.failed.len()) {
            (0, 0) => Ok(()),
            (missed, 0) => bail!("{missed} goals were missed"),
            (missed, failed) => bail!("{missed} goals were missed, {failed} subjects not measured"),
        }
    }

    fn json(&self) -> Value {
        let machine: Map<String, Value> =
            self.machine.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let failed: Map<String, Value> =
            self.failed.iter().map(|(subject, why)| (subject.clone(), json!(why))).collect();
        json!({
            "machine": machine,
            "quick": self.quick,
            "seconds": self.begun.elapsed().as_secs_f64(),
            "missed": self.judged.iter().filter(|judged| !judged.met)
                .map(|judged| format!("{}: {}", judged.subject, judged.name)).collect::<Vec<_>>(),
            "not_measured": failed,
            "subjects": self.subjects,
        })
    }

    fn markdown(&self, minutes: f64) -> String {
        let quick = if self.quick { ", short runs (`--quick`): fewer cases, noisier figures" } else { "" };
        let mut text =
            format!("## The machine\n\nMeasured in {minutes:.1} minutes{quick}.\n\n| | |\n| --- | --- |\n");
        for (name, value) in &self.machine {
            let _ = writeln!(text, "| {name} | {} |", value.replace('|', "\\|"));
        }
        if !self.judged.is_empty() {
            text.push_str("\n## Goals\n\n| | found | goal | |\n| --- | ---: | ---: | --- |\n");
            for Judged { subject, name, value, goal, met } in &self.judged {
                let met = if *met { "met" } else { "**missed**" };
                let _ =
                    writeln!(text, "| {subject}: {} | {value} | {goal} | {met} |", name.replace('|', "\\|"));
            }
        }
        for subject in &self.texts {
            let _ = write!(text, "\n{subject}");
        }
        text
    }
}

/// Every figure that has a goal.
fn judged(figures: &Value) -> impl Iterator<Item = &Value> {
    let sections = figures.get("sections").and_then(Value::as_array).into_iter().flatten();
    sections
        .filter_map(|section| section.get("items")?.as_array())
        .flatten()
        .filter_map(|item| item.get("figure"))
        .filter(|figure| figure.get("met").is_some())
}

impl Judged {
    fn of(subject: &str, figure: &Value) -> Self {
        let text = |name: &str| figure.get(name).and_then(Value::as_str).unwrap_or_default();
        let unit = match text("unit") {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        let name = match text("column") {
            "" => text("name").to_owned(),
            column => format!("{}, {column}", text("name")),
        };
        let goal = |kind: &str| figure.get("goal")?.get(kind)?.as_f64();
        let goal = match (goal("at_most"), goal("at_least")) {
            (Some(goal), _) => format!("at most {goal}{unit}"),
            (_, Some(goal)) => format!("at least {goal}{unit}"),
            _ => String::new(),
        };
        let value = figure.get("value").and_then(Value::as_f64);
        let value = value.map_or_else(|| "none".into(), |value| format!("{value:.2}{unit}"));
        let met = figure.get("met").and_then(Value::as_bool) == Some(true);
        Self { subject: subject.into(), name, value, goal, met }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_figures_are_found_and_the_report_tells_them() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("xroute-bench-report-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let figures = json!({ "sections": [{ "title": "t", "items": [
            { "note": { "name": "n", "text": "t" } },
            { "figure": { "name": "rate", "column": "A", "value": 0.8, "unit": "", "goal": { "at_least": 0.85 }, "met": false } },
            { "figure": { "name": "cost", "value": 60, "unit": "ns", "goal": { "at_most": 70.0 }, "met": true } },
        ] }] });
        fs::write(folder.join("flood.json"), figures.to_string())?;
        fs::write(folder.join("flood.md"), "## Flood\n")?;
        let mut whole = Whole::new(&folder, true, vec![("kernel", "Linux 6".into())]);
        whole.add("flood", "load", Err(anyhow::anyhow!("exit 1")))?;
        whole.add("peers", "load", Err(anyhow::anyhow!("no namespaces")))?;
        let error = whole.write().expect_err("a goal was missed").to_string();
        assert_eq!(error, "1 goals were missed, 1 subjects not measured");
        let text = fs::read_to_string(folder.join("report.md"))?;
        for line in [
            "| kernel | Linux 6 |",
            "| flood: rate, A | 0.80 | at least 0.85 | **missed** |",
            "| flood: cost | 60.00 ns | at most 70 ns | met |",
            "## Flood",
            "Not measured: no namespaces",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let json: Value = serde_json::from_str(&fs::read_to_string(folder.join("report.json"))?)?;
        assert_eq!(json["missed"], json!(["flood: rate, A"]));
        assert_eq!(json["subjects"]["flood"]["load_before"], "load");
        fs::remove_dir_all(&folder)?;
        Ok(())
    }
}
