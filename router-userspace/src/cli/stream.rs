//! The commands' side of the event stream: follows it line by line, over the end of an agent too.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use super::client::{refused, unsent};
use crate::events::{Notice, Told};

/// Between two attempts to reach an agent that is gone.
const AGAIN: Duration = Duration::from_millis(500);
/// How long the agent may be silent: it shows a sign of life every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Octets of a line, at most: the reason of a refused reload can be long.
const LONGEST: usize = 16 << 20;

/// What comes out of a stream.
#[derive(Debug)]
pub(super) enum Line {
    /// An event.
    Told(Box<Told>),
    /// Events are gone, because we were too slow.
    Missed(u64),
    /// A line that this version does not know.
    Unknown(String),
}

/// Events from one agent after another on the same socket.
pub(super) struct Stream {
    socket: PathBuf,
    client: reqwest::Client,
    /// Where it goes on: run and sequence number.
    at: Option<(u64, u64)>,
    /// What is asked for at first.
    since: Option<u64>,
}

/// How a connection ended.
pub(super) enum Ended {
    /// Whoever follows has seen enough.
    Enough,
    /// The agent is gone.
    Agent,
}

impl Stream {
    /// Prepares it; nothing is sent. `since`: after this sequence number, or from now on.
    pub(super) fn new(socket: &Path, since: Option<u64>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .read_timeout(SILENCE)
            .build()
            .context("cannot prepare a client of the control socket")?;
        Ok(Self { socket: socket.to_path_buf(), client, at: None, since })
    }

    /// Whether there ever was a connection.
    pub(super) fn was_connected(&self) -> bool {
        self.at.is_some()
    }

    /// Connects, and follows until the agent is gone or `each` has seen enough. To be called again after the end
    /// of an agent: it goes on where it was, or begins with another run's first event.
    ///
    /// # Errors
    /// When there is no connection, or the agent refuses.
    pub(super) async fn follow(
        &mut self,
        mut each: impl FnMut(Line) -> ControlFlow<()>,
    ) -> anyhow::Result<Ended> {
        let mut url = reqwest::Url::parse("http://xroute/v1/events")?;
        match (self.at, self.since) {
            (Some((run, sequence)), _) => {
                url.query_pairs_mut()
                    .append_pair("since", &sequence.to_string())
                    .append_pair("run", &run.to_string());
            }
            (None, Some(since)) => {
                url.query_pairs_mut().append_pair("since", &since.to_string());
            }
            (None, None) => {}
        }
        let response = self.client.get(url).send().await;
        let mut response = response.map_err(|error| unsent(&self.socket, &error, SILENCE))?;
        let status = response.status();
        if !status.is_success() {
            let text = response.text().await.unwrap_or_else(|_| status.to_string());
            return Err(refused(status, &text).into());
        }
        let mut rest = Vec::new();
        // An error is the end of the agent, or its long silence; both end in another attempt.
        while let Ok(Some(octets)) = response.chunk().await {
            rest.extend_from_slice(&octets);
            while let Some(end) = rest.iter().position(|&octet| octet == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                if let Some(line) = self.take(&String::from_utf8_lossy(&line))
                    && each(line).is_break()
                {
                    return Ok(Ended::Enough);
                }
            }
            if rest.len() > LONGEST {
                bail!("the agent's reply is not what this version expects");
            }
        }
        Ok(Ended::Agent)
    }

    /// Waits until it is time for another attempt.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(AGAIN).await;
    }

    /// Reads a line; nothing when it says nothing to whoever follows.
    fn take(&mut self, line: &str) -> Option<Line> {
        let line = line.trim();
        if line.is_empty() {
            return None;
        }
        if let Ok(notice) = serde_json::from_str::<Notice>(line) {
            match notice {
                Notice::Missed { count } => return Some(Line::Missed(count)),
                Notice::Hello { run, newest, .. } => {
                    // From now on means after what there is; what is asked for comes after what was asked for.
                    let begin = self.since.unwrap_or(newest);
                    if self.at.is_none_or(|(before, _)| before != run) {
                        self.at = Some((run, if self.at.is_some() { 0 } else { begin }));
                    }
                    return None;
                }
            }
        }
        let told: Result<Told, _> = serde_json::from_str(line);
        let number = match &told {
            Ok(told) => Some(told.sequence),
            Err(_) => serde_json::from_str::<serde_json::Value>(line).ok()?.get("sequence")?.as_u64(),
        };
        if let (Some((_, sequence)), Some(number)) = (&mut self.at, number) {
            *sequence = number;
        }
        Some(match told {
            Ok(told) => Line::Told(Box::new(told)),
            Err(_) => Line::Unknown(line.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_where_it_was_and_begins_anew_with_another_run() {
        let mut stream = Stream::new(Path::new("/nowhere"), None).expect("a client");
        let hello =
            |run: u64| format!(r#"{{"kind":"hello","run":{run},"version":"1","oldest":1,"newest":9}}"#);
        assert!(!stream.was_connected() && stream.take(&hello(5)).is_none());
        assert_eq!(stream.at, Some((5, 9)));
        let line = r#"{"sequence":10,"at_ms":1,"kind":"lease","late_ms":3}"#;
        assert!(matches!(stream.take(line), Some(Line::Told(_))));
        assert!(stream.take("\n").is_none());
        assert!(stream.take(&hello(5)).is_none());
        assert_eq!(stream.at, Some((5, 10)), "the same run again");
        let line = r#"{"sequence":11,"at_ms":1,"kind":"of_a_newer_agent"}"#;
        assert!(matches!(stream.take(line), Some(Line::Unknown(_))));
        assert_eq!(stream.at, Some((5, 11)));
        assert!(matches!(stream.take(r#"{"kind":"missed","count":3}"#), Some(Line::Missed(3))));
        assert!(stream.take(&hello(6)).is_none());
        assert_eq!(stream.at, Some((6, 0)));
        assert!(stream.take("nonsense").is_none());
    }
}
