//! Mutations of the DNS message.

use crate::packet::{Opt, Query};
use crate::random::Rng;

/// Makes one, and says which.
pub fn mutate(query: &mut Query, rng: &mut Rng) -> String {
    match rng.below(14) {
        0 => {
            query.flags ^= 1 << rng.below(16);
            format!("flags {:#06x}", query.flags)
        }
        1 => {
            let mut counts = query.counts.unwrap_or([1, 0, 0, u16::from(query.opt.is_some())]);
            counts[rng.below(4)] = rng.of(&[0, 1, 2, 3, 255, 256, 65_535]);
            query.counts = Some(counts);
            format!("counts {counts:?}")
        }
        2 => {
            query.qtype = rng.of(&[0, 1, 2, 5, 6, 12, 15, 28, 33, 38, 41, 65, 128, 250, 251, 252, 255, 257]);
            format!("type {}", query.qtype)
        }
        3 => {
            query.qclass = rng.of(&[0, 2, 3, 4, 254, 255, 256, 0x8001]);
            format!("class {}", query.qclass)
        }
        4 | 5 => name(&mut query.name, rng),
        6 => record(query, rng),
        7 => {
            query.trailing = vec![rng.of(&[0, 0x41, 0xff]); rng.below(40) + 1];
            format!("{} octets behind the message", query.trailing.len())
        }
        8 => match query.opt.take() {
            Some(_) => "no OPT".into(),
            None => {
                *query = query.clone().edns(rng.of(&[0, 511, 512, 1232]));
                "an OPT".into()
            }
        },
        _ => {
            if query.opt.is_none() {
                *query = query.clone().edns(1232);
            }
            query.opt.as_mut().map_or_else(String::new, |opt| edns(opt, rng))
        }
    }
}

/// A name in wire form, with a label edited, added, taken away or made impossible.
fn name(name: &mut Vec<u8>, rng: &mut Rng) -> String {
    if name.is_empty() {
        name.push(0);
    }
    let at = rng.below(name.len());
    match rng.below(9) {
        0 => {
            name[at] ^= 1 << rng.below(8);
            format!("a bit of octet {at} of the name")
        }
        1 => {
            name[at] = rng.of(&[0, 1, 0x3f, 0x40, 0x80, 0xc0, 0xff, b'.', b'*', b'[', b'{']);
            format!("octet {at} of the name is {:#04x}", name[at])
        }
        2 => {
            let label =
                rng.of(&[&b"\x01x"[..], b"\x01*", b"\x03www", b"\x00", b"\xc0\x0c", b"\x40", b"\x04wild"]);
            name.splice(0..0, label.iter().copied());
            format!("{label:?} in front of the name")
        }
        3 => {
            let label = usize::from(name[0] & 0x3f) + 1;
            name.drain(..label.min(name.len()));
            "the name's first label is away".into()
        }
        4 => {
            let count = rng.of(&[1, 10, 60, 100, 127, 128]);
            name.splice(0..0, b"\x01a".repeat(count));
            format!("{count} labels in front of the name")
        }
        5 => {
            // Up to 255 octets and a little beyond.
            let want = rng.of(&[253usize, 254, 255, 256, 257]);
            while name.len() < want {
                let label = (want - name.len() - 1).clamp(1, 63);
                let octets = std::iter::once(label as u8).chain(std::iter::repeat_n(b'l', label));
                name.splice(0..0, octets);
            }
            format!("a name of {} octets", name.len())
        }
        6 => {
            name.truncate(at);
            format!("the name ends after {at} octets")
        }
        7 => {
            name.truncate(at);
            name.extend([0xc0, rng.of(&[0, 12, 13, at as u8, 0xff])]);
            format!("a pointer after {at} octets of the name")
        }
        _ => {
            name.pop();
            name.extend(rng.of(&[&b"\x01x\x00"[..], b"\x04test\x00", b"\x00\x00"]));
            "another end of the name".into()
        }
    }
}

/// A record before the OPT record, counted or not.
fn record(query: &mut Query, rng: &mut Rng) -> String {
    let owner = rng.of(&[&[0][..], &[0xc0, 0x0c], b"\x01x\x00"]);
    let rtype = rng.of(&[1u16, 41, 250, 24, 16]);
    let rdata = vec![rng.draw() as u8; rng.of(&[0, 4, 4, 30])];
    query.records = owner.to_vec();
    query.records.extend(rtype.to_be_bytes());
    query.records.extend([0, 1, 0, 0, 0, 60]);
    query.records.extend((rdata.len() as u16).to_be_bytes());
    query.records.extend(&rdata);
    let section = rng.below(4);
    if section > 0 {
        let mut counts = query.counts.unwrap_or([1, 0, 0, u16::from(query.opt.is_some())]);
        counts[section] = counts[section].wrapping_add(1);
        query.counts = Some(counts);
    }
    format!("a record of type {rtype}, counted in section {section}")
}

fn edns(opt: &mut Opt, rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => {
            opt.size = rng.of(&[0, 1, 100, 511, 512, 513, 600, 1231, 1233, 65_535]);
            format!("payload size {}", opt.size)
        }
        1 => {
            opt.version = rng.of(&[1, 2, 255]);
            format!("version {}", opt.version)
        }
        2 => {
            opt.flags ^= 1 << rng.below(16);
            opt.extended_rcode = rng.of(&[0, 1, 255]);
            format!("EDNS flags {:#06x}, upper RCODE {}", opt.flags, opt.extended_rcode)
        }
        3 => {
            opt.owner = rng.of(&[&b"\x01x\x00"[..], &[0xc0, 0x0c], &[], &[0, 0]]).to_vec();
            format!("the OPT record's owner is {:?}", opt.owner)
        }
        4 => {
            opt.rdlen = Some(rng.of(&[0, 1, 3, 4, 8, 11, 12, 13, 100, 65_535]));
            format!("RDLENGTH {:?}", opt.rdlen)
        }
        5 if !opt.options.is_empty() => {
            let at = rng.below(opt.options.len());
            let again = opt.options[at].clone();
            opt.options.push(again);
            format!("option {at} once more")
        }
        6 if !opt.options.is_empty() => {
            let at = rng.below(opt.options.len());
            let (code, len, content) = &mut opt.options[at];
            match rng.below(4) {
                0 => *len = Some(rng.of(&[0, 1, 3, 4, 7, 8, 16, 40, 65_535])),
                1 => *code = rng.of(&[0, 3, 8, 10, 11, 12, 15]),
                2 => content.truncate(rng.below(content.len() + 1)),
                _ => content.extend(std::iter::repeat_n(rng.draw() as u8, rng.below(20))),
            }
            format!("option {at} is {code} {len:?} {content:02x?}")
        }
        7 => {
            let many = rng.of(&[2, 7, 8, 9, 20]);
            opt.options.extend((0..many).map(|i| (65_001 + i, None, vec![i as u8; usize::from(i % 3)])));
            format!("{many} more options")
        }
        8 => {
            let code = rng.of(&[3, 5, 9, 10, 11, 12, 14, 15, 65_001]);
            let content = vec![rng.draw() as u8; rng.of(&[0, 1, 2, 7, 8, 9, 16, 24, 40, 41])];
            opt.options.push((code, None, content));
            format!("option {code}")
        }
        _ => {
            let content = client_subnet(rng);
            let told = format!("client subnet {content:02x?}");
            match opt.options.iter_mut().find(|option| option.0 == 8) {
                Some(option) => option.2 = content,
                None => opt.options.push((8, None, content)),
            }
            told
        }
    }
}

/// A client subnet that may be right in any of its parts.
fn client_subnet(rng: &mut Rng) -> Vec<u8> {
    let family = rng.of(&[1u16, 1, 1, 2, 2, 0, 3, 256]);
    let source =
        rng.of(&[0u8, 1, 7, 8, 9, 23, 24, 25, 31, 32, 33, 47, 48, 56, 57, 64, 65, 127, 128, 129, 255]);
    let scope = rng.of(&[0u8, 0, 0, 0, 24, 128]);
    let len = usize::from(source).div_ceil(8);
    let len = rng.of(&[len, len, len, len, len + 1, len.saturating_sub(1)]).min(40);
    let mut address: Vec<u8> = std::iter::repeat_with(|| rng.draw() as u8).take(len).collect();
    if let (Some(last), 1..=7, false) = (address.last_mut(), source % 8, rng.once_in(4)) {
        *last &= 0xff << (8 - source % 8);
    }
    let mut content = family.to_be_bytes().to_vec();
    content.extend([source, scope]);
    content.extend(address);
    content
}
