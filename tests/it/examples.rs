//! The configurations that users start from.

use std::path::Path;

use router_userspace::config;

#[test]
fn every_example_loads_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut loaded = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let config = config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, Vec::<String>::new());
        assert!(!config.model.profiles().is_empty());
        loaded += 1;
    }
    assert!(loaded > 0);
}

/// The configuration that the package brings: valid, and it attaches, probes and sends to nothing.
#[test]
fn the_packages_configuration_is_quiet() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/xroute.toml");
    let config = config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.warnings, []);
    assert!(config.server.interfaces.is_empty());
    assert!(config.server.listen.iter().all(|address| address.ip().is_loopback()));
    assert!(router_userspace::probe::targets_of(&config.model).is_empty());
    assert!(config.server.dns.secondaries.is_empty());
}

/// The first configuration of the README is what people copy.
#[test]
fn the_readme_begins_with_a_configuration_that_loads_without_a_warning() {
    let readme = include_str!("../../README.md");
    let text = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let none = std::collections::BTreeMap::<String, Vec<u8>>::new();
    let config = config::parse(text, "README.md", &none).unwrap_or_else(|errors| panic!("{errors}"));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, Vec::<String>::new());
}
