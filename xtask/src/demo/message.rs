//! Just enough of DNS messages to ask for an A record and to understand the reply (RFC 1035 §4).

use std::net::Ipv4Addr;

/// What a reply says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// The first A record.
    Address(Ipv4Addr),
    /// No A record; this RCODE.
    Nothing(u8),
}

/// A query for the A records of a name. Every label must have 1..=63 octets.
pub fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(64);
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]); // RD; one question
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]); // root, A, IN
    message
}

/// The id of a reply and what it says; `None` when it is not a well-formed reply.
pub fn read(message: &[u8]) -> Option<(u16, Said)> {
    let number = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let (id, flags) = (number(0)?, number(2)?);
    if flags & 0x8000 == 0 {
        return None;
    }
    let (questions, answers) = (number(4)?, number(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = skip_name(message, at)? + 4;
    }
    let mut said = Said::Nothing((flags & 0xf) as u8);
    for _ in 0..answers {
        at = skip_name(message, at)?;
        let (rtype, class, length) = (number(at)?, number(at + 2)?, number(at + 8)? as usize);
        let rdata = message.get(at + 10..at + 10 + length)?;
        if let (1, 1, Ok(octets), Said::Nothing(0)) = (rtype, class, <[u8; 4]>::try_from(rdata), said) {
            said = Said::Address(Ipv4Addr::from(octets));
        }
        at += 10 + length;
    }
    Some((id, said))
}

/// Where the name that begins at `at` ends.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + length as usize,
            0xc0.. => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> Vec<u8> {
        let mut reply = query(0x1234, "www.example.com");
        reply[2..4].copy_from_slice(&[0x84, 0]);
        reply[7] = 1;
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 10]);
        reply
    }

    #[test]
    fn a_reply_is_read_and_cut_short_anywhere_it_is_none() {
        let reply = reply();
        assert_eq!(read(&reply), Some((0x1234, Said::Address(Ipv4Addr::new(192, 0, 2, 10)))));
        for end in 0..reply.len() {
            assert_eq!(read(&reply[..end]), None, "{end}");
        }
        assert_eq!(read(&query(1, "www.example.com")), None, "a query is no reply");
    }

    #[test]
    fn no_record_and_an_error_are_told_apart() {
        let mut reply = query(1, "www.example.com");
        reply[2..4].copy_from_slice(&[0x84, 3]);
        assert_eq!(read(&reply), Some((1, Said::Nothing(3))));
    }
}
