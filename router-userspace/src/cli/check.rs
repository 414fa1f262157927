//! `xroute check`.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::{DEFAULT_CONFIG, Format};
use crate::config;
use crate::fault::Fault;

/// Arguments of `xroute check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The configuration file
    #[arg(value_name = "FILE", default_value = DEFAULT_CONFIG)]
    file: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What is to be said of a configuration.
#[derive(Serialize)]
struct Verdict {
    file: String,
    valid: bool,
    errors: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// What it holds, when it is valid.
    #[serde(flatten)]
    holds: Option<Holds>,
}

#[derive(Serialize)]
struct Holds {
    zones: usize,
    profiles: usize,
    names: usize,
    endpoints: usize,
}

/// A mistake as a program wants it: no line when it is about the file, no column when about the line.
#[derive(Serialize)]
struct Mistake {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
}

impl From<&Fault> for Mistake {
    fn from(fault: &Fault) -> Self {
        Self {
            file: fault.file.to_string(),
            line: (fault.line > 0).then_some(fault.line),
            column: (fault.line > 0 && fault.column > 0).then_some(fault.column),
            message: fault.message.clone(),
        }
    }
}

impl Check {
    /// Prints every error or warning. Exit status: 0 valid, 1 not.
    pub fn execute(self) -> anyhow::Result<Exit> {
        let loaded = config::load(&self.file);
        let (errors, warnings) = match &loaded {
            Ok(loaded) => (&[][..], &loaded.warnings[..]),
            Err(errors) => (errors.faults(), &[][..]),
        };
        let holds = loaded.as_ref().ok().map(|loaded| {
            let profiles = loaded.model.profiles();
            Holds {
                zones: loaded.model.zones().len(),
                profiles: profiles.len(),
                names: profiles.iter().map(|profile| profile.names.len()).sum(),
                endpoints: profiles.iter().map(|profile| profile.endpoints.len()).sum(),
            }
        });
        if self.format == Format::Text {
            for fault in errors.iter().chain(warnings) {
                eprintln!("{fault}");
            }
        }
        let verdict = Verdict {
            file: self.file.display().to_string(),
            valid: loaded.is_ok(),
            errors: errors.iter().map(Mistake::from).collect(),
            warnings: warnings.iter().map(Mistake::from).collect(),
            holds,
        };
        if self.format == Format::Text && !verdict.valid {
            eprintln!("xroute: {} is not valid", verdict.file);
        } else {
            super::print_as(self.format, &verdict)?;
        }
        Ok(if verdict.valid { Exit::Done } else { Exit::Failed })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Holds { zones, profiles, names, endpoints }) = &self.holds else {
            return writeln!(f, "{}: not valid: {} errors", self.file, self.errors.len());
        };
        writeln!(
            f,
            "{}: valid: {zones} zones, {profiles} profiles, {names} names, {endpoints} endpoints, {} warnings",
            self.file,
            self.warnings.len()
        )
    }
}
