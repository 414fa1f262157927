//! Domain names in wire form, folded to lower case.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A domain name: uncompressed wire form (RFC 1035 §3.1) with the root label, ASCII letters folded to
/// lower case (RFC 4343), 1..=255 octets. Ordered canonically (RFC 4034 §6.1), so that everything
/// below a name follows it.
#[derive(Clone)]
pub struct Name(Octets);

/// Names of up to this many octets are kept in place, which is most of those asked for: a server reads one
/// from every query, and takes its parents.
const SHORT: usize = 38;

#[derive(Clone)]
enum Octets {
    Short { len: u8, octets: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Octets {
    fn of(wire: &[u8]) -> Self {
        let mut octets = [0; SHORT];
        match octets.get_mut(..wire.len()) {
            Some(to) => {
                to.copy_from_slice(wire);
                Self::Short { len: wire.len() as u8, octets }
            }
            None => Self::Long(wire.into()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, octets } => octets.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(octets) => octets,
        }
    }

    fn make_ascii_lowercase(&mut self) {
        match self {
            Self::Short { octets, .. } => octets.make_ascii_lowercase(),
            Self::Long(octets) => octets.make_ascii_lowercase(),
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_wire() == other.as_wire()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_wire().hash(state);
    }
}

/// Why a text or octets are not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameError {
    /// An empty label, as in `a..b` or an empty text.
    EmptyLabel,
    /// A label of more than 63 octets.
    LongLabel,
    /// More than 255 octets in all.
    LongName,
    /// A `\` that no character or three digits up to 255 follow.
    BadEscape,
    /// Octets that are not one whole uncompressed name.
    BadWire,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyLabel => "an empty label",
            Self::LongLabel => "a label of more than 63 octets",
            Self::LongName => "more than 255 octets in all",
            Self::BadEscape => "a bad escape (allowed: \\X and \\DDD)",
            Self::BadWire => "not an uncompressed name in wire form",
        })
    }
}

impl std::error::Error for NameError {}

impl Name {
    /// The root.
    pub fn root() -> Self {
        Self(Octets::of(&[0]))
    }

    /// Takes one whole name in wire form (root label included, no pointers) and folds it.
    pub fn from_wire(octets: &[u8]) -> Result<Self, NameError> {
        if octets.len() > 255 {
            return Err(NameError::LongName);
        }
        let mut at = 0;
        loop {
            match octets.get(at) {
                Some(0) if at + 1 == octets.len() => break,
                Some(&len @ 1..=63) => at += 1 + usize::from(len),
                _ => return Err(NameError::BadWire),
            }
        }
        let mut folded = Octets::of(octets);
        folded.make_ascii_lowercase();
        Ok(Self(folded))
    }

    /// The wire form, folded, with the root label.
    pub fn as_wire(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The labels from the left, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_wire();
        std::iter::from_fn(move || {
            let len = usize::from(*rest.first()?);
            if len == 0 {
                return None;
            }
            let label = rest.get(1..=len)?;
            rest = &rest[1 + len..];
            Some(label)
        })
    }

    /// The name without its first label; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let wire = self.as_wire();
        match wire[0] {
            0 => None,
            len => Some(Self(Octets::of(&wire[1 + usize::from(len)..]))),
        }
    }

    /// `*.self`; an error when that would be too long.
    pub fn wildcard_child(&self) -> Result<Self, NameError> {
        let mut octets = vec![1, b'*'];
        octets.extend_from_slice(self.as_wire());
        Self::from_wire(&octets)
    }

    /// Whether the first label is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.as_wire().starts_with(&[1, b'*'])
    }

    /// Whether this name is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let (mine, other) = (self.as_wire(), other.as_wire());
        let mut at = 0;
        while mine.len() - at >= other.len() {
            if mine[at..] == *other {
                return true;
            }
            at += 1 + usize::from(mine[at]);
        }
        false
    }
}

impl FromStr for Name {
    type Err = NameError;

    /// Presentation form (RFC 1035 §5.1), always taken as absolute; a final dot may be missing.
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::from_wire(&Self::written(text)?)
    }
}

impl Name {
    /// Presentation form to wire form with letters as they are written, for names that are only passed on, in
    /// record data. Of what [`Self::from_wire`] checks only the length of the whole is left.
    pub fn written(text: &str) -> Result<Vec<u8>, NameError> {
        if text == "." {
            return Ok(vec![0]);
        }
        let mut octets = Vec::with_capacity(text.len() + 2);
        let mut label = Vec::new();
        let mut bytes = text.bytes().peekable();
        let mut finish = |label: &mut Vec<u8>| {
            match label.len() {
                0 => return Err(NameError::EmptyLabel),
                64.. => return Err(NameError::LongLabel),
                len => octets.push(len as u8),
            }
            octets.append(label);
            Ok(())
        };
        if bytes.peek().is_none() {
            return Err(NameError::EmptyLabel);
        }
        while let Some(byte) = bytes.next() {
            match byte {
                b'.' => finish(&mut label)?,
                b'\\' => {
                    let next = bytes.next().ok_or(NameError::BadEscape)?;
                    if next.is_ascii_digit() {
                        let mut value = u32::from(next - b'0');
                        for _ in 0..2 {
                            let digit =
                                bytes.next().filter(u8::is_ascii_digit).ok_or(NameError::BadEscape)?;
                            value = value * 10 + u32::from(digit - b'0');
                        }
                        label.push(u8::try_from(value).map_err(|_| NameError::BadEscape)?);
                    } else {
                        label.push(next);
                    }
                }
                other => label.push(other),
            }
        }
        if !label.is_empty() {
            finish(&mut label)?;
        }
        octets.push(0);
        Ok(octets)
    }
}

impl fmt::Display for Name {
    /// Presentation form with the final dot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.as_wire() == [0] {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &byte in label {
                match byte {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                        write!(f, "\\{}", byte as char)?
                    }
                    0x21..=0x7e => write!(f, "{}", byte as char)?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        // Names of one table mostly differ in their first labels only: what they end in alike is left out.
        let (mine_wire, other_wire) = (self.as_wire(), other.as_wire());
        let (mine, theirs) = (Labels::of(mine_wire), Labels::of(other_wire));
        let common = mine.count.min(theirs.count);
        for from_the_right in 1..=common {
            match mine.label(mine_wire, from_the_right).cmp(theirs.label(other_wire, from_the_right)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        mine.count.cmp(&theirs.count)
    }
}

/// Where the labels of a name start.
struct Labels {
    starts: [u8; MAX_LABELS],
    count: usize,
}

/// 255 octets hold 127 labels of one octet, and the root.
const MAX_LABELS: usize = 128;

impl Labels {
    fn of(wire: &[u8]) -> Self {
        let mut labels = Self { starts: [0; MAX_LABELS], count: 0 };
        let mut at = 0;
        while let Some(&len @ 1..) = wire.get(at) {
            if let Some(start) = labels.starts.get_mut(labels.count) {
                *start = at as u8;
                labels.count += 1;
            }
            at += 1 + usize::from(len);
        }
        labels
    }

    /// The `nth` label from the right, from 1 on, without the root; empty beyond the first.
    fn label<'w>(&self, wire: &'w [u8], nth: usize) -> &'w [u8] {
        let start = self.count.checked_sub(nth).and_then(|at| self.starts.get(at));
        let label = start.and_then(|&start| {
            let (&len, rest) = wire.get(usize::from(start)..)?.split_first()?;
            rest.get(..usize::from(len))
        });
        label.unwrap_or_default()
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn texts_and_back() {
        for (text, shown) in [
            (".", "."),
            ("WWW.Example", "www.example."),
            ("*.a.b.", "*.a.b."),
            ("a\\.b.c", "a\\.b.c."),
            ("\\000\\255.x", "\\000\\255.x."),
        ] {
            assert_eq!(name(text).to_string(), shown);
            assert_eq!(name(shown), name(text));
        }
    }

    #[test]
    fn refuses() {
        assert_eq!("".parse::<Name>(), Err(NameError::EmptyLabel));
        assert_eq!("a..b".parse::<Name>(), Err(NameError::EmptyLabel));
        assert_eq!(".a".parse::<Name>(), Err(NameError::EmptyLabel));
        assert_eq!("a".repeat(64).parse::<Name>(), Err(NameError::LongLabel));
        assert_eq!("abcdefg.".repeat(32).parse::<Name>(), Err(NameError::LongName));
        assert_eq!("a\\".parse::<Name>(), Err(NameError::BadEscape));
        assert_eq!("a\\299".parse::<Name>(), Err(NameError::BadEscape));
        assert_eq!(Name::from_wire(&[1, b'a']), Err(NameError::BadWire));
        assert_eq!(Name::from_wire(&[0xc0, 12]), Err(NameError::BadWire));
        assert_eq!(Name::from_wire(&[0, 0]), Err(NameError::BadWire));
        assert_eq!(Name::from_wire(&[]), Err(NameError::BadWire));
    }

    #[test]
    fn short_and_long_names_are_alike() {
        for len in 30..45usize {
            let text = format!("{}.{}", "A".repeat(len - 9), "b".repeat(5));
            let long = name(&text);
            assert_eq!(long.as_wire().len(), len - 1);
            assert_eq!(long.to_string(), format!("{}.", text.to_lowercase()));
            assert_eq!(long.parent(), Some(name("bbbbb")));
            assert_eq!(long, long.clone());
            assert!(long.is_within(&name("BBBBB")));
            assert!(long < name("c") && long > name("bbbbb"));
            let set = std::collections::HashSet::from([long.clone()]);
            assert!(set.contains(&name(&text)));
        }
        assert!(size_of::<Name>() <= 40);
    }

    #[test]
    fn within_is_by_label() {
        assert!(name("a.example.test").is_within(&name("example.test")));
        assert!(name("example.test").is_within(&name("example.test")));
        assert!(!name("xexample.test").is_within(&name("example.test")));
        assert!(name("x").is_within(&Name::root()));
    }

    #[test]
    fn order_is_that_of_the_labels_from_the_right() {
        let names =
            ["b.a", "a.b", "a", "b", "aa", "a.a", "\\000.a", "\\000", "*.a", ".", "a.aa", "x.b.a"].map(name);
        let rank = |name: &Name| -> Vec<Vec<u8>> {
            let mut labels: Vec<Vec<u8>> = name.labels().map(<[u8]>::to_vec).collect();
            labels.reverse();
            labels
        };
        for one in &names {
            for other in &names {
                assert_eq!(one.cmp(other), rank(one).cmp(&rank(other)), "{one} {other}");
            }
        }
    }

    #[test]
    fn canonical_order_keeps_subtrees_together() {
        // RFC 4034 §6.1
        let mut names: Vec<Name> = [
            "z.example",
            "*.z.example",
            "example",
            "a.example",
            "yljkjljk.a.example",
            "\\200.z.example",
            "zabc.a.example",
        ]
        .map(name)
        .into();
        names.sort();
        let shown: Vec<String> = names.iter().map(Name::to_string).collect();
        assert_eq!(
            shown,
            [
                "example.",
                "a.example.",
                "yljkjljk.a.example.",
                "zabc.a.example.",
                "z.example.",
                "*.z.example.",
                "\\200.z.example."
            ]
        );
    }
}
