//! Files that the configuration names: where they come from, and which were read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::pattern::matches;

/// Where named files come from: the disk, or a map in tests.
pub trait Files {
    /// The content of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The names of the files in a folder, for `include`.
    ///
    /// # Errors
    /// Why it cannot be listed.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} cannot be listed", folder.display())))
    }

    /// The permission bits of a file, where files have them.
    fn mode(&self, path: &Path) -> Option<u32> {
        let _ = path;
        None
    }
}

impl<F: Fn(&Path) -> io::Result<Vec<u8>>> Files for F {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self(path)
    }
}

impl Files for BTreeMap<String, Vec<u8>> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = path.to_str().and_then(|path| self.get(path));
        found.cloned().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = |path: &String| {
            let path = Path::new(path);
            let name = path.file_name().filter(|_| path.parent() == Some(folder))?;
            Some(name.to_string_lossy().into_owned())
        };
        Ok(self.keys().filter_map(inside).collect())
    }
}

/// The files of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        std::fs::metadata(path).ok().map(|file| file.permissions().mode() & 0o7777)
    }
}

/// Reads files and remembers which.
pub(super) struct Loader<'f> {
    files: &'f dyn Files,
    seen: RefCell<Vec<PathBuf>>,
}

impl<'f> Loader<'f> {
    pub(super) fn new(files: &'f dyn Files) -> Self {
        Self { files, seen: RefCell::default() }
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let octets = self.files.read(path)?;
        let mut seen = self.seen.borrow_mut();
        if !seen.iter().any(|known| known == path) {
            seen.push(path.to_path_buf());
        }
        Ok(octets)
    }

    /// The permission bits of a file, when others than owner and group can read or write it.
    pub(super) fn open_to_all(&self, path: &Path) -> Option<u32> {
        self.files.mode(path).filter(|mode| mode & 0o006 != 0)
    }

    /// Every file that was read, in order.
    pub(super) fn into_seen(self) -> Vec<PathBuf> {
        self.seen.into_inner()
    }

    /// The files that a pattern names, in the order of their names. `*` and `?` stand for characters of
    /// the file's name, not of its folder; hidden files need a pattern that begins with a dot.
    pub(super) fn matching(&self, base: &Path, pattern: &str) -> Result<BTreeSet<PathBuf>, String> {
        let path = base.join(pattern);
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let Some(name) = name.filter(|_| !pattern.ends_with('/')) else {
            return Err(format!("{pattern:?} names no file"));
        };
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let wild = |text: &str| text.contains(['*', '?']);
        if folder
            .components()
            .any(|part| matches!(part, Component::Normal(part) if wild(&part.to_string_lossy())))
        {
            return Err(format!("{pattern:?}: \"*\" and \"?\" are allowed in the last part only"));
        }
        if !wild(&name) {
            return Ok(BTreeSet::from([path]));
        }
        let names = self
            .files
            .list(&folder)
            .map_err(|why| format!("{pattern:?}: cannot list {}: {why}", folder.display()))?;
        let fits = |found: &&String| {
            matches(name.as_bytes(), found.as_bytes()) && (!found.starts_with('.') || name.starts_with('.'))
        };
        Ok(names.iter().filter(fits).map(|found| folder.join(found)).collect())
    }
}
