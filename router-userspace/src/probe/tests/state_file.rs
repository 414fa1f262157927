//! Files as probes, written as other tools write them.

use std::path::Path;
use std::time::Duration;

use router_common::health::{Outcome, ProbeFault};
use router_common::model::{ProbeTarget, StateFile};

use crate::probe::{Prober, Settings};

/// More than a look is good for.
const LATER: Duration = Duration::from_millis(150);

fn target(path: &Path, endpoint: &str) -> ProbeTarget {
    ProbeTarget::File(StateFile { file: path.display().to_string(), endpoint: endpoint.to_owned() })
}

#[tokio::test]
async fn each_content_has_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("states.json");
    let prober = Prober::new(Settings::default());
    let blind = Outcome::Fault(ProbeFault::Blind);
    let replaced = |text: &str| {
        std::fs::write(folder.path().join("new"), text).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
    };
    let in_place = |text: &str| std::fs::write(&path, text).unwrap();
    type Writing<'w> = &'w dyn Fn(&str);
    let steps: [(Writing<'_>, &str, Outcome, Outcome); 9] = [
        (&|_| (), "", blind, blind),
        (
            &in_place,
            r#"{"www/eu1": "online", "www/us1": "degraded"}"#,
            Outcome::Stated(true),
            Outcome::Stated(false),
        ),
        (
            &replaced,
            r#"{"www/eu1": "degraded", "www/us1": "online"}"#,
            Outcome::Stated(false),
            Outcome::Stated(true),
        ),
        (&in_place, r#"{"www/eu1": "degraded"}"#, Outcome::Stated(false), blind),
        (&in_place, r#"{"www/eu1": "degr"#, blind, blind),
        (&in_place, "online\n", Outcome::Stated(true), Outcome::Stated(true)),
        (&in_place, "degraded", Outcome::Stated(false), Outcome::Stated(false)),
        (&|_| std::fs::remove_file(&path).unwrap(), "", blind, blind),
        (&|_| std::fs::create_dir(&path).unwrap(), "", blind, blind),
    ];
    for (i, (write, text, eu1, us1)) in steps.into_iter().enumerate() {
        write(text);
        tokio::time::sleep(LATER).await;
        for (endpoint, outcome) in [("www/eu1", eu1), ("www/us1", us1)] {
            let (observation, said) =
                prober.probe_with_words(&target(&path, endpoint), Duration::from_secs(5)).await;
            assert_eq!(observation.outcome, outcome, "step {i}, {endpoint}: {said:?}");
            assert_eq!(said.is_some(), outcome == blind, "step {i}");
        }
    }
}

#[tokio::test]
async fn one_look_serves_all_endpoints_of_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("states.json");
    std::fs::write(&path, r#"{"a/1": "online", "a/2": "online"}"#).unwrap();
    let prober = Prober::new(Settings::default());
    let first = prober.probe(&target(&path, "a/1"), Duration::from_secs(5)).await;
    std::fs::write(&path, r#"{"a/1": "degraded", "a/2": "degraded"}"#).unwrap();
    let second = prober.probe(&target(&path, "a/2"), Duration::from_secs(5)).await;
    assert_eq!((first.outcome, second.outcome), (Outcome::Stated(true), Outcome::Stated(true)));
    tokio::time::sleep(LATER).await;
    let third = prober.probe(&target(&path, "a/2"), Duration::from_secs(5)).await;
    assert_eq!(third.outcome, Outcome::Stated(false));
}
