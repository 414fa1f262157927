//! An input that stands for several files: a line that begins with `#FILE ` names the file that the
//! lines after it are in.

use std::collections::BTreeMap;

const MARK: &[u8] = b"#FILE ";

/// The octets before the first mark, and the named files. A name that stands twice means its last file.
pub fn split(octets: &[u8]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let mut files = BTreeMap::new();
    let mut first = Vec::new();
    let mut name: Option<String> = None;
    let mut held = Vec::new();
    for line in octets.split_inclusive(|&octet| octet == b'\n') {
        let Some(named) = line.strip_prefix(MARK) else {
            held.extend_from_slice(line);
            continue;
        };
        let done = std::mem::take(&mut held);
        match name.replace(String::from_utf8_lossy(named).trim_end().to_owned()) {
            None => first = done,
            Some(before) => drop(files.insert(before, done)),
        }
    }
    match name {
        None => first = held,
        Some(name) => drop(files.insert(name, held)),
    }
    (first, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_part_an_input_into_files() {
        let (first, files) = split(b"a\nb\n#FILE x.zone\nc\n#FILE y\n#FILE z\n\xffd");
        assert_eq!(first, b"a\nb\n");
        let files: Vec<_> = files.iter().map(|(name, octets)| (name.as_str(), octets.as_slice())).collect();
        assert_eq!(files, [("x.zone", &b"c\n"[..]), ("y", b""), ("z", b"\xffd")]);
        assert_eq!(split(b"no mark #FILE x").0, b"no mark #FILE x");
    }
}
