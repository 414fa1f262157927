//! `xroute man`: manual pages, made from the command line's own definition.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};

use super::exit::Exit;
use super::{Cli, DEFAULT_CONFIG};
use crate::{audit, settings};

/// Arguments of `xroute man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Where the pages are written to; made when it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes `xroute.1`, and `xroute-COMMAND.1` for each command.
    pub fn execute(self) -> anyhow::Result<()> {
        let folder = &self.folder;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, page) in pages()? {
            let path = folder.join(name);
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Every page with the name of its file.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, None, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, parent: Option<&str>, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    // `xroute-endpoint-weight`: clap has put it together from the parents' names.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let below: Vec<&Command> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    let mut also: Vec<String> = parent.map(str::to_owned).into_iter().collect();
    also.extend(below.iter().filter_map(|below| below.get_display_name()).map(str::to_owned));
    pages.push((format!("{name}.1"), page(command, &also)?));
    below.into_iter().try_for_each(|below| add(below, Some(&name), pages))
}

fn page(command: &Command, also: &[String]) -> anyhow::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    // Without a date, so that the same build makes the same pages.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
    writeln!(text, ".TH \"{name}\" \"1\" \"\" \"xroute {}\" \"xroute\"", env!("CARGO_PKG_VERSION"))?;
    man.render_name_section(&mut text)?;
    let usage = command.clone().render_usage().to_string();
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    for line in usage.lines() {
        synopsis.text([roman(line.trim().trim_start_matches("Usage: "))]).control("br", []);
    }
    synopsis.to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    rest.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        rest.control("TP", []).text([bold((exit as u8).to_string())]).text([roman(exit.meaning())]);
    }
    rest.control("SH", ["FILES"]);
    let server = settings::Server::default();
    let state = server.state_dir.join(audit::FILE);
    for (path, what) in [
        (DEFAULT_CONFIG.to_owned(), "the configuration"),
        (server.control.display().to_string(), "the control socket of the agent"),
        (state.display().to_string(), "what was changed in a running agent, when and by whom"),
    ] {
        rest.control("TP", []).text([bold(path)]).text([roman(what)]);
    }
    if !also.is_empty() {
        rest.control("SH", ["SEE ALSO"]);
        let mut line = Vec::new();
        for (i, name) in also.iter().enumerate() {
            line.extend([bold(name.as_str()), roman(if i + 1 < also.len() { "(1), " } else { "(1)" })]);
        }
        rest.text(line);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_all_sections() {
        let pages = pages().expect("written into memory");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for wanted in ["xroute.1", "xroute-run.1", "xroute-endpoint-disable.1", "xroute-override-list.1"] {
            assert!(names.contains(&wanted), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
        for (name, page) in &pages {
            let page = String::from_utf8(page.clone()).expect("text");
            for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "FILES", "SEE ALSO"] {
                let heading =
                    page.lines().any(|line| line.trim_start_matches(".SH ").trim_matches('"') == section);
                assert!(heading, "{name} has no {section}:\n{page}");
            }
            for exit in Exit::ALL {
                assert!(page.contains(&format!("\\fB{}\\fR", exit as u8)), "{name}: {exit:?}");
            }
        }
    }

    #[test]
    fn every_command_and_argument_is_explained() {
        fn check(command: &Command) {
            let name = command.get_display_name().unwrap_or(command.get_name());
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        check(&command);
    }
}
