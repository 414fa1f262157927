//! The configuration, its data files, and the directory for state.

use std::path::PathBuf;

use super::Finding;

const TOPIC: &str = "configuration";
/// A database older than this is told, seconds: those of MaxMind come weekly.
const OLD: u64 = 45 * 86_400;

/// What there is to know.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The file.
    pub file: PathBuf,
    /// What reading it gave.
    pub read: Read,
    /// Data files that it names.
    pub files: Vec<DataFile>,
    /// `state_dir`, when there is a configuration, and what is wrong with it.
    pub state: Option<(PathBuf, StateDir)>,
}

/// What came of reading a configuration.
#[derive(Clone, Debug, Default)]
pub enum Read {
    /// There is no file.
    #[default]
    Absent,
    /// It cannot be read by this user.
    Unreadable(String),
    /// Its errors.
    Invalid(Vec<String>),
    /// Its warnings.
    Valid(Vec<String>),
}

/// A data file.
#[derive(Clone, Debug, Default)]
pub struct DataFile {
    /// What it holds.
    pub kind: String,
    /// Where it is.
    pub path: PathBuf,
    /// Seconds since it was written.
    pub age: u64,
}

/// A directory for state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateDir {
    /// It can be written to.
    Writable,
    /// It is not there; an agent makes it.
    Absent,
    /// Not by this user, who is not the one that runs the agent.
    OthersOnly,
    /// Not even by root.
    ReadOnly,
}

/// Judges.
pub fn judge(configuration: &Configuration) -> Vec<Finding> {
    let file = configuration.file.display();
    let mut findings = Vec::new();
    match &configuration.read {
        Read::Absent => findings.push(
            Finding::warning(
                TOPIC,
                format!("there is no {file}"),
                "the agent does not start without a configuration",
            )
            .remedy("docs/configuration.md has all keys; --config FILE names another one"),
        ),
        Read::Unreadable(why) => findings.push(
            Finding::note(TOPIC, format!("{file} cannot be read: {why}"), "what it says is left out")
                .remedy("sudo xroute doctor"),
        ),
        Read::Invalid(errors) => {
            let first = errors.first().map_or("", String::as_str);
            findings.push(
                Finding::failure(
                    TOPIC,
                    format!("{file} is not valid, {} errors; the first: {first}", errors.len()),
                    "the agent does not start with it, and does not reload it",
                )
                .remedy(format!("xroute check {file}")),
            );
        }
        Read::Valid(warnings) if warnings.is_empty() => {
            findings.push(Finding::ok(TOPIC, format!("{file} is valid")))
        }
        Read::Valid(warnings) => findings.push(
            Finding::warning(
                TOPIC,
                format!("{file} is valid, with {} warnings; the first: {}", warnings.len(), warnings[0]),
                "it may not do what is meant",
            )
            .remedy(format!("xroute check {file}")),
        ),
    }
    findings.extend(configuration.files.iter().map(data));
    findings.extend(configuration.state.as_ref().map(|(path, state)| state_dir(path, *state)));
    findings
}

fn data(file: &DataFile) -> Finding {
    let (kind, path, days) = (&file.kind, file.path.display(), file.age / 86_400);
    if file.age > OLD {
        return Finding::note(
            TOPIC,
            format!("{kind} {path} is {days} days old"),
            "addresses move between countries and networks: some clients are taken for others",
        )
        .remedy(
            "fetch a new one (geoipupdate, for MaxMind's) and put it in place: it is taken up by itself",
        );
    }
    Finding::ok(TOPIC, format!("{kind} {path} is readable, {days} days old"))
}

fn state_dir(path: &std::path::Path, state: StateDir) -> Finding {
    let shown = path.display();
    match state {
        StateDir::Writable => Finding::ok(TOPIC, format!("state goes to {shown}")),
        StateDir::Absent => Finding::ok(TOPIC, format!("state goes to {shown}, which the agent will make")),
        StateDir::OthersOnly => {
            Finding::ok(TOPIC, format!("state goes to {shown}, which is not this user's"))
        }
        StateDir::ReadOnly => Finding::failure(
            TOPIC,
            format!("state_dir {shown} cannot be written to"),
            "overrides are refused, and health is forgotten at each restart",
        )
        .remedy(format!(
            "StateDirectory=xroute in the unit; or mount it for writing: findmnt --target {shown}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn read(read: Read) -> Finding {
        let found = judge(&Configuration { file: "/x.toml".into(), read, ..Configuration::default() });
        assert_eq!(found.len(), 1);
        found.into_iter().next().expect("one")
    }

    #[test]
    fn files_are_absent_broken_doubtful_or_good() {
        assert_eq!(read(Read::Valid(Vec::new())).level, Level::Ok);
        assert_eq!(read(Read::Absent).level, Level::Warning);
        assert_eq!(read(Read::Unreadable("Permission denied".into())).level, Level::Note);
        let invalid = read(Read::Invalid(vec!["/x.toml:1:2: no".into(), "/x.toml:9:2: no".into()]));
        assert_eq!(invalid.level, Level::Failure);
        assert!(invalid.found.contains("2 errors; the first: /x.toml:1:2"), "{invalid:?}");
        assert_eq!(invalid.remedy.as_deref(), Some("xroute check /x.toml"));
        assert_eq!(read(Read::Valid(vec!["w".into()])).level, Level::Warning);
    }

    #[test]
    fn old_data_and_state_that_cannot_be_kept_are_told() {
        let file = |age| DataFile { kind: "geo database".into(), path: "/g.mmdb".into(), age };
        let judged = |files, state| {
            let read = Read::Valid(Vec::new());
            let all = judge(&Configuration { file: "/x.toml".into(), read, files, state });
            all.into_iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(judged(vec![file(3600), file(90 * 86_400)], None), [Level::Ok, Level::Ok, Level::Note]);
        for (state, level) in [
            (StateDir::Writable, Level::Ok),
            (StateDir::Absent, Level::Ok),
            (StateDir::OthersOnly, Level::Ok),
            (StateDir::ReadOnly, Level::Failure),
        ] {
            assert_eq!(judged(Vec::new(), Some(("/s".into(), state))), [Level::Ok, level]);
        }
    }
}
