//! Every input that the fuzzers keep (`fuzz/corpus`), run once without them: among them is each that made a
//! target crash.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use router_tests::fuzz::TARGETS;

#[test]
fn every_kept_input_of_the_fuzz_targets() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let listed = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed(&corpus), known, "a corpus for each target");
    let mut failed = Vec::new();
    let mut size = 0;
    for (name, target) in TARGETS {
        let folder = corpus.join(name);
        let inputs = listed(&folder);
        assert!(inputs.len() > 5, "{name}: {} inputs", inputs.len());
        for input in inputs {
            let octets = fs::read(folder.join(&input)).unwrap();
            size += octets.len();
            if catch_unwind(|| target(&octets)).is_err() {
                failed.push(format!("{name}/{input}"));
            }
        }
    }
    assert!(failed.is_empty(), "these inputs break their targets: {failed:?}");
    assert!(size < 2_000_000, "a kept corpus of {size} octets: merge it (CONTRIBUTING.md)");
}
