//! `cargo xtask bench probe`: an agent that probes 20,000 targets every 10 s for a minute, against HTTP servers
//! of this process. Prints rate, lateness, CPU and memory of the agent beside goals; the argument is a file
//! for them in JSON. The agent is `XROUTE_BIN`, or beside this program.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use router_tests::agent::BINARY;
use router_tests::bench::report::{Order, Report};
use router_userspace::control::{ProbesReport, StatusReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What is probed, each at an address of its own.
const TARGETS: u32 = 20_000;
/// Endpoints of a profile.
const POOL: u32 = 100;
/// Seconds between two probes of a target.
const INTERVAL: u32 = 10;
/// First wave, the second that spreads it, and a whole round of what comes then.
const WARM_UP: Duration = Duration::from_secs(25);
const MEASURED: Duration = Duration::from_secs(60);
/// Where the servers' addresses begin, 127.1.0.0.
const FIRST: u32 = 0x7f01_0000;

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    let mut report = Report::new("Probes at scale");
    let (served, port) = serve()?;
    let folder = tempfile::tempdir()?;
    let agent = Agent::start(folder.path(), &configuration(folder.path(), port))?;
    thread::sleep(WARM_UP);
    let (before, began, cpu) = (agent.status()?, Instant::now(), agent.cpu()?);
    let answered = served.load(Ordering::Relaxed);
    thread::sleep(MEASURED);
    // Before the report, which has to be made of 20,000 endpoints, and costs as much as a second's probes.
    let (cpu, took) = (agent.cpu()? - cpu, began.elapsed().as_secs_f64());
    let after = agent.status()?;
    let answered = served.load(Ordering::Relaxed) - answered;
    let (resident, peak) = (agent.memory("VmRSS")?, agent.memory("VmHWM")?);
    let online = after.profiles.iter().flat_map(|profile| &profile.endpoints);
    let online = online.filter(|endpoint| endpoint.status == "Online").count();
    agent.end()?;

    let per_second = |count: u64| count as f64 / took;
    let started = after.probes.started - before.probes.started;
    let wanted = f64::from(TARGETS / INTERVAL);
    report.count("targets", after.probes.targets as u64);
    report.count("seconds between two probes of a target", u64::from(INTERVAL));
    report.figure("probes a second", per_second(started), "1/s", None);
    report.figure("rate missing", (1.0 - per_second(started) / wanted).max(0.0) * 100.0, "%", Some(2.0));
    report.figure("requests answered by the servers", per_second(answered), "1/s", None);
    let failed = after.probes.failed - before.probes.failed;
    report.figure("probes that failed", failed as f64, "", Some(0.0));
    report.figure("endpoints not online", f64::from(TARGETS) - online as f64, "", Some(0.0));
    let late = lateness(&before.probes, &after.probes);
    report.note("lateness (up to ms: count)", &format!("{:?}", late.lateness));
    report.figure("late by more than 500 ms", (1.0 - late.within(500)) * 100.0, "%", Some(1.0));
    let p99 = late.lateness.iter().filter_map(|(bound, _)| *bound).find(|bound| late.within(*bound) >= 0.99);
    report.figure("99 % started within", p99.map_or(f64::INFINITY, |bound| bound as f64), "ms", Some(500.0));
    report.figure("CPU of the agent", cpu / took * 100.0, "% of one", Some(48.0));
    report.figure("memory of the agent (resident)", resident, "MB", Some(433.0));
    report.figure("memory of the agent (peak)", peak, "MB", Some(433.0));
    report.write(&order)
}

/// Servers at every address of the loopback interface, on one port; how many requests they have answered.
fn serve() -> Result<(Arc<AtomicU64>, u16)> {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let bound = async {
                let socket = TcpSocket::new_v4()?;
                // Nobody outside of this machine is served.
                socket.bind_device(Some(b"lo"))?;
                socket.bind("0.0.0.0:0".parse().map_err(std::io::Error::other)?)?;
                let listener = socket.listen(4096)?;
                let port = listener.local_addr()?.port();
                std::io::Result::Ok((listener, port))
            };
            let (listener, port) = match bound.await {
                Ok(bound) => bound,
                Err(error) => return drop(tell.send(Err(error))),
            };
            // The one who waits for it cannot be gone.
            let _ = tell.send(Ok(port));
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    let count = Arc::clone(&count);
                    tokio::spawn(async move {
                        if answer(stream).await.is_ok() {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
        });
    });
    let port = told.recv().context("the servers did not start")??;
    Ok((served, port))
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(256);
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
    stream.shutdown().await
}

fn configuration(folder: &Path, port: u16) -> String {
    let mut text = format!(
        "[server]\nlisten = [\"127.0.0.1:{}\"]\ncontrol = \"{folder}/control.sock\"\nstate_dir = \
         \"{folder}/state\"\n[[zone]]\nname = \"gslb.test\"\nsoa = {{ mname = \"ns1.example.net.\", rname = \
         \"h.example.net.\", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }}\nns = \
         [\"ns1.example.net.\"]\n",
        port.wrapping_add(1).max(1024),
        folder = folder.display()
    );
    for i in 0..TARGETS {
        if i % POOL == 0 {
            let profile = i / POOL;
            text += &format!(
                "[[profile]]\nname = \"p{profile}\"\nnames = [\"n{profile}.gslb.test\"]\nmethod = \
                 \"weighted\"\nmonitor = {{ port = {port}, path = \"/health\", host = \"www.example.test\", \
                 interval = \"{INTERVAL}s\" }}\n"
            );
        }
        let address = std::net::Ipv4Addr::from(FIRST + i);
        text += &format!("[[profile.endpoint]]\nname = \"e{i}\"\naddress = [\"{address}\"]\n");
    }
    text
}

/// What came in between.
fn lateness(before: &ProbesReport, after: &ProbesReport) -> ProbesReport {
    let pairs = before.lateness.iter().zip(&after.lateness);
    let lateness = pairs.map(|(&(bound, before), &(_, after))| (bound, after - before)).collect();
    ProbesReport { lateness, ..ProbesReport::default() }
}

/// A running agent; ended with the value.
struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    fn start(folder: &Path, text: &str) -> Result<Self> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("xroute"));
        let binary = std::env::var_os(BINARY).map(PathBuf::from).or_else(beside).context("no agent")?;
        let config = folder.join("xroute.toml");
        fs::write(&config, text)?;
        let child = Command::new(&binary)
            .arg("run")
            .arg("--config")
            .arg(&config)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        Ok(Self { child, socket: folder.join("control.sock") })
    }

    fn status(&self) -> Result<StatusReport> {
        let mut stream = UnixStream::connect(&self.socket).context("the agent does not listen")?;
        stream.write_all(b"GET /v1/status HTTP/1.0\r\nHost: xroute\r\n\r\n")?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        let end = reply.windows(4).position(|four| four == b"\r\n\r\n").context("no end of the head")?;
        Ok(serde_json::from_slice(&reply[end + 4..])?)
    }

    /// Seconds of CPU used so far.
    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The fields after the name, which is in brackets and may hold anything: state is the first.
        let (_, fields) = stat.rsplit_once(") ").context("no fields")?;
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse().unwrap_or(0u64)).sum();
        // USER_HZ is 100 on every Linux.
        Ok(ticks as f64 / 100.0)
    }

    /// A line of `/proc/PID/status` in megabytes.
    fn memory(&self, line: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let found = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
        let kilobytes = found.and_then(|found| found.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok(kilobytes.with_context(|| format!("no {line}"))? * 1024.0 / 1e6)
    }

    fn end(mut self) -> Result<()> {
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let status = self.child.wait()?;
        ensure!(status.success(), "the agent ended with {status}");
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ended already when all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
