//! What holds for every reply of ours, whatever the query was: written from the RFCs, without the product.

use hickory_proto::op::Message;

/// Codes of options that a reply may carry, each only when the query has it.
mod option {
    /// NSID (RFC 5001).
    pub const NSID: u16 = 3;
    /// Client Subnet (RFC 7871).
    pub const CLIENT_SUBNET: u16 = 8;
    /// COOKIE (RFC 7873).
    pub const COOKIE: u16 = 10;
    /// edns-tcp-keepalive (RFC 7828).
    pub const KEEPALIVE: u16 = 11;
    /// Padding (RFC 7830).
    pub const PADDING: u16 = 12;
}

const TYPE_OPT: u16 = 41;
const HEADER: usize = 12;

/// An OPT record found in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt<'m> {
    /// CLASS: the largest UDP payload.
    pub size: u16,
    /// TTL: upper RCODE bits, version, flags.
    pub flags: u32,
    /// RDATA; empty when it runs over the message.
    pub options: &'m [u8],
}

impl<'m> Opt<'m> {
    /// Code and content of each option, up to the first that runs over.
    pub fn each(&self) -> impl Iterator<Item = (u16, &'m [u8])> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<4>()?;
            let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (content, after) = after.split_at_checked(len)?;
            rest = after;
            Some((u16::from_be_bytes([head[0], head[1]]), content))
        })
    }
}

/// How far a message can be read.
#[derive(Clone, Debug)]
pub struct Scan<'m> {
    /// QDCOUNT, ANCOUNT, NSCOUNT, ARCOUNT.
    pub counts: [u16; 4],
    /// Octets up to the end of the last thing that could be read.
    pub end: usize,
    /// Whether everything that the counts promise is there.
    pub complete: bool,
    /// End of the question, when there is exactly one.
    pub question_end: Option<usize>,
    /// The first OPT record whose fixed part is there.
    pub opt: Option<Opt<'m>>,
    /// How many OPT records there are.
    pub opts: usize,
}

/// Walks a message; `None` when there is no whole header.
pub fn scan(message: &[u8]) -> Option<Scan<'_>> {
    let counts = [number(message, 4)?, number(message, 6)?, number(message, 8)?, number(message, 10)?];
    let mut found = Scan { counts, end: HEADER, complete: false, question_end: None, opt: None, opts: 0 };
    found.complete = found.walk(message).is_some();
    Some(found)
}

impl<'m> Scan<'m> {
    fn walk(&mut self, message: &'m [u8]) -> Option<()> {
        let [questions, records @ ..] = self.counts;
        for _ in 0..questions {
            let name_end = skip_name(message, self.end, false)?;
            self.end = (message.len() >= name_end + 4).then_some(name_end + 4)?;
        }
        self.question_end = (questions == 1).then_some(self.end);
        for _ in 0..records.iter().map(|&count| u32::from(count)).sum() {
            let fixed = skip_name(message, self.end, true)?;
            let (rtype, size) = (number(message, fixed)?, number(message, fixed + 2)?);
            let flags = u32::from(number(message, fixed + 4)?) << 16 | u32::from(number(message, fixed + 6)?);
            let len = usize::from(number(message, fixed + 8)?);
            let rdata = message.get(fixed + 10..fixed + 10 + len);
            if rtype == TYPE_OPT {
                self.opts += 1;
                self.opt.get_or_insert(Opt { size, flags, options: rdata.unwrap_or_default() });
            }
            rdata?;
            self.end = fixed + 10 + len;
        }
        Some(())
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    message.get(at..at + 2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
}

/// Where the name at an offset ends; a pointer ends one, where one may stand.
fn skip_name(message: &[u8], start: usize, pointers: bool) -> Option<usize> {
    let mut at = start;
    let end = loop {
        match *message.get(at)? {
            0 => break at + 1,
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. if pointers => break message.get(at + 1).map(|_| at + 2)?,
            _ => return None,
        }
    };
    (end - start <= 255).then_some(end)
}

/// Checks a reply to a query. `edns_size` is the largest UDP payload that our side sends.
///
/// # Errors
/// The rule that is broken, with both messages.
pub fn check(query: &[u8], reply: &[u8], tcp: bool, edns_size: u16) -> Result<(), String> {
    told(query, reply, broken(query, reply, tcp, edns_size).or_else(|| foreign(reply)))
}

/// [`check`], without the opinion of somebody else's library: it does not hold every record that RFC 3597 §5
/// lets a zone have.
///
/// # Errors
/// As [`check`].
pub fn check_ours(query: &[u8], reply: &[u8], tcp: bool, edns_size: u16) -> Result<(), String> {
    told(query, reply, broken(query, reply, tcp, edns_size))
}

fn told(query: &[u8], reply: &[u8], broken: Option<String>) -> Result<(), String> {
    match broken {
        None => Ok(()),
        Some(rule) => Err(format!("{rule}\nquery {}\nreply {}", hex(query), hex(reply))),
    }
}

/// The first rule that is broken.
fn broken(query: &[u8], reply: &[u8], tcp: bool, edns_size: u16) -> Option<String> {
    let not = |right: bool, rule: &str| (!right).then(|| rule.to_owned());
    let (Some(asked), Some(answered)) = (scan(query), scan(reply)) else {
        return Some("what has no header is not answered, and no answer".into());
    };
    let is_query = query[2] & 0x78 == 0;
    let truncated = reply[2] & 2 != 0;
    let most = match asked.opt {
        _ if tcp => 65_535,
        None => 512,
        Some(opt) => usize::from(opt.size.min(edns_size).max(512)),
    };
    let question = match asked.question_end {
        Some(end) => reply[4..6] == [0, 1] && reply.get(HEADER..end) == query.get(HEADER..end),
        None => reply[4..6] == [0, 0],
    };
    not(query[2] & 0x80 == 0, "a response is never answered (RFC 1035 §4.1.1)")
        .or_else(|| not(answered.complete, "the counts are those of the reply (RFC 1035 §4.1.1)"))
        .or_else(|| not(answered.end == reply.len(), "nothing follows the last record"))
        .or_else(|| not(reply[..2] == query[..2], "ID is copied (RFC 1035 §4.1.1)"))
        .or_else(|| not(reply[2] & 0xf8 == 0x80 | query[2] & 0x78, "QR is set, OPCODE copied (§4.1.1)"))
        .or_else(|| {
            not(reply[3] & 0xf0 == 0, "RA, Z, AD and CD are clear (RFC 1035 §4.1.1, RFC 4035 §3.1.6)")
        })
        .or_else(|| not(reply[2] & 1 == query[2] & u8::from(is_query), "RD is copied, NOTIMP aside"))
        .or_else(|| not(question, "the question is copied, bit for bit, when there is one (RFC 1035 §7.3)"))
        .or_else(|| not(answered.opts == usize::from(asked.opt.is_some()), "OPT iff OPT (RFC 6891 §6.1.1)"))
        .or_else(|| not(reply.len() <= most, &format!("{} octets are more than {most}", reply.len())))
        .or_else(|| not(!truncated || reply[6..10] == [0; 4], "a truncated reply holds no part of an RRset"))
        .or_else(|| not(!(tcp && truncated), "TC is not for TCP"))
        .or_else(|| broken_opt(asked.opt?, answered.opt?, tcp, edns_size))
}

fn broken_opt(asked: Opt<'_>, answered: Opt<'_>, tcp: bool, edns_size: u16) -> Option<String> {
    if answered.size != edns_size {
        return Some(format!("our payload size is {edns_size}, not {}", answered.size));
    }
    // Version 0, DO as in the query, no other flag (RFC 3225 §3, RFC 6891 §6.1.3).
    if answered.flags & 0x00ff_ffff != asked.flags & 0x8000 {
        return Some(format!("OPT version and flags {:06x}", answered.flags & 0x00ff_ffff));
    }
    let used: usize = answered.each().map(|(_, content)| 4 + content.len()).sum();
    if used != answered.options.len() {
        return Some("options that do not fill their record".into());
    }
    for (at, (code, content)) in answered.each().enumerate() {
        if answered.each().take(at).any(|(before, _)| before == code) {
            return Some(format!("option {code} twice"));
        }
        let mut same = asked.each().filter(|&(asked, _)| asked == code);
        let right = match code {
            option::CLIENT_SUBNET => same.any(|(_, asked)| is_echo(asked, content)),
            // The client's half of a cookie is what it knows us by (RFC 7873 §5.3).
            option::COOKIE => same.next().is_some_and(|(_, asked)| asked.get(..8) == content.get(..8)),
            option::KEEPALIVE => tcp && same.next().is_some(),
            option::NSID | option::PADDING => same.next().is_some(),
            _ => false,
        };
        if !right {
            return Some(format!("option {code} was not asked for in that way"));
        }
    }
    None
}

/// Whether a client subnet is the query's, with a scope (RFC 7871 §7.2.1).
fn is_echo(asked: &[u8], answered: &[u8]) -> bool {
    matches!((asked, answered), ([a, b, c, 0, asked @ ..], [x, y, z, scope, answered @ ..])
        if [a, b, c] == [x, y, z] && asked == answered && *scope <= if *b == 2 { 128 } else { 32 })
}

/// Whether somebody else's library cannot read it.
fn foreign(reply: &[u8]) -> Option<String> {
    let error = Message::from_vec(reply).err()?;
    let opt = scan(reply).and_then(|found| found.opt);
    // It knows no family 0 of a client subnet, which `dig +subnet=0` sends.
    let family_0 = opt
        .is_some_and(|opt| opt.each().any(|(code, it)| code == option::CLIENT_SUBNET && it[..2] == [0, 0]));
    // And some questions it cannot hold; there is nothing of ours in such a reply.
    let nothing = reply[6..HEADER].iter().all(|&octet| octet == 0);
    (!family_0 && !nothing).then(|| format!("hickory-proto cannot read it: {error}"))
}

/// Octets as digits.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Query, rtype};

    #[test]
    fn a_good_reply_passes_and_each_change_of_it_is_found() {
        let query = Query::new("www.example.test", rtype::A).edns(1400).ecs("198.51.100.0/24").bytes();
        let mut reply = query.clone();
        reply[2] |= 0x84;
        let opt = reply.len() - 11 - 4 - 7;
        reply[opt + 3..opt + 5].copy_from_slice(&1232u16.to_be_bytes());
        let rule = |reply: &[u8]| check(&query, reply, false, 1232).err().unwrap_or_default();
        assert_eq!(rule(&reply), "");
        let changes: [(usize, u8, &str); 10] = [
            (0, 1, "ID"),
            (2, 0x08, "OPCODE"),
            (2, 0x01, "RD"),
            (3, 0x20, "AD"),
            (7, 1, "counts"),
            (11, 1, "nothing follows"),
            (20, 0x20, "question"),
            (opt + 4, 1, "payload size"),
            (opt + 6, 1, "version"),
            (reply.len() - 1, 1, "option 8"),
        ];
        for (at, bits, expected) in changes {
            let mut wrong = reply.clone();
            wrong[at] ^= bits;
            assert!(rule(&wrong).contains(expected), "{at} {bits}: {}", rule(&wrong));
        }
        let long = [reply.clone(), vec![0; 1200]].concat();
        assert!(rule(&long).contains("nothing follows"), "{}", rule(&long));
        assert!(rule(&reply[..reply.len() - 1]).contains("counts"));
        let mut response = query.clone();
        response[2] |= 0x80;
        assert!(check(&response, &reply, false, 1232).unwrap_err().contains("a response"));
    }
}
