//! Servers measured in turn, round by round, so that whatever else the machine does meets all of them; and what is
//! told of it.

use anyhow::Result;

use super::lineup::{Lineup, Size};
use super::rate::{Rates, Sample, Search};
use super::{Peer, Way};
use crate::bench::report::{Figure, Report};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is served.
    pub size: Size,
    /// How the load is found at which each server is measured.
    pub search: Search,
    /// How often each is.
    pub rounds: usize,
    /// For how many seconds each time.
    pub seconds: f64,
}

/// Queries of the flood's set: names and clients of them are drawn at random.
const QUERIES: usize = 1 << 17;

/// What came of it.
pub struct Race {
    /// By server, in the order of the line-up: a sample for each round.
    runs: Vec<(&'static Peer, Vec<Sample>)>,
}

impl Race {
    /// Measures everybody. After it no socket of a client hears a server.
    ///
    /// # Errors
    /// When a server has ended, or the kernel refuses the flood.
    pub fn run(lineup: &mut Lineup, plan: &Plan) -> Result<Self> {
        let mut rates = Rates::new(lineup, QUERIES)?;
        let mut runs = Vec::new();
        for server in &lineup.servers {
            let (offer, sample) = rates.best(server, &plan.search)?;
            let sent =
                offer.map_or_else(|| "as many as it takes".into(), |offer| format!("{offer} a second"));
            eprintln!(
                "{:<20} answers {:>9.0} a second when it is sent {sent}",
                server.peer.name, sample.rate
            );
            runs.push((server, offer, Vec::new()));
        }
        for round in 1..=plan.rounds {
            for (server, offer, samples) in &mut runs {
                let sample = rates.measure(server, *offer, plan.seconds)?;
                eprintln!(
                    "round {round} of {}: {:<20} {:>9.0} answers/s, {:>6.0} ns of its core for one, {} wrong",
                    plan.rounds,
                    server.peer.name,
                    sample.rate,
                    sample.cost(),
                    sample.wrong
                );
                samples.push(sample);
                *offer = plan.search.adjust(*offer, &sample);
            }
        }
        Ok(Self { runs: runs.into_iter().map(|(server, _, samples)| (server.peer, samples)).collect() })
    }

    /// A row for each server.
    pub fn tell(&self, report: &mut Report) {
        for (peer, samples) in &self.runs {
            let add = |report: &mut Report, column: &str, of: fn(&Sample) -> f64, unit: &str| {
                let [least, median, greatest] = spread(samples.iter().map(of));
                report.add(Figure::new(peer.name, median, unit).column(column).spread(least, greatest));
            };
            add(report, "answers a second", |sample| sample.rate, "1/s");
            add(report, "core time for one", Sample::cost, "ns");
            add(report, "of it the server's own", |sample| sample.process, "ns");
            add(report, "answers a second of core time", |sample| 1e9 / sample.cost(), "1/s");
            add(report, "core left to others", |sample| sample.away * 100.0, "%");
            add(report, "queries sent a second", |sample| sample.offered, "1/s");
            let wrong = samples.iter().map(|sample| sample.wrong).sum::<u64>();
            report.add(Figure::new(peer.name, wrong as f64, "").column("wrong answers").at_most(0.0));
        }
    }

    /// Peers on sockets that are not ours.
    pub fn on_sockets(&self) -> Vec<&'static str> {
        let theirs = self.runs.iter().filter(|(peer, _)| peer.way == Way::Sockets && !peer.is_ours());
        theirs.map(|(peer, _)| peer.name).collect()
    }

    /// What one server is to others: in each round, its `of` to the `choice` among theirs. Least, median, greatest;
    /// `None` when one of them was not there.
    pub fn ratio(
        &self,
        ours: &str,
        theirs: &[&str],
        of: fn(&Sample) -> f64,
        choice: fn(&mut [f64]) -> f64,
    ) -> Option<[f64; 3]> {
        let samples = |name: &str| {
            self.runs.iter().find(|(peer, _)| peer.name == name).map(|(_, samples)| samples.as_slice())
        };
        let ours = samples(ours)?;
        let others: Option<Vec<&[Sample]>> = theirs.iter().map(|name| samples(name)).collect();
        let others = others.filter(|others| !others.is_empty())?;
        let ratios = ours.iter().enumerate().map(|(round, sample)| {
            let mut values: Vec<f64> = others.iter().filter_map(|each| each.get(round)).map(of).collect();
            values.sort_by(f64::total_cmp);
            of(sample) / choice(&mut values)
        });
        Some(spread(ratios))
    }
}

/// The greatest of sorted values.
pub fn greatest(values: &mut [f64]) -> f64 {
    values.last().copied().unwrap_or(f64::NAN)
}

/// The middle one of sorted values; between two, the mean of them.
pub fn middle(values: &mut [f64]) -> f64 {
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (len, at) if len.is_multiple_of(2) => f64::midpoint(values[at - 1], values[at]),
        (_, at) => values[at],
    }
}

/// Answers a second.
pub fn rate(sample: &Sample) -> f64 {
    sample.rate
}

/// Answers for a second of core time.
pub fn thrift(sample: &Sample) -> f64 {
    1e9 / sample.cost()
}

/// Least, median, greatest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
    [at(0), middle(&mut values.clone()), at(values.len().saturating_sub(1))]
}
