//! Configurations that must not load, with messages that name what is at fault.

use std::path::Path;

use router_tests::scenario;

#[test]
fn every_bad_configuration_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut faults = Vec::new();
    let mut run = 0;
    for (file, scenario) in scenario::all(&folder).unwrap() {
        for refusal in &scenario.refusals {
            run += 1;
            if let Some(fault) = refusal.fault(scenario.load_text(&refusal.config)) {
                faults.push(format!("{file}: {}: {fault}", refusal.why));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(run >= 5, "{run} refusals only");
}
