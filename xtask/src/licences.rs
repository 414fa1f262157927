//! The licences of all dependencies, checked without a network against the list in deny.toml.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// An error that names every package whose licence the list does not allow.
pub fn run() -> Result<()> {
    let path = shell::root().join("deny.toml");
    let rules = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rules: toml::Table = rules.parse().with_context(|| format!("{} is no TOML", path.display()))?;
    let allowed: BTreeSet<&str> = rules
        .get("licenses")
        .and_then(|table| table.get("allow")?.as_array())
        .context("deny.toml has no [licenses] allow")?
        .iter()
        .filter_map(|licence| licence.as_str())
        .collect();

    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let mut refused = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("");
        if !permits(licence, &allowed) {
            let name = package["name"].as_str().unwrap_or("?");
            let version = package["version"].as_str().unwrap_or("?");
            refused.push(format!("{name} {version}: {licence:?}"));
        }
    }
    if !refused.is_empty() {
        bail!("licences that deny.toml does not allow:\n  {}", refused.join("\n  "));
    }
    println!("{} packages, every licence allowed by deny.toml", packages.len());
    Ok(())
}

/// What `cargo metadata` says of the workspace and all its dependencies.
pub fn metadata() -> Result<Value> {
    let text =
        shell::output(shell::cargo().args(["metadata", "--format-version", "1", "--locked", "--quiet"]))?;
    serde_json::from_str(&text).context("`cargo metadata` printed no JSON")
}

/// Whether an SPDX expression can be satisfied with the allowed licences. `/` is the old way to write OR.
/// Anything that is no expression is refused.
fn permits(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    reader.any() == Some(true) && reader.words.is_empty()
}

/// Reads an expression from left to right; `None` when it is none.
struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<&'a str>,
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn any(&mut self) -> Option<bool> {
        let mut permitted = self.all()?;
        while self.take("OR") {
            permitted |= self.all()?;
        }
        Some(permitted)
    }

    fn all(&mut self) -> Option<bool> {
        let mut permitted = self.one()?;
        while self.take("AND") {
            permitted &= self.one()?;
        }
        Some(permitted)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let permitted = self.any()?;
            return self.take(")").then_some(permitted);
        }
        let (licence, rest) = self.words.split_first()?;
        if matches!(*licence, "OR" | "AND" | "WITH" | ")") {
            return None;
        }
        self.words = rest;
        if self.take("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            return Some(self.allowed.contains(format!("{licence} WITH {exception}").as_str()));
        }
        Some(self.allowed.contains(licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_permitted_when_some_choice_is_allowed_throughout() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"]);
        for expression in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR MIT",
            "GPL-3.0 AND BSL-1.0 OR MIT",
            "(MIT OR GPL-3.0) AND ISC",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(permits(expression, &allowed), "{expression}");
        }
        for expression in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "(MIT", "MIT ISC", "MIT WITH LLVM-exception", "OR"]
        {
            assert!(!permits(expression, &allowed), "{expression}");
        }
    }
}
