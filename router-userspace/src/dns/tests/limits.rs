//! Response rate limiting, with a clock of its own.

use std::collections::BTreeMap;
use std::thread;

use super::*;
use crate::dns::account::{Account, Class};
use crate::dns::limit::{Action, Limiter};
use crate::dns::{Ready, Reply, reply_to};
use crate::settings::{Cookies, RateLimit, Secret};

const START: Duration = Duration::from_secs(1_800_000_000);

/// Five of a kind per second, two seconds of memory, no slip.
fn five() -> RateLimit {
    RateLimit {
        responses_per_second: 5,
        nodata_per_second: 5,
        nxdomains_per_second: 5,
        referrals_per_second: 5,
        errors_per_second: 5,
        window: 2,
        slip: 0,
        ..RateLimit::default()
    }
}

fn answer(text: &str) -> Account {
    Account::new(Class::Answer, &name(text))
}

/// A limiter whose time is given in milliseconds since [`START`].
struct Bench {
    limiter: Limiter,
    limit: RateLimit,
    counts: Counts,
}

impl Bench {
    fn new(limit: RateLimit) -> Self {
        Self { limiter: Limiter::default(), limit, counts: Counts::default() }
    }

    fn judge(&self, account: Account, source: &str, at: u64) -> Action {
        let now = START + Duration::from_millis(at);
        self.limiter.judge(Some(&self.limit), &account, source.parse().unwrap(), now, &self.counts)
    }

    /// How many of `count` replies at one moment are sent.
    fn sent(&self, account: Account, source: &str, at: u64, count: usize) -> usize {
        (0..count).filter(|_| self.judge(account, source, at) == Action::Send).count()
    }

    fn counted(&self) -> [u64; 3] {
        [Counter::ServerRateDropped, Counter::ServerRateSlipped, Counter::ServerRateDryRun]
            .map(|counter| self.counts.get(counter))
    }
}

const VICTIM: &str = "198.51.100.7";

#[test]
fn a_second_of_replies_and_no_more() {
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 100), 5);
    assert_eq!(bench.counted(), [95, 0, 0]);
    // A flood that goes on gets nothing at all, at whatever rate above the limit.
    let later: usize = (1..=200).map(|i| bench.sent(answer(WWW), VICTIM, i * 100, 1)).sum();
    assert_eq!(later, 0);
}

#[test]
fn the_allowed_rate_goes_on_for_ever() {
    let bench = Bench::new(five());
    assert_eq!((0..2000).map(|i| bench.sent(answer(WWW), VICTIM, i * 200, 1)).sum::<usize>(), 2000);
    // Five at once every second as well.
    assert_eq!((401..1000).map(|i| bench.sent(answer(WWW), VICTIM, i * 1000, 5)).sum::<usize>(), 599 * 5);
}

#[test]
fn silence_of_the_window_pays_every_debt() {
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 100_000), 5);
    assert_eq!(bench.sent(answer(WWW), VICTIM, 1999, 1), 0);
    // That query is on the account too.
    assert_eq!(bench.sent(answer(WWW), VICTIM, 1999 + 401, 10), 1);
    assert_eq!(bench.sent(answer(WWW), VICTIM, 100_000, 10), 5);
    // A short excess is paid back sooner: two too many are two fifths of a second.
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 7), 5);
    assert_eq!(bench.sent(answer(WWW), VICTIM, 600, 1), 1);
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 7), 5);
    assert_eq!(bench.sent(answer(WWW), VICTIM, 599, 1), 0);
}

#[test]
fn every_nth_reply_slips() {
    for (slip, expected) in [(0, 0), (1, 60), (2, 30), (3, 20), (10, 6)] {
        let bench = Bench::new(RateLimit { slip, ..five() });
        let mut seen = [0; 3];
        for _ in 0..65 {
            seen[bench.judge(answer(WWW), VICTIM, 0) as usize] += 1;
        }
        assert_eq!(seen, [5, expected, 60 - expected], "slip {slip}");
        assert_eq!(bench.counted(), [60 - expected as u64, expected as u64, 0]);
    }
}

#[test]
fn a_dry_run_only_counts() {
    let bench = Bench::new(RateLimit { dry_run: true, slip: 2, ..five() });
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 100), 100);
    assert_eq!(bench.counted(), [0, 0, 95]);
}

#[test]
fn networks_are_limited_as_one() {
    let bench = Bench::new(five());
    let sources = (0..=255).map(|last| format!("198.51.100.{last}"));
    assert_eq!(sources.map(|source| bench.sent(answer(WWW), &source, 0, 1)).sum::<usize>(), 5);
    assert_eq!(bench.sent(answer(WWW), "198.51.101.7", 0, 10), 5);
    // As an IPv6 socket for both families shows the same client.
    assert_eq!(bench.sent(answer(WWW), "::ffff:198.51.100.9", 0, 10), 0);
    assert_eq!(bench.sent(answer(WWW), "2001:db8:0:1ff::1", 0, 3), 3);
    assert_eq!(bench.sent(answer(WWW), "2001:db8:0:100:ffff::", 0, 10), 2);
    assert_eq!(bench.sent(answer(WWW), "2001:db8:0:200::1", 0, 10), 5);
    // ::a.b.c.d is no IPv4 address.
    assert_eq!(bench.sent(answer(WWW), "::c633:6407", 0, 10), 5);
    let bench = Bench::new(RateLimit { ipv4_prefix: 32, ipv6_prefix: 128, ..five() });
    for source in ["198.51.100.7", "198.51.100.8", "2001:db8::1", "2001:db8::2"] {
        assert_eq!(bench.sent(answer(WWW), source, 0, 10), 5, "{source}");
    }
    let bench = Bench::new(RateLimit { ipv4_prefix: 1, ipv6_prefix: 1, ..five() });
    assert_eq!(bench.sent(answer(WWW), "1.2.3.4", 0, 3) + bench.sent(answer(WWW), "101.2.3.4", 0, 3), 5);
    assert_eq!(bench.sent(answer(WWW), "201.2.3.4", 0, 10), 5);
}

#[test]
fn kinds_and_names_have_accounts_of_their_own() {
    let bench = Bench::new(RateLimit { nxdomains_per_second: 2, errors_per_second: 0, ..five() });
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 10), 5);
    assert_eq!(bench.sent(answer("example.test"), VICTIM, 0, 10), 5);
    assert_eq!(bench.sent(answer("WWW.example.TEST"), VICTIM, 0, 10), 0);
    assert_eq!(bench.sent(Account::new(Class::Nxdomain, &name("example.test")), VICTIM, 0, 10), 2);
    assert_eq!(bench.sent(Account::new(Class::Nodata, &name("example.test")), VICTIM, 0, 10), 5);
    assert_eq!(bench.sent(Account::new(Class::Referral, &name("example.test")), VICTIM, 0, 10), 5);
    assert_eq!(bench.sent(Account::ERROR, VICTIM, 0, 1000), 1000, "0 is without limit");
    assert_eq!(bench.sent(Account::EXEMPT, VICTIM, 0, 1000), 1000);
}

#[test]
fn exempt_networks_are_never_limited() {
    let range = |first: &str, last: &str| router_common::model::AddressRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
    };
    let exempt = vec![range("10.0.0.0", "10.255.255.255"), range("2001:db8::", "2001:db8::ffff")];
    let bench = Bench::new(RateLimit { exempt, ..five() });
    for (source, sent) in [
        ("10.0.0.0", 100),
        ("10.255.255.255", 100),
        ("::ffff:10.1.2.3", 100),
        ("11.0.0.0", 5),
        ("2001:db8::1:0", 5),
        ("2001:db8::ffff", 100),
        ("::", 5),
    ] {
        assert_eq!(bench.sent(answer(WWW), source, 0, 100), sent, "{source}");
    }
}

#[test]
fn a_clock_that_goes_back_neither_gives_nor_keeps() {
    let hour = 3_600_000;
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 2 * hour, 100), 5);
    // Set back by an hour: no credit for that, and the account fills as time goes on from there.
    assert_eq!(bench.sent(answer(WWW), VICTIM, hour, 1), 0);
    assert_eq!(bench.sent(answer(WWW), VICTIM, hour + 1000, 1), 0);
    assert_eq!(bench.sent(answer(WWW), VICTIM, hour + 4000, 10), 5);
    // A thread that is some milliseconds late gives nothing, however often.
    let bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 2000, 5), 5);
    assert_eq!((0..1000).map(|i| bench.sent(answer(WWW), VICTIM, 1500 + 500 * (i % 2), 1)).sum::<usize>(), 0);
    // The ends of the clock.
    let bench = Bench::new(five());
    for at in [Duration::ZERO, Duration::MAX, Duration::ZERO, Duration::MAX] {
        let action = bench.limiter.judge(Some(&bench.limit), &answer(WWW), CLIENT, at, &bench.counts);
        assert_eq!(action, Action::Send);
    }
}

#[test]
fn a_table_that_is_too_small_forgets_and_never_punishes() {
    let bench = Bench::new(RateLimit { table_size: 512, ..five() });
    // 20,000 networks with one query each.
    for i in 0..20_000u32 {
        let source = IpAddr::from((0x0a00_0000 + (i << 8)).to_be_bytes()).to_string();
        assert_eq!(bench.judge(answer(WWW), &source, u64::from(i)), Action::Send, "{source}");
    }
    // One that never stops asking between them is never the one that is forgotten.
    let bench = Bench::new(RateLimit { table_size: 512, ..five() });
    let mut sent = 0;
    for i in 0..20_000u32 {
        sent += bench.sent(answer(WWW), VICTIM, u64::from(i), 1);
        let source = IpAddr::from((0x0a00_0000 + (i << 8)).to_be_bytes()).to_string();
        bench.judge(answer(WWW), &source, u64::from(i));
    }
    assert!(sent < 12, "{sent} of 20,000 in 20 s sent");
}

#[test]
fn settings_change_and_accounts_stay() {
    let mut bench = Bench::new(five());
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 10), 5);
    bench.limit.window = 1;
    assert_eq!(bench.sent(answer(WWW), VICTIM, 0, 10), 0, "the debt is known");
    bench.limit.responses_per_second = 50;
    assert_eq!(
        bench.sent(answer(WWW), VICTIM, 1000, 100),
        45,
        "a second at the new rate, less the debt of 5"
    );
    bench.limit.responses_per_second = 2;
    assert_eq!(bench.sent(answer(WWW), VICTIM, 9000, 100), 2, "credit is what a second is worth now");
    bench.limit.table_size = 1 << 20;
    assert_eq!(bench.sent(answer(WWW), VICTIM, 9000, 100), 2, "another table starts empty");
    let off = bench.limiter.judge(None, &answer(WWW), CLIENT, START, &bench.counts);
    assert_eq!(off, Action::Send);
}

#[test]
fn threads_share_an_account() {
    let bench = Bench::new(RateLimit { responses_per_second: 100, ..five() });
    let sent: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let source = format!("198.51.100.{i}");
                let bench = &bench;
                scope.spawn(move || bench.sent(answer(WWW), &source, 0, 1000))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sent, 100);
    assert_eq!(bench.counted(), [7900, 0, 0]);
}

fn reply(service: &Service, query: &[u8], transport: Transport) -> Reply {
    reply_to(service, query, &from(CLIENT, transport), &mut || 0, &Counts::default()).unwrap()
}

#[test]
fn replies_that_stand_in_for_one_another_have_one_account() {
    let service = service();
    let account = |text: &str, qtype| reply(&service, &plain(text, qtype), Transport::Udp).account;
    let zone = |class| Account::new(class, &name("example.test"));
    let www = Account::new(Class::Answer, &name(WWW));
    for (text, qtype, expected) in [
        (WWW, A, www),
        ("WwW.eXample.test", AAAA, www),
        (WWW, ANY, www),
        ("alias.example.test", A, Account::new(Class::Answer, &name("alias.example.test"))),
        ("one.wild.example.test", A, zone(Class::Answer)),
        ("two.wild.example.test", A, zone(Class::Answer)),
        ("three.wcname.example.test", A, zone(Class::Answer)),
        ("four.dn.example.test", CNAME, zone(Class::Answer)),
        ("one.nosuch.example.test", A, zone(Class::Nxdomain)),
        ("dangling.example.test", A, zone(Class::Nxdomain)),
        (WWW, MX, zone(Class::Nodata)),
        ("one.wild.example.test", MX, zone(Class::Nodata)),
        ("ent.example.test", A, zone(Class::Nodata)),
        ("one.deleg.example.test", A, Account::new(Class::Referral, &name("deleg.example.test"))),
        ("two.deleg.example.test", A, Account::new(Class::Referral, &name("deleg.example.test"))),
        ("example.org", A, Account::ERROR),
        ("random.example.org", A, Account::ERROR),
        (WWW, 252, Account::ERROR),
    ] {
        assert_eq!(account(text, qtype), expected, "{text} {qtype}");
    }
    for query in [header(0, [0, 0, 0, 0]), header(0x2000, [0, 0, 0, 0]), with_opt(WWW, A, 0, &[0, 3, 0])] {
        assert_eq!(reply(&service, &query, Transport::Udp).account, Account::ERROR);
    }
}

#[test]
fn a_good_cookie_is_never_limited() {
    let cookies = Some(Cookies { secrets: vec![Secret([1; 16])], require: false });
    let service = configured(service(), Dns { cookies, ..Dns::default() });
    let ask = |cookie: &[u8]| reply(&service, &with_opt(WWW, A, 1232, &option(10, cookie)), Transport::Udp);
    let learned = ask(b"ABCDEFGH");
    assert_eq!(learned.account, answer(WWW));
    let cookie = learned.octets[learned.octets.len() - 24..].to_vec();
    assert_eq!(ask(&cookie).account, Account::EXEMPT);
    let mut forged = cookie;
    forged[23] ^= 1;
    assert_eq!(ask(&forged).account, answer(WWW));
}

#[test]
fn what_slips_is_the_question_with_tc() {
    let service = service();
    let slipped = |query: &[u8]| {
        let Reply { mut octets, parts, .. } = reply(&service, query, Transport::Udp);
        parts.truncate(0, &mut octets);
        wire::check_reply(&service, query, &octets, Transport::Udp);
        show(&octets)
    };
    assert_eq!(slipped(&plain(WWW, A)), "NOERROR aa tc qd1\n");
    assert_eq!(slipped(&with_opt(WWW, A, 1232, &[])), "NOERROR aa tc qd1\nopt v0 1232 []\n");
    let subnet = ecs(1, 24, 0, &[198, 51, 100]);
    let shown = format!("NOERROR aa tc qd1\nopt v0 1232 [{}]\n", hex(&subnet));
    assert_eq!(slipped(&with_opt(WWW, A, 1232, &subnet)), shown);
    assert_eq!(slipped(&with_opt("x.deleg.example.test", A, 1232, &[])), "NOERROR tc qd1\nopt v0 1232 []\n");
    assert_eq!(slipped(&plain("nosuch.example.test", A)), "NXDOMAIN aa tc qd1\n");
    assert_eq!(slipped(&plain("example.org", A)), "REFUSED tc qd1\n");
    assert_eq!(slipped(&header(0, [0, 0, 0, 0])), "FORMERR tc qd0\n");
}

#[test]
fn replies_that_are_ready_are_on_the_same_account() {
    let service = Arc::new(service());
    let mut ready = Ready::new(service.clone(), 1 << 20);
    let client = from(CLIENT, Transport::Udp);
    let subnet = ecs(1, 24, 0, &[198, 51, 100]);
    let queries = [
        plain(WWW, A),
        plain(WWW, MX),
        plain("deleg.example.test", A),
        with_opt("alias.example.test", A, 1232, &[]),
        with_opt("www.example.test", AAAA, 1232, &subnet),
    ];
    for round in 0..2u64 {
        for query in &queries {
            let expected = reply(&service, query, Transport::Udp);
            // Other replies stand before it.
            let mut out = vec![0xee; 7];
            let replied = ready.respond(query, &client, &mut || 0, &Counts::default(), &mut out).unwrap();
            assert_eq!((replied.account, replied.parts), (expected.account, expected.parts));
            let (mut slipped, mut whole) = (expected.octets.clone(), out.clone());
            expected.parts.truncate(0, &mut slipped);
            replied.parts.truncate(7, &mut whole);
            assert_eq!((&whole[..7], hex(&whole[7..])), (&[0xee; 7][..], hex(&slipped)));
        }
        assert_eq!(ready.hits(), round * queries.len() as u64);
    }
}

#[test]
fn options_that_are_answered_are_answered_anew_in_replies_that_are_ready() {
    let cookies = Some(Cookies { secrets: vec![Secret([1; 16])], require: false });
    let full = Arc::new(configured(service(), Dns { cookies, nsid: Some(b"x".to_vec()), ..Dns::default() }));
    let off = Arc::new(service());
    let client = from(CLIENT, Transport::Udp);
    for service in [full, off] {
        let mut ready = Ready::new(service.clone(), 1 << 20);
        for _ in 0..3 {
            for options in [vec![], option(10, b"ABCDEFGH"), option(3, &[])] {
                let query = with_opt(WWW, A, 1232, &options);
                let mut out = Vec::new();
                ready.respond(&query, &client, &mut || 0, &Counts::default(), &mut out);
                let expected = respond(&service, &query, &client, &mut || 0, &Counts::default()).unwrap();
                assert_eq!(hex(&out), hex(&expected));
            }
        }
        assert_eq!(ready.hits(), 8);
    }
}

proptest::proptest! {
    /// However queries come: in any stretch of time, no more is sent than a full account and what the time
    /// is worth; and whoever keeps to the rate is never limited.
    #[test]
    fn no_more_than_credit_and_time_allow(
        rate in 1..50u32,
        window in 1..20u32,
        gaps in proptest::collection::vec(0..400u64, 1..200),
    ) {
        let bench = Bench::new(RateLimit { responses_per_second: rate, window, slip: 0, ..five() });
        let (mut at, mut sent) = (0, BTreeMap::new());
        for gap in &gaps {
            at += gap;
            *sent.entry(at).or_insert(0u64) += bench.sent(answer(WWW), VICTIM, at, 1) as u64;
        }
        for from in sent.keys() {
            let total: u64 = sent.range(from..).map(|(_, count)| count).sum();
            let allowed = u64::from(rate) * 1000 + u64::from(rate) * (at - from);
            proptest::prop_assert!(total * 1000 <= allowed, "{total} in {} ms", at - from);
        }
        let slow = 1000u64.div_ceil(rate.into());
        let kept = gaps.iter().scan(0, |at, gap| {
            *at += slow + gap;
            Some(*at)
        });
        for at in kept {
            proptest::prop_assert_eq!(bench.judge(answer("other.test"), VICTIM, at), Action::Send);
        }
    }
}
