//! Programs as probes: what they say, and that nothing of them is left.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault, Stage};
use router_common::model::{ProbeTarget, Program};

use crate::probe::{Prober, Settings};

const TIMEOUT: Duration = Duration::from_secs(10);

fn script(folder: &Path, text: &str) -> PathBuf {
    let path =
        folder.join(format!("check-{:x}", text.len() * 31 + text.bytes().map(usize::from).sum::<usize>()));
    // Renamed into place: while another test forks, a file open for writing cannot be run.
    let written = path.with_extension("new");
    std::fs::write(&written, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&written, &path).unwrap();
    path
}

fn target(path: &Path, arguments: &[&str]) -> ProbeTarget {
    ProbeTarget::Exec(Program {
        file: path.display().to_string(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
    })
}

async fn run(prober: &Prober, target: &ProbeTarget, timeout: Duration) -> (Observation, Option<String>) {
    // A script that another test's fork still holds open for writing is not run; that passes.
    loop {
        let (observation, said) = prober.probe_with_words(target, timeout).await;
        if said.as_deref().is_some_and(|said| said.contains("Text file busy")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        return (observation, said);
    }
}

fn alive(pid: i32) -> bool {
    // A process that has ended and waits to be collected is not alive.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn pid_in(path: &Path) -> i32 {
    for _ in 0..500 {
        if let Some(pid) = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()) {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no number in {}", path.display());
}

async fn gone(pid: i32) {
    let begun = Instant::now();
    while alive(pid) {
        assert!(begun.elapsed() < Duration::from_secs(5), "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn each_end_has_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let prober = Prober::new(Settings::default());
    for (text, outcome, words) in [
        ("exit 0", Outcome::Exited(0), None),
        ("echo fine; exit 0", Outcome::Exited(0), None),
        ("exit 1", Outcome::Exited(1), Some("exit status 1")),
        (
            "echo first; echo 'CRITICAL - no route' >&2; echo; exit 2",
            Outcome::Exited(2),
            Some("exit status 2: CRITICAL - no route"),
        ),
        ("exit 255", Outcome::Exited(255), Some("exit status 255")),
        ("printf 'a\\033[31mb'; exit 3", Outcome::Exited(3), Some("exit status 3: a\\u{1b}[31mb")),
        ("kill -9 $$", Outcome::Fault(ProbeFault::Signal(9)), Some("ended by signal 9")),
    ] {
        let path = script(folder.path(), text);
        let (observation, said) = run(&prober, &target(&path, &[]), TIMEOUT).await;
        assert_eq!((observation.outcome, said.as_deref()), (outcome, words), "{text}");
        assert_eq!(observation.latency.is_some(), matches!(outcome, Outcome::Exited(_)), "{text}");
    }
    let (observation, said) = run(&prober, &target(&folder.path().join("none"), &[]), TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Fault(ProbeFault::Blind));
    assert!(said.unwrap().contains("No such file"));
}

#[tokio::test]
async fn arguments_are_passed_as_they_are_and_the_environment_is_bare() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(
        folder.path(),
        "printf '%s|' \"$@\"; env | sort | tr '\\n' ' '; pwd; cat; test -z \"$HOME$CARGO_PKG_NAME\" && exit 7",
    );
    let prober = Prober::new(Settings::default());
    let (observation, said) = run(&prober, &target(&path, &["a b", "$HOME;`id`", ""]), TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Exited(7));
    let said = said.unwrap();
    assert!(said.starts_with("exit status 7: a b|$HOME;`id`||LANG=C.UTF-8 "), "{said}");
    assert!(said.ends_with(" /"), "{said}");
}

#[tokio::test]
async fn over_time_the_whole_group_ends() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("pid");
    let path = script(
        folder.path(),
        &format!("echo waiting; sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", child.display()),
    );
    let prober = Prober::new(Settings::default());
    let begun = Instant::now();
    let (observation, said) = run(&prober, &target(&path, &[]), Duration::from_secs(1)).await;
    assert_eq!(observation.outcome, Outcome::Fault(ProbeFault::Timeout(Stage::Run)));
    assert_eq!(said.unwrap(), "timeout running the program, after 1s: waiting");
    assert!(begun.elapsed() < Duration::from_secs(4));
    gone(pid_in(&child).await).await;
}

#[tokio::test]
async fn a_dropped_probe_takes_its_program_along() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("pid");
    let path = script(
        folder.path(),
        &format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600; true", child.display()),
    );
    let prober = Prober::new(Settings::default());
    let target = target(&path, &[]);
    let pid = {
        let probe = run(&prober, &target, Duration::from_secs(60));
        tokio::pin!(probe);
        tokio::select! {
            _ = &mut probe => panic!("it ended"),
            pid = pid_in(&child) => pid,
        }
    };
    gone(pid).await;
}

#[tokio::test]
async fn output_is_bounded_and_does_not_hold_up_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo the end; exit 1");
    let prober = Prober::new(Settings::default());
    let (observation, said) = run(&prober, &target(&path, &[]), TIMEOUT).await;
    assert_eq!((observation.outcome, said.as_deref()), (Outcome::Exited(1), Some("exit status 1: the end")));
    let long = script(folder.path(), "head -c 3000000 /dev/zero | tr '\\0' 'y'; exit 1");
    let (_, said) = run(&prober, &target(&long, &[]), TIMEOUT).await;
    assert!(said.unwrap().len() < 400);
    let (observation, transcript) = prober.probe_recorded(&target(&path, &[]), TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Exited(1));
    assert!(transcript.got.len() <= 16 * 1024);
    // One that leaves a child behind that holds the output open has ended all the same.
    let daemon = script(folder.path(), "sleep 3 & exit 4");
    let begun = Instant::now();
    let (observation, _) = run(&prober, &target(&daemon, &[]), TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Exited(4));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn so_many_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(
        folder.path(),
        &format!(
            "cd {}; mkdir run.$$; ls -d run.* | wc -l >> seen; sleep 0.2; rmdir run.$$",
            folder.path().display()
        ),
    );
    let prober = Prober::new(Settings::default());
    prober.set_programs(2);
    let target = target(&path, &[]);
    let all = (0..8).map(|_| run(&prober, &target, TIMEOUT));
    let mut set = Vec::new();
    for probe in all {
        set.push(Box::pin(probe));
    }
    let mut outcomes = Vec::new();
    // All at once, polled together.
    std::future::poll_fn(|context| {
        set.retain_mut(|probe| match probe.as_mut().poll(context) {
            std::task::Poll::Ready((observation, _)) => {
                outcomes.push(observation.outcome);
                false
            }
            std::task::Poll::Pending => true,
        });
        if set.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    assert_eq!(outcomes, [Outcome::Exited(0); 8]);
    let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
    let most = seen.lines().map(|line| line.trim().parse::<u32>().unwrap()).max();
    assert_eq!((seen.lines().count(), most), (8, Some(2)), "{seen}");
    // Whoever waits longer for a place than it may run says nothing about its endpoint.
    prober.set_programs(1);
    let (first, second) =
        tokio::join!(run(&prober, &target, TIMEOUT), run(&prober, &target, Duration::from_millis(20)));
    assert_eq!(first.0.outcome, Outcome::Exited(0));
    assert_eq!(second.0.outcome, Outcome::Fault(ProbeFault::Local));
}
