//! Health given by hand, in place of the monitors: `explain --state`, and the scenarios of the tests.

use std::collections::BTreeMap;

use router_common::model::{EndpointId, Model, ProfileId, Target};
use router_common::view::{Health, HealthView};

use crate::fault::nearest;

/// The words for a monitor's verdict.
const WORDS: [(&str, Health); 3] =
    [("online", Health::Healthy), ("degraded", Health::Unhealthy), ("checking", Health::Checking)];

/// Reads a JSON object such as `{"www/eu1": "degraded", "www/us1": "checking"}`; endpoints that it does
/// not name are online.
///
/// # Errors
/// One message for each mistake: text that is no such object, endpoints that do not exist or are nested
/// profiles (whose health is their endpoints'), other words.
pub fn parse(model: &Model, json: &str) -> Result<HealthView, Vec<String>> {
    let states: BTreeMap<String, String> = serde_json::from_str(json)
        .map_err(|why| vec![format!("an object such as {{\"www/eu1\": \"degraded\"}} is wanted: {why}")])?;
    health(model, &states)
}

/// The same of words that were read elsewhere.
///
/// # Errors
/// As [`parse`].
pub fn health(model: &Model, states: &BTreeMap<String, String>) -> Result<HealthView, Vec<String>> {
    let mut view = HealthView::default();
    let mut known: BTreeMap<String, (EndpointId, bool)> = BTreeMap::new();
    for (i, profile) in model.profiles().iter().enumerate() {
        for (j, endpoint) in profile.endpoints.iter().enumerate() {
            let id = EndpointId { profile: ProfileId(i as u32), index: j as u32 };
            let nested = matches!(endpoint.target, Target::Profile(_));
            known.insert(model.endpoint_path(id), (id, nested));
            if !nested {
                view.verdicts.insert(id, Health::Healthy);
            }
        }
    }
    let mut wrong = Vec::new();
    for (path, word) in states {
        let verdict = WORDS.iter().find(|(known, _)| known == word).map(|&(_, verdict)| verdict);
        match (known.get(path), verdict) {
            (Some(&(id, false)), Some(verdict)) => {
                view.verdicts.insert(id, verdict);
            }
            (Some((_, true)), _) => {
                wrong.push(format!("{path:?} is a nested profile; its health is that of its own endpoints"));
            }
            (None, _) => {
                let hint = nearest(path, known.keys().map(String::as_str));
                let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                wrong.push(format!("there is no endpoint {path:?}{hint}"));
            }
            (_, None) => {
                let words = WORDS.map(|(word, _)| word).join(", ");
                wrong.push(format!("{path:?} is {word:?}; allowed are {words}"));
            }
        }
    }
    if wrong.is_empty() { Ok(view) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn model() -> Model {
        let text = "[[profile]]\nname = \"www\"\nmethod = \"weighted\"\nendpoint = [{ name = \"eu1\", address = \
                    \"192.0.2.1\" }, { name = \"pool\", profile = \"pool\" }]\n[[profile]]\nname = \
                    \"pool\"\nmethod = \"weighted\"\nendpoint = [{ name = \"a\", address = \"192.0.2.2\" }]\n";
        config::parse(text, "c.toml", &config::Disk).unwrap().model
    }

    #[test]
    fn unnamed_endpoints_are_online() {
        let view = parse(&model(), r#"{"pool/a": "degraded"}"#).unwrap();
        let id = |profile, index| EndpointId { profile: ProfileId(profile), index };
        assert_eq!(view.health(id(0, 0)), Health::Healthy);
        assert_eq!(view.health(id(1, 0)), Health::Unhealthy);
        assert_eq!(view.verdicts.len(), 2);
    }

    #[test]
    fn mistakes_are_told() {
        let wrong =
            parse(&model(), r#"{"pool/a": "down", "www/eu2": "online", "www/pool": "online"}"#).unwrap_err();
        assert_eq!(
            wrong,
            [
                "\"pool/a\" is \"down\"; allowed are online, degraded, checking",
                "there is no endpoint \"www/eu2\"; did you mean \"www/eu1\"?",
                "\"www/pool\" is a nested profile; its health is that of its own endpoints",
            ]
        );
        assert!(parse(&model(), "[]").unwrap_err()[0].starts_with("an object such as"));
    }
}
