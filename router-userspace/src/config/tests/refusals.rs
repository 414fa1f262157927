//! Bad configurations and the exact text they are refused with.

use super::*;

/// A profile in a zone, which is in lines 1 to 4; the given lines begin in line 5.
fn profile(lines: &str) -> Vec<String> {
    refused(&with_zone(lines))
}

#[test]
fn toml_itself() {
    assert_eq!(refused("a = \n[[zone]\n"), ["x"]);
    assert_eq!(refused("[server]\nlisten = [\"192.0.2.1:53\"]\nlisten = []\n"), ["x"]);
    assert_eq!(refused("[server]\n[server]\n"), ["x"]);
}

#[test]
fn smoke() {
    let p = profile(
        "[[profile]]\nname=\"a\"\nmethod=\"weighted\"\n[[profile.endpoint]]\nname=\"e\"\naddress=[\"192.0.2.1\"]\nwieght = 10\nweight=0\n",
    );
    assert_eq!(p, ["x"]);
}
