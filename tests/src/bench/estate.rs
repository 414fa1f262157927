//! A configuration of the size that the compiler is made for: 100,000 names in 10,000 profiles of all
//! methods, over a country table of the real world.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{Ipv4Subnets, Ipv6Subnets};
use router_common::geo_regions::parse_code;

use crate::random::Rng;

/// Profiles that are bound to names.
pub const PROFILES: usize = 10_000;
/// Names of each.
pub const NAMES: usize = 10;
/// The profile that most of them nest.
pub const POOL: &str = "pool";
/// An endpoint of one profile only.
pub const OWN: (&str, &str) = ("p1", "a");

/// Divisions of the world among geographic profiles that differ.
const GEOGRAPHIES: usize = 60;
/// Sets of prefixes of subnet profiles that differ.
const SUBNETS: usize = 200;
const REGIONS: usize = 8;
/// Prefixes of each family of a country table that is made up, as many as a real one has.
const MADE_UP: [usize; 2] = [380_000, 280_000];
/// Rows of the latency table for each region.
const LATENCIES: usize = 20_000;
const COUNTRIES: [&str; 30] = [
    "DE", "FR", "GB", "IE", "ES", "IT", "PL", "NL", "SE", "NO", "US", "CA", "MX", "BR", "AR", "CL", "CO",
    "JP", "KR", "CN", "IN", "ID", "AU", "NZ", "ZA", "EG", "NG", "KE", "TR", "SA",
];

/// A configuration and the files it names.
pub struct Estate {
    /// In TOML.
    pub text: String,
    /// By name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Profiles, and names of each.
    pub size: [usize; 2],
    /// Rows of the country table, by family.
    pub prefixes: [usize; 2],
    /// Where the country table is from.
    pub table: String,
}

impl Estate {
    /// With the country table of Debian's tor-geoipdb in `directory`, or a made one of its size.
    pub fn new(directory: &Path) -> Self {
        let mut rows = Rows::default();
        let read = |name: &str| std::fs::read_to_string(directory.join(name));
        let table = match (read("geoip"), read("geoip6")) {
            (Ok(ipv4), Ok(ipv6)) => {
                rows.read(&ipv4);
                rows.read(&ipv6);
                format!("{} (Debian's tor-geoipdb)", directory.display())
            }
            _ => {
                rows.make_up(MADE_UP);
                "made up: tor-geoipdb is not there".into()
            }
        };
        Self::over([PROFILES, NAMES], rows, table)
    }

    /// With so many profiles of so many names each, and a country table made up of so many prefixes of each family.
    pub fn made_up(size: [usize; 2], prefixes: [usize; 2]) -> Self {
        let mut rows = Rows::default();
        rows.make_up(prefixes);
        Self::over(size, rows, "made up".into())
    }

    fn over([profiles, names]: [usize; 2], rows: Rows, table: String) -> Self {
        let mut files = BTreeMap::new();
        files.insert("countries.csv".into(), rows.text.into_bytes());
        files.insert("latency.csv".into(), latency().into_bytes());
        Self { text: text(profiles, names), files, size: [profiles, names], prefixes: rows.count, table }
    }

    /// A name by its number, of an estate whose profiles have so many names.
    pub fn name(number: usize, names: usize) -> String {
        format!("host{}.service{}.gslb.example.com", number % names, number / names)
    }
}

/// `prefix,code` rows.
#[derive(Default)]
struct Rows {
    text: String,
    count: [usize; 2],
}

impl Rows {
    /// Lines `first,last,country`, the addresses as numbers (IPv4) or in text (IPv6).
    fn read(&mut self, table: &str) {
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split(',');
            let (Some(first), Some(last), Some(code)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            if parse_code(code).is_err() {
                continue;
            }
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                for net in Ipv4Subnets::new(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last), 0) {
                    self.push(0, &net.to_string(), code);
                }
            } else if let (Ok(first), Ok(last)) = (first.parse::<Ipv6Addr>(), last.parse::<Ipv6Addr>()) {
                for net in Ipv6Subnets::new(first, last, 0) {
                    self.push(1, &net.to_string(), code);
                }
            }
        }
    }

    /// So many prefixes of 256 addresses and of /48, scattered over the countries.
    fn make_up(&mut self, [ipv4, ipv6]: [usize; 2]) {
        let mut rng = Rng::new(1);
        let step = 0xde00_0000 / ipv4.max(1) as u32;
        for at in 0..ipv4 as u32 {
            let address = Ipv4Addr::from_bits((0x0100_0000 + at * step) & 0xffff_ff00);
            self.push(0, &format!("{address}/24"), rng.of(&COUNTRIES));
        }
        for at in 0..ipv6 as u128 {
            let address = Ipv6Addr::from_bits(0x2a00 << 112 | at << 82);
            self.push(1, &format!("{address}/48"), rng.of(&COUNTRIES));
        }
    }

    fn push(&mut self, family: usize, net: &str, code: &str) {
        let _ = writeln!(self.text, "{net},{code}");
        self.count[family] += 1;
    }
}

/// Rows that give each of many prefixes a latency to each region.
fn latency() -> String {
    let mut rng = Rng::new(2);
    let mut text = String::new();
    for at in 0..LATENCIES as u32 {
        let net = Ipv4Addr::from_bits(0x0100_0000 + at * 0x2000);
        let near = rng.below(REGIONS);
        for region in 0..REGIONS {
            let _ = writeln!(text, "{net}/19,r{region},{}", 10 + 20 * ((region + REGIONS - near) % REGIONS));
        }
    }
    text
}

fn text(profiles: usize, names: usize) -> String {
    let mut text = String::from(
        r#"
[server]
interfaces = []
listen = ["192.0.2.53:53", "[2001:db8::53]:53"]
[geo]
overrides = "countries.csv"
[latency]
table = "latency.csv"
[[zone]]
name = "gslb.example.com"
soa = { mname = "ns1.gslb.example.com.", rname = "hostmaster.example.com.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }
ns = ["ns1.gslb.example.com."]
ttl = 3600
[[profile]]
name = "pool"
method = "weighted"
ttl = 20
monitor = { protocol = "tcp", port = 80 }
[[profile.endpoint]]
name = "a"
address = ["203.0.113.1", "2001:db8:ffff::1"]
weight = 3
[[profile.endpoint]]
name = "b"
address = ["203.0.113.2", "2001:db8:ffff::2"]
"#,
    );
    let mut rng = Rng::new(3);
    for at in 0..profiles {
        profile(&mut text, at, names, &mut rng);
    }
    text
}

fn profile(text: &mut String, at: usize, names: usize, rng: &mut Rng) {
    let methods = ["priority", "weighted", "performance", "geographic", "multivalue", "subnet"];
    let method = methods[at % methods.len()];
    let names: Vec<String> =
        (0..names).map(|name| format!("\"host{name}.service{at}.gslb.example.com\"")).collect();
    let _ = write!(
        text,
        "[[profile]]\nname = \"p{at}\"\nnames = [{}]\nmethod = \"{method}\"\nttl = 30\n\
         monitor = {{ protocol = \"tcp\", port = 80 }}\n",
        names.join(", ")
    );
    let mut endpoint = |name: &str, extra: &str| {
        let (number, salt) = (at as u32 * 4, name.len() as u32 + u32::from(name.as_bytes()[0] - b'a'));
        let ipv4 = Ipv4Addr::from_bits(0x2c00_0000 + number + salt);
        let ipv6 = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number + salt));
        let target = match name {
            "pool" => "profile = \"pool\"".to_owned(),
            "shared" => "address = [\"203.0.113.1\", \"2001:db8:ffff::1\"]".to_owned(),
            _ => format!("address = [\"{ipv4}\", \"{ipv6}\"]"),
        };
        let _ = write!(text, "[[profile.endpoint]]\nname = \"{name}\"\n{target}\n{extra}\n");
    };
    match method {
        "priority" => {
            endpoint("pool", "");
            endpoint("a", "");
        }
        "weighted" => {
            endpoint("a", &format!("weight = {}", 1 + rng.below(10)));
            endpoint("b", "weight = 2");
            endpoint("pool", "");
        }
        "performance" => {
            let first = rng.below(REGIONS);
            for (step, name) in ["a", "b", "pool"].iter().enumerate() {
                endpoint(name, &format!("region = \"r{}\"", (first + step * 3) % REGIONS));
            }
        }
        "geographic" => {
            let variant = rng.below(GEOGRAPHIES);
            let [one, other] = [variant % COUNTRIES.len(), (variant * 7 + 13) % COUNTRIES.len()];
            let other = if one == other { (other + 1) % COUNTRIES.len() } else { other };
            endpoint("a", "geo = [\"GEO-EU\", \"GEO-ME\"]");
            endpoint("b", &format!("geo = [\"{}\", \"{}\"]", COUNTRIES[one], COUNTRIES[other]));
            endpoint("pool", "geo = [\"WORLD\"]");
        }
        "multivalue" => ["a", "b", "c", "shared"].iter().for_each(|name| endpoint(name, "")),
        _ => {
            let set = rng.below(SUBNETS);
            let nets: Vec<String> =
                (0..4).map(|part| format!("\"{}.{}.0.0/16\"", 60 + part * 10, set)).collect();
            endpoint("a", &format!("subnets = [{}]", nets.join(", ")));
            endpoint("pool", "");
        }
    }
}
