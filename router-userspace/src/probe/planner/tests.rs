use router_common::model::{Connection, ProbeDestination, Source};

use super::*;

fn target(n: u32) -> ProbeTarget {
    ProbeTarget::Tcp(Connection {
        destination: ProbeDestination::Address(std::net::Ipv4Addr::from(0x0a00_0000 + n).into()),
        port: 80,
        source: Source::default(),
    })
}

/// The number that a target was made with.
fn number(target: &ProbeTarget) -> u32 {
    let Some(Connection { destination: ProbeDestination::Address(std::net::IpAddr::V4(address)), .. }) =
        target.connection()
    else {
        panic!("{target}")
    };
    u32::from(*address) - 0x0a00_0000
}

fn every(seconds: u64) -> Schedule {
    Schedule { interval: Duration::from_secs(seconds), timeout: Duration::from_secs(1) }
}

fn planner(in_flight: usize, per_second: u32) -> Planner {
    Planner::new(Limits { in_flight, per_second, ..Limits::default() }, 7)
}

/// Starts all that may start at this moment.
fn start_all(planner: &mut Planner, now: Instant) -> (Vec<Start>, Option<Instant>) {
    let mut started = Vec::new();
    loop {
        match planner.next(now) {
            Next::Start(start) => started.push(start),
            Next::Wait(until) => return (started, Some(until)),
            Next::Idle => return (started, None),
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn first_at_once_then_every_interval_with_jitter() {
    let mut planner = planner(10, 1000);
    let zero = Instant::now();
    planner.replace(vec![(target(1), every(30))], zero);
    let mut now = zero;
    let mut gaps = Vec::new();
    for round in 0..200 {
        let (started, _) = start_all(&mut planner, now);
        assert_eq!(started.len(), 1);
        assert_eq!(started[0].late, (round > 0).then_some(Duration::ZERO));
        assert!(planner.due(&target(1)) == Some(None) && planner.in_flight() == 1);
        planner.finished(started[0].key, now + ms(20));
        let Next::Wait(until) = planner.next(now + ms(20)) else { panic!("nothing planned") };
        assert_eq!(planner.due(&target(1)), Some(Some(until)));
        gaps.push(until - now);
        now = until;
    }
    let second = gaps.remove(0);
    assert!((ms(15_000)..=ms(30_000)).contains(&second), "spread once: {second:?}");
    assert!(gaps.iter().all(|gap| (ms(27_000)..=ms(33_000)).contains(gap)));
    assert!(gaps.iter().any(|gap| *gap < ms(28_000)) && gaps.iter().any(|gap| *gap > ms(32_000)));
    let mean = gaps.iter().sum::<Duration>() / 199;
    assert!((ms(29_500)..=ms(30_500)).contains(&mean), "{mean:?}");
}

#[test]
fn changes_take_effect_at_once() {
    let mut planner = planner(10, 1000);
    let zero = Instant::now();
    planner.replace(vec![(target(1), every(30)), (target(2), every(30)), (target(3), every(30))], zero);
    let (started, _) = start_all(&mut planner, zero);
    let numbers: Vec<u32> = started.iter().map(|s| number(&s.target)).collect();
    assert_eq!(numbers, [1, 2, 3], "in the order given");
    planner.finished(started[0].key, zero);
    planner.finished(started[1].key, zero);
    let kept = planner.due(&target(1));
    // 2 was waiting, 3 is in flight: both go. 4 is new. 1 keeps its place in time.
    let replaced = planner.replace(vec![(target(1), every(30)), (target(4), every(30))], zero + ms(500));
    assert_eq!((replaced.added, replaced.kept, replaced.gone.len()), (1, 1, 2));
    assert!(replaced.gone.contains(&started[2].key) && !planner.has(started[2].key));
    assert_eq!(planner.due(&target(1)), kept);
    assert_eq!(planner.due(&target(2)), None);
    let (started_now, _) = start_all(&mut planner, zero + ms(500));
    assert_eq!(started_now.len(), 1);
    assert_eq!(number(&started_now[0].target), 4);
    // The aborted one ends and is not planned again.
    planner.finished(started[2].key, zero + ms(501));
    planner.finished(started_now[0].key, zero + ms(501));
    assert_eq!(planner.in_flight(), 0);
    assert_eq!((planner.len(), planner.due.len()), (2, 2));
    // All gone: nothing is left to do.
    planner.replace(Vec::new(), zero + ms(600));
    assert!(matches!(planner.next(zero + ms(100_000)), Next::Idle));
    assert_eq!((planner.len(), planner.due.len(), planner.keys.len()), (0, 0, 0));
}

#[test]
fn a_shorter_interval_pulls_the_next_probe_forward() {
    let mut planner = planner(10, 1000);
    let zero = Instant::now();
    planner.replace(vec![(target(1), every(300))], zero);
    let (started, _) = start_all(&mut planner, zero);
    planner.finished(started[0].key, zero + ms(5));
    planner.replace(vec![(target(1), every(10))], zero + ms(1000));
    assert_eq!(planner.due(&target(1)), Some(Some(zero + ms(10_000))));
    planner.replace(vec![(target(1), every(600))], zero + ms(1000));
    assert_eq!(planner.due(&target(1)), Some(Some(zero + ms(10_000))), "not put off by a longer one");
    assert_eq!(planner.due.len(), 1);
}

#[test]
fn equal_targets_are_one_at_the_smallest_interval() {
    let mut planner = planner(10, 1000);
    let zero = Instant::now();
    let replaced =
        planner.replace(vec![(target(1), every(30)), (target(1), every(5)), (target(1), every(60))], zero);
    assert_eq!((replaced.added, planner.len()), (1, 1));
    let (started, _) = start_all(&mut planner, zero);
    planner.finished(started[0].key, zero);
    let due = planner.due(&target(1)).flatten().unwrap();
    assert!((ms(2500)..=ms(5000)).contains(&(due - zero)));
}

#[test]
fn no_target_is_probed_twice_at_a_time() {
    let mut planner = planner(10, 1000);
    let zero = Instant::now();
    planner.replace(vec![(target(1), every(1))], zero);
    let (started, _) = start_all(&mut planner, zero);
    assert!(matches!(planner.next(zero + ms(60_000)), Next::Idle), "in flight for a minute");
    // It ends long after its next time: due at once, and not for every interval missed.
    planner.finished(started[0].key, zero + ms(60_000));
    let (again, _) = start_all(&mut planner, zero + ms(60_000));
    assert_eq!(again.len(), 1);
}

#[test]
fn in_flight_is_capped() {
    let mut planner = planner(3, 100_000);
    let zero = Instant::now();
    planner.replace((0..10).map(|n| (target(n), every(30))).collect(), zero);
    let (started, wait) = start_all(&mut planner, zero);
    assert_eq!((started.len(), wait), (3, None));
    assert_eq!(planner.waiting(zero), 7);
    planner.finished(started[0].key, zero + ms(1));
    assert_eq!(start_all(&mut planner, zero + ms(1)).0.len(), 1);
    // A removed target counts until its probe has really ended.
    planner.replace((5..10).map(|n| (target(n), every(30))).collect(), zero + ms(2));
    assert!(matches!(planner.next(zero + ms(2)), Next::Idle));
}

#[test]
fn rate_is_capped() {
    let mut planner = planner(usize::MAX, 1000);
    let zero = Instant::now();
    planner.replace((0..5000).map(|n| (target(n), every(300))).collect(), zero);
    let mut now = zero;
    let mut times = Vec::new();
    loop {
        let (started, wait) = start_all(&mut planner, now);
        times.extend(started.iter().map(|_| now));
        let Some(until) = wait else { break };
        // A timer that ticks in milliseconds.
        now = zero + ms((until - zero).as_micros().div_ceil(1000) as u64);
    }
    assert_eq!(times.len(), 5000);
    let last = *times.last().unwrap() - zero;
    assert!((ms(4980)..=ms(5000)).contains(&last), "{last:?}");
    for (i, &time) in times.iter().enumerate() {
        let within = times[i..].iter().take_while(|t| **t < time + ms(1000)).count();
        assert!(within <= 1010, "{within} in one second");
    }
    // Slower than the burst: one at a time.
    let mut slow = super::Planner::new(Limits { in_flight: 9, per_second: 2, ..Limits::default() }, 7);
    slow.replace((0..3).map(|n| (target(n), every(300))).collect(), zero);
    let (started, wait) = start_all(&mut slow, zero);
    assert_eq!((started.len(), wait), (1, Some(zero + ms(500))));
}

#[test]
fn the_longest_due_goes_first() {
    let mut planner = planner(1, 100_000);
    let zero = Instant::now();
    planner.replace(vec![(target(1), every(1))], zero);
    let (first, _) = start_all(&mut planner, zero);
    planner.replace(vec![(target(1), every(1)), (target(2), every(1)), (target(3), every(1))], zero + ms(1));
    planner.finished(first[0].key, zero + ms(5000));
    // 2 and 3 have waited since 1 ms, 1 is due only now: no target starves behind a busy one.
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let (started, _) = start_all(&mut planner, zero + ms(5000));
        numbers.extend(started.iter().map(|s| number(&s.target)));
        planner.finished(started[0].key, zero + ms(5000));
    }
    assert_eq!(numbers, [2, 3, 1]);
}

#[test]
fn twenty_thousand_targets_keep_their_times() {
    let mut planner = planner(1000, 5000);
    let zero = Instant::now();
    planner.replace((0..20_000).map(|n| (target(n), every(10))).collect(), zero);
    let mut late = Vec::new();
    let mut busiest = 0;
    let mut flying: std::collections::VecDeque<(Instant, Key)> = Default::default();
    // One minute in ticks of a millisecond; each probe takes 30 ms.
    for tick in 0..60_000 {
        let now = zero + ms(tick);
        while flying.front().is_some_and(|(until, _)| *until <= now) {
            let (_, key) = flying.pop_front().unwrap();
            planner.finished(key, now);
        }
        let started = start_all(&mut planner, now).0;
        if tick > 15_000 {
            busiest = busiest.max(started.len());
        }
        for start in started {
            late.extend(start.late);
            flying.push_back((now + ms(30), start.key));
        }
    }
    late.sort();
    assert!((85_000..=115_000).contains(&late.len()), "{} repeats", late.len());
    assert!(busiest < 25, "on average 2 a millisecond, and {busiest} in one: the first wave is spread");
    let p99 = late[late.len() * 99 / 100];
    assert!(p99 < ms(500), "p99 of lateness {p99:?}");
}
