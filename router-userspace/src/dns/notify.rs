//! NOTIFY to secondaries (RFC 1996): that a zone has another serial number.
//!
//! [`Planner`] says what is to be sent when, and has neither socket nor clock; [`run`] sends and receives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use router_common::name::Name;

mod exchange;
mod message;

pub(super) use exchange::run;

/// How long an answer is waited for after each time that a NOTIFY is sent.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];
/// Sent in one step at most: a start with many zones is no flood.
const BURST: usize = 32;
/// The least time between two such steps.
const PACE: Duration = Duration::from_millis(20);

/// Who is told of which zone.
pub(super) type Way = (Name, SocketAddr);

/// What is to be told, and when again. `now` is the time since any fixed moment.
#[derive(Default)]
pub(super) struct Planner {
    /// The serial numbers that were told, or are being told.
    told: BTreeMap<Way, u32>,
    open: BTreeMap<Way, Open>,
    /// Not before then is anything sent.
    paced: Duration,
}

/// A NOTIFY that was not answered.
struct Open {
    id: u16,
    /// How often it was sent.
    sent: usize,
    /// When it is sent again, or given up.
    due: Duration,
}

/// One step of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Send with this message id.
    Send(Way, u16),
    /// Nobody answered, and nothing more is sent.
    GiveUp(Way),
}

impl Planner {
    /// Takes the zones' serial numbers as they are now, and whom to tell. Whoever was told another number,
    /// or none, is told; what was under way with an older one begins anew with another id. `random` gives
    /// uniform numbers.
    pub fn aim(
        &mut self,
        wanted: impl IntoIterator<Item = (Way, u32)>,
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) {
        let mut kept = BTreeSet::new();
        for (way, serial) in wanted {
            if self.told.insert(way.clone(), serial) != Some(serial) {
                let id = random() as u16;
                self.open.insert(way.clone(), Open { id, sent: 0, due: now });
            }
            kept.insert(way);
        }
        self.told.retain(|way, _| kept.contains(way));
        self.open.retain(|way, _| kept.contains(way));
    }

    /// What is due, some of it.
    pub fn due(&mut self, now: Duration) -> Vec<Step> {
        if now < self.paced {
            return Vec::new();
        }
        let mut steps = Vec::new();
        for (way, open) in self.open.iter_mut().filter(|(_, open)| open.due <= now).take(BURST) {
            match WAITS.get(open.sent) {
                Some(&wait) => {
                    open.sent += 1;
                    open.due = now + wait;
                    steps.push(Step::Send(way.clone(), open.id));
                }
                None => steps.push(Step::GiveUp(way.clone())),
            }
        }
        for step in &steps {
            if let Step::GiveUp(way) = step {
                self.open.remove(way);
            }
        }
        self.paced = now + PACE;
        steps
    }

    /// When something is due next; none when nothing is open.
    pub fn next(&self) -> Option<Duration> {
        let due = self.open.values().map(|open| open.due).min()?;
        Some(due.max(self.paced))
    }

    /// The way that an answer with this id from there would be about.
    pub fn awaited(&self, from: SocketAddr, id: u16) -> Option<&Way> {
        let is_it = |((_, to), open): &(&Way, &Open)| {
            open.sent > 0 && open.id == id && to.port() == from.port() && to.ip() == from.ip().to_canonical()
        };
        self.open.iter().find(is_it).map(|(way, _)| way)
    }

    /// It was answered: nothing more is sent.
    pub fn close(&mut self, way: &Way) {
        self.open.remove(way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn way(zone: &str, to: &str) -> Way {
        (zone.parse().unwrap(), to.parse().unwrap())
    }

    fn counting() -> impl FnMut() -> u64 {
        let mut next = 0;
        move || {
            next += 1;
            next
        }
    }

    /// Everything that happens until a time, with the time in milliseconds after the start.
    fn play(planner: &mut Planner, until: Duration) -> Vec<(u128, Step)> {
        let mut seen = Vec::new();
        while let Some(next) = planner.next().filter(|&next| next <= START + until) {
            seen.extend(planner.due(next).into_iter().map(|step| ((next - START).as_millis(), step)));
        }
        seen
    }

    #[test]
    fn five_times_with_doubling_waits_and_then_no_more() {
        let mut planner = Planner::default();
        let one = way("a.test", "192.0.2.1:53");
        planner.aim([(one.clone(), 7)], START, &mut counting());
        let send = |at: u128| (at, Step::Send(one.clone(), 1));
        assert_eq!(
            play(&mut planner, Duration::from_secs(1000)),
            [send(0), send(1000), send(3000), send(7000), send(15_000), (31_000, Step::GiveUp(one.clone()))]
        );
        assert_eq!(planner.next(), None);
        // The same number again tells nobody anything.
        planner.aim([(one.clone(), 7)], START + Duration::from_secs(60), &mut counting());
        assert_eq!(planner.next(), None);
    }

    #[test]
    fn an_answer_ends_it_and_another_serial_begins_anew() {
        let mut planner = Planner::default();
        let mut random = counting();
        let (one, two) = (way("a.test", "192.0.2.1:53"), way("a.test", "[2001:db8::1]:5353"));
        planner.aim([(one.clone(), 7), (two.clone(), 7)], START, &mut random);
        // Nothing was sent, so nothing is awaited.
        assert_eq!(planner.awaited(one.1, 1), None);
        assert_eq!(planner.due(START), [Step::Send(one.clone(), 1), Step::Send(two.clone(), 2)]);
        for (from, id) in [("192.0.2.1:53", 2), ("192.0.2.1:54", 1), ("192.0.2.2:53", 1), ("192.0.2.1:53", 3)]
        {
            assert_eq!(planner.awaited(from.parse().unwrap(), id), None, "{from} {id}");
        }
        let mapped = "[::ffff:192.0.2.1]:53".parse().unwrap();
        assert_eq!(planner.awaited(mapped, 1), Some(&one));
        planner.close(&one);
        assert_eq!(planner.awaited(one.1, 1), None);
        // A serial that goes back is another one too. What still waits for an answer begins anew.
        let later = START + Duration::from_secs(2);
        planner.aim([(one.clone(), 7), (two.clone(), 6)], later, &mut random);
        assert_eq!(planner.awaited(two.1, 2), None);
        assert_eq!(planner.due(later), [Step::Send(two.clone(), 3)]);
        // Somebody new is told what the others know.
        let three = way("a.test", "192.0.2.3:53");
        planner.aim([(one.clone(), 7), (two.clone(), 6), (three.clone(), 6)], later, &mut random);
        let next = planner.next().unwrap();
        assert_eq!(planner.due(next), [Step::Send(three, 4)]);
        // Whoever is no secondary any more gets nothing more, and counts as new when it comes back.
        planner.aim([(one.clone(), 7)], later, &mut random);
        assert_eq!(planner.next(), None);
        planner.aim([(one, 7), (two.clone(), 6)], later, &mut random);
        assert_eq!(play(&mut planner, Duration::from_secs(3)).last(), Some(&(2040, Step::Send(two, 5))));
    }

    #[test]
    fn many_are_told_a_few_at_a_time() {
        let mut planner = Planner::default();
        let ways = (0..100).map(|i| (way(&format!("z{i}.test"), "192.0.2.1:53"), 1));
        planner.aim(ways, START, &mut counting());
        let seen = play(&mut planner, Duration::from_millis(900));
        assert_eq!(seen.len(), 100);
        let at = |i: usize| seen[i].0;
        assert_eq!((at(0), at(31), at(32), at(63), at(64), at(99)), (0, 0, 20, 20, 40, 60));
    }
}
