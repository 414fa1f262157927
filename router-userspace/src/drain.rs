//! Taking an endpoint out of service: what that would do to clients, and what an operator has to know besides.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use router_common::decide::{Asked, Choice, Snapshot, choose};
use router_common::lookup::Client;
use router_common::model::{EndpointId, Model, ProfileId, Target};
use router_common::status::Statuses;

use crate::settings::Dns;

/// What harm it does to answer from `after` instead of from `before`, a line each. Both have the same profiles, and
/// differ in these endpoints.
pub fn harm(before: &Snapshot, after: &Snapshot, changed: &[EndpointId]) -> Vec<String> {
    let mut harm = Vec::new();
    let seeing: BTreeSet<ProfileId> =
        changed.iter().flat_map(|id| with_parents(&after.model, id.profile)).collect();
    let (old, new) =
        (Statuses::new(&before.model, &before.health), Statuses::new(&after.model, &after.health));
    for id in seeing {
        let profile = after.model.profile(id);
        let is_up = |statuses: &Statuses<'_>, asked| {
            let can = |id: &EndpointId| statuses.endpoint(*id).is_up() && statuses.can_answer(*id, asked);
            statuses.endpoints(id).any(|id| can(&id))
        };
        let lost = |asked: &Asked| is_up(&old, *asked) && !is_up(&new, *asked);
        let kept = [Asked::A, Asked::Aaaa].iter().any(|asked| is_up(&new, *asked));
        let lost: Vec<Asked> = [Asked::A, Asked::Aaaa].into_iter().filter(lost).collect();
        let of = match lost.as_slice() {
            [Asked::A] if kept => " with an IPv4 address",
            [Asked::Aaaa] if kept => " with an IPv6 address",
            [_, ..] => "",
            [] => {
                if goes_without(before, after, id) {
                    harm.push(format!("{}: clients would get no address that get one now", profile.name));
                }
                continue;
            }
        };
        let rest: Vec<&str> = new
            .endpoints(id)
            .filter(|&id| {
                new.endpoint(id).takes_part() && lost.iter().any(|&asked| new.can_answer(id, asked))
            })
            .map(|id| after.model.endpoint(id).name.as_str())
            .collect();
        let then = if rest.is_empty() {
            String::from("nothing is left to answer with")
        } else {
            format!("{} down, and all_down decides", are(&rest))
        };
        harm.push(format!("{}: no endpoint{of} that is up would be left; {then}", profile.name));
    }
    harm
}

fn are(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

/// Whether some client of a bound profile gets NODATA only afterwards.
fn goes_without(before: &Snapshot, after: &Snapshot, id: ProfileId) -> bool {
    let profile = after.model.profile(id);
    if profile.names.is_empty() || !profile.enabled {
        return false;
    }
    [Asked::A, Asked::Aaaa].into_iter().any(|asked| {
        let mut known: HashMap<(u32, u32), bool> = HashMap::new();
        let mut worse = |client: Client| {
            let places = (before.atlas.find(&client).location, after.atlas.find(&client).location);
            *known.entry(places).or_insert_with(|| {
                let choice = |snapshot: &Snapshot| choose(snapshot, id, asked, snapshot.atlas.facts(&client));
                has_nodata(&choice(after)) && !has_nodata(&choice(before))
            })
        };
        if !before.atlas.looks_at_client(id) {
            return worse(Client::ipv4([0; 4]));
        }
        // Without an endpoint there are no more places than with it.
        before.atlas.entries4().any(|(address, ..)| worse(Client::ipv4(address.octets())))
            || before.atlas.entries6().any(|(address, ..)| worse(Client::ipv6(address.octets())))
    })
}

fn has_nodata(choice: &Choice) -> bool {
    match choice {
        Choice::Answer { .. } => false,
        Choice::Nodata => true,
        Choice::Random(parts) => parts.iter().any(|(_, part)| has_nodata(part)),
        Choice::Hashed { of, .. } => of.iter().any(has_nodata),
    }
}

/// What else hands out what an endpoint answers with, a line each. `drained` says of others whether they are being
/// drained too.
pub fn elsewhere(model: &Model, dns: &Dns, id: EndpointId, drained: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut told = Vec::new();
    for (profile, found) in (0..).map(ProfileId).zip(model.profiles()) {
        for (index, endpoint) in (0..).zip(&found.endpoints) {
            let other = EndpointId { profile, index };
            let path = model.endpoint_path(other);
            let serves = found.enabled && endpoint.status == router_common::model::AdminStatus::Enabled;
            if other == id || !serves || drained(&path) {
                continue;
            }
            if let Some(same) = same(&model.endpoint(id).target, &endpoint.target) {
                told.push(format!("{same} is handed out as {path} too, which is not being drained"));
            }
        }
    }
    for zone in zones(model, id.profile) {
        let name = &model.zone(zone).name;
        if dns.secondaries.get(name).is_some_and(|secondaries| !secondaries.transfer.is_empty()) {
            told.push(format!(
                "secondaries of {name} answer with what they fetched last: they must have fetched the zone since, and \
                 its TTL must be over, too"
            ));
        }
    }
    told
}

/// What two targets have in common.
fn same(one: &Target, other: &Target) -> Option<String> {
    match (one, other) {
        (Target::Addresses { ipv4, ipv6 }, Target::Addresses { ipv4: other4, ipv6: other6 }) => {
            let ipv4 = ipv4.iter().find(|address| other4.contains(address)).copied().map(IpAddr::V4);
            let ipv6 = || ipv6.iter().find(|address| other6.contains(address)).copied().map(IpAddr::V6);
            ipv4.or_else(ipv6).map(|address| address.to_string())
        }
        (Target::Domain(one), Target::Domain(other)) => (one == other).then(|| one.to_string()),
        _ => None,
    }
}

/// Zones with names that can be answered by a profile, itself or nested.
fn zones(model: &Model, profile: ProfileId) -> BTreeSet<router_common::model::ZoneId> {
    let names = with_parents(model, profile).into_iter().flat_map(|id| &model.profile(id).names);
    names.filter_map(|name| Some(model.bindings().get(name)?.zone)).collect()
}

/// A profile, and all that nest it at any depth.
fn with_parents(model: &Model, profile: ProfileId) -> BTreeSet<ProfileId> {
    let (mut ahead, mut seen) = (vec![profile], BTreeSet::from([profile]));
    while let Some(profile) = ahead.pop() {
        ahead.extend(model.parents(profile).iter().map(|id| id.profile).filter(|&above| seen.insert(above)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use router_common::atlas::Atlas;
    use router_common::view::{Geography, Health, HealthView, Latency};

    use super::*;
    use crate::config;
    use crate::overrides::{self, Overrides, Setting, State, Wanted};

    const ZONE: &str = r#"
[[zone]]
name = "x.test"
soa = { mname = "ns.y.", rname = "h.y.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns.y."]
transfer = [{ address = "192.0.2.53" }]
"#;

    fn profile(name: &str, method: &str, endpoints: &[&str]) -> String {
        let head = format!(
            "[[profile]]\nname = \"{name}\"\nnames = [\"{name}.x.test\"]\nmethod = \"{method}\"\nmonitor = \"off\"\n"
        );
        endpoints.iter().fold(head, |text, endpoint| text + "[[profile.endpoint]]\n" + endpoint + "\n")
    }

    const A: &str = "name = \"a\"\naddress = [\"192.0.2.1\", \"2001:db8::1\"]";
    const B: &str = "name = \"b\"\naddress = [\"192.0.2.2\"]";

    fn load(profiles: &str) -> config::Config {
        let files = BTreeMap::<String, Vec<u8>>::new();
        config::parse(&(ZONE.to_owned() + profiles), "c.toml", &files).expect("a configuration")
    }

    /// What it does to drain a target while the endpoints named are down.
    fn harm_of(profiles: &str, target: &str, down: &[&str]) -> Vec<String> {
        let base = load(profiles).model;
        let mut overrides = Overrides::default();
        let wanted = Wanted {
            targets: vec![target.to_owned()],
            setting: Setting::Status(State::Disabled),
            seconds: None,
            reason: None,
        };
        overrides.drain(&base, &wanted, "root", Duration::ZERO).expect("it can be drained");
        let snapshot = |model: Model| {
            let mut health = HealthView::default();
            for name in down {
                let id = overrides::endpoint_named(&model, name).expect("it is there");
                health.verdicts.insert(id, Health::Unhealthy);
            }
            let atlas = Arc::new(Atlas::build(&model, &Geography::default(), &Latency::default()));
            Snapshot { model: Arc::new(model), atlas, health: Arc::new(health) }
        };
        let after = overrides.over(&base).expect("a sound configuration");
        let changed = overrides::endpoint_named(&base, target).expect("it is there");
        harm(&snapshot(base), &snapshot(after), &[changed])
    }

    #[test]
    fn the_last_one_that_is_up_is_told_of() {
        let both = profile("www", "weighted", &[A, B]);
        assert_eq!(harm_of(&both, "www/b", &[]), [""; 0]);
        assert_eq!(
            harm_of(&both, "www/a", &[]),
            [
                "www: no endpoint with an IPv6 address that is up would be left; nothing is left to answer with"
            ]
        );
        let alone = profile("www", "weighted", &[A]);
        assert_eq!(
            harm_of(&alone, "www/a", &[]),
            ["www: no endpoint that is up would be left; nothing is left to answer with"]
        );
    }

    #[test]
    fn what_is_down_is_no_replacement() {
        let monitored = profile("www", "weighted", &[B, "name = \"c\"\naddress = [\"192.0.2.3\"]"])
            .replace("monitor = \"off\"", "[profile.monitor]\nprotocol = \"tcp\"\nport = 80");
        assert_eq!(
            harm_of(&monitored, "www/b", &["www/c"]),
            ["www: no endpoint that is up would be left; c is down, and all_down decides"]
        );
        assert_eq!(harm_of(&monitored, "www/c", &["www/c"]), [""; 0]);
    }

    #[test]
    fn a_parent_is_told_of_and_so_are_clients_that_only_one_is_for() {
        let nested = profile("pool", "weighted", &[A])
            + &profile("top", "priority", &["name = \"pool\"\nprofile = \"pool\""]);
        let told = harm_of(&nested, "pool/a", &[]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].starts_with("top: no endpoint that is up would be left"), "{told:?}");
        let offices = profile(
            "www",
            "subnet",
            &[
                "name = \"one\"\naddress = [\"192.0.2.1\"]\nsubnets = [\"198.51.100.0/24\"]",
                "name = \"two\"\naddress = [\"192.0.2.2\"]\nsubnets = [\"203.0.113.0/24\"]",
            ],
        );
        assert_eq!(harm_of(&offices, "www/one", &[]), ["www: clients would get no address that get one now"]);
        let rest = offices + "[[profile.endpoint]]\nname = \"rest\"\naddress = [\"192.0.2.3\"]\n";
        assert_eq!(harm_of(&rest, "www/one", &[]), [""; 0]);
    }

    #[test]
    fn the_same_address_elsewhere_and_secondaries_are_told_of() {
        let config = load(&(profile("www", "weighted", &[A, B]) + &profile("api", "weighted", &[A])));
        let id = overrides::endpoint_named(&config.model, "www/a").expect("it is there");
        let told = elsewhere(&config.model, &config.server.dns, id, &|_| false);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("192.0.2.1 is handed out as api/a too"), "{told:?}");
        assert!(told[1].starts_with("secondaries of x.test."), "{told:?}");
        assert_eq!(elsewhere(&config.model, &config.server.dns, id, &|path| path == "api/a").len(), 1);
    }
}
