//! NOTIFY and its answer as octets.

use router_common::model::{Zone, rtype};

/// OPCODE.
const NOTIFY: u8 = 4;
const CLASS_IN: u16 = 1;

/// The message about a zone (RFC 1996 §3.7): AA, the question, and the SOA as a hint.
pub(super) fn write(zone: &Zone, id: u16) -> Vec<u8> {
    let soa = zone.soa.to_wire();
    let mut message = Vec::with_capacity(64 + zone.name.as_wire().len() + soa.len());
    let put = |message: &mut Vec<u8>, numbers: &[u16]| {
        message.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    };
    put(&mut message, &[id, u16::from(NOTIFY) << 11 | 0x0400, 1, 1, 0, 0]);
    message.extend_from_slice(zone.name.as_wire());
    put(&mut message, &[rtype::SOA, CLASS_IN, 0xc00c, rtype::SOA, CLASS_IN]);
    message.extend_from_slice(&zone.ttl.to_be_bytes());
    // Two names and five numbers: less than 600 octets.
    put(&mut message, &[soa.len() as u16]);
    message.extend_from_slice(&soa);
    message
}

/// Id and RCODE of an answer to a NOTIFY; none of anything else.
pub(super) fn read(message: &[u8]) -> Option<(u16, u8)> {
    let &[a, b, flags, more] = message.first_chunk::<4>().filter(|_| message.len() >= 12)?;
    let is_answer = flags & 0x80 != 0 && flags >> 3 & 0xf == NOTIFY;
    is_answer.then_some((u16::from_be_bytes([a, b]), more & 0xf))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hickory_proto::op::{Message, OpCode};
    use hickory_proto::rr::RecordType;
    use router_common::model::Soa;

    use super::*;

    #[test]
    fn it_says_what_the_rfc_has_it_say() {
        let (mname, rname) = ("ns.a.test".parse().unwrap(), "h.a.test".parse().unwrap());
        let soa = Soa { mname, rname, serial: 9, refresh: 1, retry: 2, expire: 3, minimum: 4 };
        let zone = Zone { name: "a.test".parse().unwrap(), soa, ttl: 60, nodes: BTreeMap::new() };
        let octets = write(&zone, 0x1234);
        let message = Message::from_vec(&octets).unwrap();
        let head = &message.metadata;
        assert_eq!((head.id, head.op_code, head.authoritative), (0x1234, OpCode::Notify, true));
        assert_eq!(message.queries[0].to_string(), "a.test. IN SOA");
        assert_eq!(message.answers[0].record_type(), RecordType::SOA);
        assert_eq!(message.answers[0].to_string(), "a.test. 60 IN SOA ns.a.test. h.a.test. 9 1 2 3 4");
        assert_eq!(read(&octets), None, "it is no answer");
        let mut answer = octets;
        answer[2] |= 0x80;
        answer[3] |= 9;
        assert_eq!(read(&answer), Some((0x1234, 9)));
        assert_eq!(read(&answer[..11]), None);
        answer[2] = 0x80;
        assert_eq!(read(&answer), None, "an answer to a query");
    }
}
