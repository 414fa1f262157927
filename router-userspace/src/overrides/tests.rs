use super::*;
use crate::config;

const NOW: Duration = Duration::from_secs(1_700_000_000);

fn model() -> Model {
    let text = r#"
[[zone]]
name = "x.test"
soa = { mname = "ns.y.", rname = "h.y.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns.y."]
[[profile]]
name = "www"
names = ["www.x.test"]
method = "weighted"
[[profile.endpoint]]
name = "eu1"
address = ["192.0.2.1"]
weight = 5
[[profile.endpoint]]
name = "eu2"
address = ["192.0.2.2"]
status = "disabled"
[[profile.endpoint]]
name = "us1"
address = ["192.0.2.3"]
[[profile]]
name = "near"
names = ["near.x.test"]
method = "performance"
[[profile.endpoint]]
name = "a"
address = ["192.0.2.1"]
region = "eu"
[[profile.endpoint]]
name = "b"
address = ["192.0.2.2"]
region = "eu"
"#;
    let files = std::collections::BTreeMap::<String, Vec<u8>>::new();
    config::parse(text, "c.toml", &files).expect("valid").model
}

fn wanted(targets: &[&str], setting: Setting) -> Wanted {
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    Wanted { targets, setting, seconds: None, reason: None }
}

fn add(overrides: &mut Overrides, targets: &[&str], setting: Setting) -> Result<(), String> {
    overrides.add(&model(), &wanted(targets, setting), "root", NOW)
}

fn targets(overrides: &Overrides) -> Vec<String> {
    overrides.list().iter().map(|held| format!("{} {}", held.target, held.setting)).collect()
}

#[test]
fn settings_are_laid_over_the_configuration() {
    let mut overrides = Overrides::default();
    add(&mut overrides, &["www/eu*"], Setting::Status(State::Stopped)).unwrap();
    add(&mut overrides, &["www/us1", "www/us?"], Setting::Weight(9)).unwrap();
    add(&mut overrides, &["near"], Setting::Status(State::Disabled)).unwrap();
    assert_eq!(
        targets(&overrides),
        ["www/eu1 status stopped", "www/eu2 status stopped", "www/us1 weight 9", "near status disabled"]
    );
    let over = overrides.over(&model()).unwrap();
    let [www, near] = over.profiles() else { panic!("two profiles") };
    let statuses: Vec<AdminStatus> = www.endpoints.iter().map(|endpoint| endpoint.status).collect();
    assert_eq!(statuses, [AdminStatus::Stopped, AdminStatus::Stopped, AdminStatus::Enabled]);
    assert_eq!((www.endpoints[0].weight, www.endpoints[2].weight, near.enabled), (5, 9, false));
    assert!(!over.bindings().keys().any(|name| name.to_string() == "near.x.test."));

    let changed = changed(&model(), &over, overrides.list());
    assert_eq!(changed.len(), 4);
    assert_eq!(changed[1].before, Setting::Status(State::Disabled));
    assert_eq!((changed[2].before, changed[2].after), (Setting::Weight(1), Setting::Weight(9)));
}

#[test]
fn a_later_one_replaces_an_earlier_one_of_the_same_setting() {
    let mut overrides = Overrides::default();
    add(&mut overrides, &["www/*"], Setting::Status(State::Disabled)).unwrap();
    add(&mut overrides, &["www/eu1"], Setting::Weight(7)).unwrap();
    add(&mut overrides, &["www/eu1"], Setting::Status(State::Enabled)).unwrap();
    assert_eq!(
        targets(&overrides),
        ["www/eu2 status disabled", "www/us1 status disabled", "www/eu1 weight 7", "www/eu1 status enabled"]
    );
    overrides.clear(&["www/eu?".into()]).unwrap();
    assert_eq!(targets(&overrides), ["www/us1 status disabled"]);
    overrides.clear(&["w*".into()]).unwrap();
    assert!(overrides.list().is_empty());
    assert_eq!(overrides.over(&model()).unwrap(), model());
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut overrides = Overrides::default();
    add(&mut overrides, &["www/eu1"], Setting::Weight(7)).unwrap();
    let before = overrides.clone();
    for (targets, setting, why) in [
        (&["www/eu1", "www/asia*"][..], Setting::Weight(3), "\"www/asia*\" names no endpoint"),
        (&["wwww"], Setting::Status(State::Disabled), "\"wwww\" names no profile"),
        (&["www"], Setting::Status(State::Stopped), "www is a profile"),
        (&["www"], Setting::Weight(3), "www is a profile"),
        (&["www/eu1"], Setting::Dial(3), "www/eu1: dial is not used by the method \"weighted\""),
        (&["near/a"], Setting::Weight(3), "near/a: weight is not used by the method \"performance\""),
        (&["www/eu1"], Setting::Weight(0), "weight: found 0; allowed is 1 to 1000"),
        (&["near/a"], Setting::Dial(101), "dial: found 101; allowed is 0 to 100"),
        (&[], Setting::Dial(1), "nothing is named"),
    ] {
        let refused = add(&mut overrides, targets, setting).expect_err(why);
        assert!(refused.starts_with(why), "{refused}");
    }
    for reason in ["two\nlines", &"x".repeat(501)] {
        let wanted = Wanted {
            reason: Some(reason.to_owned()),
            ..wanted(&["www/eu1"], Setting::Status(State::Disabled))
        };
        assert!(overrides.add(&model(), &wanted, "root", NOW).is_err());
    }
    let refused = overrides.clear(&["www/us1".into()]).expect_err("none");
    assert!(refused.contains("there is no override on it"), "{refused}");
    assert_eq!(overrides, before);
}

#[test]
fn what_the_configuration_would_be_refused_for_is_refused() {
    let mut overrides = Overrides::default();
    add(&mut overrides, &["near/a"], Setting::Dial(50)).unwrap();
    let why = overrides.over(&model()).expect_err("two endpoints in a region with a dial");
    assert!(why.contains("region") || why.contains("dial"), "{why}");
}

#[test]
fn some_end_by_themselves() {
    let mut overrides = Overrides::default();
    let for_a_while = |target: &str, seconds| Wanted {
        seconds: Some(seconds),
        ..wanted(&[target], Setting::Status(State::Disabled))
    };
    overrides.add(&model(), &for_a_while("www/eu1", 60), "root", NOW).unwrap();
    overrides.add(&model(), &for_a_while("www/us1", 30), "root", NOW).unwrap();
    add(&mut overrides, &["near"], Setting::Status(State::Disabled)).unwrap();
    assert_eq!(overrides.next_end(), Some(NOW + Duration::from_secs(30)));
    assert!(overrides.expire(NOW + Duration::from_secs(29)).is_empty());
    let ended = overrides.expire(NOW + Duration::from_secs(30));
    assert_eq!((ended.len(), ended[0].target.as_str()), (1, "www/us1"));
    assert_eq!(overrides.expire(NOW + Duration::from_secs(600)).len(), 1);
    assert_eq!((targets(&overrides), overrides.next_end()), (vec!["near status disabled".to_owned()], None));
    assert!(overrides.add(&model(), &for_a_while("www/eu1", 0), "root", NOW).is_err());
}

#[test]
fn what_the_configuration_does_not_have_rests() {
    let mut overrides = Overrides::default();
    add(&mut overrides, &["www/eu1"], Setting::Weight(7)).unwrap();
    let held = overrides.list()[0].clone();
    assert!(!Overrides::rests(&held, &model()));
    let gone = Overrides(vec![Override { target: "www/gone".into(), ..held.clone() }]);
    assert!(Overrides::rests(&gone.list()[0], &model()));
    assert_eq!(gone.over(&model()).unwrap(), model());
    let other_method = Overrides(vec![Override { target: "near/a".into(), ..held }]);
    assert!(Overrides::rests(&other_method.list()[0], &model()));
    assert_eq!(other_method.over(&model()).unwrap(), model());
}

#[test]
fn they_are_kept_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = kept::path(&folder.path().join("state"));
    assert_eq!(kept::read(&path).unwrap(), Overrides::default());
    let mut overrides = Overrides::default();
    add(&mut overrides, &["www/eu1"], Setting::Status(State::Stopped)).unwrap();
    add(&mut overrides, &["www/eu1"], Setting::Weight(7)).unwrap();
    kept::write(&path, &overrides).unwrap();
    assert_eq!(kept::read(&path).unwrap(), overrides);
    for broken in ["", "{}", "{\"version\":9,\"overrides\":[]}", "{\"version\":1,\"overrides\":[{}]}"] {
        std::fs::write(&path, broken).unwrap();
        assert!(kept::read(&path).is_err(), "{broken}");
    }
}
