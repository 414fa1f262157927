//! A writer of MaxMind's file format, version 2.0 (<https://maxmind.github.io/MaxMind-DB/>), as much as a table of
//! countries needs: so that xroute, gdnsd and PowerDNS read the same file.

use ipnet::IpNet;

/// Continent and country of a prefix.
pub struct Place<'a> {
    /// `continent.code`.
    pub continent: &'a str,
    /// `country.iso_code`.
    pub country: &'a str,
}

/// Octets between the tree and the data.
const GAP: u32 = 16;
/// A record that leads nowhere, until the number of nodes is known.
const NOWHERE: u32 = u32::MAX;
/// A record that leads to data has this bit; the rest is an offset.
const DATA: u32 = 1 << 31;
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// A tree that grows.
pub struct Writer {
    nodes: Vec<[u32; 2]>,
    data: Vec<u8>,
    /// Places that have data, and where.
    places: Vec<(String, u32)>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { nodes: vec![[NOWHERE; 2]], data: Vec::new(), places: Vec::new() }
    }
}

impl Writer {
    /// Adds a prefix; what lies in one that was added before wins there.
    pub fn add(&mut self, net: IpNet, place: &Place<'_>) {
        let value = DATA | self.place(place);
        // IPv4 is found under ::/96.
        let (address, len) = match net {
            IpNet::V4(net) => (u128::from(net.addr().to_bits()), 96 + net.prefix_len()),
            IpNet::V6(net) => (net.addr().to_bits(), net.prefix_len()),
        };
        let mut node = 0;
        for depth in 0..len {
            let side = usize::from(address >> (127 - depth) & 1 == 1);
            if depth + 1 == len {
                self.nodes[node][side] = value;
                return;
            }
            let next = self.nodes[node][side];
            node = if next & DATA == 0 {
                next as usize
            } else {
                // A leaf becomes a node whose halves are as it was.
                self.nodes.push([next; 2]);
                let made = self.nodes.len() - 1;
                self.nodes[node][side] = made as u32;
                made
            };
        }
    }

    fn place(&mut self, place: &Place<'_>) -> u32 {
        if let Some((_, at)) = self.places.iter().find(|(country, _)| country == place.country) {
            return *at;
        }
        let at = self.data.len() as u32;
        let fields = [("continent", "code", place.continent), ("country", "iso_code", place.country)];
        self.data.push(control(MAP, fields.len()));
        for (outer, inner, value) in fields {
            text(&mut self.data, outer);
            self.data.push(control(MAP, 1));
            text(&mut self.data, inner);
            text(&mut self.data, value);
        }
        self.places.push((place.country.to_owned(), at));
        at
    }

    /// The file.
    pub fn finish(self) -> Vec<u8> {
        let count = self.nodes.len() as u32;
        let mut out = Vec::with_capacity(self.nodes.len() * 8 + self.data.len() + 512);
        for record in self.nodes.iter().flatten() {
            let record = match *record {
                NOWHERE => count,
                data if data & DATA != 0 => count + GAP + (data & !DATA),
                node => node,
            };
            out.extend(record.to_be_bytes());
        }
        out.extend([0; GAP as usize]);
        out.extend(&self.data);
        out.extend(MARKER);
        out.push(control(MAP, 9));
        text(&mut out, "binary_format_major_version");
        out.extend([control(UINT16, 1), 2]);
        text(&mut out, "binary_format_minor_version");
        out.push(control(UINT16, 0));
        text(&mut out, "build_epoch");
        // A type beyond 7 stands in an octet of its own, less 7.
        out.extend([1, UINT64 - 7, 1]);
        text(&mut out, "database_type");
        text(&mut out, "GeoLite2-Country");
        text(&mut out, "description");
        out.push(control(MAP, 1));
        text(&mut out, "en");
        text(&mut out, "countries");
        text(&mut out, "ip_version");
        out.extend([control(UINT16, 1), 6]);
        text(&mut out, "languages");
        out.extend([1, ARRAY - 7]);
        text(&mut out, "en");
        text(&mut out, "node_count");
        out.push(control(UINT32, 4));
        out.extend(count.to_be_bytes());
        text(&mut out, "record_size");
        out.extend([control(UINT16, 1), 32]);
        out
    }
}

const TEXT: u8 = 2;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
const UINT64: u8 = 9;
const ARRAY: u8 = 11;

/// The control octet of something shorter than 29.
const fn control(kind: u8, size: usize) -> u8 {
    kind << 5 | size as u8
}

fn text(out: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() < 29, "the form for short texts");
    out.push(control(TEXT, text.len()));
    out.extend(text.as_bytes());
}
