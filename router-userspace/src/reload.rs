//! Making the next generation: reads files and compiles, which can take seconds. Changes nothing that runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::agent::{Basis, Draft};
use crate::clock::unix_now;
use crate::config;
use crate::feed::{Feed, FeedKind, Stamp, Stamped};

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

/// Reads a configuration with all its files and makes a generation of it.
///
/// # Errors
/// Every mistake, one a line, with file and line.
pub fn configuration(path: &Path, basis: &Basis) -> Result<Ready, String> {
    let began = Instant::now();
    let at = unix_now();
    let files = Stamped::default();
    let config = config::load_from(path, &files).map_err(|errors| errors.to_string())?;
    let warnings = config.warnings.iter().map(ToString::to_string).collect();
    let loaded = loaded(&config, &files, at);
    let draft = basis
        .with_configuration(config)
        .map_err(|refused| prefixed(&path.display().to_string(), &refused.to_string()))?;
    Ok(Ready { draft, warnings, loaded, took: began.elapsed() })
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
            let ready = Ready { draft, warnings: Vec::new(), loaded, took: began.elapsed() };
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

/// The data files of a configuration that was just read through `files`, at a time since the epoch.
pub fn loaded(config: &config::Config, files: &Stamped, at: Duration) -> Vec<LoadedFeed> {
    let load = |feed: &Feed| LoadedFeed {
        feed: feed.clone(),
        rows: feed.rows(&config.geography, &config.latency),
        stamp: files.stamp(&feed.path),
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
            match configuration(&path, &agent.basis()) {
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
        let ready = configuration(&path, &agent.basis()).expect("accepted");
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
            let ready = configuration(&path, &agent.basis()).expect("accepted");
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
}
