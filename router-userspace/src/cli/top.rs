//! `xroute top`: a live view in a terminal.
//!
//! Tasks ask the agent for its status, follow its events and read keys; one loop takes what they bring into the
//! [`View`] and draws it.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::client::{refused, unsent};
use super::stream::{Line, Stream};
use super::{AgentAddress, print, watch};
use crate::control::StatusReport;

mod draw;
#[cfg(test)]
mod tests;
mod view;

use view::{Direction, View};

/// How long the agent may take to tell its status.
const PATIENCE: Duration = Duration::from_secs(5);
/// What waits to be shown, at most.
const QUEUE: usize = 1024;

/// Arguments of `xroute top`.
#[derive(Args, Debug)]
pub struct Top {
    /// How often the agent is asked: 500ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one frame as text, and end; rates are over one interval
    #[arg(long)]
    once: bool,
    /// Columns and lines of that frame
    #[arg(long, value_name = "COLUMNSxLINES", default_value = "120x50", value_parser = size, requires = "once")]
    size: (u16, u16),
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn interval(written: &str) -> Result<Duration, String> {
    crate::config::duration_of(written)
        .filter(|time| (Duration::from_millis(500)..=Duration::from_secs(60)).contains(time))
        .ok_or_else(|| String::from("a time from 500ms to 60s is wanted, e.g. 2s"))
}

fn size(written: &str) -> Result<(u16, u16), String> {
    let side = |text: &str| text.parse().ok().filter(|side| (1..=1000).contains(side));
    written
        .split_once('x')
        .and_then(|(columns, lines)| Some((side(columns)?, side(lines)?)))
        .ok_or_else(|| String::from("two numbers from 1 to 1000 are wanted, e.g. 120x50"))
}

/// What the tasks bring.
enum News {
    Status(Box<Result<StatusReport, String>>),
    Event(String),
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
}

impl Top {
    /// Shows until `q`, or one frame.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.once {
            let text = runtime.block_on(frame(&socket, self.interval, self.size))?;
            return print(&text);
        }
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            bail!("standard input and output are no terminal (--once prints one frame)");
        }
        // Whoever names the wrong socket is told so on their own screen.
        let first = runtime.block_on(status(&client(&socket)?, &socket))?;
        let shown = runtime.block_on(show(&socket, self.interval, first));
        // The thread that reads keys waits for one that nobody presses.
        runtime.shutdown_background();
        shown
    }
}

fn client(socket: &Path) -> anyhow::Result<reqwest::Client> {
    reqwest::Client::builder()
        .unix_socket(socket)
        .timeout(PATIENCE)
        .build()
        .context("cannot prepare a client of the control socket")
}

async fn status(client: &reqwest::Client, socket: &Path) -> anyhow::Result<StatusReport> {
    let failed = |error| unsent(socket, &error, PATIENCE);
    let response = client.get("http://xroute/v1/status").send().await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        let text = response.text().await.unwrap_or_else(|_| status.to_string());
        return Err(refused(status, &text).into());
    }
    let octets = response.bytes().await.map_err(failed)?;
    serde_json::from_slice(&octets).context("the agent's reply is not what this version expects")
}

/// One frame as text: two looks at the agent, an interval apart, and the events that are kept.
async fn frame(socket: &Path, interval: Duration, (columns, lines): (u16, u16)) -> anyhow::Result<String> {
    let client = client(socket)?;
    let mut view = View::new(interval);
    view.status(status(&client, socket).await?, Instant::now());
    let mut stream = Stream::new(socket, Some(0))?;
    let followed = stream.follow(|line| {
        view.event(text(line));
        ControlFlow::Continue(())
    });
    // It goes on for as long as the agent; what comes in an interval is enough.
    if let Ok(ended) = tokio::time::timeout(interval, followed).await {
        ended?;
    }
    view.status(status(&client, socket).await?, Instant::now());
    let mut terminal = Terminal::new(TestBackend::new(columns, lines))?;
    terminal.draw(|frame| draw::draw(&view, frame))?;
    Ok(plain(terminal.backend()))
}

/// What stands on a screen, without spaces at the ends of lines and empty lines at the end.
fn plain(screen: &TestBackend) -> String {
    let buffer = screen.buffer();
    let width = usize::from(buffer.area.width.max(1));
    let mut text = String::new();
    for row in buffer.content.chunks(width) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let end = text.trim_end().len();
    text.truncate(end);
    text.push('\n');
    text
}

/// Puts the terminal back when it is dropped; [`ratatui::try_init`] sees to it when something panics.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows until told to stop.
async fn show(socket: &Path, interval: Duration, first: StatusReport) -> anyhow::Result<()> {
    let mut ends =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let (news_in, mut news) = mpsc::channel(QUEUE);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(ask_again_and_again(client(socket)?, socket.to_path_buf(), interval, news_in.clone()));
    tasks.spawn(follow(Stream::new(socket, Some(0))?, news_in.clone()));
    let mut view = View::new(interval);
    view.status(first, Instant::now());

    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let _restore = Restore;
    std::thread::spawn(move || read_keys(&news_in));
    loop {
        terminal.draw(|frame| draw::draw(&view, frame))?;
        let [terminate, interrupt, hangup] = &mut ends;
        let first = tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            first = news.recv() => first,
        };
        // Whatever else there is goes into the same frame.
        let mut next = first;
        while let Some(one) = next {
            if take(&mut view, one).is_break() {
                return Ok(());
            }
            next = news.try_recv().ok();
        }
    }
}

fn take(view: &mut View, news: News) -> ControlFlow<()> {
    match news {
        News::Status(status) => match *status {
            Ok(report) => view.status(report, Instant::now()),
            Err(why) => view.lost(why),
        },
        News::Event(line) => view.event(line),
        News::Key(key) => return press(view, key),
        News::Resized => {}
    }
    ControlFlow::Continue(())
}

fn press(view: &mut View, key: KeyEvent) -> ControlFlow<()> {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return ControlFlow::Break(()),
        KeyCode::Tab | KeyCode::Right => view.next_part(true),
        KeyCode::BackTab | KeyCode::Left => view.next_part(false),
        KeyCode::Up | KeyCode::Char('k') => view.scroll(Direction::Up, 1),
        KeyCode::Down | KeyCode::Char('j') => view.scroll(Direction::Down, 1),
        KeyCode::PageUp => view.scroll(Direction::Up, 10),
        KeyCode::PageDown => view.scroll(Direction::Down, 10),
        KeyCode::Home => view.scroll(Direction::Up, usize::MAX),
        KeyCode::End => view.scroll(Direction::Down, usize::MAX),
        KeyCode::Char('s') => view.sort_next(),
        _ => {}
    }
    ControlFlow::Continue(())
}

/// Reads keys for as long as somebody wants them.
fn read_keys(news: &mpsc::Sender<News>) {
    while let Ok(event) = event::read() {
        let one = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => News::Key(key),
            Event::Resize(..) => News::Resized,
            _ => continue,
        };
        if news.blocking_send(one).is_err() {
            return;
        }
    }
}

async fn ask_again_and_again(
    client: reqwest::Client,
    socket: PathBuf,
    interval: Duration,
    news: mpsc::Sender<News>,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first one is at once, and what is known already.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let status = status(&client, &socket).await.map_err(|error| format!("{error:#}"));
        if news.send(News::Status(Box::new(status))).await.is_err() {
            return;
        }
    }
}

/// Follows the events of one agent after the other.
async fn follow(mut stream: Stream, news: mpsc::Sender<News>) {
    loop {
        let followed = stream.follow(|line| match news.try_send(News::Event(text(line))) {
            Err(mpsc::error::TrySendError::Closed(_)) => ControlFlow::Break(()),
            // When they come faster than a terminal can show them, some are not shown.
            _ => ControlFlow::Continue(()),
        });
        // That the agent is gone is seen by the status too.
        drop(followed.await);
        if news.is_closed() {
            return;
        }
        stream.pause().await;
    }
}

fn text(line: Line) -> String {
    match line {
        Line::Told(told) => watch::text(&told),
        Line::Missed(count) => format!("{count} events came faster than they were read"),
        Line::Unknown(line) => line,
    }
}
