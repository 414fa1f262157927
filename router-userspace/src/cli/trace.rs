//! `xroute trace`.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use jiff::Timestamp;

use super::exit::{Exit, Failure};
use super::{AgentAddress, Format, client};
use crate::config::duration_of;
use crate::control::{TraceLine, TraceQuery, Traced};
use crate::dns::Transport;
use crate::dnstap::{self, Exchange, Speaker, stream};
use crate::trace::{Path, Tally};

/// Arguments of `xroute trace`.
#[derive(Args, Debug)]
pub struct Trace {
    /// Names, as a pattern of `*` and `?`
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Clients: an address or a prefix that the source or the client subnet is in
    #[arg(long, value_name = "PREFIX")]
    client: Option<String>,
    /// Type asked for
    #[arg(long = "type", value_name = "TYPE")]
    rtype: Option<String>,
    /// Outcomes, as a pattern [default: all but what the fast path passes up and drops]
    #[arg(long, value_name = "GLOB")]
    outcome: Option<String>,
    /// Only what this path answered
    #[arg(long, value_enum)]
    path: Option<Path>,
    /// One in N of the queries, by chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// At most so many queries per second
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// End after so many queries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, e.g. 30s, 5m
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Write dnstap in Frame Streams to a file, or to standard output for `-`, instead of text
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    dnstap: Option<PathBuf>,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentAddress,
    /// How to print; JSON is one object a line
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn time(written: &str) -> Result<Duration, String> {
    match duration_of(written) {
        Some(time) if !time.is_zero() => Ok(time),
        _ => Err(String::from("a time such as 500ms, 30s, 5m is wanted")),
    }
}

impl Trace {
    /// Prints queries until there are enough, the time is over, or it is interrupted.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let query = TraceQuery {
            name: self.name,
            client: self.client,
            rtype: self.rtype,
            outcome: self.outcome,
            path: self.path,
            sample: Some(self.sample),
            per_second: Some(self.rate),
            count: self.count,
            milliseconds: self.time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            octets: self.dnstap.is_some(),
        };
        let mut sink = match (&self.dnstap, self.format) {
            (Some(path), _) => Sink::dnstap(path)?,
            (None, Format::Json) => Sink::Json,
            (None, Format::Text) => Sink::Text,
        };
        let mut tally = Tally::default();
        let mut shown = 0;
        let read = client::Connection::new(&socket)?.read_lines("/v1/trace", &query, &mut |line| {
            let line =
                serde_json::from_str(line).context("the agent's reply is not what this version expects")?;
            match line {
                TraceLine::Tally(now) => {
                    tally = now;
                    Ok(ControlFlow::Continue(()))
                }
                TraceLine::Query(query) => {
                    shown += 1;
                    sink.write(&query)
                }
            }
        });
        let read = read?;
        sink.end(shown, &tally)?;
        match read {
            // The time is over, or there are enough.
            client::End::Closed if self.time.is_some() || self.count == Some(shown) => Ok(()),
            client::End::Closed => {
                Err(Failure::new(Exit::Unanswered, String::from("the agent has ended")).into())
            }
            client::End::Enough => Ok(()),
        }
    }
}

/// Where queries go.
enum Sink {
    Text,
    Json,
    Dnstap(Box<dyn Write>, Speaker),
}

impl Sink {
    fn dnstap(path: &std::path::Path) -> anyhow::Result<Self> {
        let mut out: Box<dyn Write> = if path.as_os_str() == "-" {
            Box::new(io::stdout().lock())
        } else {
            Box::new(File::create(path).with_context(|| format!("cannot make {}", path.display()))?)
        };
        out.write_all(&stream::start())?;
        Ok(Self::Dnstap(out, Speaker::usual()))
    }

    /// Writes one. `Break`: whoever reads has seen enough.
    fn write(&mut self, traced: &Traced) -> anyhow::Result<ControlFlow<()>> {
        let written = match self {
            Self::Text => put(&mut io::stdout().lock(), format!("{traced}\n").as_bytes()),
            Self::Json => put(&mut io::stdout().lock(), (serde_json::to_string(traced)? + "\n").as_bytes()),
            Self::Dnstap(out, speaker) => put(out, &frames(traced, speaker)?),
        };
        match written {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => Err(error.into()),
        }
    }

    /// Says how much there was.
    fn end(self, shown: u64, tally: &Tally) -> anyhow::Result<()> {
        let Tally { withheld, lost, .. } = tally;
        if let Self::Dnstap(mut out, _) = self {
            match put(&mut out, &stream::stop()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
                _ => {}
            }
        }
        eprintln!("{shown} queries; {withheld} withheld by the rate, {lost} lost");
        Ok(())
    }
}

fn put(out: &mut dyn Write, octets: &[u8]) -> io::Result<()> {
    out.write_all(octets)?;
    out.flush()
}

/// The frames of a query that the agent sent with its messages.
fn frames(traced: &Traced, speaker: &Speaker) -> anyhow::Result<Vec<u8>> {
    let octets = |text: &str| STANDARD.decode(text).context("the agent sent a message that is not base 64");
    let time: Timestamp = traced.time.parse().context("the agent sent a time that is none")?;
    let query = octets(traced.query_octets.as_deref().unwrap_or_default())?;
    let reply = traced.reply_octets.as_deref().map(octets).transpose()?;
    let exchange = Exchange {
        at: Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default(),
        client: traced.client,
        server: traced.server,
        transport: if traced.transport == "tcp" { Transport::Tcp } else { Transport::Udp },
        query: &query,
        reply: reply.as_deref(),
    };
    let mut frames = Vec::new();
    dnstap::write(&exchange, speaker, &mut frames);
    Ok(frames)
}
