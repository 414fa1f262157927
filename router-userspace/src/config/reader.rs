//! Reading a TOML table key by key: each value is taken or refused with its place, and keys that
//! nobody asked for are refused at the end.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Source;
use crate::fault::{Fault, nearest};

/// A value of the text with its place.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// All mistakes of a load, in the order in which they were found.
#[derive(Default)]
pub(super) struct Faults(RefCell<Vec<Fault>>);

impl Faults {
    pub(super) fn add(&self, fault: Fault) {
        self.0.borrow_mut().push(fault);
    }

    pub(super) fn extend(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.borrow_mut().extend(faults);
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn into_inner(self) -> Vec<Fault> {
        self.0.into_inner()
    }
}

/// A place in the text.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) source: Arc<Source>,
    pub(super) at: usize,
}

impl Spot {
    pub(super) fn fault(&self, message: String) -> Fault {
        self.source.fault(self.at, message)
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.source.file, self.at)
    }
}

/// Where a table and its keys stand, kept when the text is gone, so that what is found out later can
/// point there.
pub(super) struct Site {
    /// The table's header or opening brace.
    pub(super) head: Spot,
    /// Offsets of the values by key.
    values: BTreeMap<String, usize>,
    /// Offsets of the items that could be read, by key of the list.
    items: BTreeMap<String, Vec<usize>>,
    /// Keys about which a mistake was reported.
    faulty: BTreeSet<String>,
}

impl Site {
    /// The place of a key's item, else of its value, else of the table.
    pub(super) fn spot(&self, key: Option<&str>, item: Option<usize>) -> Spot {
        let listed = key.zip(item).and_then(|(key, item)| self.items.get(key)?.get(item));
        let value = key.and_then(|key| self.values.get(key));
        let at = listed.or(value).copied().unwrap_or(self.head.at);
        Spot { source: self.head.source.clone(), at }
    }

    /// Whether a mistake about this key was reported before.
    pub(super) fn is_faulty(&self, key: &str) -> bool {
        self.faulty.contains(key)
    }

    /// Whether the text sets this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Keeps later checks from blaming a key for what is wrong elsewhere.
    pub(super) fn excuse(&mut self, keys: &[&str]) {
        self.faulty.extend(keys.iter().map(|&key| key.to_owned()));
    }
}

/// One table of the text, being read.
pub(super) struct Table<'t> {
    /// How messages call it: `[server]`, `[[profile.endpoint]]`, `soa`.
    title: &'static str,
    source: &'t Arc<Source>,
    faults: &'t Faults,
    table: &'t DeTable<'t>,
    span: Range<usize>,
    asked: RefCell<BTreeSet<&'static str>>,
    faulty: RefCell<BTreeSet<String>>,
    items: RefCell<BTreeMap<String, Vec<usize>>>,
    sound: Cell<bool>,
}

impl<'t> Table<'t> {
    pub(super) fn new(
        title: &'static str,
        source: &'t Arc<Source>,
        faults: &'t Faults,
        table: &'t DeTable<'t>,
        span: Range<usize>,
    ) -> Self {
        Self {
            title,
            source,
            faults,
            table,
            span,
            asked: RefCell::default(),
            faulty: RefCell::default(),
            items: RefCell::default(),
            sound: Cell::new(true),
        }
    }

    /// How messages call it.
    pub(super) fn title(&self) -> &'static str {
        self.title
    }

    /// The folder that paths in this table are relative to.
    pub(super) fn source(&self) -> &'t Arc<Source> {
        self.source
    }

    /// The collector of mistakes.
    pub(super) fn faults(&self) -> &'t Faults {
        self.faults
    }

    /// The place of the table.
    pub(super) fn spot(&self) -> Spot {
        Spot { source: self.source.clone(), at: self.span.start }
    }

    /// The place of a value.
    pub(super) fn spot_of(&self, value: &Value<'_>) -> Spot {
        Spot { source: self.source.clone(), at: value.span().start }
    }

    /// Whether nothing was wrong so far.
    pub(super) fn is_sound(&self) -> bool {
        self.sound.get()
    }

    /// Reports a mistake about the table.
    pub(super) fn fault(&self, message: String) {
        self.sound.set(false);
        self.faults.add(self.source.fault(self.span.start, message));
    }

    /// Reports a mistake about the value of a key, or about the key when it has no value.
    pub(super) fn fault_at(&self, key: &'static str, message: String) {
        let at = self.table.get(key).map_or(self.span.start, |value| value.span().start);
        self.fault_in(key, at, message);
    }

    /// Reports a mistake at a place inside the value of a key.
    pub(super) fn fault_by(&self, key: &'static str, spot: &Spot, message: String) {
        self.fault_in(key, spot.at, message);
    }

    fn fault_in(&self, key: &str, at: usize, message: String) {
        self.sound.set(false);
        self.faulty.borrow_mut().insert(key.to_owned());
        self.faults.add(self.source.fault(at, message));
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &'static str) -> Option<&'t Value<'t>> {
        self.asked.borrow_mut().insert(key);
        self.table.get(key)
    }

    /// Whether the text sets this key; it counts as asked for.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Reports a key that must be there and is not.
    pub(super) fn missing(&self, key: &'static str, example: &str) {
        self.fault_at(key, format!("{} has no {key}; e.g. {key} = {example}", self.title));
    }

    /// Refuses a key where nothing uses it.
    pub(super) fn refuse(&self, key: &'static str, why: &str) {
        if let Some((name, _)) = self.table.get_key_value(key) {
            self.asked.borrow_mut().insert(key);
            self.fault_in(key, name.span().start, format!("{key} {why}"));
        }
    }

    /// Takes a value, or reports what `take` says of it.
    pub(super) fn take<T>(
        &self,
        key: &'static str,
        take: impl FnOnce(&'t DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(key)?;
        self.report(key, value, take(value.get_ref()))
    }

    fn report<T>(&self, key: &str, value: &Value<'_>, taken: Result<T, String>) -> Option<T> {
        match taken {
            Ok(taken) => Some(taken),
            Err(why) => {
                self.fault_in(key, value.span().start, format!("{key}: {why}"));
                None
            }
        }
    }

    /// Takes each item of a list; a lone value counts as a list of one. Items that are wrong are
    /// reported and left out.
    pub(super) fn items<T>(
        &self,
        key: &'static str,
        mut take: impl FnMut(&'t DeValue<'t>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let value = self.value(key)?;
        let lone = std::slice::from_ref(value);
        let listed: &[Value<'t>] = match value.get_ref() {
            DeValue::Array(items) => items,
            _ => lone,
        };
        let mut taken = Vec::with_capacity(listed.len());
        let mut places = Vec::with_capacity(listed.len());
        for item in listed {
            if let Some(one) = self.report(key, item, take(item.get_ref())) {
                taken.push(one);
                places.push(item.span().start);
            }
        }
        self.items.borrow_mut().insert(key.to_owned(), places);
        Some(taken)
    }

    /// Reports the items of a list that stand in it twice.
    pub(super) fn no_twins<T: Ord + fmt::Display>(&self, key: &'static str, items: &[T]) {
        let mut seen = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            if !seen.insert(item) {
                let at = self.items.borrow().get(key).and_then(|places| places.get(i).copied());
                self.fault_in(key, at.unwrap_or(self.span.start), format!("{key}: {item} stands twice"));
            }
        }
    }

    /// How many items the list under a key has in the text; a lone value is a list of one.
    pub(super) fn count(&self, key: &'static str) -> usize {
        match self.value(key).map(|value| value.get_ref()) {
            Some(DeValue::Array(items)) => items.len(),
            Some(_) => 1,
            None => 0,
        }
    }

    /// A table under this key.
    pub(super) fn table(&self, key: &'static str, title: &'static str) -> Option<Table<'t>> {
        let value = self.value(key)?;
        self.as_table(key, title, value)
    }

    fn as_table(&self, key: &str, title: &'static str, value: &'t Value<'t>) -> Option<Table<'t>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(title, self.source, self.faults, table, value.span())),
            other => {
                let message = format!("{key}: found {}; a table is wanted, {title}", shown(other));
                self.fault_in(key, value.span().start, message);
                None
            }
        }
    }

    /// The tables of an array of tables.
    pub(super) fn tables(&self, key: &'static str, title: &'static str) -> Vec<Table<'t>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().filter_map(|item| self.as_table(key, title, item)).collect()
            }
            other => {
                let message = format!("{key}: found {}; it is written {title}", shown(other));
                self.fault_in(key, value.span().start, message);
                Vec::new()
            }
        }
    }

    /// All keys and values, for tables whose keys are the user's.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'t str, Spot, &'t Value<'t>)> {
        self.table.iter().map(|(key, value)| {
            (key.get_ref().as_ref(), Spot { source: self.source.clone(), at: key.span().start }, value)
        })
    }

    /// A table whose title is the same for every key of this one.
    pub(super) fn sub(&self, title: &'static str, key: &str, value: &'t Value<'t>) -> Option<Table<'t>> {
        self.as_table(key, title, value)
    }

    /// Refuses the keys that nobody asked for, and keeps where everything stands.
    pub(super) fn finish(self) -> Site {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter() {
            let name = key.get_ref().as_ref();
            if asked.contains(name) {
                continue;
            }
            let hint = match nearest(name, asked.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("allowed are {}", asked.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("unknown key {name:?} in {}; {hint}", self.title);
            self.faults.add(self.source.fault(key.span().start, message));
        }
        let values = self.table.iter().map(|(key, value)| (key.get_ref().to_string(), value.span().start));
        Site {
            head: self.spot(),
            values: values.collect(),
            items: self.items.take(),
            faulty: self.faulty.take(),
        }
    }
}

/// How messages show a value that was found.
pub(super) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => match text.char_indices().nth(60) {
            Some((cut, _)) => format!("{:?}…", text.get(..cut).unwrap_or_default()),
            None => format!("{text:?}"),
        },
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// A string.
pub(super) fn text<'t>(value: &'t DeValue<'t>) -> Result<&'t str, String> {
    value.as_str().ok_or_else(|| format!("found {}; a string is wanted", shown(value)))
}

/// `true` or `false`.
pub(super) fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("found {}; allowed are true and false", shown(value)))
}

/// A whole number within a range.
pub(super) fn whole<T: TryFrom<i64>>(value: &DeValue<'_>, allowed: RangeInclusive<i64>) -> Result<T, String> {
    let wrong = || format!("found {}; allowed is {} to {}", shown(value), allowed.start(), allowed.end());
    let number = value.as_integer().ok_or_else(wrong)?;
    let number = i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong())?;
    if !allowed.contains(&number) {
        return Err(wrong());
    }
    T::try_from(number).map_err(|_| wrong())
}

/// A number, with or without a fraction, within a range.
pub(super) fn number(value: &DeValue<'_>, allowed: RangeInclusive<f64>) -> Result<f64, String> {
    let found = match value {
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|integer| integer as f64)
        }
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        _ => None,
    };
    found
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| format!("found {}; allowed is {} to {}", shown(value), allowed.start(), allowed.end()))
}

/// One of some words.
pub(super) fn choice<T: Copy>(value: &DeValue<'_>, allowed: &[(&str, T)]) -> Result<T, String> {
    let words = || allowed.iter().map(|&(word, _)| word);
    let found = value.as_str();
    if let Some(&(_, meant)) = allowed.iter().find(|&&(word, _)| Some(word) == found) {
        return Ok(meant);
    }
    let listed = words().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    let hint = found.and_then(|found| nearest(found, words()));
    let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    Err(format!("found {}; allowed are {listed}{hint}", shown(value)))
}
