//! Making the next generation: reads files and compiles, which can take seconds. Changes nothing that runs.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::agent::{Basis, Draft};
use crate::clock::unix_now;
use crate::config::{self, Config};
use crate::feed::{Feed, FeedKind, Stamp, Stamped};
use crate::generations::{Recorder, Recording, Store};
use crate::plan::{self, PlanReport};

/// Where a configuration comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The agent's own file.
    Own,
    /// Another file.
    File(PathBuf),
    /// A kept generation; `None`: the one before that which runs.
    Generation(Option<u64>),
}

/// What is wanted in place of what runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The configuration.
    pub source: Source,
    /// Also when the limits forbid it.
    pub force: bool,
    /// Why, for those who look at it later.
    pub reason: Option<String>,
}

impl Wanted {
    /// The agent's own file, as a signal asks for it.
    pub fn own() -> Self {
        Self { source: Source::Own, force: false, reason: None }
    }

    /// What the audit file and the kept generation call it.
    pub fn what(&self) -> &'static str {
        match self.source {
            Source::Own => "reload",
            Source::File(_) => "apply",
            Source::Generation(_) => "rollback",
        }
    }
}

/// Where an agent stands: what a source means for it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The agent's own configuration file.
    pub own: PathBuf,
    /// The generations that are kept.
    pub store: Store,
    /// The kept one that runs.
    pub runs: Option<u64>,
    /// Serial number of the serving generation.
    pub generation: u64,
    /// Queries counted for each profile.
    pub queries: HashMap<String, u64>,
}

/// A generation that is ready to be put into service, and what it was made from.
pub struct Ready {
    /// The generation.
    pub draft: Draft,
    /// What is probably not meant, one message each.
    pub warnings: Vec<String>,
    /// Data files that were read for it.
    pub loaded: Vec<LoadedFeed>,
    /// What making it took.
    pub took: Duration,
    /// A whole configuration, with what it changes; none when only data files are new.
    pub configuration: Option<Made>,
}

/// What a configuration was made from, and what it changes.
pub struct Made {
    /// Its file.
    pub path: PathBuf,
    /// The kept generation that it is.
    pub kept: Option<u64>,
    /// The content of its files.
    pub recording: Recording,
    /// Compared with what runs.
    pub plan: PlanReport,
}

/// A data file as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedFeed {
    /// Which.
    pub feed: Feed,
    /// Rows that came of it.
    pub rows: usize,
    /// What it looked like.
    pub stamp: Option<Stamp>,
    /// When it was read, since the epoch.
    pub at: Duration,
}

/// A data file that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenFeed {
    /// What it was to hold.
    pub kind: FeedKind,
    /// What is wrong, with file and, in a text, line.
    pub why: String,
}

/// What came of data files that were read anew.
pub struct Refreshed {
    /// The next generation, when any file was good.
    pub ready: Option<Ready>,
    /// Files that stay as they were loaded before.
    pub broken: Vec<BrokenFeed>,
}

/// Reads a configuration with all its files and makes a generation of it. What the limits of what runs forbid is
/// refused unless it is forced or a return: nothing may be in the way of that.
///
/// # Errors
/// Every mistake, one a line, with file and line; or every limit.
pub fn configuration(wanted: &Wanted, standing: &Standing, basis: &Basis) -> Result<Ready, String> {
    let began = Instant::now();
    let Read { config, path, kept, recording, loaded, notes } = read(&wanted.source, standing)?;
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    warnings.extend(notes);
    let draft = basis
        .with_configuration(config)
        .map_err(|refused| prefixed(&called(&path, kept), &refused.to_string()))?;
    let plan = plan::of_draft(basis, &draft, &standing.queries, names(standing, &path, kept));
    if !plan.exceeded.is_empty() && !wanted.force && kept.is_none() {
        return Err(forbidden(&plan, "`xroute plan` shows all of it, `xroute apply --force` goes on"));
    }
    let configuration = Some(Made { path, kept, recording, plan });
    Ok(Ready { draft, warnings, loaded, took: began.elapsed(), configuration })
}

/// Says what would be otherwise with another configuration, and changes nothing.
///
/// # Errors
/// Every mistake, one a line, with file and line.
pub fn plan(source: &Source, standing: &Standing, basis: &Basis) -> Result<PlanReport, String> {
    let Read { config, path, kept, notes, .. } = read(source, standing)?;
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    warnings.extend(notes);
    let draft =
        basis.planned(config).map_err(|refused| prefixed(&called(&path, kept), &refused.to_string()))?;
    let plan = plan::of_draft(basis, &draft, &standing.queries, names(standing, &path, kept));
    Ok(PlanReport { warnings, ..plan })
}

/// A configuration that was read.
struct Read {
    config: Config,
    path: PathBuf,
    kept: Option<u64>,
    recording: Recording,
    loaded: Vec<LoadedFeed>,
    /// What there is to say besides the warnings.
    notes: Vec<String>,
}

fn read(source: &Source, standing: &Standing) -> Result<Read, String> {
    let at = unix_now();
    let path = match source {
        Source::Own => &standing.own,
        Source::File(path) => path,
        Source::Generation(number) => return read_kept(number_of(*number, standing)?, standing, at),
    };
    let files = Stamped::default();
    let recorder = Recorder::new(&files);
    let config = config::load_from(path, &recorder).map_err(|errors| errors.to_string())?;
    let loaded = loaded(&config, |path| files.stamp(path), at);
    let recording = recorder.recording(&config);
    Ok(Read { config, path: path.clone(), kept: None, recording, loaded, notes: Vec::new() })
}

fn read_kept(number: u64, standing: &Standing, at: Duration) -> Result<Read, String> {
    let kept = standing.store.load(number).map_err(|why| format!("generation {number} is damaged: {why}"))?;
    let recorder = Recorder::new(&kept);
    let path = kept.record().config.clone();
    let config = config::load_from(&path, &recorder)
        .map_err(|errors| prefixed(&format!("generation {number}"), &errors.to_string()))?;
    let loaded = loaded(&config, |path| kept.stamp(path), at);
    let recording = recorder.recording(&config);
    let changed = kept.changed_since();
    let note = |path: &PathBuf| {
        format!("{}: changed since generation {number}; it is used as it is now", path.display())
    };
    let notes = changed.iter().map(note).collect();
    Ok(Read { config, path, kept: Some(number), recording, loaded, notes })
}

/// The kept generation that is meant.
fn number_of(number: Option<u64>, standing: &Standing) -> Result<u64, String> {
    let entries = standing.store.list();
    let sound = || entries.iter().filter_map(|entry| Some((entry.number, entry.record.as_ref().ok()?)));
    if let Some(number) = number {
        if entries.iter().any(|entry| entry.number == number) {
            return Ok(number);
        }
        let known: Vec<String> = sound().map(|(number, _)| number.to_string()).collect();
        return Err(match known.as_slice() {
            [] => format!("generation {number} is not kept, nor is another one"),
            known => format!("generation {number} is not kept; there are {}", known.join(", ")),
        });
    }
    let runs = standing.runs.and_then(|runs| sound().find(|&(number, _)| number == runs));
    let digest = runs.map(|(_, record)| record.digest());
    sound()
        .find(|&(number, record)| {
            standing.runs.is_none_or(|runs| number < runs) && Some(record.digest()) != digest
        })
        .map(|(number, _)| number)
        .ok_or_else(|| String::from("no earlier generation is kept that is another configuration"))
}

fn called(path: &Path, kept: Option<u64>) -> String {
    kept.map_or_else(|| path.display().to_string(), |number| format!("generation {number}"))
}

/// What both sides of a plan are called.
fn names(standing: &Standing, path: &Path, kept: Option<u64>) -> (String, String) {
    (format!("what runs (generation {})", standing.generation), called(path, kept))
}

/// Why the limits are in the way.
fn forbidden(plan: &PlanReport, how: &str) -> String {
    let mut lines = vec![String::from("the limits of what runs forbid it:")];
    lines.extend(plan.exceeded.iter().map(|line| format!("  {line}")));
    lines.push(format!("it would be: {}", plan.summary));
    lines.push(how.to_owned());
    lines.join("\n")
}

/// Reads data files anew and makes a generation of them and of the configuration that runs. A broken file
/// does not keep the others from coming into service.
pub fn feeds(feeds: &[Feed], kinds: &BTreeSet<FeedKind>, basis: &Basis) -> Refreshed {
    let began = Instant::now();
    let mut geography = (*basis.ground.geography).clone();
    let mut latency = (*basis.ground.latency).clone();
    let (mut loaded, mut broken) = (Vec::new(), Vec::new());
    for feed in feeds.iter().filter(|feed| kinds.contains(&feed.kind)) {
        let at = unix_now();
        match feed.read_into(&basis.snapshot.model, &mut geography, &mut latency) {
            Ok(stamp) => loaded.push(LoadedFeed {
                feed: feed.clone(),
                rows: feed.rows(&geography, &latency),
                stamp: Some(stamp),
                at,
            }),
            Err(why) => broken.push(BrokenFeed { kind: feed.kind, why }),
        }
    }
    if loaded.is_empty() {
        return Refreshed { ready: None, broken };
    }
    match basis.with_views(geography, latency) {
        Ok(draft) => {
            // What a broken table of another program may do is limited as what a configuration may.
            if basis.ground.settings.limits.any() {
                let plan = plan::of_draft(basis, &draft, &HashMap::new(), (String::new(), String::new()));
                if !plan.exceeded.is_empty() {
                    let why =
                        forbidden(&plan, "`xroute plan` shows all of it, `xroute reload --force` takes it");
                    let refused = loaded.iter().map(|loaded| BrokenFeed {
                        kind: loaded.feed.kind,
                        why: prefixed(&loaded.feed.path.display().to_string(), &why),
                    });
                    broken.extend(refused);
                    return Refreshed { ready: None, broken };
                }
            }
            let took = began.elapsed();
            let ready = Ready { draft, warnings: Vec::new(), loaded, took, configuration: None };
            Refreshed { ready: Some(ready), broken }
        }
        Err(refused) => {
            let why = |loaded: &LoadedFeed| BrokenFeed {
                kind: loaded.feed.kind,
                why: prefixed(&loaded.feed.path.display().to_string(), &refused.to_string()),
            };
            broken.extend(loaded.iter().map(why));
            Refreshed { ready: None, broken }
        }
    }
}

/// The data files of a configuration that was just read, at a time since the epoch, with what they looked like then.
pub fn loaded(config: &Config, stamp: impl Fn(&Path) -> Option<Stamp>, at: Duration) -> Vec<LoadedFeed> {
    let load = |feed: &Feed| LoadedFeed {
        feed: feed.clone(),
        rows: feed.rows(&config.geography, &config.latency),
        stamp: stamp(&feed.path),
        at,
    };
    config.feeds.iter().map(load).collect()
}

fn prefixed(file: &str, lines: &str) -> String {
    let lines: Vec<String> = lines.lines().map(|line| format!("{file}: {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use router_common::abi::Generation;
    use router_common::view::HealthView;

    use super::*;
    use crate::agent::Agent;

    const TEXT: &str = r#"
[server]
listen = ["192.0.2.53:53"]
[latency]
table = "latency.csv"
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.gslb.test.", rname = "h.gslb.test.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.example.net."]
[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "performance"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  region = "eu"
  [[profile.endpoint]]
  name = "us"
  address = ["192.0.2.2"]
  region = "us"
"#;

    fn standing(path: &Path) -> Standing {
        let store = Store::new(&path.with_file_name("state"));
        Standing { own: path.to_owned(), store, runs: None, generation: 1, queries: HashMap::new() }
    }

    fn from(path: &Path, agent: &Agent) -> Result<Ready, String> {
        configuration(&Wanted::own(), &standing(path), &agent.basis())
    }

    fn setup() -> (tempfile::TempDir, std::path::PathBuf, Agent) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("xroute.toml");
        std::fs::write(&path, TEXT).expect("writable");
        std::fs::write(folder.path().join("latency.csv"), "10.0.0.0/8,eu,5\n10.0.0.0/8,us,9\n")
            .expect("writable");
        let config = config::load(&path).expect("valid");
        let agent = Agent::new(config, HealthView::default()).expect("compiles");
        (folder, path, agent)
    }

    #[test]
    fn a_broken_configuration_is_told_with_file_and_line() {
        let (folder, path, agent) = setup();
        let refused = |text: &str| {
            std::fs::write(&path, text).expect("writable");
            match from(&path, &agent) {
                Ok(_) => panic!("accepted:\n{text}"),
                Err(why) => why,
            }
        };
        let why = refused(&TEXT.replace("ttl = 30", "ttl = -1"));
        assert!(why.contains("xroute.toml:14:"), "{why}");
        let why = refused(&TEXT.replace("192.0.2.53:53\"]", "192.0.2.54:53\"]\nhttp = \"127.0.0.1:8053\""));
        assert_eq!(why.lines().count(), 2, "{why}");
        assert!(why.contains("server.listen cannot change while the agent runs, restart it"), "{why}");
        assert!(why.contains("server.http cannot change"), "{why}");
        std::fs::write(folder.path().join("latency.csv"), "10.0.0.0/8,eu\n").expect("writable");
        let why = refused(TEXT);
        assert!(why.contains("latency.csv:1: 2 fields"), "{why}");
    }

    #[test]
    fn what_may_change_while_it_runs_changes() {
        let (_folder, path, agent) = setup();
        let text = TEXT.replace(
            "listen = [\"192.0.2.53:53\"]",
            "listen = [\"192.0.2.53:53\"]\nvlans = [7]\nstale = \"pass\"\nedns_size = 600",
        );
        std::fs::write(&path, text).expect("writable");
        let ready = from(&path, &agent).expect("accepted");
        assert_eq!(ready.draft.settings().vlans, [7]);
        assert_eq!(ready.draft.settings().dns.edns_size, 600);
        assert_eq!(ready.draft.settings().stale, crate::settings::Stale::Pass);
        assert_eq!(ready.draft.tables().generation.edns_size, 600);
        assert_eq!(ready.draft.tables().generation.flags, 0);
        assert_eq!(ready.loaded.len(), 1);
        assert_eq!(ready.loaded[0].rows, 2);
        assert!(ready.loaded[0].stamp.is_some());
    }

    #[test]
    fn the_fast_path_passes_options_that_only_userspace_answers() {
        let (folder, path, agent) = setup();
        std::fs::write(folder.path().join("secrets"), "00112233445566778899aabbccddeeff\n")
            .expect("writable");
        let cookies = |text: &str, on: bool| {
            text.replace(
                "[latency]",
                &format!("[cookies]\nenabled = {on}\nsecret_file = \"secrets\"\n[latency]"),
            )
        };
        let nsid = |text: &str| text.replace("listen =", "nsid = \"pop1\"\nlisten =");
        for (text, expected) in [
            (cookies(TEXT, true), Generation::PASS_COOKIE),
            (nsid(TEXT), Generation::PASS_NSID),
            (nsid(&cookies(TEXT, true)), Generation::PASS_COOKIE | Generation::PASS_NSID),
            (cookies(TEXT, false), 0),
        ] {
            std::fs::write(&path, &text).expect("writable");
            let ready = from(&path, &agent).expect("accepted");
            assert_eq!(ready.draft.tables().generation.flags, expected, "{text}");
        }
    }

    #[test]
    fn one_broken_data_file_does_not_hold_up_the_others() {
        let (folder, _, agent) = setup();
        let latency = Feed { kind: FeedKind::LatencyTable, path: folder.path().join("latency.csv") };
        let overrides = Feed { kind: FeedKind::GeoOverrides, path: folder.path().join("overrides.csv") };
        std::fs::write(&latency.path, "10.0.0.0/8,us,1\n").expect("writable");
        std::fs::write(&overrides.path, "10.0.0.0/8,XX-\n").expect("writable");
        let both = [latency, overrides];
        let kinds = BTreeSet::from([FeedKind::LatencyTable, FeedKind::GeoOverrides]);
        let refreshed = feeds(&both, &kinds, &agent.basis());
        assert_eq!(refreshed.ready.expect("one is good").loaded[0].rows, 1);
        assert_eq!(refreshed.broken.len(), 1);
        assert!(refreshed.broken[0].why.contains("overrides.csv:1:12:"), "{}", refreshed.broken[0].why);
        let kinds = BTreeSet::from([FeedKind::GeoOverrides]);
        let refreshed = feeds(&both, &kinds, &agent.basis());
        assert!(refreshed.ready.is_none());
    }

    #[test]
    fn limits_bound_configurations_and_data_files_alike() {
        let (folder, path, _) = setup();
        let text = format!("{TEXT}[limits]\nprofile_moved_max = 0.001\n");
        std::fs::write(&path, &text).expect("writable");
        let agent = Agent::new(config::load(&path).expect("valid"), HealthView::default()).expect("compiles");
        // The new file's own limits do not count.
        let other = text.replace("192.0.2.1\"", "192.0.2.9\"").replace("0.001", "1");
        std::fs::write(&path, &other).expect("writable");
        let why = from(&path, &agent).err().expect("refused");
        let lines: Vec<&str> = why.lines().collect();
        assert_eq!(lines[0], "the limits of what runs forbid it:");
        assert!(lines[1].starts_with("  profile_moved_max = 0.001: www "), "{why}");
        assert!(lines[2].starts_with("it would be: endpoints +0 -0 ~1, 1 settings, "), "{why}");
        let wanted = Wanted { force: true, ..Wanted::own() };
        let ready = configuration(&wanted, &standing(&path), &agent.basis()).expect("forced");
        let plan = ready.configuration.expect("a configuration").plan;
        assert_eq!(plan.exceeded.len(), 1);
        // A table that would send 10.0.0.0/8 elsewhere.
        let table = folder.path().join("latency.csv");
        std::fs::write(&table, "10.0.0.0/8,eu,9\n10.0.0.0/8,us,5\n").expect("writable");
        let feed = Feed { kind: FeedKind::LatencyTable, path: table };
        let kinds = BTreeSet::from([FeedKind::LatencyTable]);
        let refreshed = feeds(&[feed], &kinds, &agent.basis());
        assert!(refreshed.ready.is_none());
        let why = &refreshed.broken[0].why;
        assert!(why.contains("latency.csv: the limits of what runs forbid it:\n"), "{why}");
        assert!(why.contains("profile_moved_max = 0.001: www 0.5 %"), "{why}");
    }
}
