//! Data files that change while the configuration stays: the geo database, its overrides, the latency table.
//!
//! They are written by other programs, at any time and in any way: renamed over, copied over, appended to.
//! So a change is taken up when the file has come to rest, and never when it changed while it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use router_common::model::Model;
use router_common::view::{Geography, Latency};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Disk, Files};
use crate::geo::{self, Wanted};
use crate::latency;

/// What a data file holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeedKind {
    /// `geo.database`.
    GeoDatabase,
    /// `geo.overrides`.
    GeoOverrides,
    /// `latency.table`.
    LatencyTable,
}

impl fmt::Display for FeedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GeoDatabase => "geo database",
            Self::GeoOverrides => "geo overrides",
            Self::LatencyTable => "latency table",
        })
    }
}

/// One data file of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    /// What it holds.
    pub kind: FeedKind,
    /// Where it is.
    pub path: PathBuf,
}

impl Feed {
    /// Puts the content of the file, read now, in place of what the views have from it. Returns what the
    /// file looked like when it was read.
    ///
    /// # Errors
    /// What is wrong, with file and, in a text, line; the views are as they were.
    pub fn read_into(
        &self,
        model: &Model,
        geography: &mut Geography,
        latency: &mut Latency,
    ) -> Result<Stamp, String> {
        let file = self.path.display().to_string();
        let whole = |why: &dyn fmt::Display| format!("{file}: {why}");
        let unreadable = |why: io::Error| whole(&format!("cannot be read: {why}"));
        let stamp = Stamp::of(&self.path).map_err(unreadable)?;
        let octets = Disk.read(&self.path).map_err(unreadable)?;
        if Stamp::of(&self.path).ok() != Some(stamp) {
            return Err(whole(&"changed while it was read; it is read again when it has come to rest"));
        }
        let lines = |faults: Vec<crate::fault::Fault>| {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        match self.kind {
            FeedKind::GeoDatabase => {
                geography.database = geo::database(&octets, Wanted::by(model))
                    .map_err(|why| whole(&format!("not a geo database: {why}")))?;
            }
            FeedKind::GeoOverrides => geography.overrides = geo::overrides(&file, &octets).map_err(lines)?,
            FeedKind::LatencyTable => *latency = latency::parse(&file, &octets).map_err(lines)?,
        }
        Ok(stamp)
    }

    /// Rows that the views have from it.
    pub fn rows(&self, geography: &Geography, latency: &Latency) -> usize {
        match self.kind {
            FeedKind::GeoDatabase => geography.database.len(),
            FeedKind::GeoOverrides => geography.overrides.len(),
            FeedKind::LatencyTable => latency.rows.len(),
        }
    }
}

/// What tells one state of a file from another without reading it. A file that is renamed over another has
/// its own inode; one that is written in place has other times; `ctime` cannot be set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    device: u64,
    inode: u64,
    octets: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Looks at a file; a symbolic link is followed.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            octets: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// The files of the machine, with a note of what each looked like before it was read.
#[derive(Debug, Default)]
pub struct Stamped(Mutex<BTreeMap<PathBuf, Stamp>>);

impl Stamped {
    /// What a file looked like before it was read; `None` when it was not read.
    pub fn stamp(&self, path: &Path) -> Option<Stamp> {
        self.0.lock().ok()?.get(path).copied()
    }
}

impl Files for Stamped {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let stamp = Stamp::of(path)?;
        if let Ok(mut stamps) = self.0.lock() {
            stamps.insert(path.to_path_buf(), stamp);
        }
        Disk.read(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        Disk.list(folder)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        Disk.mode(path)
    }
}

/// Tells when files have changed and come to rest, from looks at them.
#[derive(Debug, Default)]
pub struct Watch(Vec<Watched>);

#[derive(Debug)]
struct Watched {
    feed: Feed,
    /// As it was when it was told of last; `None`: it could not be looked at.
    told: Option<Stamp>,
    /// As it was at the last look.
    seen: Option<Stamp>,
}

impl Watch {
    /// Watches files that were read when they looked so.
    pub fn new(feeds: impl IntoIterator<Item = (Feed, Option<Stamp>)>) -> Self {
        Self(feeds.into_iter().map(|(feed, stamp)| Watched { feed, told: stamp, seen: stamp }).collect())
    }

    /// Takes one look. Returns the files that are not as they were told of, but as at the last look.
    pub fn look(&mut self, mut look: impl FnMut(&Path) -> Option<Stamp>) -> BTreeSet<FeedKind> {
        let mut changed = BTreeSet::new();
        for watched in &mut self.0 {
            let now = look(&watched.feed.path);
            if now == watched.seen && now != watched.told {
                watched.told = now;
                changed.insert(watched.feed.kind);
            }
            watched.seen = now;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(inode: u64, octets: u64) -> Stamp {
        Stamp { device: 1, inode, octets, modified: (0, 0), changed: (0, 0) }
    }

    #[test]
    fn a_change_is_told_of_once_and_when_it_has_come_to_rest() {
        let feed = Feed { kind: FeedKind::LatencyTable, path: PathBuf::from("latency.csv") };
        let mut watch = Watch::new([(feed, Some(stamp(1, 10)))]);
        let told = BTreeSet::from([FeedKind::LatencyTable]);
        let none = BTreeSet::new();
        let looks = [
            (Some(stamp(1, 10)), &none), // as it was
            (Some(stamp(1, 20)), &none), // being written
            (Some(stamp(1, 30)), &none), // being written
            (Some(stamp(1, 30)), &told), // at rest
            (Some(stamp(1, 30)), &none), // told already
            (Some(stamp(2, 30)), &none), // renamed over
            (Some(stamp(2, 30)), &told),
            (None, &none), // away for a moment
            (Some(stamp(2, 30)), &none),
            (Some(stamp(2, 30)), &none), // back as it was
            (None, &none),
            (None, &told), // away for good: an error to be told of
            (None, &none),
            (Some(stamp(2, 30)), &none),
            (Some(stamp(2, 30)), &told), // back: the error is over
        ];
        for (i, (found, expected)) in looks.into_iter().enumerate() {
            assert_eq!(watch.look(|_| found), *expected, "look {i}");
        }
    }

    #[test]
    fn every_way_of_replacing_a_file_shows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("latency.csv");
        let write = |text: &str| std::fs::write(&path, text).expect("writable");
        let look = || Stamp::of(&path).expect("there");
        write("10.0.0.0/8,eu,1\n");
        let first = look();
        assert_eq!(first, look());
        std::thread::sleep(std::time::Duration::from_millis(20));
        write("10.0.0.0/8,eu,2\n");
        let second = look();
        assert_ne!(first, second, "written in place with the same length");
        let other = folder.path().join("other.csv");
        std::fs::copy(&path, &other).expect("copied");
        let times = std::fs::metadata(&path).expect("there").modified().expect("a time");
        std::fs::File::options()
            .write(true)
            .open(&other)
            .and_then(|file| file.set_modified(times))
            .expect("a time set back");
        std::fs::rename(&other, &path).expect("renamed");
        assert_ne!(second, look(), "renamed over with the same length and time");
    }

    #[test]
    fn what_is_broken_is_told_with_its_line_and_the_views_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = Model::new(router_common::model::Parts::default()).expect("valid");
        let mut geography = Geography::default();
        let mut table = Latency::default();
        let feed = Feed { kind: FeedKind::LatencyTable, path: folder.path().join("latency.csv") };
        std::fs::write(&feed.path, "10.0.0.0/8,eu,1\n").expect("writable");
        feed.read_into(&model, &mut geography, &mut table).expect("good");
        assert_eq!(feed.rows(&geography, &table), 1);
        std::fs::write(&feed.path, "10.0.0.0/8,eu,1\n10.0.0.0/8,us,slow\n").expect("writable");
        let why = feed.read_into(&model, &mut geography, &mut table).expect_err("broken");
        assert!(why.contains("latency.csv:2:15: \"slow\" is not milliseconds"), "{why}");
        assert_eq!(feed.rows(&geography, &table), 1);
        std::fs::remove_file(&feed.path).expect("there");
        let why = feed.read_into(&model, &mut geography, &mut table).expect_err("away");
        assert!(why.contains("cannot be read: No such file"), "{why}");
        let feed = Feed { kind: FeedKind::GeoDatabase, path: folder.path().join("city.mmdb") };
        std::fs::write(&feed.path, "not one").expect("writable");
        let why = feed.read_into(&model, &mut geography, &mut table).expect_err("broken");
        assert!(why.contains("city.mmdb: not a geo database"), "{why}");
    }
}
