//! What the program reports reaches a logger, few of it, also from a program that was adopted.

use std::sync::Mutex;

use super::*;

/// Keeps lines.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl log::Log for &Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().expect("no panic").push(format!("{} {}", record.level(), record.args()));
    }
    fn flush(&self) {}
}

impl Lines {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// Sends queries that find a broken table.
fn ask_in_vain(pair: &Pair, count: u16) {
    pair.client.run(|| {
        let socket = client();
        for id in 0..count {
            // Nobody listens there, which a later one is told.
            let _ = socket.send(&query(id));
        }
    });
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn netns_broken_tables_are_reported_once_in_a_while() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let pins = root.path().join("pins");
    let interfaces = server();
    let broken = {
        let mut tables = tables(FIRST);
        tables.answers = vec![Answer(0); 2];
        tables
    };
    let lines = Lines::default();
    pair.server.run(|| {
        let (datapath, _) = Datapath::open(&options(&interfaces, &pins), &tables(FIRST)).expect("it opens");
        let mut reports = datapath.reports(&lines).expect("a ring").expect("it is pinned");
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));
        reports.flush();
        assert_eq!(lines.taken(), Vec::<String>::new());
        datapath.keep();
        let (mut datapath, start) =
            Datapath::open(&options(&interfaces, &pins), &tables(SECOND)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        datapath.install(&broken).expect("it is installed, broken as it is");
        ask_in_vain(&pair, 50);
        let mut reports = datapath.reports(&lines).expect("a ring").expect("it is pinned");
        reports.flush();
        let told = lines.taken();
        let counter = router_common::counter::Counter::PassBroken as usize;
        // Some were not sent, because the socket was told of those before.
        let broken = datapath.counters().expect("counters")[counter];
        assert!((10..=50).contains(&broken), "{broken}");
        // One on each CPU in a second, and the second may have turned.
        assert!((1..=4).contains(&told.len()), "{told:?}");
        // The outcome's number, and the name as octets: \3www\7exa.
        for words in [
            format!("ERROR a table leads nowhere, or a reply was not written (outcome {counter}): "),
            String::from("name of 13 octets 0x377777707657861..., hash 0x"),
        ] {
            assert!(told.iter().all(|line| line.contains(&words)), "{words}: {told:?}");
        }
        datapath.detach().expect("it detaches");
    });
}
