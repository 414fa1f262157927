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
    /// Where its lines begin.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(path: &Path, text: String) -> Self {
        let newlines = text.bytes().enumerate().filter(|&(_, octet)| octet == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self {
            lines,
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
        let line = self.lines.partition_point(|&start| start <= at);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.as_bytes().get(start..at).unwrap_or_default();
        // An offset may stand inside a character; its continuation octets are not counted.
        let columns = before.iter().filter(|&&octet| octet & 0xc0 != 0x80).count();
        (line, columns + 1)
    }

    /// The whole line that an offset is in.
    pub(super) fn line(&self, at: usize) -> &str {
        let next = self.lines.partition_point(|&start| start <= at);
        let start = self.lines.get(next.saturating_sub(1)).copied().unwrap_or_default();
        self.excerpt(start..self.lines.get(next).copied().unwrap_or(self.text.len()))
    }

    /// Its path, as the user named it.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(&*self.file)
    }

    /// How many lines, and in its first line how many columns, stand before the text of a string whose value
    /// is at `span`. The text of a string in three quotes begins on the next line where a line break follows
    /// them, as TOML says.
    pub(super) fn before_text(&self, span: Range<usize>) -> (usize, usize) {
        let (line, column) = self.position(span.start);
        let written = self.excerpt(span);
        match written.strip_prefix("'''").or_else(|| written.strip_prefix("\"\"\"")) {
            Some(inside) if inside.starts_with('\n') || inside.starts_with("\r\n") => (line, 0),
            Some(_) => (line - 1, column + 2),
            None => (line - 1, column),
        }
    }

    /// The text at a span, for messages.
    pub(super) fn excerpt(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or_default()
    }
}
