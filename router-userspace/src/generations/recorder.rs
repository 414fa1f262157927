//! Notes what a configuration is made of while it is read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ring::digest::{Context, SHA256, digest as hashed};

use super::{Contents, FileRecord};
use crate::config::{Config, Files};

/// Files from elsewhere, with a note of what was read.
pub struct Recorder<'f> {
    files: &'f dyn Files,
    seen: Mutex<Contents>,
}

/// What a configuration was made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    files: Vec<FileRecord>,
    contents: Contents,
}

impl<'f> Recorder<'f> {
    /// Reads from `files`.
    pub fn new(files: &'f dyn Files) -> Self {
        Self { files, seen: Mutex::default() }
    }

    /// What the configuration was made of that has just been read through this.
    pub fn recording(self, config: &Config) -> Recording {
        let mut seen = self.seen.into_inner().unwrap_or_default();
        let mut recording = Recording::default();
        for (at, path) in config.sources.iter().enumerate() {
            let Some(octets) = seen.remove(path) else { continue };
            let data = config.feeds.iter().any(|feed| feed.path == *path);
            recording.files.push(FileRecord {
                path: path.clone(),
                sha256: sha256(&octets),
                octets: octets.len() as u64,
                content: (!data).then(|| format!("file-{at}")),
            });
            if !data {
                recording.contents.insert(path.clone(), octets);
            }
        }
        recording
    }
}

impl Files for Recorder<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let octets = self.files.read(path)?;
        if let Ok(mut seen) = self.seen.lock() {
            seen.insert(path.to_path_buf(), octets.clone());
        }
        Ok(octets)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        self.files.mode(path)
    }
}

impl Recording {
    /// Every file, the configuration itself first.
    pub fn files(&self) -> &[FileRecord] {
        &self.files
    }

    /// What was in a file; none of a data file.
    pub(super) fn content(&self, path: &Path) -> Option<&[u8]> {
        self.contents.get(path).map(Vec::as_slice)
    }

    /// What tells configurations apart.
    pub fn digest(&self) -> String {
        digest(&self.files)
    }
}

/// One checksum for the files that are kept: their paths and contents.
pub(super) fn digest(files: &[FileRecord]) -> String {
    let kept = files.iter().filter(|file| file.content.is_some());
    let kept: BTreeMap<&PathBuf, &String> = kept.map(|file| (&file.path, &file.sha256)).collect();
    let mut context = Context::new(&SHA256);
    for (path, sha256) in kept {
        let path = path.as_os_str().as_encoded_bytes();
        context.update(&(path.len() as u64).to_be_bytes());
        context.update(path);
        context.update(sha256.as_bytes());
    }
    hex(context.finish().as_ref())
}

/// A file's checksum.
pub(super) fn sha256(octets: &[u8]) -> String {
    hex(hashed(&SHA256, octets).as_ref())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
