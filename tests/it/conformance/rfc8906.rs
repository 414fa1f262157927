//! The tests of RFC 8906 §8, one function for each section: the query is built here, is what the `dig` line of the
//! section sends, and its reply is what the section expects. §8.3 is about servers without EDNS.

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::RecordType;
use router_tests::netns::Pair;
use router_tests::packet::{Query, rtype};

use super::tcp::Connection;
use super::{Laboratory, ask, queries, show, socket};

const ZONE: &str = "example.test";
const DNSKEY: u16 = 48;

/// Bits of the header.
const RD: u16 = 0x0100;
const Z: u16 = 0x0040;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

/// Codes of EDNS options.
const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const EXPIRE: u16 = 9;
const COOKIE: u16 = 10;

/// Without EDNS and flags: `+noedns +noad +norec`.
fn plain(qtype: u16) -> Query {
    Query::new(ZONE, qtype).with(|query| (query.id, query.flags) = (0, 0))
}

/// As dig asks with EDNS: it takes 1232 octets.
fn edns(version: u8) -> Query {
    plain(rtype::SOA).edns(1232).with(|query| query.opt.as_mut().expect("EDNS").version = version)
}

fn with_flags(query: &Query, flags: u16) -> Query {
    query.with(|query| query.opt.as_mut().expect("EDNS").flags |= flags)
}

/// A reply as octets, as text of [`show::reply`], and decoded.
struct Reply {
    octets: Vec<u8>,
    shown: String,
    message: Message,
}

/// Asks the agent what a dig line asks. `None` where there can be no namespaces.
///
/// # Panics
/// When dig sends something else than this query.
fn asked(line: &str, query: &[u8]) -> Option<Reply> {
    let laboratory = Laboratory::new()?;
    let sent = queries::of_dig(&laboratory.pair.client, line);
    assert_eq!(sent, query, "dig {line}");
    let agent = laboratory.example();
    let octets = if line.contains("+tcp") {
        let mut connection = Connection::open(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]);
        connection.send(query);
        connection.receive().expect("a reply")
    } else {
        ask(&socket(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]), query)
    };
    agent.terminate();
    let shown = show::reply(&octets, query);
    let message = Message::from_vec(&octets).expect("hickory-proto reads the reply");
    assert_eq!(message.metadata.message_type, MessageType::Response);
    Some(Reply { octets, shown, message })
}

impl Reply {
    /// NOERROR, AA, the SOA; AD and whatever is reserved clear.
    fn is_soa(&self) {
        assert_eq!(self.message.metadata.response_code, ResponseCode::NoError, "{}", self.shown);
        let types: Vec<RecordType> =
            self.message.answers.iter().map(hickory_proto::rr::Record::record_type).collect();
        assert_eq!(types, [RecordType::SOA], "{}", self.shown);
        assert!(self.message.metadata.authoritative, "{}", self.shown);
        self.has_no_strange_flags();
    }

    /// BADVERS, without AA and SOA.
    fn is_bad_version(&self) {
        assert!(self.shown.starts_with("BADVERS 1/0/0/1 "), "{}", self.shown);
        assert!(!self.message.metadata.authoritative, "{}", self.shown);
        self.has_opt(false);
        self.has_no_strange_flags();
    }

    /// Without RA, Z, AD, CD.
    fn has_no_strange_flags(&self) {
        assert_eq!(self.octets[3] & 0xf0, 0, "{}", self.shown);
    }

    /// OPT of version 0 without unknown flags.
    fn has_opt(&self, dnssec_ok: bool) {
        let flags = if dnssec_ok { ",DO" } else { "" };
        assert!(self.shown.contains(&format!(" opt(v0,1232{flags}")), "{}", self.shown);
        assert!(!self.shown.contains(",Z"), "{}", self.shown);
    }

    /// OPT without an option.
    fn has_no_option(&self) {
        assert!(
            self.shown.ends_with(")")
                && self.message.edns.as_ref().is_some_and(|edns| edns.options().as_ref().is_empty()),
            "{}",
            self.shown
        );
    }

    fn has_no_opt(&self) {
        assert!(self.message.edns.is_none(), "{}", self.shown);
    }
}

#[test]
fn netns_rfc8906_8_1_1_is_the_server_configured_for_the_zone() {
    let line = "+noedns +noad +norec soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).bytes()) else { return };
    reply.is_soa();
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_1_2_unknown_types() {
    let line = "+noedns +noad +norec type1000 example.test";
    let Some(reply) = asked(line, &plain(1000).bytes()) else { return };
    assert_eq!(reply.message.metadata.response_code, ResponseCode::NoError);
    assert!(reply.message.answers.is_empty() && reply.message.metadata.authoritative, "{}", reply.shown);
    reply.has_no_opt();
    reply.has_no_strange_flags();
}

#[test]
fn netns_rfc8906_8_1_3_1_cd() {
    let line = "+noedns +noad +norec +cd soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).with(|query| query.flags = CD).bytes()) else { return };
    reply.is_soa();
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_1_3_2_ad() {
    let line = "+noedns +norec +ad soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).with(|query| query.flags = AD).bytes()) else { return };
    reply.is_soa();
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_1_3_3_reserved_bit() {
    let line = "+noedns +noad +norec +zflag soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).with(|query| query.flags = Z).bytes()) else { return };
    reply.is_soa();
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_1_3_4_recursive_queries() {
    let line = "+noedns +noad +rec soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).with(|query| query.flags = RD).bytes()) else { return };
    reply.is_soa();
    assert!(reply.message.metadata.recursion_desired, "{}", reply.shown);
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_1_4_unknown_opcodes() {
    let line = "+noedns +noad +opcode=15 +norec +header-only";
    let mut query = vec![0; 12];
    query[2] = 15 << 3;
    let Some(reply) = asked(line, &query) else { return };
    assert_eq!(reply.message.metadata.response_code, ResponseCode::NotImp);
    assert_eq!(reply.message.metadata.op_code, OpCode::Unknown(15));
    assert_eq!(reply.octets.len(), 12, "{}", reply.shown);
    assert!(!reply.message.metadata.authoritative);
    reply.has_no_strange_flags();
}

#[test]
fn netns_rfc8906_8_1_5_tcp() {
    let line = "+noedns +noad +norec +tcp soa example.test";
    let Some(reply) = asked(line, &plain(rtype::SOA).bytes()) else { return };
    reply.is_soa();
    reply.has_no_opt();
}

#[test]
fn netns_rfc8906_8_2_1_minimal_edns() {
    let line = "+nocookie +edns=0 +noad +norec soa example.test";
    let Some(reply) = asked(line, &edns(0).bytes()) else { return };
    reply.is_soa();
    reply.has_opt(false);
}

#[test]
fn netns_rfc8906_8_2_2_version_negotiation() {
    let line = "+nocookie +edns=1 +noednsneg +noad +norec soa example.test";
    let Some(reply) = asked(line, &edns(1).bytes()) else { return };
    reply.is_bad_version();
}

#[test]
fn netns_rfc8906_8_2_3_unknown_options() {
    let line = "+nocookie +edns=0 +noad +norec +ednsopt=100 soa example.test";
    let Some(reply) = asked(line, &edns(0).option(100, &[]).bytes()) else { return };
    reply.is_soa();
    reply.has_opt(false);
    reply.has_no_option();
}

#[test]
fn netns_rfc8906_8_2_4_unknown_flags() {
    let line = "+nocookie +edns=0 +noad +norec +ednsflags=0x40 soa example.test";
    let Some(reply) = asked(line, &with_flags(&edns(0), 0x40).bytes()) else { return };
    reply.is_soa();
    reply.has_opt(false);
}

#[test]
fn netns_rfc8906_8_2_5_version_negotiation_with_unknown_flags() {
    let line = "+nocookie +edns=1 +noednsneg +noad +norec +ednsflags=0x40 soa example.test";
    let Some(reply) = asked(line, &with_flags(&edns(1), 0x40).bytes()) else { return };
    reply.is_bad_version();
}

#[test]
fn netns_rfc8906_8_2_6_version_negotiation_with_unknown_options() {
    let line = "+nocookie +edns=1 +noednsneg +noad +norec +ednsopt=100 soa example.test";
    let Some(reply) = asked(line, &edns(1).option(100, &[]).bytes()) else { return };
    reply.is_bad_version();
    reply.has_no_option();
}

/// The section asks for DNSKEY, which an unsigned zone does not have: what does not fit here is `big`.
#[test]
fn netns_rfc8906_8_2_7_truncated_responses() {
    for (name, qtype, truncated) in [(ZONE, DNSKEY, false), ("big.example.test", rtype::TXT, true)] {
        let kind = if qtype == DNSKEY { "dnskey" } else { "txt" };
        let line = format!("+norec +noad +nocookie +dnssec +bufsize=512 +ignore {kind} {name}");
        let query =
            Query::new(name, qtype).edns(512).dnssec_ok().with(|query| (query.id, query.flags) = (0, 0));
        let Some(reply) = asked(&line, &query.bytes()) else { return };
        assert_eq!(reply.message.metadata.response_code, ResponseCode::NoError);
        assert_eq!(reply.message.metadata.truncation, truncated, "{}", reply.shown);
        assert!(reply.octets.len() <= 512);
        reply.has_opt(true);
        reply.has_no_strange_flags();
    }
}

#[test]
fn netns_rfc8906_8_2_8_dnssec_ok() {
    let line = "+nocookie +edns=0 +noad +norec +dnssec soa example.test";
    let Some(reply) = asked(line, &edns(0).dnssec_ok().bytes()) else { return };
    reply.is_soa();
    reply.has_opt(true);
}

#[test]
fn netns_rfc8906_8_2_9_version_negotiation_with_dnssec_ok() {
    let line = "+nocookie +edns=1 +noednsneg +noad +norec +dnssec soa example.test";
    let Some(reply) = asked(line, &edns(1).dnssec_ok().bytes()) else { return };
    assert!(reply.shown.starts_with("BADVERS 1/0/0/1 "), "{}", reply.shown);
    assert!(!reply.message.metadata.authoritative);
    reply.has_opt(true);
}

#[test]
fn netns_rfc8906_8_2_10_several_defined_options() {
    let line = "+edns=0 +noad +norec +cookie +nsid +expire +subnet=0.0.0.0/0 soa example.test";
    let query = edns(0)
        .option(NSID, &[])
        .option(CLIENT_SUBNET, &[0, 1, 0, 0])
        .option(COOKIE, &[0; 8])
        .option(EXPIRE, &[]);
    let Some(reply) = asked(line, &query.bytes()) else { return };
    reply.is_soa();
    reply.has_opt(false);
}
