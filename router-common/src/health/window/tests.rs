use proptest::prelude::*;

use super::*;
use crate::health::{Stage, TlsFault};

const OK: Sample = Sample { ok: true, latency: Some(Duration::from_millis(10)), error: None };
const FAIL: Sample = Sample { ok: false, latency: None, error: Some(ProbeFault::Timeout(Stage::Connect)) };

fn samples(size: u8, successful: u8) -> WindowRule {
    WindowRule::Samples { size, successful }
}

fn tolerated(failures: u8) -> WindowRule {
    WindowRule::Tolerated { failures }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Steps a window through `+` and `-`; the verdict after each sample as `H` or `U`, and the changes
/// that `step` reported in the same notation with `.` for none.
fn run(rule: WindowRule, text: &str) -> (String, String) {
    let mut window = Window::new(rule);
    assert_eq!(window.health(), Health::Checking);
    let letter = |health| match health {
        Health::Checking => 'C',
        Health::Healthy => 'H',
        Health::Unhealthy => 'U',
    };
    let mut verdicts = String::new();
    let mut changes = String::new();
    for (i, sign) in text.chars().enumerate() {
        let changed = step(&mut window, if sign == '+' { OK } else { FAIL }, at(i as u64));
        changes.push(changed.map_or('.', letter));
        verdicts.push(letter(window.health()));
    }
    (verdicts, changes)
}

#[test]
fn every_transition() {
    for (rule, sequence, verdicts, changes) in [
        // Default window: the missing samples count as successes, so the third failure of four decides.
        (samples(4, 2), "+", "H", "H"),
        (samples(4, 2), "-", "H", "H"),
        (samples(4, 2), "--", "HH", "H."),
        (samples(4, 2), "---", "HHU", "H.U"),
        (samples(4, 2), "---+", "HHUU", "H.U."),
        (samples(4, 2), "---++", "HHUUH", "H.U.H"),
        (samples(4, 2), "+-+-+-", "HHHHHH", "H....."),
        (samples(4, 2), "++++---+-+", "HHHHHHUUUH", "H.....U..H"),
        // All of n.
        (samples(3, 3), "-", "U", "U"),
        (samples(3, 3), "-+++", "UUUH", "U..H"),
        // One of n.
        (samples(3, 1), "---+---", "HHUHHHU", "H.UH..U"),
        // Every sample by itself.
        (samples(1, 1), "+-+-", "HUHU", "HUHU"),
        // The largest.
        (samples(64, 64), "-", "U", "U"),
        // Consecutive failures.
        (tolerated(0), "+-+--+", "HUHUUH", "HUHU.H"),
        (tolerated(0), "-", "U", "U"),
        (tolerated(2), "--+--+---+", "HHHHHHHHUH", "H.......UH"),
        (tolerated(9), "----------+", "HHHHHHHHHUH", "H........UH"),
    ] {
        let (seen, reported) = run(rule, sequence);
        assert_eq!(seen, verdicts, "{rule:?} {sequence}");
        assert_eq!(reported, changes, "{rule:?} {sequence}");
    }
}

#[test]
fn remembers_what_status_shows() {
    let mut window = Window::new(samples(1, 1));
    assert_eq!(*window.record(), Record::default());
    step(&mut window, OK, at(1));
    step(&mut window, OK, at(2));
    let expired = ProbeFault::Tls(TlsFault::Expired);
    let late = Sample { ok: false, latency: Some(at(3)), error: Some(expired) };
    step(&mut window, late, at(3));
    step(&mut window, late, at(4));
    let record = *window.record();
    assert_eq!(record.health, Health::Unhealthy);
    assert_eq!(record.since, Some(at(3)));
    assert_eq!(record.strip.to_string(), "++--");
    assert_eq!(record.flaps, 1);
    assert_eq!(record.average, Some(Duration::from_millis(10)), "failures have no part in the average");
    assert_eq!(record.last, Some(LastSample { at: at(4), sample: late }));
    step(&mut window, OK, at(5));
    assert_eq!(window.record().last_error, Some((at(4), expired)), "shown until the next one");
    assert_eq!(window.record().flaps, 2);
    assert_eq!(Window::restore(samples(1, 1), *window.record()), window);
}

#[test]
fn one_slow_reply_moves_the_average_by_an_eighth() {
    let ms = Duration::from_millis;
    assert_eq!(smooth(None, ms(80)), ms(80));
    assert_eq!(smooth(Some(ms(80)), ms(160)), ms(90));
    assert_eq!(smooth(Some(ms(80)), ms(0)), ms(70));
    let mut average = ms(10);
    for _ in 0..8 {
        average = smooth(Some(average), ms(110));
    }
    assert!(ms(75) < average && average < ms(77), "two thirds of the way: {average:?}");
}

#[test]
fn another_rule_uses_the_samples_there_are() {
    let mut window = Window::replay(tolerated(5), [(at(1), FAIL), (at(2), FAIL), (at(3), FAIL)]);
    assert_eq!(window.health(), Health::Healthy);
    assert_eq!(window.set_rule(samples(4, 2), at(9)), Some(Health::Unhealthy));
    assert_eq!((window.record().since, window.record().flaps), (Some(at(9)), 0));
    assert_eq!(window.set_rule(samples(4, 2), at(10)), None);
    assert_eq!(window.set_rule(samples(8, 2), at(11)), Some(Health::Healthy));
    let mut empty = Window::new(tolerated(5));
    assert_eq!(empty.set_rule(samples(4, 4), at(9)), None);
    assert_eq!(empty.health(), Health::Checking);
}

#[test]
fn a_state_is_held_for_its_least_time() {
    let mut window = Window::new(samples(1, 1)).with_hold(at(60));
    assert_eq!(step(&mut window, FAIL, at(100)), Some(Health::Unhealthy), "the first verdict is not held");
    assert_eq!(step(&mut window, OK, at(110)), None);
    assert_eq!(step(&mut window, FAIL, at(159)), None);
    assert_eq!(step(&mut window, FAIL, at(160)), None, "held, and nothing to change any more");
    assert_eq!(step(&mut window, OK, at(161)), Some(Health::Healthy));
    assert_eq!(step(&mut window, FAIL, at(220)), None);
    assert_eq!(step(&mut window, FAIL, at(221)), Some(Health::Unhealthy));
    assert_eq!(step(&mut window, OK, at(1)), None, "after the clock was set back the hold begins anew");
    assert_eq!(step(&mut window, OK, at(60)), None);
    assert_eq!(step(&mut window, OK, at(61)), Some(Health::Healthy));
    assert_eq!(window.record().flaps, 3);
}

#[test]
fn a_held_state_outlives_a_reload_that_does_not_touch_it() {
    let mut window = Window::new(samples(1, 1)).with_hold(at(60));
    step(&mut window, FAIL, at(100));
    step(&mut window, OK, at(110));
    assert_eq!(window.set_rule(samples(1, 1), at(111)), None);
    assert_eq!(window.health(), Health::Unhealthy);
    assert_eq!(window.set_rule(tolerated(0), at(112)), Some(Health::Healthy), "another rule is not held");
}

/// The rules once more, straight from the text of ROUTING.md §6.
fn reference(rule: WindowRule, seen: &[bool]) -> bool {
    match rule {
        WindowRule::Samples { size, successful } => {
            let padded = [vec![true; usize::from(size)], seen.to_vec()].concat();
            padded.iter().rev().take(usize::from(size)).filter(|ok| **ok).count() >= usize::from(successful)
        }
        WindowRule::Tolerated { failures } => {
            seen.iter().fold(0, |run, ok| if *ok { 0 } else { run + 1 }) <= u32::from(failures)
        }
    }
}

fn any_rule() -> impl Strategy<Value = WindowRule> {
    prop_oneof![
        (1u8..=64).prop_flat_map(|size| (Just(size), 1..=size)).prop_map(|(n, x)| samples(n, x)),
        (0u8..=9).prop_map(tolerated),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_reference(
        rule in any_rule(),
        other in any_rule(),
        bias in 0.05f64..0.95,
        rolls in prop::collection::vec(0.0f64..1.0, 1..200),
    ) {
        let mut window = Window::new(rule);
        let mut before = Health::Checking;
        let mut seen = Vec::new();
        let mut changes = 0;
        for (i, roll) in rolls.iter().enumerate() {
            let ok = *roll < bias;
            seen.push(ok);
            let changed = step(&mut window, if ok { OK } else { FAIL }, at(i as u64));
            let wanted = if reference(rule, &seen) { Health::Healthy } else { Health::Unhealthy };
            prop_assert_eq!(window.health(), wanted, "{:?} after {:?}", rule, seen);
            prop_assert_eq!(changed, (wanted != before).then_some(wanted));
            changes += u32::from(changed.is_some());
            before = wanted;
        }
        prop_assert_eq!(window.record().flaps, changes - 1, "the first verdict is no flap");
        // Whatever rule comes next, it judges as if it had been there all the time.
        window.set_rule(other, at(1000));
        prop_assert_eq!(window.health() == Health::Healthy, reference(other, &seen));
    }
}
