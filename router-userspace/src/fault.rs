//! A user's mistake in a file: where it is, what was found, what is allowed.

use std::fmt;
use std::sync::Arc;

/// One mistake. Shown as `file:line:column: message`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// From 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// In characters, from 1; 0 when it is about the line as a whole.
    pub column: usize,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "{}: {}", self.file, self.message),
            (line, 0) => write!(f, "{}:{line}: {}", self.file, self.message),
            (line, column) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
        }
    }
}

/// Most faults reported of one file that may have millions of lines.
pub(crate) const MAX_FAULTS: usize = 50;

/// The nearest of the allowed words, when it is near enough to be what was meant.
pub(crate) fn nearest<'w>(found: &str, allowed: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let folded = found.to_ascii_lowercase().replace('-', "_");
    let budget = (found.chars().count() / 3).max(1);
    allowed
        .into_iter()
        .map(|word| (distance(&folded, &word.to_ascii_lowercase().replace('-', "_")), word))
        .filter(|&(distance, _)| distance <= budget)
        .min()
        .map(|(_, word)| word)
}

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other. Words of the
/// configuration are short; a text that is not is never near one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 8 {
        return usize::MAX;
    }
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_only_when_it_is_near() {
        let allowed = ["weight", "region", "dial", "min_child_endpoints"];
        assert_eq!(nearest("wieght", allowed), Some("weight"));
        assert_eq!(nearest("regoin", allowed), Some("region"));
        assert_eq!(nearest("min-child-endpoints", allowed), Some("min_child_endpoints"));
        assert_eq!(nearest("Dial", allowed), Some("dial"));
        assert_eq!(nearest("colour", allowed), None);
        assert_eq!(nearest("", allowed), None);
        assert_eq!(nearest(&"x".repeat(100_000), allowed), None);
    }
}
