use std::io::Read;
use std::os::unix::net::UnixListener;

use router_common::counter::Counter;

use super::*;
use crate::dns::Transport;
use crate::trace::Answered;

fn settings(target: DnstapTarget) -> Dnstap {
    Dnstap { target, speaker: None, sample: 1, per_second: 1_000_000, path: None }
}

/// Has the userspace server answer so many queries, once somebody watches.
fn answer(hub: &Arc<Hub>, count: u64) {
    let before = hub.totals().sampled;
    let began = Instant::now();
    while hub.totals().sampled < before + count {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody watches");
        match hub.watch() {
            None => thread::sleep(Duration::from_millis(5)),
            Some(watch) => watch.answered(Answered {
                at: Duration::from_secs(5),
                outcome: Counter::ServerRecords,
                client: "192.0.2.1:5353".parse().unwrap(),
                server: "192.0.2.53:53".parse().unwrap(),
                transport: Transport::Udp,
                query: b"the query",
                reply: Some(b"the reply"),
            }),
        }
    }
}

fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Data frames of a file that is whole.
fn frames(octets: &[u8]) -> usize {
    let mut rest = octets.strip_prefix(&stream::start()[..]).expect("START");
    let mut count = 0;
    loop {
        let (head, body) = rest.split_first_chunk::<4>().expect("a frame or STOP");
        let len = u32::from_be_bytes(*head) as usize;
        if len == 0 {
            assert_eq!(rest, stream::stop(), "what follows is STOP, and the end");
            return count;
        }
        rest = &body[len..];
        count += 1;
    }
}

#[test]
fn a_file_is_gone_on_with_and_begun_anew_when_it_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taps");
    let hub = Arc::new(Hub::default());
    let start = || Output::start(settings(DnstapTarget::File(path.clone())), &hub).unwrap();
    let output = start();
    answer(&hub, 3);
    drop(output);
    assert_eq!(frames(&fs::read(&path).unwrap()), 6);
    assert!(hub.watch().is_none(), "nobody reads any more");

    // A crash cuts the last frame and writes no STOP.
    let len = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(len - stream::STOP_LEN - 5).unwrap();
    let output = start();
    answer(&hub, 2);
    wait_for("four frames", || output.state().frames == 4);
    let moved = folder.path().join("taps.1");
    fs::rename(&path, &moved).unwrap();
    output.reopen();
    wait_for("a new file", || path.exists());
    answer(&hub, 1);
    drop(output);
    assert_eq!((frames(&fs::read(&moved).unwrap()), frames(&fs::read(&path).unwrap())), (9, 2));
}

#[test]
fn another_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letters");
    fs::write(&path, "Dear Sir or Madam, this is more than forty octets long.").unwrap();
    let hub = Arc::new(Hub::default());
    let output = Output::start(settings(DnstapTarget::File(path.clone())), &hub).unwrap();
    wait_for("an error", || output.state().error.is_some());
    assert!(output.state().error.unwrap().contains("no dnstap file"));
    assert!(fs::read_to_string(&path).unwrap().starts_with("Dear"));
}

/// Answers a handshake as a collector does.
fn accept(listener: &UnixListener) -> UnixStream {
    let (mut peer, _) = listener.accept().unwrap();
    let mut ready = vec![0; stream::start().len()];
    peer.read_exact(&mut ready).unwrap();
    // ACCEPT is READY with another type.
    ready[11] = 1;
    peer.write_all(&ready).unwrap();
    let mut start = vec![0; stream::start().len()];
    peer.read_exact(&mut start).unwrap();
    assert_eq!(start, stream::start());
    peer
}

#[test]
fn a_collector_that_goes_is_waited_for_and_nothing_is_sampled_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let hub = Arc::new(Hub::default());
    let output = Output::start(settings(DnstapTarget::Socket(path.clone())), &hub).unwrap();
    wait_for("an error", || output.state().error.is_some());
    assert!(hub.watch().is_none() && !output.state().open);

    let listener = UnixListener::bind(&path).unwrap();
    let peer = accept(&listener);
    answer(&hub, 2);
    wait_for("frames", || output.state().frames == 4);
    drop(peer);
    // What is written next finds nobody.
    wait_for("an error", || {
        if let Some(watch) = hub.watch() {
            watch.answered(Answered {
                at: Duration::ZERO,
                outcome: Counter::ServerRecords,
                client: "192.0.2.1:1".parse().unwrap(),
                server: "192.0.2.53:53".parse().unwrap(),
                transport: Transport::Udp,
                query: b"q",
                reply: None,
            });
        }
        !output.state().open
    });
    let mut peer = accept(&listener);
    answer(&hub, 1);
    let mut head = [0; 4];
    peer.read_exact(&mut head).unwrap();
    assert!(u32::from_be_bytes(head) > 0);
}

#[test]
fn a_reader_that_stands_still_costs_a_bounded_queue_and_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let hub = Arc::new(Hub::default());
    let output = Output::start(settings(DnstapTarget::Socket(path)), &hub).unwrap();
    let _peer = accept(&listener);
    let big = vec![7; 4000];
    wait_for("losses", || {
        for watch in (0..1000).map_while(|_| hub.watch()) {
            watch.answered(Answered {
                at: Duration::ZERO,
                outcome: Counter::ServerRecords,
                client: "192.0.2.1:1".parse().unwrap(),
                server: "192.0.2.53:53".parse().unwrap(),
                transport: Transport::Udp,
                query: &big,
                reply: Some(&big),
            });
        }
        hub.totals().lost > 100
    });
    wait_for("an error", || output.state().error.is_some_and(|why| why.contains("does not take it")));
}
