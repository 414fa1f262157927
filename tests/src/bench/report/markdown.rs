//! A report as Markdown, fit to stand in the documentation as it is.

use std::fmt::Write;

use super::{Figure, Item, Report, Section, number, with_unit};

/// The whole of it.
pub fn of(report: &Report) -> String {
    let mut text = format!("## {}\n", report.subject);
    for section in &report.sections {
        if !section.title.is_empty() {
            let _ = write!(text, "\n### {}\n", section.title);
        }
        write_section(&mut text, section);
    }
    text
}

/// Neighbours that stand in one table.
enum Run<'a> {
    Plain(Vec<&'a Item>),
    Columns(Vec<&'a Figure>),
}

fn write_section(text: &mut String, section: &Section) {
    let mut run = None;
    for item in &section.items {
        match (item, &mut run) {
            (Item::Figure(figure), Some(Run::Columns(figures))) if figure.column.is_some() => {
                figures.push(figure);
            }
            (Item::Figure(figure), _) if figure.column.is_some() => {
                end(text, run.replace(Run::Columns(vec![figure])));
            }
            (Item::Figure(_) | Item::Note { .. }, Some(Run::Plain(items))) => items.push(item),
            (Item::Figure(_) | Item::Note { .. }, _) => end(text, run.replace(Run::Plain(vec![item]))),
            (Item::Paragraph(sentences), _) => {
                end(text, run.take());
                let _ = write!(text, "\n{sentences}\n");
            }
            (Item::Block(lines), _) => {
                end(text, run.take());
                let _ = write!(text, "\n```text\n{}\n```\n", lines.trim_end_matches('\n'));
            }
            (Item::Picture { file, caption }, _) => {
                end(text, run.take());
                let _ = write!(text, "\n![{caption}]({file})\n");
            }
        }
    }
    end(text, run);
}

fn end(text: &mut String, run: Option<Run<'_>>) {
    match run {
        None => {}
        Some(Run::Plain(items)) => plain(text, &items),
        Some(Run::Columns(figures)) => columns(text, &figures),
    }
}

/// A row for each figure or note.
fn plain(text: &mut String, items: &[&Item]) {
    let goals = items.iter().any(|item| matches!(item, Item::Figure(figure) if figure.goal.is_some()));
    text.push_str(if goals {
        "\n| | | goal | |\n| --- | ---: | ---: | --- |\n"
    } else {
        "\n| | |\n| --- | ---: |\n"
    });
    for item in items {
        let (name, value, goal) = match item {
            Item::Figure(figure) => {
                let base = figure.base.as_ref().map_or_else(String::new, |base| format!(" ({base})"));
                (cell(&(figure.name.clone() + &base)), value(figure), goal(figure))
            }
            Item::Note { name, text } => (cell(name), cell(text), None),
            _ => continue,
        };
        let _ = match (goals, goal) {
            (false, _) => writeln!(text, "| {name} | {value} |"),
            (true, None) => writeln!(text, "| {name} | {value} | | |"),
            (true, Some((goal, judged))) => writeln!(text, "| {name} | {value} | {goal} | {judged} |"),
        };
    }
}

/// A row for each name, a column for each column; the unit stands on top where a column has one unit.
fn columns(text: &mut String, figures: &[&Figure]) {
    let mut rows: Vec<&str> = Vec::new();
    let mut heads: Vec<&str> = Vec::new();
    for figure in figures {
        if !rows.contains(&&*figure.name) {
            rows.push(&figure.name);
        }
        let column = figure.column.as_deref().unwrap_or_default();
        if !heads.contains(&column) {
            heads.push(column);
        }
    }
    let units: Vec<Option<&str>> = heads
        .iter()
        .map(|head| {
            let mut units = in_column(figures, head).map(|figure| &*figure.unit);
            let first = units.next()?;
            units.all(|unit| unit == first).then_some(first)
        })
        .collect();
    text.push_str("\n| |");
    for (head, unit) in heads.iter().zip(&units) {
        let _ = match unit {
            None | Some("") => write!(text, " {} |", cell(head)),
            Some(unit) => write!(text, " {}, {unit} |", cell(head)),
        };
    }
    text.push_str("\n| --- |");
    heads.iter().for_each(|_| text.push_str(" ---: |"));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", cell(row));
        for (head, unit) in heads.iter().zip(&units) {
            let found = in_column(figures, head).find(|figure| figure.name == row);
            let _ = match found {
                None => write!(text, " |"),
                Some(figure) => {
                    let plain = Figure { unit: String::new(), ..figure.clone() };
                    let value = value(if unit.is_some() { &plain } else { figure });
                    match goal(figure) {
                        None => write!(text, " {value} |"),
                        Some((goal, judged)) => write!(text, " {value} ({goal}: {judged}) |"),
                    }
                }
            };
        }
        text.push('\n');
    }
}

fn in_column<'a>(figures: &[&'a Figure], head: &str) -> impl Iterator<Item = &'a Figure> {
    figures.iter().copied().filter(move |figure| figure.column.as_deref() == Some(head))
}

/// The value, and between what those lie that it is the median of.
fn value(figure: &Figure) -> String {
    let value = with_unit(figure.value, &figure.unit);
    match figure.spread {
        None => value,
        Some([least, greatest]) => format!("{value} ({}–{})", number(least), number(greatest)),
    }
}

fn goal(figure: &Figure) -> Option<(String, &'static str)> {
    let (words, goal) = figure.goal?.words();
    let judged = if figure.met == Some(true) { "met" } else { "**missed**" };
    Some((format!("{words} {}", with_unit(goal, &figure.unit)), judged))
}

/// A text that does not end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_with_columns_are_one_table() {
        let mut report = Report::new("One query");
        report.section("By size");
        report.add(Figure::new("A", 50.0, "ns").column("1 name"));
        report.add(Figure::new("A", 60.5, "ns").column("many").at_most(70.0));
        report.add(Figure::new("AAAA", 61.0, "ns").column("many").spread(60.0, 64.0));
        report.note("kernel", "a|b");
        report.figure("ratio", 1.25, "", Some(1.5));
        report.block("*\n");
        assert_eq!(
            report.markdown(),
            "## One query\n\n### By size\n\n\
             | | 1 name, ns | many, ns |\n| --- | ---: | ---: |\n\
             | A | 50 | 60.50 (at most 70 ns: met) |\n| AAAA | | 61 (60–64) |\n\n\
             | | | goal | |\n| --- | ---: | ---: | --- |\n\
             | kernel | a\\|b | | |\n| ratio | 1.25 | at most 1.50 | met |\n\n```text\n*\n```\n"
        );
    }
}
