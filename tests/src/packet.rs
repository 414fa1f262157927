//! Packets layer by layer: a builder in which every field can be wrong, and a strict parser for replies.
//!
//! Nothing here is shared with the product, so that a mistake there cannot hide a mistake here: names,
//! options and checksums are written from the RFCs again.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Type codes used in queries.
pub mod rtype {
    /// A.
    pub const A: u16 = 1;
    /// CNAME.
    pub const CNAME: u16 = 5;
    /// SOA.
    pub const SOA: u16 = 6;
    /// TXT.
    pub const TXT: u16 = 16;
    /// AAAA.
    pub const AAAA: u16 = 28;
    /// OPT.
    pub const OPT: u16 = 41;
}

/// A frame, outermost layer first. [`Frame::bytes`] fills in lengths and checksums that are not given.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Destination MAC address.
    pub to: [u8; 6],
    /// Source MAC address.
    pub from: [u8; 6],
    /// VLAN tags: TPID and control information, outermost first.
    pub tags: Vec<(u16, u16)>,
    /// EtherType; by default that of `ip`.
    pub ethertype: Option<u16>,
    /// The IP header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
    /// What UDP carries.
    pub payload: Vec<u8>,
    /// Octets behind the IP packet.
    pub padding: Vec<u8>,
}

/// An IP header.
#[derive(Clone, Debug)]
pub enum Ip {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

/// An IPv4 header.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    /// Version and header length; by default what fits.
    pub first: Option<u8>,
    /// Type of service.
    pub tos: u8,
    /// Total length; by default what fits.
    pub total_len: Option<u16>,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: u8,
    /// Header checksum; by default the right one.
    pub checksum: Option<u16>,
    /// Source.
    pub source: Ipv4Addr,
    /// Destination.
    pub destination: Ipv4Addr,
    /// Options, a multiple of four octets.
    pub options: Vec<u8>,
}

/// An IPv6 header.
#[derive(Clone, Debug)]
pub struct Ipv6 {
    /// Version, traffic class and flow label.
    pub first: u32,
    /// Payload length; by default what fits.
    pub payload_len: Option<u16>,
    /// Next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub destination: Ipv6Addr,
    /// Extension headers.
    pub extension: Vec<u8>,
}

/// A UDP header.
#[derive(Clone, Debug)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length; by default what fits.
    pub len: Option<u16>,
    /// Checksum.
    pub checksum: Checksum,
}

/// What the UDP checksum field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// The right checksum.
    Full,
    /// The sum of the pseudo-header alone, as Linux leaves it for a device to finish.
    Offloaded,
    /// Something else.
    Is(u16),
}

impl Frame {
    /// A query over IPv4.
    pub fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, payload: Vec<u8>) -> Self {
        let ip = Ipv4 {
            first: None,
            tos: 0,
            total_len: None,
            id: 0x1234,
            fragment: 0,
            ttl: 57,
            protocol: 17,
            checksum: None,
            source,
            destination,
            options: Vec::new(),
        };
        Self::new(Ip::V4(ip), payload)
    }

    /// A query over IPv6.
    pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, payload: Vec<u8>) -> Self {
        let ip = Ipv6 {
            first: 0x6001_2345,
            payload_len: None,
            next_header: 17,
            hop_limit: 57,
            source,
            destination,
            extension: Vec::new(),
        };
        Self::new(Ip::V6(ip), payload)
    }

    fn new(ip: Ip, payload: Vec<u8>) -> Self {
        Self {
            to: [2, 0, 0, 0, 0, 1],
            from: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            ethertype: None,
            ip,
            udp: Udp { source: 40_000, destination: 53, len: None, checksum: Checksum::Full },
            payload,
            padding: Vec::new(),
        }
    }

    /// The IPv4 header; panics for IPv6.
    pub fn v4(&mut self) -> &mut Ipv4 {
        match &mut self.ip {
            Ip::V4(ip) => ip,
            Ip::V6(_) => panic!("an IPv6 frame"),
        }
    }

    /// The IPv6 header; panics for IPv4.
    pub fn v6(&mut self) -> &mut Ipv6 {
        match &mut self.ip {
            Ip::V6(ip) => ip,
            Ip::V4(_) => panic!("an IPv4 frame"),
        }
    }

    /// A changed copy.
    pub fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut copy = self.clone();
        change(&mut copy);
        copy
    }

    /// The frame on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.to);
        out.extend(self.from);
        for (tpid, control) in &self.tags {
            out.extend(tpid.to_be_bytes());
            out.extend(control.to_be_bytes());
        }
        let ethertype = self.ethertype.unwrap_or(match self.ip {
            Ip::V4(_) => 0x0800,
            Ip::V6(_) => 0x86dd,
        });
        out.extend(ethertype.to_be_bytes());
        let datagram = self.datagram();
        match &self.ip {
            Ip::V4(ip) => out.extend(ip.bytes(datagram.len())),
            Ip::V6(ip) => out.extend(ip.bytes(datagram.len())),
        }
        out.extend(datagram);
        out.extend(&self.padding);
        out
    }

    fn datagram(&self) -> Vec<u8> {
        let len = (8 + self.payload.len()) as u16;
        let field = self.udp.len.unwrap_or(len);
        let mut out = Vec::new();
        out.extend(self.udp.source.to_be_bytes());
        out.extend(self.udp.destination.to_be_bytes());
        out.extend(field.to_be_bytes());
        out.extend([0, 0]);
        out.extend(&self.payload);
        let mut pseudo = match &self.ip {
            Ip::V4(ip) => [ip.source.octets(), ip.destination.octets()].concat(),
            Ip::V6(ip) => [ip.source.octets(), ip.destination.octets()].concat(),
        };
        pseudo.extend([0, 17]);
        pseudo.extend(field.to_be_bytes());
        let checksum = match self.udp.checksum {
            Checksum::Full => match !internet_sum(&[pseudo, out.clone()].concat()) {
                0 => 0xffff,
                other => other,
            },
            Checksum::Offloaded => internet_sum(&pseudo),
            Checksum::Is(value) => value,
        };
        out[6..8].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

impl Ipv4 {
    fn bytes(&self, payload: usize) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut out = vec![self.first.unwrap_or(0x40 | (header / 4) as u8), self.tos];
        out.extend(self.total_len.unwrap_or((header + payload) as u16).to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.fragment.to_be_bytes());
        out.extend([self.ttl, self.protocol, 0, 0]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(&self.options);
        let checksum = self.checksum.unwrap_or(!internet_sum(&out));
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

impl Ipv6 {
    fn bytes(&self, payload: usize) -> Vec<u8> {
        let mut out = self.first.to_be_bytes().to_vec();
        out.extend(self.payload_len.unwrap_or((self.extension.len() + payload) as u16).to_be_bytes());
        out.extend([self.next_header, self.hop_limit]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(&self.extension);
        out
    }
}

/// A DNS query, in which every field can be wrong.
#[derive(Clone, Debug)]
pub struct Query {
    /// ID.
    pub id: u16,
    /// Flags with opcode and RCODE.
    pub flags: u16,
    /// QDCOUNT, ANCOUNT, NSCOUNT, ARCOUNT; by default one question and the OPT record, if any.
    pub counts: Option<[u16; 4]>,
    /// QNAME in wire form.
    pub name: Vec<u8>,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// Records between question and OPT.
    pub records: Vec<u8>,
    /// The OPT record.
    pub opt: Option<Opt>,
    /// Octets after the message.
    pub trailing: Vec<u8>,
}

/// An OPT record.
#[derive(Clone, Debug)]
pub struct Opt {
    /// Owner in wire form.
    pub owner: Vec<u8>,
    /// TYPE.
    pub rtype: u16,
    /// UDP payload size.
    pub size: u16,
    /// Upper bits of the RCODE.
    pub extended_rcode: u8,
    /// EDNS version.
    pub version: u8,
    /// DO and the others.
    pub flags: u16,
    /// RDLENGTH; by default what fits.
    pub rdlen: Option<u16>,
    /// Options: code, OPTION-LENGTH (by default what fits), content.
    pub options: Vec<(u16, Option<u16>, Vec<u8>)>,
}

impl Query {
    /// A query without EDNS. RD is set.
    pub fn new(name: &str, qtype: u16) -> Self {
        Self {
            id: 0xbeef,
            flags: 0x0100,
            counts: None,
            name: wire_name(name),
            qtype,
            qclass: 1,
            records: Vec::new(),
            opt: None,
            trailing: Vec::new(),
        }
    }

    /// With an OPT record.
    pub fn edns(mut self, size: u16) -> Self {
        self.opt = Some(Opt {
            owner: vec![0],
            rtype: rtype::OPT,
            size,
            extended_rcode: 0,
            version: 0,
            flags: 0,
            rdlen: None,
            options: Vec::new(),
        });
        self
    }

    /// With DO set.
    pub fn dnssec_ok(mut self) -> Self {
        self.opt.as_mut().expect("EDNS").flags |= 0x8000;
        self
    }

    /// With one more EDNS option.
    pub fn option(mut self, code: u16, content: &[u8]) -> Self {
        self.opt.as_mut().expect("EDNS").options.push((code, None, content.to_vec()));
        self
    }

    /// With a Client Subnet option like `198.51.100.0/24`, its address cut to the length.
    pub fn ecs(self, subnet: &str) -> Self {
        self.option(8, &ecs_option(subnet, 0))
    }

    /// A changed copy.
    pub fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut copy = self.clone();
        change(&mut copy);
        copy
    }

    /// The message.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.id.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        for count in self.counts.unwrap_or([1, 0, 0, u16::from(self.opt.is_some())]) {
            out.extend(count.to_be_bytes());
        }
        out.extend(self.question());
        out.extend(&self.records);
        if let Some(opt) = &self.opt {
            out.extend(opt.bytes());
        }
        out.extend(&self.trailing);
        out
    }

    /// The question section.
    pub fn question(&self) -> Vec<u8> {
        let mut out = self.name.clone();
        out.extend(self.qtype.to_be_bytes());
        out.extend(self.qclass.to_be_bytes());
        out
    }
}

impl Opt {
    /// The record.
    pub fn bytes(&self) -> Vec<u8> {
        let mut rdata = Vec::new();
        for (code, len, content) in &self.options {
            rdata.extend(code.to_be_bytes());
            rdata.extend(len.unwrap_or(content.len() as u16).to_be_bytes());
            rdata.extend(content);
        }
        let mut out = self.owner.clone();
        out.extend(self.rtype.to_be_bytes());
        out.extend(self.size.to_be_bytes());
        out.extend([self.extended_rcode, self.version]);
        out.extend(self.flags.to_be_bytes());
        out.extend(self.rdlen.unwrap_or(rdata.len() as u16).to_be_bytes());
        out.extend(rdata);
        out
    }
}

/// The content of a Client Subnet option like `198.51.100.0/24` (RFC 7871 §6): FAMILY, SOURCE, SCOPE and
/// as many address octets as SOURCE needs.
pub fn ecs_option(subnet: &str, scope: u8) -> Vec<u8> {
    let (address, source) = subnet.split_once('/').expect("ADDRESS/LENGTH");
    let source: u8 = source.parse().expect("a prefix length");
    let (family, octets) = match address.parse().expect("an address") {
        std::net::IpAddr::V4(address) => (1u16, address.octets().to_vec()),
        std::net::IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let mut out = family.to_be_bytes().to_vec();
    out.extend([source, scope]);
    out.extend(&octets[..usize::from(source).div_ceil(8)]);
    out
}

/// A name in wire form, its case kept. Labels are separated by dots; no escapes.
pub fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out
}

/// The 16-bit one's-complement sum of RFC 1071, of octets padded with a zero.
pub fn internet_sum(octets: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A reply as it was parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Destination MAC address.
    pub to: [u8; 6],
    /// Source MAC address.
    pub from: [u8; 6],
    /// VLAN tags.
    pub tags: Vec<(u16, u16)>,
    /// Source address.
    pub source: std::net::IpAddr,
    /// Destination address.
    pub destination: std::net::IpAddr,
    /// TTL or hop limit.
    pub hops: u8,
    /// Type of service or traffic class.
    pub class: u8,
    /// Flags and fragment offset of IPv4, flow label of IPv6.
    pub extra: u32,
    /// UDP ports, source first.
    pub ports: (u16, u16),
    /// What UDP carries.
    pub payload: Vec<u8>,
}

/// Parses a frame in which everything must be right: lengths to the octet, and both checksums.
///
/// # Errors
/// Says what is wrong.
pub fn parse(frame: &[u8]) -> Result<Parsed, String> {
    let mut rest = frame;
    let to = take::<6>(&mut rest)?;
    let from = take::<6>(&mut rest)?;
    let mut tags = Vec::new();
    let mut ethertype = u16::from_be_bytes(take(&mut rest)?);
    while matches!(ethertype, 0x8100 | 0x88a8) {
        tags.push((ethertype, u16::from_be_bytes(take(&mut rest)?)));
        ethertype = u16::from_be_bytes(take(&mut rest)?);
    }
    let (source, destination, hops, class, extra, mut pseudo): (
        std::net::IpAddr,
        std::net::IpAddr,
        _,
        _,
        _,
        Vec<u8>,
    );
    match ethertype {
        0x0800 => {
            let header = take::<20>(&mut rest)?;
            equal("version and header length", header[0], 0x45)?;
            equal("IPv4 header sum", internet_sum(&header), 0xffff)?;
            let total = u16::from_be_bytes([header[2], header[3]]);
            equal("IPv4 total length", usize::from(total), 20 + rest.len())?;
            equal("protocol", header[9], 17)?;
            (hops, class) = (header[8], header[1]);
            extra = u32::from(u16::from_be_bytes([header[6], header[7]]));
            source = Ipv4Addr::new(header[12], header[13], header[14], header[15]).into();
            destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]).into();
            pseudo = header[12..].to_vec();
        }
        0x86dd => {
            let header = take::<40>(&mut rest)?;
            let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
            equal("version", first >> 28, 6)?;
            let len = u16::from_be_bytes([header[4], header[5]]);
            equal("IPv6 payload length", usize::from(len), rest.len())?;
            equal("next header", header[6], 17)?;
            (hops, class, extra) = (header[7], (first >> 20) as u8, first & 0xf_ffff);
            let address = |at: usize| {
                let octets: [u8; 16] = header[at..at + 16].try_into().expect("16 octets");
                Ipv6Addr::from(octets)
            };
            (source, destination) = (address(8).into(), address(24).into());
            pseudo = header[8..].to_vec();
        }
        other => return Err(format!("EtherType {other:#x}")),
    }
    pseudo.extend([0, 17]);
    pseudo.extend((rest.len() as u16).to_be_bytes());
    pseudo.extend(rest);
    equal("UDP sum", internet_sum(&pseudo), 0xffff)?;
    let udp = take::<8>(&mut rest)?;
    equal("UDP length", usize::from(u16::from_be_bytes([udp[4], udp[5]])), 8 + rest.len())?;
    if udp[6..8] == [0, 0] {
        return Err("no UDP checksum".to_owned());
    }
    let ports = (u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]]));
    Ok(Parsed { to, from, tags, source, destination, hops, class, extra, ports, payload: rest.to_vec() })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, tail) = rest.split_first_chunk().ok_or_else(|| format!("{N} octets more were expected"))?;
    *rest = tail;
    Ok(*head)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?}, expected {expected:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_can_be_parsed() {
        let query = Query::new("www.example.test", rtype::A).edns(1232).ecs("198.51.100.0/23").bytes();
        let (a, b) = (Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(192, 0, 2, 53));
        let frame = Frame::ipv4(a, b, query.clone()).with(|f| f.tags.push((0x8100, 7)));
        let parsed = parse(&frame.bytes()).unwrap();
        assert_eq!((parsed.source, parsed.destination), (a.into(), b.into()));
        assert_eq!((parsed.tags, parsed.payload), (vec![(0x8100, 7)], query.clone()));
        let (a, b) = ("2001:db8::7".parse().unwrap(), "2001:db8::53".parse().unwrap());
        let parsed = parse(&Frame::ipv6(a, b, query.clone()).bytes()).unwrap();
        assert_eq!((parsed.source, parsed.destination, parsed.extra), (a.into(), b.into(), 0x12345));
        assert_eq!(parsed.payload, query);
    }

    #[test]
    fn the_parser_finds_what_is_wrong() {
        let frame = Frame::ipv4(Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8), vec![1, 2, 3]);
        assert!(parse(&frame.bytes()).is_ok());
        assert!(parse(&frame.with(|f| f.padding = vec![0]).bytes()).unwrap_err().contains("total length"));
        assert!(
            parse(&frame.with(|f| f.udp.checksum = Checksum::Is(7)).bytes()).unwrap_err().contains("UDP sum")
        );
        assert!(
            parse(&frame.with(|f| f.v4().checksum = Some(7)).bytes()).unwrap_err().contains("header sum")
        );
        assert!(parse(&frame.bytes()[..30]).is_err());
    }
}
