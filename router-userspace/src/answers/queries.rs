//! How many queries there were for the names of each profile, as far as answers by endpoint tell.

use std::collections::HashMap;

use router_common::model::{Method, Model, Target};

use super::Totals;

/// Answers that were given to the names of each profile, by its name; none of them was NODATA. What a nested profile
/// answered for those that nest it is theirs. Answers with several endpoints are reckoned: there were at least as
/// many as the endpoint that was in most of them has, and as many as it takes when each had its full number.
pub fn queries(model: &Model, totals: &Totals) -> HashMap<String, u64> {
    let answers = |profile: &str, endpoint: &str| {
        totals.get(&format!("{profile}/{endpoint}")).map_or(0, super::Total::answers)
    };
    let mut given: HashMap<String, u64> = HashMap::new();
    let mut nested: HashMap<&str, u64> = HashMap::new();
    for profile in model.profiles() {
        let each = || profile.endpoints.iter().map(|endpoint| answers(&profile.name, &endpoint.name));
        let sum: u64 = each().fold(0, u64::saturating_add);
        let count = match profile.method {
            Method::Multivalue { max_return } => {
                each().max().unwrap_or(0).max(sum / u64::from(max_return).max(1))
            }
            _ => sum,
        };
        given.insert(profile.name.clone(), count);
        for endpoint in &profile.endpoints {
            if let Target::Profile(child) = &endpoint.target {
                let through = nested.entry(model.profile(*child).name.as_str()).or_default();
                *through = through.saturating_add(answers(&profile.name, &endpoint.name));
            }
        }
    }
    for (profile, through) in nested {
        if let Some(count) = given.get_mut(profile) {
            *count = count.saturating_sub(through);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Total;
    use crate::config;

    #[test]
    fn nested_answers_are_those_of_who_was_asked_and_sets_count_once() {
        let profile = |name: &str, more: &str| {
            format!(
                "[[profile]]\nname = \"{name}\"\nnames = [\"{name}.x.test\"]\nmonitor = \"off\"\n{more}\n"
            )
        };
        let endpoint =
            |name: &str, target: &str| format!("[[profile.endpoint]]\nname = \"{name}\"\n{target}\n");
        let text = String::from(
            "[[zone]]\nname = \"x.test\"\nns = [\"ns.y.\"]\n\
             soa = { mname = \"ns.y.\", rname = \"h.y.\", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }\n",
        ) + &profile("pool", "method = \"weighted\"")
            + &endpoint("a", "address = [\"192.0.2.1\"]")
            + &endpoint("b", "address = [\"192.0.2.2\"]")
            + &profile("top", "method = \"priority\"")
            + &endpoint("pool", "profile = \"pool\"")
            + &profile("many", "method = \"multivalue\"\nmax_return = 2")
            + &endpoint("c", "address = [\"192.0.2.3\"]")
            + &endpoint("d", "address = [\"192.0.2.4\"]")
            + &endpoint("e", "address = [\"192.0.2.5\"]");
        let files = std::collections::BTreeMap::<String, Vec<u8>>::new();
        let model = config::parse(&text, "c.toml", &files).expect("a configuration").model;
        let total =
            |path: &str, fast, userspace| (path.to_owned(), Total { fast, userspace, ..Total::default() });
        // 30 for the pool's own name and 70 for what nests it; 30 pairs of three.
        let totals = Totals::from([
            total("pool/a", 50, 10),
            total("pool/b", 40, 0),
            total("top/pool", 60, 10),
            total("many/c", 20, 0),
            total("many/d", 20, 0),
            total("many/e", 20, 0),
            total("gone/x", 7, 0),
        ]);
        let expected =
            [("pool", 30), ("top", 70), ("many", 30)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(queries(&model, &totals), HashMap::from(expected));
    }
}
