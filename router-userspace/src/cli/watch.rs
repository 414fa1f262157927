//! `xroute watch`: events as they happen.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::stream::{Ended, Line, Stream};
use super::{AgentAddress, Format};
use crate::clock::unix_now;
use crate::events::{Kind, Told};
use crate::pattern;

/// Arguments of `xroute watch`.
#[derive(Args, Debug)]
pub struct Watch {
    /// Only events about profiles that fit; `*` and `?` stand for characters of a name
    #[arg(long, value_name = "GLOB")]
    profile: Option<String>,
    /// Only events of these kinds
    #[arg(long, value_name = "KIND", value_enum, num_args = 1.., value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Begin with what is kept: after this sequence number (0: all of it), or at most so old (10m, 2h)
    #[arg(long, value_name = "NUMBER|TIME", value_parser = since)]
    since: Option<Since>,
    /// End after so many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End with the agent, instead of waiting for the next one
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print: a line for people, or a line of JSON, for each event
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Where to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Since {
    /// After this sequence number.
    Number(u64),
    /// So long ago.
    Age(Duration),
}

fn since(written: &str) -> Result<Since, String> {
    if let Ok(number) = written.parse() {
        return Ok(Since::Number(number));
    }
    crate::config::duration_of(written)
        .map(Since::Age)
        .ok_or_else(|| String::from("a sequence number or a time is wanted, e.g. 0, 4711, 90s, 30m or 2h"))
}

impl Watch {
    /// Prints until it is interrupted, has seen enough, or the agent ends (`--once`).
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let after = self.since.map(|since| match since {
            Since::Number(number) => number,
            Since::Age(_) => 0,
        });
        let mut stream = Stream::new(&socket, after)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.follow(&mut stream))
    }

    async fn follow(&self, stream: &mut Stream) -> anyhow::Result<()> {
        let not_before = match self.since {
            Some(Since::Age(age)) => u64::try_from(unix_now().saturating_sub(age).as_millis()).unwrap_or(0),
            _ => 0,
        };
        let mut left = self.count;
        let mut waits = false;
        let mut failed = None;
        while left != Some(0) {
            let was_connected = stream.was_connected();
            let followed = stream
                .follow(|line| {
                    if std::mem::take(&mut waits) {
                        eprintln!("xroute: there is an agent again");
                    }
                    match self.show(&line, not_before) {
                        Ok(false) => return ControlFlow::Continue(()),
                        Ok(true) => {}
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    }
                    match &mut left {
                        None => ControlFlow::Continue(()),
                        Some(left) => {
                            *left -= 1;
                            if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        }
                    }
                })
                .await;
            match followed {
                Ok(Ended::Enough) => break,
                Ok(Ended::Agent) if self.once => break,
                Ok(Ended::Agent) => {
                    if !waits {
                        eprintln!("xroute: the agent is gone, waiting for the next one");
                    }
                    waits = true;
                }
                // Whoever was never connected has probably named the wrong socket.
                Err(error) if self.once || !was_connected => return Err(error),
                Err(_) => {}
            }
            stream.pause().await;
        }
        match failed {
            // A reader that has seen enough (`| head`) is no failure.
            Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Prints a line, if it is wanted; whether it was.
    fn show(&self, line: &Line, not_before: u64) -> std::io::Result<bool> {
        use std::io::Write;

        let mut out = std::io::stdout().lock();
        match line {
            Line::Missed(count) => {
                eprintln!("xroute: {count} events came faster than they were read, and are gone");
                return Ok(false);
            }
            Line::Told(told) if !self.wants(told, not_before) => return Ok(false),
            Line::Told(told) if self.format == Format::Text => writeln!(out, "{}", text(told))?,
            Line::Told(told) => {
                serde_json::to_writer(&mut out, told)?;
                writeln!(out)?;
            }
            // Whether it is wanted cannot be told.
            Line::Unknown(_) if self.profile.is_some() || !self.kind.is_empty() => return Ok(false),
            Line::Unknown(line) => writeln!(out, "{line}")?,
        }
        out.flush()?;
        Ok(true)
    }

    fn wants(&self, told: &Told, not_before: u64) -> bool {
        let of_profile = self.profile.as_ref().is_none_or(|glob| {
            told.event.profile().is_some_and(|name| pattern::matches(glob.as_bytes(), name.as_bytes()))
        });
        let of_kind = self.kind.is_empty() || self.kind.contains(&told.event.kind());
        told.at_ms >= not_before && of_profile && of_kind
    }
}

/// An event as a line for people: number, time in UTC, kind, and what happened.
pub(super) fn text(told: &Told) -> String {
    format!("{} {} {:<9} {}", told.sequence, clock(told.at_ms), told.event.kind().to_string(), told.event)
}

/// Milliseconds since the epoch, in UTC (RFC 3339).
fn clock(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| at_ms.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;

    #[test]
    fn where_to_begin() {
        assert_eq!(since("0"), Ok(Since::Number(0)));
        assert_eq!(since("10m"), Ok(Since::Age(Duration::from_secs(600))));
        for wrong in ["", "-1", "soon", "10 m"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_for_people() {
        let event = Event::Lease { late_ms: 3 };
        let told = Told { sequence: 12, at_ms: 1_700_000_000_050, event };
        let line = "12 2023-11-14T22:13:20.050Z lease     renewed 3 ms late, the agent was held up";
        assert_eq!(text(&told), line);
    }
}
