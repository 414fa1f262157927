//! The wire: header offsets and limits, one's-complement sums, and the rules that need no memory but
//! their arguments. Everything here is `const`-like arithmetic that compiles into BPF.

/// Octets of an Ethernet header without a VLAN tag.
pub const ETHERNET_HEADER: u32 = 14;
/// Octets of one VLAN tag (IEEE 802.1Q).
pub const VLAN_TAG: u32 = 4;
/// VLAN tags the fast path looks behind.
pub const MAX_VLAN_TAGS: u32 = 2;
/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of a VLAN tag (IEEE 802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of an outer VLAN tag (IEEE 802.1ad).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;
/// VLAN id in a tag's control information.
pub const VLAN_ID: u16 = 0x0fff;

/// Octets of an IPv4 header without options.
pub const IPV4_HEADER: u32 = 20;
/// Version 4, header length of five words: the first octet of an IPv4 header without options.
pub const IPV4_FIRST: u8 = 0x45;
/// MF and the fragment offset: one of them set makes a fragment (RFC 791 §3.1).
pub const IPV4_FRAGMENT: u16 = 0x3fff;
/// DF.
pub const IPV4_DONT_FRAGMENT: u16 = 0x4000;
/// Octets of an IPv6 header.
pub const IPV6_HEADER: u32 = 40;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// Octets of a UDP header.
pub const UDP_HEADER: u32 = 8;
/// TTL or hop limit of a reply.
pub const HOP_LIMIT: u8 = 64;

/// The port of DNS.
pub const DNS_PORT: u16 = 53;
/// Octets of a DNS header.
pub const DNS_HEADER: u32 = 12;
/// Octets of QTYPE and QCLASS.
pub const QUESTION_TAIL: u32 = 4;
/// Octets of a query that the fast path reads; longer ones pass.
pub const MAX_QUERY: u32 = 512;
/// Octets of UDP payload that every client takes (RFC 1035 §4.2.1).
pub const MIN_PAYLOAD: u16 = 512;
/// Octets of a label, at most (RFC 1035 §2.3.4).
pub const MAX_LABEL: u32 = 63;
/// The pointer to QNAME (RFC 1035 §4.1.4).
pub const POINTER: u16 = 0xc000;

/// QR.
pub const FLAG_QR: u16 = 0x8000;
/// OPCODE.
pub const FLAG_OPCODE: u16 = 0x7800;
/// AA.
pub const FLAG_AA: u16 = 0x0400;
/// RD.
pub const FLAG_RD: u16 = 0x0100;
/// CLASS IN.
pub const CLASS_IN: u16 = 1;
/// TYPE A.
pub const TYPE_A: u16 = 1;
/// TYPE AAAA.
pub const TYPE_AAAA: u16 = 28;
/// TYPE OPT (RFC 6891).
pub const TYPE_OPT: u16 = 41;

/// Octets of an OPT record with an empty RDATA: root owner, TYPE, CLASS, TTL, RDLENGTH.
pub const OPT_HEADER: u32 = 11;
/// Octets of an EDNS option's code and length.
pub const OPTION_HEADER: u32 = 4;
/// EDNS options that the fast path walks over; a query with more passes.
pub const MAX_OPTIONS: u32 = 8;
/// DO, in the OPT record's flags.
pub const EDNS_DO: u16 = 0x8000;
/// Option code of NSID (RFC 5001).
pub const OPTION_NSID: u16 = 3;
/// Option code of Client Subnet (RFC 7871).
pub const OPTION_ECS: u16 = 8;
/// Option code of COOKIE (RFC 7873).
pub const OPTION_COOKIE: u16 = 10;
/// Octets of a Client Subnet option before its address: FAMILY, SOURCE and SCOPE PREFIX-LENGTH.
pub const ECS_HEADER: u32 = 4;
/// Client Subnet FAMILY of IPv4.
pub const ECS_IPV4: u16 = 1;
/// Client Subnet FAMILY of IPv6.
pub const ECS_IPV6: u16 = 2;

/// The smallest piece of answer there is: owner pointer, TYPE, CLASS, TTL, RDLENGTH.
pub const MIN_PIECE: u32 = 12;

/// A one's-complement sum (RFC 1071) being added up, in the order of memory: 16-bit words are added as
/// they lie in memory, and the folded sum is stored as it is.
///
/// Nothing is folded before the end: each word of eight octets adds less than 2³³, so sums of up to 2²²
/// words can be added to each other, and shifted, without an overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing added.
    pub const ZERO: Self = Self(0);

    /// A sum that was folded before, in the order of memory.
    #[inline(always)]
    pub const fn from_folded(folded: u16) -> Self {
        Self(folded as u64)
    }

    /// Adds eight octets as they lie in memory, from an even offset.
    #[inline(always)]
    pub const fn add(self, word: u64) -> Self {
        Self(self.0 + (word & 0xffff_ffff) + (word >> 32))
    }

    /// Adds four octets as they lie in memory, from an even offset.
    #[inline(always)]
    pub const fn add32(self, word: u32) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds a 16-bit number that the packet holds in network order at an even offset.
    #[inline(always)]
    pub const fn add_number(self, number: u16) -> Self {
        Self(self.0 + number.to_be() as u64)
    }

    /// Adds another sum.
    #[inline(always)]
    pub const fn add_sum(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds the sum of a part that was summed from an even offset but stands at `offset`: at an odd one
    /// its octets change places, which is a multiplication by 2⁸ (RFC 1071 §2, byte order independence).
    #[inline(always)]
    pub const fn add_part(self, part: Self, offset: u32) -> Self {
        Self(self.0 + (part.0 << ((offset & 1) * 8)))
    }

    /// The sum in 16 bits, in the order of memory. 0 only when nothing but zeros was added.
    #[inline(always)]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Whether a checksummed range, its checksum field included, is intact.
    #[inline(always)]
    pub const fn is_intact(self) -> bool {
        self.fold() == 0xffff
    }

    /// The checksum to store, in the order of memory.
    #[inline(always)]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// The UDP checksum to store: 0 means "none" there, so it becomes 0xffff (RFC 768, RFC 8200 §8.1).
    #[inline(always)]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// Sum of the pseudo-header's addresses and protocol number for UDP; the length is added by the caller.
#[inline(always)]
pub const fn pseudo_header(addresses: Sum, udp_len: u16) -> Sum {
    addresses.add_number(UDP as u16).add_number(udp_len)
}

/// Whether a UDP datagram's checksum is good. `field` is the checksum in the order of memory, `datagram`
/// the sum of header and payload with the field in it.
///
/// No checksum is accepted on IPv4 only (RFC 768, RFC 8200 §8.1). A field that holds exactly the sum of
/// the pseudo-header comes from a local sender that left the rest to a device (Linux' CHECKSUM_PARTIAL)
/// that a veth or tap never had.
#[inline(always)]
pub const fn udp_checksum_is_good(ipv6: bool, field: u16, pseudo: Sum, datagram: Sum) -> bool {
    if field == 0 {
        return !ipv6;
    }
    pseudo.add_sum(datagram).is_intact() || field == pseudo.fold()
}

/// Sources nobody can be reached at (RFC 1122 §3.2.1.3): 0/8, 127/8, multicast, 240/4 with the broadcast
/// address. `address` is a number in host order.
#[inline(always)]
pub const fn is_martian_ipv4(address: u32) -> bool {
    let net = address >> 24;
    net == 0 || net == 127 || net >= 224
}

/// Sources nobody can be reached at (RFC 4291 §2.5, §2.7): `::`, `::1`, multicast, and v4-mapped ones,
/// which have no place on a wire. The halves are numbers in host order.
#[inline(always)]
pub const fn is_martian_ipv6(high: u64, low: u64) -> bool {
    high >> 56 == 0xff || (high == 0 && (low <= 1 || low >> 32 == 0xffff))
}

/// Whether an IPv6 next header starts an extension header, or ends the chain without payload
/// (RFC 8200 §4, RFC 4302, RFC 4303, RFC 6275, RFC 7401, RFC 5533).
#[inline(always)]
pub const fn is_extension_header(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 50 | 51 | 59 | 60 | 135 | 139 | 140 | 253 | 254)
}

/// Flags of a reply: QR and AA set, RD copied, everything else clear.
#[inline(always)]
pub const fn reply_flags(query_flags: u16) -> u16 {
    FLAG_QR | FLAG_AA | (query_flags & FLAG_RD)
}

/// Octets of UDP payload that a reply may have: 512 without EDNS, else what the client takes (less than
/// 512 means 512, RFC 6891 §6.2.3) and at most what we send.
#[inline(always)]
pub const fn max_payload(has_opt: bool, client: u16, ours: u16) -> u16 {
    if !has_opt || client < MIN_PAYLOAD {
        return MIN_PAYLOAD;
    }
    if client < ours { client } else { ours }
}

/// Octets of a Client Subnet address of `source` bits.
#[inline(always)]
pub const fn ecs_address_len(source: u8) -> u32 {
    (source as u32).div_ceil(8)
}

/// Whether a Client Subnet option of a query has the form that RFC 7871 §6 and §7.1.2 demand: a known
/// family, SOURCE within it, SCOPE 0, and as many address octets as SOURCE needs. FAMILY 0 is not among
/// them: it has one use (SOURCE 0), which is left to userspace.
#[inline(always)]
pub const fn ecs_is_well_formed(family: u16, source: u8, scope: u8, address_len: u32) -> bool {
    let max = match family {
        ECS_IPV4 => 32,
        ECS_IPV6 => 128,
        _ => return false,
    };
    source <= max && scope == 0 && address_len == ecs_address_len(source)
}

/// Whether the last octet of a Client Subnet address has a bit set beyond SOURCE PREFIX-LENGTH.
#[inline(always)]
pub const fn ecs_is_dirty(source: u8, last_octet: u8) -> bool {
    let used = source & 7;
    used != 0 && last_octet & (0xff >> used) != 0
}

/// A query's Client Subnet option, to be echoed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ecs {
    /// FAMILY.
    pub family: u16,
    /// SOURCE PREFIX-LENGTH.
    pub source: u8,
    /// SCOPE PREFIX-LENGTH of the reply.
    pub scope: u8,
    /// ADDRESS as it lies in memory, zero beyond its end.
    pub address: [u64; 2],
}

/// Words of 8 octets that hold the longest OPT record of a reply.
pub const OPT_WORDS: usize = 5;

/// An OPT record of a reply: little-endian words, zero beyond its end, and its octets.
///
/// UDP payload size is ours, extended RCODE and version 0, DO is the query's (RFC 3225 §3), and a Client
/// Subnet option is echoed with its scope. `address_len` is [`ecs_address_len`] of it.
#[inline(always)]
pub const fn reply_opt(ours: u16, dnssec_ok: bool, ecs: Option<Ecs>) -> ([u64; OPT_WORDS], u32) {
    let size = ours.swap_bytes() as u64;
    let flags = if dnssec_ok { 0x80u64 } else { 0 };
    // 00 | 00 29 | size | 00 (extended RCODE) | 00 (version) | flags, first octet
    let first = 0x29u64 << 16 | size << 24 | flags << 56;
    let Some(ecs) = ecs else {
        return ([first, 0, 0, 0, 0], OPT_HEADER);
    };
    let address_len = ecs_address_len(ecs.source);
    let option_len = (ECS_HEADER + address_len) as u64;
    // flags, second octet | RDLENGTH | 00 08 | OPTION-LENGTH | FAMILY, first octet
    let second = (option_len + OPTION_HEADER as u64) << 16 | (OPTION_ECS as u64) << 32 | option_len << 48;
    let [low, high] = ecs.address;
    // FAMILY, second octet | SOURCE | SCOPE | ADDRESS
    let third = ecs.family as u64 | (ecs.source as u64) << 8 | (ecs.scope as u64) << 16 | low << 24;
    let words = [first, second, third, low >> 40 | high << 24, high >> 40];
    (words, OPT_HEADER + OPTION_HEADER + ECS_HEADER + address_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The textbook sum of RFC 1071 §1, in big-endian words.
    fn textbook(octets: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in octets.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Our sum of the same octets, by words of eight with a zero-padded tail.
    fn ours(octets: &[u8]) -> Sum {
        octets.chunks(8).fold(Sum::ZERO, |sum, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum.add(u64::from_ne_bytes(word))
        })
    }

    fn octets(len: usize, seed: u32) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                (state >> 8) as u8
            })
            .collect()
    }

    #[test]
    fn sums_by_words_are_the_textbook_sum() {
        for len in 0..200 {
            let octets = octets(len, len as u32);
            assert_eq!(u16::from_be(ours(&octets).fold()), textbook(&octets), "{len} octets");
        }
        assert_eq!(ours(&[0xff; 64]).fold(), 0xffff);
        assert_eq!(ours(&[0; 64]).fold(), 0);
    }

    #[test]
    fn a_part_can_stand_at_any_offset() {
        for offset in 0..40 {
            for len in [1, 2, 7, 16, 33] {
                let head = octets(offset, 1);
                let part = octets(len, 2);
                let whole = [head.clone(), part.clone()].concat();
                // A zero-padded odd head is followed by the part's first octet in the same word.
                let sum = ours(&head).add_part(ours(&part), offset as u32);
                assert_eq!(u16::from_be(sum.fold()), textbook(&whole), "offset {offset}, {len} octets");
            }
        }
    }

    #[test]
    fn checksums_verify() {
        let mut header = octets(20, 9);
        header[10..12].fill(0);
        let checksum = ours(&header).checksum();
        header[10..12].copy_from_slice(&checksum.to_ne_bytes());
        assert!(ours(&header).is_intact());
        header[3] ^= 1;
        assert!(!ours(&header).is_intact());
        assert_eq!(Sum::from_folded(0xffff).udp_checksum(), 0xffff);
        assert_eq!(Sum::from_folded(0xffff).checksum(), 0);
    }

    #[test]
    fn offloaded_and_missing_checksums() {
        let addresses = ours(&octets(8, 3));
        let pseudo = pseudo_header(addresses, 24);
        let mut datagram = octets(24, 4);
        datagram[6..8].fill(0);
        assert!(udp_checksum_is_good(false, 0, pseudo, ours(&datagram)));
        assert!(!udp_checksum_is_good(true, 0, pseudo, ours(&datagram)));
        let mut with = |field: u16| {
            datagram[6..8].copy_from_slice(&field.to_ne_bytes());
            udp_checksum_is_good(true, field, pseudo, ours(&datagram))
        };
        assert!(with(pseudo.fold()));
        assert!(!with(pseudo.fold() ^ 0x0100));
        datagram[6..8].fill(0);
        let whole = pseudo.add_sum(ours(&datagram)).udp_checksum();
        datagram[6..8].copy_from_slice(&whole.to_ne_bytes());
        assert!(udp_checksum_is_good(true, whole, pseudo, ours(&datagram)));
    }

    #[test]
    fn martians() {
        let v4 = |a: [u8; 4]| is_martian_ipv4(u32::from_be_bytes(a));
        for martian in [[0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [240, 1, 1, 1], [255, 255, 255, 255]] {
            assert!(v4(martian), "{martian:?}");
        }
        for fine in [[1, 0, 0, 1], [126, 255, 0, 1], [128, 0, 0, 1], [223, 255, 255, 254], [10, 0, 0, 1]] {
            assert!(!v4(fine), "{fine:?}");
        }
        let v6 = |a: &str| {
            let address = u128::from_be_bytes(a.parse::<std::net::Ipv6Addr>().unwrap().octets());
            is_martian_ipv6((address >> 64) as u64, address as u64)
        };
        for martian in ["::", "::1", "ff02::1", "ff00::", "::ffff:192.0.2.1"] {
            assert!(v6(martian), "{martian}");
        }
        for fine in ["::2", "2001:db8::1", "fe80::1", "64:ff9b::1", "fd00::1", "::fffe:0:1"] {
            assert!(!v6(fine), "{fine}");
        }
    }

    #[test]
    fn client_subnet_forms() {
        for (family, bits) in [(ECS_IPV4, 32u8), (ECS_IPV6, 128)] {
            for source in 0..=255u8 {
                for len in 0..=17 {
                    let right = source <= bits && len == u32::from(source).div_ceil(8);
                    assert_eq!(ecs_is_well_formed(family, source, 0, len), right, "{family} {source} {len}");
                    assert!(!ecs_is_well_formed(family, source, 1, len));
                }
            }
        }
        assert!(!ecs_is_well_formed(0, 0, 0, 0));
        assert!(!ecs_is_well_formed(3, 24, 0, 3));
        assert!(!ecs_is_dirty(24, 0xff));
        assert!(!ecs_is_dirty(25, 0x80));
        assert!(ecs_is_dirty(25, 0x40));
        assert!(ecs_is_dirty(31, 0x01));
        assert!(!ecs_is_dirty(31, 0xfe));
    }

    #[test]
    fn payload_sizes() {
        assert_eq!(max_payload(false, 4096, 1232), 512);
        assert_eq!(max_payload(true, 0, 1232), 512);
        assert_eq!(max_payload(true, 511, 1232), 512);
        assert_eq!(max_payload(true, 900, 1232), 900);
        assert_eq!(max_payload(true, 4096, 1232), 1232);
    }

    #[test]
    fn opt_records_of_replies() {
        let octets = |(words, len): ([u64; OPT_WORDS], u32)| -> Vec<u8> {
            let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert!(all[len as usize..].iter().all(|&octet| octet == 0), "zero beyond the end");
            all[..len as usize].to_vec()
        };
        assert_eq!(octets(reply_opt(1232, false, None)), [0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(octets(reply_opt(1232, true, None)), [0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0]);
        for source in 0..=128u8 {
            let mut address = [0u8; 16];
            let len = ecs_address_len(source) as usize;
            (0..len).for_each(|i| address[i] = 0xa0 + i as u8);
            let half = |at: usize| u64::from_le_bytes(address[at..at + 8].try_into().unwrap());
            let ecs = Ecs { family: 2, source, scope: 48, address: [half(0), half(8)] };
            let mut expected = vec![0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, len as u8 + 8, 0, 8, 0, len as u8 + 4];
            expected.extend([0, 2, source, 48]);
            expected.extend(&address[..len]);
            assert_eq!(octets(reply_opt(1232, false, Some(ecs))), expected, "SOURCE {source}");
        }
    }
}
