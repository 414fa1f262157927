//! `xroute check`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::DEFAULT_CONFIG;
use crate::config;

/// Arguments of `xroute check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The configuration file
    #[arg(value_name = "FILE", default_value = DEFAULT_CONFIG)]
    file: PathBuf,
}

impl Check {
    /// Prints every error or warning; an error when there is any error.
    pub fn execute(self) -> anyhow::Result<()> {
        let loaded = match config::load(&self.file) {
            Ok(loaded) => loaded,
            Err(errors) => {
                eprintln!("{errors}");
                bail!("{} is not valid", self.file.display());
            }
        };
        for warning in &loaded.warnings {
            eprintln!("{warning}");
        }
        let model = &loaded.model;
        let endpoints: usize = model.profiles().iter().map(|profile| profile.endpoints.len()).sum();
        let names: usize = model.profiles().iter().map(|profile| profile.names.len()).sum();
        super::print(&format!(
            "{}: valid: {} zones, {} profiles, {names} names, {endpoints} endpoints, {} warnings\n",
            self.file.display(),
            model.zones().len(),
            model.profiles().len(),
            loaded.warnings.len(),
        ))
    }
}
