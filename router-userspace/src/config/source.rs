//! A file of the configuration as text, and places in it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fault::Fault;

/// One file. Mistakes point into it by octet offset.
#[derive(Debug)]
pub(super) struct Source {
    /// As the user named it.
    pub(super) file: Arc<str>,
    /// Its folder; what it names is relative to that.
    pub(super) folder: PathBuf,
    /// What it says.
    pub(super) text: String,
}

impl Source {
    pub(super) fn new(path: &Path, text: String) -> Self {
        Self {
            file: path.display().to_string().into(),
            folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
            text,
        }
    }

    /// A mistake at an offset. Lines and columns count from 1, columns in characters.
    pub(super) fn fault(&self, at: usize, message: String) -> Fault {
        let (line, column) = self.position(at);
        Fault { file: self.file.clone(), line, column, message }
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let octets = self.text.as_bytes();
        let before = octets.get(..at).unwrap_or(octets);
        let start = before.iter().rposition(|&octet| octet == b'\n').map_or(0, |newline| newline + 1);
        let line = before.iter().filter(|&&octet| octet == b'\n').count() + 1;
        // An offset may stand inside a character; its continuation octets are not counted.
        let columns = before.iter().skip(start).filter(|&&octet| octet & 0xc0 != 0x80).count();
        (line, columns + 1)
    }

    /// The text at a span, for messages.
    pub(super) fn excerpt(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or_default()
    }
}
