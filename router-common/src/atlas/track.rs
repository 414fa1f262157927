//! A whole address family as consecutive stretches, each with a value.

/// Addresses of a family as numbers.
pub(super) trait Address: Copy + Ord {
    const FIRST: Self;
    const LAST: Self;
    fn before(self) -> Self;
}

impl Address for u32 {
    const FIRST: Self = 0;
    const LAST: Self = u32::MAX;
    fn before(self) -> Self {
        self.saturating_sub(1)
    }
}

impl Address for u128 {
    const FIRST: Self = 0;
    const LAST: Self = u128::MAX;
    fn before(self) -> Self {
        self.saturating_sub(1)
    }
}

/// Stretches by their first address, ascending; the first begins at 0, the last ends with the family.
#[derive(Clone, Debug)]
pub(super) struct Track<A> {
    stretches: Vec<(A, u32)>,
}

impl<A: Address> Track<A> {
    /// From stretches in order; neighbours are kept apart even when alike.
    pub fn new(stretches: Vec<(A, u32)>) -> Self {
        Self { stretches }
    }

    /// Value, first and last address of the stretch that holds an address.
    pub fn at(&self, address: A) -> (u32, A, A) {
        self.stretch(self.stretches.partition_point(|&(first, _)| first <= address).saturating_sub(1))
    }

    fn stretch(&self, at: usize) -> (u32, A, A) {
        let (first, value) = self.stretches.get(at).copied().unwrap_or((A::FIRST, 0));
        let last = self.stretches.get(at + 1).map_or(A::LAST, |&(next, _)| next.before());
        (value, first, last)
    }

    /// All stretches: value, first and last address.
    pub fn stretches(&self) -> impl Iterator<Item = (u32, A, A)> {
        (0..self.stretches.len().max(1)).map(|at| self.stretch(at))
    }

    /// Whether all stretches that touch `first..=last` have this value.
    pub fn all(&self, first: A, last: A, value: u32) -> bool {
        let from = self.stretches.partition_point(|&(each, _)| each <= first).saturating_sub(1);
        self.stretches.iter().skip(from).take_while(|(each, _)| *each <= last).all(|&(_, each)| each == value)
    }

    /// Stretches of mapped values, neighbours of one value joined within one `compartment`.
    pub fn map(&self, value: impl Fn(u32) -> u32, compartment: impl Fn(A) -> u8) -> Self {
        let mut joined: Vec<(A, u32)> = Vec::new();
        let mut before = None;
        for &(first, each) in &self.stretches {
            let key = (value(each), compartment(first));
            if before != Some(key) {
                joined.push((first, key.0));
                before = Some(key);
            }
        }
        Self { stretches: joined }
    }
}
