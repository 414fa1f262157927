use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

/// A value of the MaxMind DB data section.
enum Value {
    Text(&'static str),
    Number(f64),
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
    U16(u16),
    U32(u32),
    U64(u64),
}

/// Encodes by the format's specification, version 2.0: control octet with type and size, then payload.
fn encode(value: &Value, out: &mut Vec<u8>) {
    let head = |kind: u8, size: usize, out: &mut Vec<u8>| {
        let small = size.min(29) as u8;
        out.push(if kind < 8 { kind << 5 | small } else { small });
        if kind >= 8 {
            out.push(kind - 7);
        }
        if size >= 29 {
            out.push((size - 29) as u8);
        }
    };
    match value {
        Value::Text(text) => {
            head(2, text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Number(number) => {
            head(3, 8, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::Map(fields) => {
            head(7, fields.len(), out);
            for (key, value) in fields {
                encode(&Value::Text(key), out);
                encode(value, out);
            }
        }
        Value::List(items) => {
            head(11, items.len(), out);
            items.iter().for_each(|item| encode(item, out));
        }
        Value::U16(number) => {
            head(5, 2, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::U32(number) => {
            head(6, 4, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::U64(number) => {
            head(9, 8, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A database with these records, its tree over IPv6 with IPv4 at `::/96`, as MaxMind builds them.
fn database_of(records: &[(&str, Value)]) -> Vec<u8> {
    let mut nodes: Vec<[Option<Leaf>; 2]> = vec![[None, None]];
    #[derive(Clone, Copy)]
    enum Leaf {
        Node(usize),
        Data(usize),
    }
    let mut section = Vec::new();
    for (prefix, value) in records {
        let offset = section.len();
        encode(value, &mut section);
        let net: IpNet = prefix.parse().unwrap();
        let (bits, len) = match net.addr() {
            IpAddr::V4(address) => (u128::from(u32::from(address)), net.prefix_len() + 96),
            IpAddr::V6(address) => (u128::from(address), net.prefix_len()),
        };
        let mut at = 0;
        for depth in 0..len {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                nodes[at][side] = Some(Leaf::Data(offset));
            } else if let Some(Leaf::Node(next)) = nodes[at][side] {
                at = next;
            } else {
                nodes.push([None, None]);
                nodes[at][side] = Some(Leaf::Node(nodes.len() - 1));
                at = nodes.len() - 1;
            }
        }
    }
    let mut file = Vec::new();
    for node in &nodes {
        for side in node {
            let word = match side {
                None => nodes.len(),
                Some(Leaf::Node(next)) => *next,
                Some(Leaf::Data(offset)) => nodes.len() + 16 + offset,
            };
            file.extend_from_slice(&(word as u32).to_be_bytes());
        }
    }
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&section);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = Value::Map(vec![
        ("node_count", Value::U32(nodes.len() as u32)),
        ("record_size", Value::U16(32)),
        ("ip_version", Value::U16(6)),
        ("database_type", Value::Text("GeoLite2-City")),
        ("languages", Value::List(vec![Value::Text("en")])),
        ("binary_format_major_version", Value::U16(2)),
        ("binary_format_minor_version", Value::U16(0)),
        ("build_epoch", Value::U64(1_700_000_000)),
        ("description", Value::Map(vec![("en", Value::Text("test"))])),
    ]);
    encode(&metadata, &mut file);
    file
}

fn city(country: &'static str, state: Option<&'static str>, place: Option<(f64, f64)>) -> Value {
    let mut fields = vec![("country", Value::Map(vec![("iso_code", Value::Text(country))]))];
    if let Some(state) = state {
        fields.push(("subdivisions", Value::List(vec![Value::Map(vec![("iso_code", Value::Text(state))])])));
    }
    if let Some((latitude, longitude)) = place {
        let place = vec![("latitude", Value::Number(latitude)), ("longitude", Value::Number(longitude))];
        fields.push(("location", Value::Map(place)));
    }
    Value::Map(fields)
}

fn shown(rows: &[(IpNet, GeoFacts)]) -> Vec<String> {
    rows.iter()
        .map(|(net, facts)| {
            let text = |octets: &[u8]| String::from_utf8_lossy(octets).trim_end_matches('\0').to_owned();
            let mut line = net.to_string();
            if let Some(country) = facts.country {
                line += &format!(" {}", text(&country));
            }
            if let Some(state) = facts.state {
                line += &format!("-{}", text(&state));
            }
            if let Some(place) = facts.coordinates {
                line += &format!(" {},{}", place.latitude, place.longitude);
            }
            line
        })
        .collect()
}

fn sample() -> Vec<u8> {
    database_of(&[
        ("198.51.100.0/26", city("IE", Some("L"), Some((53.3, -6.3)))),
        ("198.51.100.64/26", city("IE", Some("M"), Some((51.9, -8.5)))),
        ("198.51.100.128/25", city("IE", None, None)),
        ("203.0.113.0/25", city("us", Some("CA"), Some((37.0, -122.0)))),
        ("203.0.113.128/25", city("US", Some("NY"), Some((91.0, 0.0)))),
        ("2001:db8:1::/48", city("CA", Some("AB"), None)),
        (
            "2001:db8:2::/48",
            Value::Map(vec![
                ("registered_country", Value::Map(vec![("iso_code", Value::Text("AU"))])),
                ("subdivisions", Value::List(vec![Value::Map(vec![("iso_code", Value::Text("NSW"))])])),
            ]),
        ),
        ("2001:db8:3::/48", Value::Map(vec![("traits", Value::Map(vec![]))])),
    ])
}

#[test]
fn codes_are_kept_and_neighbours_merged() {
    let rows = database(&sample(), Wanted { codes: true, coordinates: false }).unwrap();
    assert_eq!(
        shown(&rows),
        [
            "198.51.100.0/24 IE",
            "203.0.113.0/25 US-CA",
            "203.0.113.128/25 US-NY",
            "2001:db8:1::/48 CA-AB",
            "2001:db8:2::/48 AU",
        ]
    );
}

#[test]
fn coordinates_are_kept_when_they_are_on_earth() {
    let rows = database(&sample(), Wanted { codes: false, coordinates: true }).unwrap();
    assert_eq!(
        shown(&rows),
        ["198.51.100.0/26 53.3,-6.3", "198.51.100.64/26 51.9,-8.5", "203.0.113.0/25 37,-122"]
    );
}

#[test]
fn nothing_is_read_that_nobody_asks_for() {
    assert_eq!(database(&sample(), Wanted::default()).unwrap(), []);
    assert!(database(b"not a database", Wanted::default()).is_err());
}

#[test]
fn a_broken_database_is_a_message() {
    let file = sample();
    for cut in 0..file.len() {
        let _ = database(&file[..cut], Wanted { codes: true, coordinates: true });
    }
    assert!(database(&file[40..], Wanted { codes: true, coordinates: true }).is_err());
}

#[test]
fn overrides_read() {
    let rows =
        overrides("g.csv", b"prefix,code\n10.0.0.0/8,US-CA\n2001:db8::/32,GEO-EU\n192.0.2.0/24,WORLD\n");
    let shown: Vec<String> = rows.unwrap().iter().map(|(net, code)| format!("{net} {code}")).collect();
    assert_eq!(shown, ["10.0.0.0/8 US-CA", "2001:db8::/32 GEO-EU", "192.0.2.0/24 WORLD"]);
}

proptest! {
    #[test]
    fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = overrides("g.csv", &octets);
        let _ = database(&octets, Wanted { codes: true, coordinates: true });
    }

    #[test]
    fn no_damaged_database_panics(at in any::<prop::sample::Index>(), octet in any::<u8>()) {
        let mut file = sample();
        let at = at.index(file.len());
        file[at] = octet;
        let _ = database(&file, Wanted { codes: true, coordinates: true });
    }
}
