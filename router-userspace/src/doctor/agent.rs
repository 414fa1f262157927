//! The running agent, as its control socket tells.

use std::path::PathBuf;

use super::Finding;
use crate::control::StatusReport;

const TOPIC: &str = "agent";

/// What there is to know.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// The control socket.
    pub socket: PathBuf,
    /// What came of asking it.
    pub answer: Answer,
    /// Version of this program.
    pub version: String,
}

/// What came of asking the agent.
#[derive(Clone, Debug, Default)]
pub enum Answer {
    /// There is no socket.
    #[default]
    NoSocket,
    /// Nobody listens on the socket.
    NobodyListens,
    /// This user may not use it; the socket's group, where it has a name.
    Forbidden(Option<String>),
    /// It does not answer, or not as expected.
    Failed(String),
    /// Its status.
    Status(Box<StatusReport>),
}

/// Judges.
pub fn judge(agent: &Agent) -> Vec<Finding> {
    let socket = agent.socket.display();
    match &agent.answer {
        Answer::NoSocket => vec![
            Finding::note(
                TOPIC,
                format!("no agent runs: there is no {socket}"),
                "what only an agent can tell is left out",
            )
            .remedy("systemctl start xroute; or name its socket: --socket PATH, --config FILE"),
        ],
        Answer::NobodyListens => vec![
            Finding::warning(
                TOPIC,
                format!("nobody listens on {socket}: the agent that made it has ended without removing it"),
                "it crashed or was killed; the fast path may go on with its last tables",
            )
            .remedy(
                "journalctl -u xroute says why; systemctl start xroute (a new agent takes the socket over)",
            ),
        ],
        Answer::Forbidden(group) => vec![
            Finding::note(
                TOPIC,
                format!("this user may not use {socket}"),
                "status and explain are refused as well",
            )
            .remedy(match group {
                Some(group) => format!("usermod --append --groups {group} $USER, and log in anew; or sudo"),
                None => "control_group = \"…\" in [server] lets a group look; or sudo".into(),
            }),
        ],
        Answer::Failed(why) => vec![
            Finding::failure(
                TOPIC,
                format!("the agent on {socket} does not answer: {why}"),
                "it cannot be operated",
            )
            .remedy("journalctl -u xroute; then: systemctl restart xroute"),
        ],
        Answer::Status(status) => status_findings(status, &agent.version),
    }
}

fn status_findings(status: &StatusReport, version: &str) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(
        TOPIC,
        format!("xroute {} answers, pid {}, generation {}", status.version, status.pid, status.generation),
    )];
    if status.version != version {
        findings.push(
            Finding::warning(
                TOPIC,
                format!("the agent is version {}, this command is {version}", status.version),
                "a new version was installed and the old one still runs",
            )
            .remedy("systemctl restart xroute (the fast path goes on meanwhile)"),
        );
    }
    if let Some(why) = &status.last_reload_error {
        let first = why.lines().next().unwrap_or_default();
        findings.push(
            Finding::warning(
                TOPIC,
                format!("the last reload was refused: {first}"),
                "what runs is older than the configuration file",
            )
            .remedy(format!("xroute check {}; then: xroute reload", status.config)),
        );
    }
    for feed in &status.data {
        if let Some(why) = &feed.error {
            let first = why.lines().next().unwrap_or_default();
            findings.push(
                Finding::warning(
                    TOPIC,
                    format!("{} {} is not in use as it is: {first}", feed.kind, feed.path),
                    "the data of before goes on",
                )
                .remedy("mend the file, or write it anew: it is taken up by itself"),
            );
        }
    }
    let count = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    for (name, why, remedy) in [
        (
            "answer_stale",
            "answers went out after the lease had lapsed: an agent hung, or was away",
            "journalctl -u xroute tells of the time",
        ),
        (
            "pass_stale",
            "queries were passed because the lease had lapsed: an agent hung, or was away",
            "journalctl -u xroute tells of the time",
        ),
        ("pass_broken", "the fast path found its own tables broken", "restart the agent, and report it"),
        ("pass_no_room", "buffers had no room for the answer", "see pass_no_room in docs/operations.md"),
    ] {
        if count(name) > 0 {
            findings.push(Finding::note(TOPIC, format!("{name} is {}", count(name)), why).remedy(remedy));
        }
    }
    let fast = count("answer_records") + count("answer_nodata");
    if !status.interfaces.is_empty()
        && fast == 0
        && status.uptime_seconds > 60
        && status.counted("server_") > 0
    {
        findings.push(
            Finding::warning(
                TOPIC,
                "the fast path has answered nothing, the userspace server has",
                "queries arrive on another interface, for another address, or are not for it",
            )
            .remedy("xroute status: the pass_… counters say why; docs/operations.md has cause and remedy"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::control::{FeedReport, InterfaceReport};
    use crate::feed::FeedKind;

    fn answered(answer: Answer) -> Vec<Finding> {
        judge(&Agent { socket: "/run/xroute/control.sock".into(), answer, version: "1.2.0".into() })
    }

    fn status() -> StatusReport {
        StatusReport { version: "1.2.0".into(), pid: 9, ..StatusReport::default() }
    }

    fn bad(status: StatusReport) -> Vec<Finding> {
        answered(Answer::Status(Box::new(status)))
            .into_iter()
            .filter(|finding| finding.level > Level::Ok)
            .collect()
    }

    #[test]
    fn a_socket_without_an_agent_is_told_by_what_is_wrong_with_it() {
        for (answer, level, part) in [
            (Answer::NoSocket, Level::Note, "no agent runs"),
            (Answer::NobodyListens, Level::Warning, "nobody listens"),
            (Answer::Forbidden(Some("xroute".into())), Level::Note, "may not use"),
            (Answer::Failed("timed out".into()), Level::Failure, "timed out"),
        ] {
            let [finding] = &answered(answer.clone())[..] else { panic!("one") };
            assert_eq!(finding.level, level);
            assert!(finding.found.contains(part) && finding.remedy.is_some(), "{finding:?}");
        }
        let [finding] = &answered(Answer::Forbidden(Some("xroute".into())))[..] else { panic!("one") };
        assert!(finding.remedy.as_deref().is_some_and(|text| text.contains("--groups xroute")));
    }

    #[test]
    fn a_status_is_judged_by_what_it_tells() {
        assert_eq!(bad(status()), []);
        assert!(bad(StatusReport { version: "1.1.0".into(), ..status() })[0].found.contains("1.1.0"));
        let refused = StatusReport { last_reload_error: Some("a.toml:3:1: no\nmore".into()), ..status() };
        assert!(bad(refused)[0].found.ends_with("a.toml:3:1: no"));
        let feed = FeedReport {
            kind: FeedKind::LatencyTable,
            path: "/l.csv".into(),
            rows: 1,
            loaded_at: 0,
            age_seconds: 0,
            error: Some("line 3".into()),
        };
        assert!(bad(StatusReport { data: vec![feed], ..status() })[0].found.contains("/l.csv"));
        let mut stale = status();
        stale.counters.insert("answer_stale".into(), 5);
        assert_eq!(bad(stale)[0].level, Level::Note);
        let mut idle = status();
        idle.uptime_seconds = 3600;
        idle.interfaces = vec![InterfaceReport {
            name: "eth0".into(),
            mode: "native".into(),
            why_not_native: None,
            away: false,
        }];
        assert_eq!(bad(idle.clone()), []);
        idle.counters.insert("server_records".into(), 100);
        assert_eq!(bad(idle)[0].level, Level::Warning);
    }
}
