//! The same packet to the fast path and to the userspace server: good queries with something wrong in them, at
//! every layer (`router_tests::mutation`).
//!
//! 1. Where the fast path answers, the server answers the message that a kernel would have delivered, with the
//!    same octets: with one of its possible outcomes, where chance decides.
//! 2. Where no kernel would have delivered anything, the fast path does not answer.
//! 3. No reply of either breaks a rule that holds for all replies (`router_tests::invariants`).
//! 4. What is passed or dropped is unchanged.
//!
//! `XROUTE_PACKETS` says how many packets; `XROUTE_SEED=0x…` runs the one packet that a failure names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use router_common::compile::compile;
use router_common::counter::Counter;
use router_common::tables::Frontage;
use router_tests::delivery::{Datagram, Host, deliver};
use router_tests::fuzz::{FULL_SERVICE, SERVICE, frontage};
use router_tests::invariants::{self, hex};
use router_tests::kernel::{LOCALS4, image};
use router_tests::mutation::{Made, Recipe};
use router_tests::need_bpf;
use router_tests::packet::parse;
use router_tests::prog_run::{ProgRun, action, moved};
use router_tests::random::Rng;
use router_userspace::dns::{Client, Counts, Service, Transport, respond};

/// How many packets.
const PACKETS: &str = "XROUTE_PACKETS";
/// One packet to run, as the message of a failure tells it.
const SEED: &str = "XROUTE_SEED";
/// Packets when [`PACKETS`] is not set.
const MANY: u64 = 100_000;
/// Packets are numbered from here.
const FIRST: u64 = 0x6d75_7461_7465_0000;
/// Random numbers that the server is asked with, spread evenly: more than twice as many as the rarest outcome
/// of the service needs.
const DRAWS: u64 = 64;
/// Octets before the VLAN tags, the IP header's fields and the ports that a reply exchanges.
const EVERY: usize = 4;

#[test]
fn bpf_the_fast_path_answers_mutated_packets_as_the_server_does() {
    if !need_bpf() {
        return;
    }
    // Packets with an even number are put to the service with everything off that can be, the others to that
    // with everything on.
    let services = [&SERVICE, &FULL_SERVICE].map(|service| Both::new(service));
    let mut tally = Tally::default();
    for number in numbers() {
        let both = &services[(number & 1) as usize];
        if let Err(fault) = both.compare(number, &mut tally) {
            let (recipe, fault) = both.reduce(Recipe::new(number), fault);
            let Made { octets, story } = recipe.make();
            panic!(
                "{fault}\nframe {}\n{}\n{recipe:?}\nagain: {SEED}={number:#x}",
                hex(&octets),
                story.join("\n"),
            );
        }
    }
    println!("{tally:?}");
    let [plain, full] = services.map(|both| both.program.counters().unwrap());
    let all: Vec<u64> = plain.iter().zip(full).map(|(a, b)| a + b).collect();
    tally.judge(&moved(&vec![0; all.len()], &all));
}

/// Which packets are run.
fn numbers() -> std::ops::Range<u64> {
    if let Ok(text) = std::env::var(SEED) {
        let digits = text.trim().trim_start_matches("0x");
        let number = u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{SEED}={text}"));
        return number..number + 1;
    }
    let count = std::env::var(PACKETS).map_or(MANY, |text| text.parse().expect("a number"));
    FIRST..FIRST + count
}

/// What was seen.
#[derive(Default, Debug)]
struct Tally {
    packets: u64,
    /// Packets in which nothing was wrong, and how many of them were answered by the fast path.
    good: [u64; 2],
    /// By XDP action.
    actions: BTreeMap<u32, u64>,
    /// Answers of the fast path to packets with a mutation.
    mutated_answers: u64,
    /// Messages that were delivered, by whether the server answered.
    delivered: [u64; 2],
    /// RCODEs of the server.
    rcodes: BTreeMap<u8, u64>,
    /// Why nothing was delivered.
    refused: BTreeMap<String, u64>,
}

impl Tally {
    /// That enough was seen, and counted once.
    fn judge(&self, moved: &[(Counter, u64)]) {
        let counted: u64 = moved.iter().map(|&(_, by)| by).sum();
        assert_eq!(counted, self.packets, "one counter for each packet: {moved:?}");
        if self.packets < 10_000 {
            return;
        }
        let [good, answered] = self.good;
        assert!(answered * 10 > good * 7, "the fast path answers {answered} of {good} good queries");
        assert!(self.mutated_answers * 10 > self.packets, "{} answers to mutated ones", self.mutated_answers);
        assert!(moved.len() >= 25, "{} outcomes were seen: {moved:?}", moved.len());
        assert!(self.refused.len() >= 8, "{:?}", self.refused);
        for rcode in [0, 1, 3, 4, 5] {
            assert!(self.rcodes.contains_key(&rcode), "no RCODE {rcode}");
        }
    }
}

/// The program with the tables of a service, and the service.
struct Both {
    service: &'static Service,
    program: ProgRun,
    host: Host,
}

impl Both {
    fn new(service: &'static Service) -> Self {
        let mut keys = Rng::new(1);
        let frontage = frontage(service);
        let compiled = compile(&service.snapshot, &frontage, || [keys.draw(), keys.draw()], 1).unwrap();
        let mut program = ProgRun::load().unwrap();
        program.activate(&image(&compiled.tables)).unwrap();
        program.set_locals(&LOCALS4);
        Self { service, program, host: host(frontage) }
    }

    fn compare(&self, number: u64, tally: &mut Tally) -> Result<(), String> {
        let recipe = Recipe::new(number);
        let octets = recipe.make().octets;
        let outcome = self.judge(&octets, Some(&mut *tally))?;
        tally.packets += 1;
        *tally.actions.entry(outcome).or_default() += 1;
        let answered = u64::from(outcome == action::TX);
        if recipe.is_good() {
            tally.good[0] += 1;
            tally.good[1] += answered;
        } else {
            tally.mutated_answers += answered;
        }
        Ok(())
    }

    /// Leaves mutations out as long as there is a fault.
    fn reduce(&self, mut recipe: Recipe, mut fault: String) -> (Recipe, String) {
        let smaller = |recipe: &Recipe| {
            recipe.smaller().find_map(|less| Some((self.judge(&less.make().octets, None).err()?, less)))
        };
        while let Some((found, less)) = smaller(&recipe) {
            (recipe, fault) = (less, found);
        }
        (recipe, fault)
    }

    /// Runs one frame on both; the action of the fast path.
    fn judge(&self, frame: &[u8], tally: Option<&mut Tally>) -> Result<u32, String> {
        let outcome = self.program.run(frame).map_err(|error| format!("{error:#}"))?;
        let delivered = deliver(&self.host, frame);
        let due = match &delivered {
            Ok(datagram) => reply(self.service, datagram, 0),
            Err(_) => None,
        };
        if let (Ok(datagram), Some(reply)) = (&delivered, &due) {
            invariants::check(&datagram.payload, reply, false, self.service.settings.edns_size)
                .map_err(|fault| format!("the server: {fault}"))?;
        }
        if let Some(tally) = tally {
            match (&delivered, &due) {
                (Err(refusal), _) => *tally.refused.entry(format!("{refusal:?}")).or_default() += 1,
                (Ok(_), None) => tally.delivered[0] += 1,
                (Ok(_), Some(reply)) => {
                    tally.delivered[1] += 1;
                    *tally.rcodes.entry(reply[3] & 15).or_default() += 1;
                }
            }
        }
        match outcome.action {
            action::PASS | action::DROP if outcome.frame != frame => {
                return Err(format!("action {}, but changed: {}", outcome.action, hex(&outcome.frame)));
            }
            action::PASS => {}
            action::DROP => {
                let lost = due.filter(|_| delivered.is_ok_and(|datagram| datagram.source_port != 0));
                if let Some(reply) = lost {
                    return Err(format!("dropped, but the server answers {}", hex(&reply)));
                }
            }
            action::TX => match delivered {
                Err(refusal) => {
                    return Err(format!("answered, but not delivered: {refusal:?}: {}", hex(&outcome.frame)));
                }
                Ok(datagram) => answered(self.service, frame, &datagram, due, &outcome.frame)?,
            },
            other => return Err(format!("XDP action {other}")),
        }
        Ok(outcome.action)
    }
}

/// The host that the packets are for.
fn host(frontage: Frontage) -> Host {
    Host {
        mac: frontage.interfaces[0].mac,
        vlans: frontage.vlans,
        addresses: frontage.addresses,
        locals: LOCALS4.to_vec(),
        port: 53,
    }
}

/// What a server answers with when chance gives it `random`.
fn reply(service: &Service, datagram: &Datagram, random: u64) -> Option<Vec<u8>> {
    let client = Client { source: datagram.source, transport: Transport::Udp, now: Duration::ZERO };
    respond(service, &datagram.payload, &client, &mut || random, &Counts::default())
}

/// Checks an answer of the fast path: every field around the message, and that the server says the same.
fn answered(
    service: &Service,
    query: &[u8],
    datagram: &Datagram,
    due: Option<Vec<u8>>,
    answer: &[u8],
) -> Result<(), String> {
    let found = parse(answer).map_err(|fault| format!("{fault}: {}", hex(answer)))?;
    let tags: Vec<(u16, u16)> = query[12..]
        .chunks_exact(EVERY)
        .map(|tag| (u16::from_be_bytes([tag[0], tag[1]]), u16::from_be_bytes([tag[2], tag[3]])))
        .take_while(|&(tpid, _)| matches!(tpid, 0x8100 | 0x88a8))
        .collect();
    let around = [
        ("MAC addresses", found.to == query[6..12] && found.from == query[..6]),
        ("MAC address of a group", found.to[0] & 1 == 0),
        ("VLAN tags", found.tags == tags),
        ("addresses", (found.source, found.destination) == (datagram.destination, datagram.source)),
        ("ports", found.ports == (53, datagram.source_port) && datagram.source_port != 0),
        ("TTL or hop limit", found.hops == 64),
        ("type of service", found.class == 0),
        ("DF or flow label", found.extra == if found.source.is_ipv4() { 0x4000 } else { 0 }),
    ];
    for (what, right) in around {
        if !right {
            return Err(format!("{what}: {}", hex(answer)));
        }
    }
    let payload = &found.payload;
    invariants::check(&datagram.payload, payload, false, service.settings.edns_size)
        .map_err(|fault| format!("the fast path: {fault}"))?;
    if due.as_ref() == Some(payload) {
        return Ok(());
    }
    let outcomes: BTreeSet<Option<Vec<u8>>> = (0..DRAWS)
        .map(|at| reply(service, datagram, at * (u64::MAX / DRAWS) + u64::MAX / DRAWS / 2))
        .collect();
    if outcomes.contains(&Some(payload.clone())) {
        return Ok(());
    }
    let outcomes: Vec<String> =
        outcomes.iter().map(|one| one.as_deref().map_or_else(|| "nothing".into(), hex)).collect();
    Err(format!("the fast path: {}\nthe server:    {}", hex(payload), outcomes.join("\n           or: ")))
}
