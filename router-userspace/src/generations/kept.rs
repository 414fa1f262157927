//! The files of a kept generation, to be read as a configuration again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::recorder::sha256;
use super::{Contents, Record};
use crate::config::{Disk, Files};
use crate::feed::Stamp;

/// A generation with the content of its files. Data files are read from the disk, as they are now.
pub struct Kept {
    record: Record,
    contents: Contents,
    /// What data files looked like when they were read, and whether they are others than then.
    read: Mutex<BTreeMap<PathBuf, (Option<Stamp>, bool)>>,
}

impl Kept {
    /// Reads the files in its folder.
    pub(super) fn load(record: Record, folder: &Path) -> Result<Self, String> {
        let mut contents = Contents::new();
        for file in &record.files {
            let Some(name) = &file.content else { continue };
            if name.contains('/') {
                return Err(format!("{name:?} is not the name of a kept file"));
            }
            let octets = std::fs::read(folder.join(name))
                .map_err(|why| format!("{name}, of {}, cannot be read: {why}", file.path.display()))?;
            if sha256(&octets) != file.sha256 {
                return Err(format!("{name}, of {}, is not what was written", file.path.display()));
            }
            contents.insert(file.path.clone(), octets);
        }
        Ok(Self { record, contents, read: Mutex::default() })
    }

    /// What is known of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What a data file looked like before it was read.
    pub fn stamp(&self, path: &Path) -> Option<Stamp> {
        self.read.lock().ok()?.get(path)?.0
    }

    /// Data files that were read and are others than in its time.
    pub fn changed_since(&self) -> Vec<PathBuf> {
        let Ok(read) = self.read.lock() else { return Vec::new() };
        read.iter().filter(|(_, (_, changed))| *changed).map(|(path, _)| path.clone()).collect()
    }
}

impl Files for Kept {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if let Some(octets) = self.contents.get(path) {
            return Ok(octets.clone());
        }
        let Some(file) = self.record.files.iter().find(|file| file.path == path) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was not kept with this generation"));
        };
        let stamp = Stamp::of(path).ok();
        let octets = Disk.read(path)?;
        let changed = sha256(&octets) != file.sha256;
        if let Ok(mut read) = self.read.lock() {
            read.insert(path.to_path_buf(), (stamp, changed));
        }
        Ok(octets)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = |path: &PathBuf| {
            let name = path.file_name().filter(|_| path.parent() == Some(folder))?;
            name.to_str().map(str::to_owned)
        };
        Ok(self.contents.keys().filter_map(inside).collect())
    }
}
