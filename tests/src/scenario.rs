//! Scenario files: a configuration, questions with the right answers, configurations to refuse.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ipnet::IpNet;
use router_common::decide::Asker;
use router_common::name::Name;
use router_common::share::Share;
use router_userspace::config::{self, Config, ConfigErrors};
use serde::Deserialize;

use crate::subject::{Answer, Question};

/// One file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The configuration.
    pub config: String,
    /// Files that configurations name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Questions.
    #[serde(default, rename = "case")]
    pub cases: Vec<Case>,
    /// Configurations that must not load.
    #[serde(default, rename = "refuse")]
    pub refusals: Vec<Refusal>,
}

/// One question with its right answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub why: String,
    /// What the monitors say: `profile/endpoint` to `online`, `degraded`, `checking`.
    #[serde(default)]
    pub state: BTreeMap<String, String>,
    /// The question.
    pub ask: Ask,
    /// The answer.
    pub expect: Expect,
}

/// A question as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// QNAME.
    pub name: String,
    /// QTYPE.
    #[serde(rename = "type")]
    pub qtype: String,
    /// Source address.
    pub client: IpAddr,
    /// EDNS Client Subnet.
    pub ecs: Option<String>,
}

/// An answer as it is written; what is left out is not compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// RCODE by name.
    pub rcode: String,
    /// Of every record in the answer section.
    pub ttl: Option<u32>,
    /// SCOPE PREFIX-LENGTH.
    pub scope: Option<u8>,
    /// RRsets and their shares, exact fractions.
    pub shares: BTreeMap<String, String>,
    /// `SOA` for a negative answer.
    pub authority: Option<String>,
}

/// A configuration that must not load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// What is wrong with it.
    pub why: String,
    /// The configuration.
    pub config: String,
    /// What one of the messages must mention, beside a line number.
    pub names: Vec<String>,
}

/// Every scenario of a folder, by file name. None at all is an error: an empty run proves nothing.
pub fn all(folder: &Path) -> Result<Vec<(String, Scenario)>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    ensure!(!paths.is_empty(), "no scenario in {}", folder.display());
    let read = |path: &PathBuf| -> Result<(String, Scenario)> {
        let text = std::fs::read_to_string(path)?;
        let scenario = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, scenario))
    };
    paths.iter().map(read).collect()
}

impl Scenario {
    /// Loads the scenario's own configuration.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        self.load_text(&self.config)
    }

    /// Loads another configuration with the scenario's files.
    pub fn load_text(&self, text: &str) -> Result<Config, ConfigErrors> {
        let files: BTreeMap<String, Vec<u8>> =
            self.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect();
        config::parse(text, "scenario.toml", &files)
    }
}

impl Refusal {
    /// What is wrong with the way a configuration was refused, or that it was not.
    pub fn fault(&self, loaded: Result<Config, ConfigErrors>) -> Option<String> {
        let Err(errors) = loaded else { return Some("it loads".into()) };
        let text = errors.to_string();
        let names_line = |line: &str| {
            let mut parts = line.splitn(4, ':').skip(1);
            let number =
                |part: Option<&str>| part.is_some_and(|part| part.parse::<usize>().is_ok_and(|n| n > 0));
            number(parts.next()) && number(parts.next())
        };
        let mentions = |line: &str| self.names.iter().all(|name| line.contains(name.as_str()));
        if !text.lines().all(names_line) {
            return Some(format!("a message without line and column: {text}"));
        }
        (!text.lines().any(mentions)).then(|| format!("no message mentions {:?}: {text}", self.names))
    }
}

impl Ask {
    /// The question.
    pub fn question(&self) -> Result<Question> {
        let name: Name = self.name.parse().with_context(|| self.name.clone())?;
        let ecs = match &self.ecs {
            None => None,
            Some(text) => {
                let net: IpNet = text.parse().with_context(|| text.clone())?;
                Some((net.network(), net.prefix_len()))
            }
        };
        if ecs.is_some_and(|(_, length)| length == 0) {
            bail!("an option of length 0 is as good as none: leave it out");
        }
        Ok(Question { name, qtype: number(&self.qtype)?, asker: Asker { source: self.client, ecs } })
    }
}

/// QTYPE by mnemonic or `TYPE123`.
fn number(mnemonic: &str) -> Result<u16> {
    Ok(match mnemonic {
        "A" => 1,
        "NS" => 2,
        "CNAME" => 5,
        "SOA" => 6,
        "MX" => 15,
        "TXT" => 16,
        "AAAA" => 28,
        "SRV" => 33,
        "SVCB" => 64,
        "HTTPS" => 65,
        "ANY" => 255,
        other => other.strip_prefix("TYPE").and_then(|number| number.parse().ok()).context("unknown type")?,
    })
}

impl Expect {
    /// What differs between the right answer and a found one; shares may be off by `tolerance`.
    pub fn differences(&self, found: &Answer, tolerance: &Share) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, expected: String, found: String| {
            if expected != found {
                differences.push(format!("{what}: expected {expected}, found {found}"));
            }
        };
        differ("rcode", self.rcode.clone(), found.rcode.to_string());
        let soa = if found.soa { "SOA" } else { "" };
        differ("authority", self.authority.clone().unwrap_or_default(), soa.into());
        if let Some(ttl) = self.ttl {
            for (records, held) in &found.ttls {
                differ(&format!("ttl of {records}"), ttl.to_string(), held.to_string());
            }
        }
        if let Some(scope) = self.scope {
            let held = found.scope.map_or("none".into(), |scope| scope.to_string());
            differ("scope", scope.to_string(), held);
        }
        for (records, share) in &self.shares {
            let held = found.shares.get(records).cloned().unwrap_or_else(Share::zero);
            // Only what is rarer than the tolerance may be missed.
            if held.distance(&fraction(share)?) > *tolerance {
                differences.push(format!("share of {records:?}: expected {share}, found {held}"));
            }
        }
        for (records, share) in &found.shares {
            if !self.shares.contains_key(records) {
                differences.push(format!("share of {records:?}: expected none, found {share}"));
            }
        }
        Ok(differences)
    }
}

fn fraction(text: &str) -> Result<Share> {
    let (over, under) = text.split_once('/').with_context(|| format!("{text} is not a fraction"))?;
    Ok(Share::ratio(over.parse()?, under.parse()?))
}
