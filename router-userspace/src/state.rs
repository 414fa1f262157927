//! What is known of the endpoints' health, kept on disk so that a restart does not forget it.
//!
//! One JSON file in `state_dir`, for the agent alone. Identity is profile name, endpoint name and what is
//! probed; what does not fit the configuration any more is left out when it is read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use router_common::health::{LastSample, Record, Sample, Strip};
use router_common::model::WindowRule;
use router_common::view::Health;
use serde::{Deserialize, Serialize};

use crate::probe::Kept;

/// Name of the file in `state_dir`.
pub const FILE: &str = "health.json";

/// Version of the format; another one is not read.
const VERSION: u32 = 1;

/// Most octets that are read.
const MOST: u64 = 1 << 30;

/// The file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// Version of the format.
    version: u32,
    /// Every endpoint that has a sample.
    endpoints: Vec<SavedEndpoint>,
}

/// What is known of one endpoint. Times are in milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedEndpoint {
    /// Name of its profile.
    pub profile: String,
    /// Its name in the profile.
    pub endpoint: String,
    /// What is probed, as shown.
    pub target: String,
    /// Healthy status codes.
    pub expected_status: Vec<(u16, u16)>,
    window: SavedRule,
    online: bool,
    since: u64,
    /// Oldest first, `+` success, `-` failure.
    samples: String,
    flaps: u32,
    average_us: Option<u64>,
    last: SavedSample,
    last_error: Option<SavedError>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedRule {
    Samples(u8, u8),
    Tolerated(u8),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SavedSample {
    at: u64,
    latency_us: Option<u64>,
    /// In the words it is shown with; none of a success.
    error: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SavedError {
    at: u64,
    error: String,
}

impl Saved {
    /// What monitors want kept, such as has a sample.
    pub fn new(kept: &[Kept]) -> Self {
        Self { version: VERSION, endpoints: kept.iter().filter_map(SavedEndpoint::new).collect() }
    }

    /// The endpoints that were kept.
    pub fn endpoints(&self) -> &[SavedEndpoint] {
        &self.endpoints
    }
}

impl SavedEndpoint {
    fn new(kept: &Kept) -> Option<Self> {
        let Kept { endpoint: _, profile, name, target, expected_status, rule, record } = kept;
        let last = record.last?;
        Some(Self {
            profile: profile.clone(),
            endpoint: name.clone(),
            target: target.to_string(),
            expected_status: expected_status.clone(),
            window: match *rule {
                WindowRule::Samples { size, successful } => SavedRule::Samples(size, successful),
                WindowRule::Tolerated { failures } => SavedRule::Tolerated(failures),
            },
            online: match record.health {
                Health::Checking => return None,
                Health::Healthy => true,
                Health::Unhealthy => false,
            },
            since: millis(record.since.unwrap_or(last.at)),
            samples: record.strip.to_string(),
            flaps: record.flaps,
            average_us: record.average.map(micros),
            last: SavedSample {
                at: millis(last.at),
                latency_us: last.sample.latency.map(micros),
                error: last.sample.error.map(|error| error.to_string()),
            },
            last_error: record
                .last_error
                .map(|(at, error)| SavedError { at: millis(at), error: error.to_string() }),
        })
    }

    /// The window's rule and what it remembered; `None` when it makes no sense.
    pub fn record(&self) -> Option<(WindowRule, Record)> {
        let rule = match self.window {
            SavedRule::Samples(size, successful) => WindowRule::Samples { size, successful },
            SavedRule::Tolerated(failures) => WindowRule::Tolerated { failures },
        };
        let mut strip = Strip::default();
        for sign in self.samples.chars() {
            match sign {
                '+' => strip.push(true),
                '-' => strip.push(false),
                _ => return None,
            }
        }
        // A verdict without a sample is none.
        let newest = strip.newest_first().next()?;
        let error = match &self.last.error {
            Some(words) => Some(words.parse().ok()?),
            None => None,
        };
        if newest != error.is_none() {
            return None;
        }
        let latency = self.last.latency_us.map(Duration::from_micros);
        let sample = Sample { ok: newest, latency, error };
        let last_error = match &self.last_error {
            Some(kept) => Some((Duration::from_millis(kept.at), kept.error.parse().ok()?)),
            None => None,
        };
        let record = Record {
            strip,
            health: if self.online { Health::Healthy } else { Health::Unhealthy },
            since: Some(Duration::from_millis(self.since)),
            flaps: self.flaps,
            average: self.average_us.map(Duration::from_micros),
            last: Some(LastSample { at: self.last_at(), sample }),
            last_error,
        };
        Some((rule, record))
    }

    /// When the newest sample was taken, since the Unix epoch.
    pub fn last_at(&self) -> Duration {
        Duration::from_millis(self.last.at)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Where the file is in a state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// Reads the file. Nothing is kept yet when there is none.
///
/// # Errors
/// Why it cannot be used.
pub fn read(path: &Path) -> io::Result<Saved> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
        opened => opened?,
    };
    let saved: Saved = serde_json::from_reader(io::BufReader::new(io::Read::take(file, MOST)))?;
    if saved.version != VERSION {
        let why = format!("format {} is not {VERSION}, that of this version", saved.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(saved)
}

/// Replaces the file: after a crash at any moment it is the old one or the new one.
///
/// # Errors
/// Why it stays as it was.
pub fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    replace(path, saved)
}

/// Replaces a file of the state directory by a value as JSON, as a whole; its folder is made when it is missing.
///
/// # Errors
/// Why it stays as it was.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".state").tempfile_in(folder)?;
    let mut writer = io::BufWriter::new(file.as_file_mut());
    serde_json::to_writer(&mut writer, value)?;
    writer.write_all(b"\n")?;
    writer.flush()?;
    drop(writer);
    // Without it a power cut can leave an empty file under the new name.
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use router_common::health::{ProbeFault, Window, step};
    use router_common::model::{EndpointId, ProbeTarget, ProfileId, Program};

    use super::*;

    fn kept(record: Record) -> Kept {
        Kept {
            endpoint: EndpointId { profile: ProfileId(0), index: 0 },
            profile: "www".to_owned(),
            name: "eu1".to_owned(),
            target: Arc::new(ProbeTarget::Exec(Program { file: "/x".into(), arguments: Vec::new() })),
            expected_status: vec![(200, 299)],
            rule: WindowRule::Samples { size: 4, successful: 2 },
            record,
        }
    }

    fn endpoint() -> SavedEndpoint {
        let rule = WindowRule::Samples { size: 4, successful: 2 };
        let mut window = Window::new(rule);
        let at = |second| Duration::from_secs(1_700_000_000 + second);
        let ok = Sample { ok: true, latency: Some(Duration::from_micros(1500)), error: None };
        let bad = Sample { ok: false, latency: None, error: Some(ProbeFault::Exit(2)) };
        for (second, sample) in [ok, bad, bad, bad].into_iter().enumerate() {
            step(&mut window, sample, at(second as u64));
        }
        let saved = SavedEndpoint::new(&kept(*window.record())).unwrap();
        assert_eq!(saved.record(), Some((rule, *window.record())));
        assert_eq!((saved.last_at(), saved.target.as_str()), (at(3), "exec \"/x\""));
        saved
    }

    fn file() -> Saved {
        Saved { version: VERSION, endpoints: vec![endpoint()] }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("deep/er"));
        assert_eq!(read(&path).unwrap(), Saved::default());
        let saved = file();
        write(&path, &saved).unwrap();
        assert_eq!(read(&path).unwrap(), saved);
        write(&path, &Saved::new(&[kept(Record::default())])).unwrap();
        assert!(read(&path).unwrap().endpoints().is_empty());
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no half-written file is left");
    }

    #[test]
    fn what_is_broken_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        let whole = serde_json::to_string(&file()).unwrap();
        for broken in ["", "{}", "nonsense", "{\"version\":2,\"endpoints\":[]}", &whole[..whole.len() / 2]] {
            std::fs::write(&path, broken).unwrap();
            assert!(read(&path).is_err(), "{broken}");
        }
        assert!(read(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn a_record_that_makes_no_sense_is_none() {
        let good = endpoint();
        for bad in [
            SavedEndpoint { samples: String::new(), ..good.clone() },
            SavedEndpoint { samples: "+-x".into(), ..good.clone() },
            SavedEndpoint { samples: "+++".into(), ..good.clone() },
            SavedEndpoint {
                last: SavedSample { error: Some("gremlins".into()), ..good.last.clone() },
                ..good.clone()
            },
        ] {
            assert_eq!(bad.record(), None, "{bad:?}");
        }
    }
}
