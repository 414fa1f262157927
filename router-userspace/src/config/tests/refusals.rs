//! Bad configurations and the exact text they are refused with, from `refusals.txt`.

use super::*;

/// `## title`, the configuration, `->` and the lines it is refused with. `@zone` stands for a zone
/// x.example in four lines; `@profile METHOD` for a profile "a" of that method in three.
const TABLE: &str = include_str!("refusals.txt");

fn expand(config: &str) -> String {
    let mut text = String::new();
    for line in config.lines() {
        match line.split_once(' ') {
            Some(("@profile", method)) => {
                text += &format!("[[profile]]\nname = \"a\"\nmethod = \"{method}\"\n");
            }
            _ if line == "@zone" => text += &with_zone(""),
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

#[test]
fn each_is_refused_with_exactly_this() {
    let mut wrong = String::new();
    let mut cases = 0;
    for case in TABLE.split("\n## ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (config, expected) = rest.split_once("->\n").unwrap();
        let found = refused(&expand(config)).join("\n");
        cases += 1;
        if found != expected.trim_end() {
            wrong += &format!("\n## {title}\n{config}->\n{found}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cases >= 40, "{cases} cases only");
}

#[test]
fn mistakes_of_included_files_name_the_right_file() {
    let found = refused_with(
        "include = [\"p/*.toml\", \"none.toml\", \"p*/x\"]\n[server]\nlisten = []\n",
        &[
            ("p/b.toml", "[[profile]]\nname = \"b\"\nmethod = \"best\"\n"),
            (
                "p/a.toml",
                "[server]\nlisten = [\"192.0.2.1:53\"]\n[cookies]\n[rate_limit]\n[[zone]]\nname = \"a.example\"\n\
                 file = \"a.zone\"\n",
            ),
            ("p/a.zone", "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2\n"),
        ],
    );
    assert_eq!(
        found,
        [
            "c.toml:1:24: include: cannot read none.toml: no such file",
            "c.toml:1:37: include: \"p*/x\": \"*\" and \"?\" are allowed in the last part only",
            "c.toml:3:10: listen: no address to listen on",
            "p/a.toml:1:2: server is allowed in the main file only",
            "p/a.toml:3:2: cookies is allowed in the main file only",
            "p/a.toml:4:2: rate_limit is allowed in the main file only",
            "p/a.zone:4:6: \"192.0.2\" is not an IPv4 address",
            "p/b.toml:3:10: method: found \"best\"; allowed are \"priority\", \"weighted\", \"performance\", \
             \"geographic\", \"multivalue\", \"subnet\"",
        ]
    );
}

#[test]
fn named_files_that_are_missing_or_wrong() {
    let found = refused_with(
        "[geo]\ndatabase = \"city.mmdb\"\noverrides = \"geo.csv\"\n[latency]\ntable = \"none.csv\"\n",
        &[("city.mmdb", "GIF89a"), ("geo.csv", "10.0.0.0/8,Mars\n")],
    );
    assert_eq!(
        found,
        [
            "c.toml:2:12: database: city.mmdb is not a geo database: invalid database: could not find MaxMind DB \
             metadata in file",
            "c.toml:5:9: table: cannot read none.csv: no such file",
            "geo.csv:1:12: \"Mars\" is not a geographic code; allowed are WORLD, a grouping (GEO-EU), a country \
             (IE) or a state (US-CA), in capitals",
        ]
    );
}

#[test]
fn secrets_that_are_none_are_told_and_not_shown() {
    let with = |file: &str| {
        let text = "[cookies]\nenabled = true\nsecret_file = \"cookies.secret\"\n";
        refused_with(text, &[("cookies.secret", file)])
    };
    let (a, b, c, d) = ("a".repeat(32), "B".repeat(32), "0".repeat(32), "9".repeat(32));
    assert_eq!(with(&format!("# new\n\n{a}\r\n  {b} \n{c}")), ["accepted"]);
    assert_eq!(
        with(" \n# none\n"),
        ["cookies.secret: no secret in it; a line of 32 hexadecimal digits is wanted"]
    );
    assert_eq!(
        with(&format!("{}\n{}\n{a}\n{b}\nsecret = {c}\n{}", &a[1..], "g".repeat(32), a.to_uppercase())),
        [
            "cookies.secret:1: a secret is 32 hexadecimal digits; this line has 31 octets",
            "cookies.secret:2: a secret is 32 hexadecimal digits; this line has 32 octets that are not all digits",
            "cookies.secret:5: a secret is 32 hexadecimal digits; this line has 41 octets",
            "cookies.secret:6: this secret stands in the file already",
        ]
    );
    assert_eq!(with(&[&*a, &b, &c, &d].join("\n")), ["cookies.secret:4: one secret too many; allowed are 3"]);
}

#[test]
fn what_identifies_a_server_has_at_most_255_octets() {
    let with = |nsid: &str| {
        refused(&format!("[server]\nlisten = [\"192.0.2.1:53\"]\nnsid = \"{nsid}\"\nversion = \"{nsid}\"\n"))
    };
    assert_eq!(with(&"x".repeat(255)), ["accepted"]);
    assert_eq!(
        with(&"x".repeat(256)),
        [
            "c.toml:3:8: nsid: found 256 octets; allowed are 1 to 255",
            "c.toml:4:11: version: found 256 octets; allowed are 1 to 255",
        ]
    );
}

#[test]
fn authorities_that_are_none() {
    let with = |pem: &str| {
        let text = with_zone(
            "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\nmonitor = { protocol = \"https\", ca = \"ca.pem\" }\n\
             [[profile.endpoint]]\nname = \"e\"\naddress = [\"192.0.2.1\"]\n",
        );
        refused_with(&text, &[("ca.pem", pem)]).join("\n")
    };
    let empty = "c.toml:8:38: ca: ca.pem holds no certificate in PEM (-----BEGIN CERTIFICATE-----)";
    assert_eq!(with(""), empty);
    assert_eq!(with("some text"), empty);
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(with(key), empty);
    let authority = super::monitors::authority();
    assert_eq!(with(&authority), "accepted");
    let text = with_zone(
        "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\nmonitor = { protocol = \"https\", verify = false, ca = \
         \"ca.pem\" }\n",
    );
    assert_eq!(
        refused_with(&text, &[("ca.pem", &authority)]),
        ["c.toml:8:54: ca: found beside verify = false, which accepts any certificate"]
    );
    for (body, word) in [("AAAA\n", "certificate 1: "), ("!!!!\n", "certificate 1: ")] {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n");
        let said = with(&pem);
        assert!(said.starts_with("c.toml:8:38: ca: ca.pem: ") && said.contains(word), "{said}");
    }
}
