//! The dashboard and the alert rules name metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

use super::documented;

const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/grafana/xroute.json");
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus/xroute.rules.yml");

/// Names of metrics in a text, as the documentation has them.
fn named(text: &str) -> BTreeSet<String> {
    let known: BTreeSet<String> = documented().into_iter().collect();
    let word = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    text.split(|character| !word(character))
        .filter(|name| name.starts_with("xroute_") || name.starts_with("process_"))
        .map(|name| {
            // A histogram's series.
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
            family.filter(|family| known.contains(*family)).unwrap_or(name).to_owned()
        })
        .collect()
}

fn unknown(named: &BTreeSet<String>) -> Vec<&String> {
    let known = documented();
    named.iter().filter(|name| !known.contains(name)).collect()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().expect("panels")
}

#[test]
fn the_dashboard_names_metrics_that_there_are() {
    let text = std::fs::read_to_string(DASHBOARD).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut ids = BTreeSet::new();
    let mut all = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title} has the id of another");
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let named = named(target["expr"].as_str().expect("an expression"));
            assert!(!named.is_empty(), "{title} asks for nothing of ours");
            assert!(unknown(&named).is_empty(), "{title} names {:?}", unknown(&named));
            all.extend(named);
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    assert!(variables.iter().any(|variable| variable["type"] == "datasource"));
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let named = named(variable["definition"].as_str().expect("a query"));
        assert!(!named.is_empty() && unknown(&named).is_empty(), "{variable}");
    }
    for wanted in [
        "xroute_failover_seconds",
        "xroute_client_subnet_queries_total",
        "xroute_endpoint_answers_total",
        "xroute_endpoint_expected_share",
    ] {
        assert!(all.contains(wanted), "the dashboard does not show {wanted}");
    }
}

#[test]
fn panels_do_not_lie_on_each_other() {
    let text = std::fs::read_to_string(DASHBOARD).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let at = |what: &str| panel["gridPos"][what].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for y in at("y")..at("y") + at("h") {
            for x in at("x")..at("x") + at("w") {
                assert!(taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
    }
}

#[test]
fn alert_rules_name_metrics_that_there_are() {
    let text = std::fs::read_to_string(RULES).expect("the rules");
    let named: BTreeSet<String> =
        named(&text).into_iter().filter(|name| !name.contains(':') && name != "xroute_").collect();
    assert!(named.len() > 10 && unknown(&named).is_empty(), "{:?}", unknown(&named));
}
