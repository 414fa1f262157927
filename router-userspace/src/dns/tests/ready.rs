//! Replies that are ready are those that the server gives anyway.

use router_common::model::Method;

use super::*;
use crate::dns::{Ready, reply_to};
use crate::settings::{Cookies, Secret};

/// Plenty of memory.
const ROOM: usize = 8 << 20;

/// Asks both ways, over UDP, and compares octets and counters.
#[track_caller]
fn same(ready: &mut Ready, service: &Service, query: &[u8], random: u64) {
    let (counts, ready_counts) = (Counts::default(), Counts::default());
    let client = from(CLIENT, Transport::Udp);
    let expected = reply_to(service, query, &client, &mut || random, &counts);
    let mut out = vec![0xee; 3];
    let replied = ready.respond(query, &client, &mut || random, &ready_counts, &mut out);
    assert_eq!(out[..3], [0xee; 3]);
    let octets = expected.as_ref().map(|reply| hex(&reply.octets));
    assert_eq!(hex(&out[3..]), octets.unwrap_or_default(), "query {}", hex(query));
    // What the limit on replies goes by is alike as well.
    let expected = expected.map(|reply| (reply.truncated, reply.account, reply.parts));
    assert_eq!(replied.map(|it| (it.truncated, it.account, it.parts)), expected, "query {}", hex(query));
    for &counter in Counter::ALL {
        assert_eq!(counts.get(counter), ready_counts.get(counter), "{} for {}", counter.name(), hex(query));
    }
}

fn owners(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split(' ').next()).filter(|owner| !owner.is_empty())
}

#[test]
fn every_name_and_type_is_answered_alike_the_second_time() {
    let service = Arc::new(service());
    let mut ready = Ready::new(service.clone(), ROOM);
    let mut names: Vec<String> =
        [ZONE, OTHER, CHILD].into_iter().flat_map(owners).map(str::to_owned).collect();
    names.extend(
        ["x.www", "a.wild", "b.c.wild", "x.deleg", "under.dn", "b.ent", "nosuch"]
            .map(|name| format!("{name}.example.test")),
    );
    names.push("elsewhere.invalid".into());
    let options = [
        Vec::new(),
        ecs(1, 24, 0, &[203, 0, 113]),
        ecs(2, 0, 0, &[]),
        option(10, &[1; 8]),
        option(3, &[]),
        option(8, &[1]),
    ];
    for round in 0..3 {
        for name in &names {
            let upper = name.to_uppercase();
            for qtype in [A, AAAA, NS, SOA, MX, TXT, CNAME, DS, DNAME, ANY, 65, 251, 128, 0] {
                for spelled in [name, &upper] {
                    same(&mut ready, &service, &plain(spelled, qtype), round);
                    for options in &options {
                        for size in [0, 512, 600, 1232, 65535] {
                            same(&mut ready, &service, &with_opt(spelled, qtype, size, options), round);
                        }
                    }
                }
                // Another class, RD and other flags, another id, an opcode, two questions, a signed one.
                let base = plain(name, qtype);
                let other = [header(0, [1, 0, 0, 0]), question(name, qtype, 3)].concat();
                same(&mut ready, &service, &other, round);
                for flags in [0x0100, 0x0130, 0x2000, 0x8000] {
                    let mut query = base.clone();
                    query[0] = 0x77;
                    query[2..4].copy_from_slice(&u16::to_be_bytes(flags));
                    same(&mut ready, &service, &query, round);
                }
                let version = [header(0, [1, 0, 0, 1]), question(name, qtype, 1), opt(512, 0x1_0000, &[])];
                same(&mut ready, &service, &version.concat(), round);
                same(&mut ready, &service, &base[..base.len() - 1], round);
            }
        }
    }
    assert!(ready.hits() > 1000, "{}", ready.hits());
}

#[test]
fn cookies_and_identifiers_are_those_of_the_query() {
    for require in [false, true] {
        let cookies = Some(Cookies { secrets: vec![Secret([1; 16])], require });
        let settings = Dns { cookies, nsid: Some(vec![7; 200]), ..Dns::default() };
        let service = Arc::new(configured(service(), settings));
        let mut ready = Ready::new(service.clone(), ROOM);
        let learned = ask(&service, &with_opt(WWW, A, 1232, &option(10, b"ABCDEFGH"))).unwrap();
        let cookie = option(10, &learned[learned.len() - 24..]);
        let mut forged = cookie.clone();
        forged[25] ^= 1;
        for round in 0..3 {
            for name in [WWW, "deleg.example.test", "nosuch.example.test", "x.wild.example.test"] {
                for size in [512, 1232] {
                    let subnet = ecs(1, 24, 0, &[203, 0, 113]);
                    for options in [
                        cookie.clone(),
                        forged.clone(),
                        option(10, b"ABCDEFGH"),
                        option(10, b"short"),
                        option(3, &[]),
                        [option(3, &[]), cookie.clone(), subnet.clone()].concat(),
                        [option(11, &[]), cookie.clone()].concat(),
                        subnet,
                    ] {
                        same(&mut ready, &service, &with_opt(name, A, size, &options), round);
                    }
                }
            }
        }
        assert!(ready.hits() > 20, "{}", ready.hits());
    }
}

#[test]
fn replies_that_do_not_fit_are_cut_as_ever() {
    let many: String = (0..60).map(|last| format!("many.example.test 60 A 192.0.2.{last}\n")).collect();
    let text = format!("example.test 60 SOA\nexample.test 60 NS ns1.example.test\n{many}");
    let service = Arc::new(service_of(vec![zone(&text)], Vec::new()));
    let mut ready = Ready::new(service.clone(), ROOM);
    for round in 0..3 {
        same(&mut ready, &service, &plain("many.example.test", A), round);
        for size in (900..1100).step_by(4) {
            same(&mut ready, &service, &with_opt("many.example.test", A, size, &[]), round);
            let subnet = ecs(1, 24, 0, &[203, 0, 113]);
            same(&mut ready, &service, &with_opt("many.example.test", A, size, &subnet), round);
        }
    }
    assert!(ready.hits() > 10);
}

#[test]
fn each_outcome_of_a_profile_is_ready_for_its_numbers() {
    let targets: Vec<_> = (1..=5).map(|last| profiles::addresses(&[&format!("192.0.2.{last}")])).collect();
    let mut weighted = profiles::profile("w", Method::Weighted, &targets);
    weighted.names = vec![name("w.example.test")];
    for (endpoint, weight) in weighted.endpoints.iter_mut().zip(1..) {
        endpoint.weight = weight;
    }
    let service = Arc::new(service_of(vec![zone(ZONE)], vec![weighted]));
    let mut ready = Ready::new(service.clone(), ROOM);
    // The shares are fifteenths: their ends, and numbers next to them.
    let ends = (0..=15u128).map(|at| ((at << 64) / 15).min(u128::from(u64::MAX)) as u64);
    for number in ends.flat_map(|end| [end.saturating_sub(1), end, end.saturating_add(1)]) {
        same(&mut ready, &service, &plain("w.example.test", A), number);
        same(
            &mut ready,
            &service,
            &with_opt("w.example.test", A, 1232, &ecs(1, 24, 0, &[203, 0, 113])),
            number,
        );
    }
    assert_eq!(ready.hits(), 16 * 3 * 2 - 1);
}

#[test]
fn another_service_forgets_what_was_ready() {
    let (one, other) = (Arc::new(service()), Arc::new(service_of(vec![zone(OTHER)], Vec::new())));
    let mut ready = Ready::new(one.clone(), ROOM);
    for (service, round) in [(&one, 0), (&other, 1), (&one, 2)] {
        if round > 0 {
            ready.replace(service.clone());
        }
        assert_eq!(ready.held(), 0);
        for name in [WWW, "www.other.test"] {
            same(&mut ready, service, &plain(name, A), 0);
            same(&mut ready, service, &plain(name, A), 0);
        }
    }
}

#[test]
fn random_names_push_nothing_out_and_random_types_do_not_take_memory() {
    let service = Arc::new(service());
    let mut ready = Ready::new(service.clone(), 64 << 10);
    let asked = plain(WWW, A);
    same(&mut ready, &service, &asked, 0);
    for at in 0..3000u16 {
        for below in ["example.test", "wild.example.test", "deleg.example.test", "dn.example.test", "invalid"]
        {
            same(&mut ready, &service, &plain(&format!("x{at}.{below}"), A), 0);
        }
    }
    assert_eq!((ready.held(), ready.hits()), (1, 0));
    same(&mut ready, &service, &asked, 0);
    assert_eq!(ready.hits(), 1);
    for qtype in 256..4000 {
        same(&mut ready, &service, &plain(WWW, qtype), 0);
        // What is asked for all the time stays.
        let before = ready.hits();
        same(&mut ready, &service, &asked, 0);
        assert_eq!(ready.hits(), before + 1);
    }
    assert!(ready.held() < 500, "{}", ready.held());
}
