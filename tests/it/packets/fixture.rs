//! Hand-written tables, a running program, and the checks that every reply and every refusal must pass.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use router_common::abi::{
    Answer, Cell, Control, Generation, INLINE_NAME, INLINE_PIECE, Interface, LINE, Line, LocationEntry, NONE,
    Owner, Pick,
};
use router_common::compile::locations::{self, Prefix};
use router_common::counter::Counter;
use router_common::lookup::{bucket, hash_name, slot};
use router_tests::packet::{Frame, Ip, Parsed, Query, internet_sum, parse, rtype, wire_name};
use router_tests::prog_run::{Image, Outcome, ProgRun, action, moved};

/// The zone of every name here.
pub const ZONE: &str = "example.test";
/// Client and service addresses.
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);
pub const SERVICE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 7);
pub const SERVICE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x53, 0, 0, 0, 0, 0x53);
/// UDP payload that our side sends at most.
pub const EDNS_SIZE: u16 = 1232;
/// VLAN ids answered on.
pub const VLANS: [u16; 2] = [7, 0xfff];

/// A record to be written: TYPE, TTL, RDATA. The owner is a pointer to the question.
pub struct Record(pub u16, pub u32, pub Vec<u8>);

/// An A record.
pub fn a(address: [u8; 4]) -> Record {
    Record(rtype::A, 30, address.to_vec())
}

/// A AAAA record.
pub fn aaaa(address: &str) -> Record {
    let address: Ipv6Addr = address.parse().expect("an IPv6 address");
    Record(rtype::AAAA, 30, address.octets().to_vec())
}

/// A CNAME record.
pub fn cname(target: &str) -> Record {
    Record(rtype::CNAME, 60, wire_name(target))
}

/// Buckets of hand-written tables.
const BUCKETS: u32 = 1 << 12;

/// Tables being written.
pub struct Builder {
    pub image: Image,
    /// Prefixes of both families.
    prefixes: [Vec<Prefix>; 2],
}

impl Builder {
    /// No names yet, and room for some: so many slots.
    pub fn new(slots: usize) -> Self {
        let mut generation = Generation {
            seed: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
            serial: 1,
            owners: 0,
            owner_slots: slots as u32,
            buckets: 0,
            bucket_count: BUCKETS,
            regions: 0,
            answers: 0,
            cells: 0,
            lines: 0,
            tallies: 0,
            locations: 0,
            location_roots: Default::default(),
            edns_size: EDNS_SIZE,
            flags: 0,
            // Ours are not the first, so that the program must look through the list.
            ipv4_count: 2,
            ipv6_count: 2,
            vlan_count: VLANS.len() as u8,
            interface_count: 2,
            ipv4: Default::default(),
            ipv6: Default::default(),
            vlans: Default::default(),
            interfaces: Default::default(),
        };
        generation.ipv4[..2].copy_from_slice(&[[192, 0, 2, 54], SERVICE4.octets()]);
        generation.ipv6[0][15] = 9;
        generation.ipv6[1] = SERVICE6.octets();
        generation.vlans[..2].copy_from_slice(&VLANS);
        // A test run comes in on `lo`, which is interface 1.
        generation.interfaces[0] = Interface { index: 77, mac: [2, 9, 9, 9, 9, 9], pad: [0; 2] };
        generation.interfaces[1] = Interface { index: 1, mac: [2, 0, 0, 0, 0, 1], pad: [0; 2] };
        Self {
            image: Image {
                generation,
                owners: vec![Owner::EMPTY; slots],
                buckets: vec![0; BUCKETS as usize / 4],
                regions: Vec::new(),
                answers: Vec::new(),
                cells: Vec::new(),
                // Indices of 0 shall not be right by chance.
                lines: vec![Line([0xee; LINE]); 3],
                locations: Vec::new(),
            },
            prefixes: Default::default(),
        }
    }

    fn lines(&mut self, octets: &[u8]) -> u32 {
        let first = self.image.lines.len() as u32;
        for chunk in octets.chunks(LINE) {
            let mut line = Line([0; LINE]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            self.image.lines.push(line);
        }
        first
    }

    /// A cell that is always taken, not yet in the table.
    pub fn cell(&mut self, kind: u8, ancount: u8, piece: &[u8]) -> Cell {
        let mut held = [0; INLINE_PIECE];
        if piece.len() <= INLINE_PIECE {
            held[..piece.len()].copy_from_slice(piece);
        } else {
            held[..4].copy_from_slice(&self.lines(piece).to_ne_bytes());
        }
        Cell {
            threshold: 0,
            alias: 0,
            sum: internet_sum(piece),
            len: piece.len() as u16,
            kind,
            ancount,
            detail: 0,
            piece: held,
        }
    }

    /// A cell with these records.
    pub fn records(&mut self, records: &[Record]) -> Cell {
        let mut piece = Vec::new();
        for Record(rtype, ttl, rdata) in records {
            piece.extend([0xc0, 0x0c]);
            piece.extend(rtype.to_be_bytes());
            piece.extend([0, 1]);
            piece.extend(ttl.to_be_bytes());
            piece.extend((rdata.len() as u16).to_be_bytes());
            piece.extend(rdata);
        }
        self.cell(Cell::RECORDS, records.len() as u8, &piece)
    }

    /// A NODATA cell with a SOA of these names.
    pub fn nodata(&mut self, mname: &str, rname: &str) -> Cell {
        let mut rdata = [wire_name(mname), wire_name(rname)].concat();
        for number in [1u32, 3600, 600, 604_800, 60] {
            rdata.extend(number.to_be_bytes());
        }
        let mut piece = vec![0, 0, 0, 6, 0, 1, 0, 0, 0, 60];
        piece.extend((rdata.len() as u16).to_be_bytes());
        piece.extend(rdata);
        self.cell(Cell::NODATA, 0, &piece)
    }

    /// A NODATA cell with a SOA whose names are these labels and the zone, as pointers that the program fills in.
    pub fn nodata_in_the_zone(&mut self, mname: &str, rname: &str) -> Cell {
        let labels = |name: &str| {
            let wire = wire_name(name);
            [&wire[..wire.len() - 1], &[0, 0]].concat()
        };
        let (mname, rname) = (labels(mname), labels(rname));
        let mut piece = vec![0, 0, 0, 6, 0, 1, 0, 0, 0, 60];
        piece.extend((mname.len() as u16 + rname.len() as u16 + 20).to_be_bytes());
        piece.extend(&mname);
        let first = piece.len() as u8 - 2;
        piece.extend(&rname);
        let second = piece.len() as u8 - 2;
        for number in [1u32, 3600, 600, 604_800, 60] {
            piece.extend(number.to_be_bytes());
        }
        Cell { detail: Cell::ends_detail([first, second]), ..self.cell(Cell::NODATA, 0, &piece) }
    }

    /// A cell that leads to another answer.
    pub fn further(answer: Answer) -> Cell {
        let mut piece = [0; INLINE_PIECE];
        piece[..8].copy_from_slice(&answer.0.to_ne_bytes());
        Cell { kind: Cell::FURTHER, piece, ..Cell::EMPTY }
    }

    /// An answer of these cells, which are put into the table.
    pub fn answer(&mut self, pick: Pick, salt: u16, cells: Vec<Cell>) -> Answer {
        let first = self.image.cells.len() as u32;
        let count = cells.len() as u16;
        self.image.cells.extend(cells);
        Answer::new(first, count, pick, salt)
    }

    /// An answer of one cell.
    pub fn always(&mut self, cell: Cell) -> Answer {
        self.answer(Pick::Random, 0, vec![cell])
    }

    /// A name with its answers by region: A, AAAA. Returns its slot, which is its own until another name comes.
    pub fn name(&mut self, name: &str, partition: u32, flags: u16, block: &[[Answer; 2]]) -> usize {
        let wire = wire_name(&name.to_ascii_lowercase());
        let mut words = [0; 32];
        for (word, chunk) in words.iter_mut().zip(wire.chunks(8)) {
            let mut octets = [0; 8];
            octets[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(octets);
        }
        let hash = hash_name(&self.image.generation.seed, &words, wire.len() as u32);
        let mut held = [0; INLINE_NAME];
        if wire.len() <= INLINE_NAME {
            held[..wire.len()].copy_from_slice(&wire);
        } else {
            held[..4].copy_from_slice(&self.lines(&wire).to_ne_bytes());
        }
        let owner = Owner {
            hash,
            first_answer: self.image.answers.len() as u32,
            partition,
            wildcard: NONE,
            name_len: wire.len() as u8,
            zone_len: wire_name(ZONE).len() as u8,
            flags,
            name: held,
        };
        self.image.answers.extend(block.iter().flatten());
        self.place(owner)
    }

    /// Puts an owner into a slot where it is found, and others of its bucket into other ones.
    fn place(&mut self, owner: Owner) -> usize {
        let of = bucket(owner.hash, BUCKETS);
        let slots = &mut self.image.owners;
        let mut members = vec![owner];
        for slot in slots.iter_mut().filter(|slot| slot.name_len > 0 && bucket(slot.hash, BUCKETS) == of) {
            assert_ne!(slot.hash, owner.hash, "a name that is there");
            members.push(std::mem::replace(slot, Owner::EMPTY));
        }
        let count = slots.len() as u32;
        let places =
            |at| members.iter().map(|member| slot(member.hash, at, count) as usize).collect::<Vec<_>>();
        let fits = |places: &[usize]| {
            let differ = places.iter().collect::<HashSet<_>>().len() == places.len();
            differ && places.iter().all(|&place| slots[place].name_len == 0)
        };
        let displacement = (0..=u16::MAX).find(|&at| fits(&places(at))).expect("free slots");
        let places = places(displacement);
        for (&place, member) in places.iter().zip(members) {
            slots[place] = member;
        }
        let (word, shift) = (&mut self.image.buckets[of as usize / 4], of % 4 * 16);
        *word = *word & !(0xffff << shift) | u64::from(displacement) << shift;
        places[0]
    }

    /// A name whose clients are not told apart.
    pub fn simple(&mut self, name: &str, a: Cell, aaaa: Cell) -> usize {
        let block = [[self.always(a), self.always(aaaa)]];
        self.name(name, NONE, 0, &block)
    }

    /// A partition: the region of each location. Returns its first region.
    pub fn partition(&mut self, regions: &[u16]) -> u32 {
        // Not at the beginning of a word, and across one.
        let first = self.image.regions.len() * 4 + 3;
        let mut all = vec![0xdeadu16; 3];
        all.extend(regions);
        all.resize(all.len().next_multiple_of(4), 0xdead);
        for four in all.chunks(4) {
            let word = four.iter().rev().fold(0, |word, &region| word << 16 | u64::from(region));
            self.image.regions.push(word);
        }
        first as u32
    }

    /// A prefix of a location.
    pub fn location(&mut self, prefix: &str, location: u32, flags: u8) {
        let (address, len) = prefix.split_once('/').expect("ADDRESS/LENGTH");
        let len: u8 = len.parse().expect("a length");
        let entry = LocationEntry { location, scope: len, flags };
        let [ipv4, ipv6] = &mut self.prefixes;
        match address.parse().expect("an address") {
            IpAddr::V4(address) => ipv4.push((u128::from(address.to_bits()) << 96, len, entry)),
            IpAddr::V6(address) => ipv6.push((address.to_bits(), len, entry)),
        }
        let made = locations::table(ipv4.clone(), ipv6.clone()).expect("it fits");
        (self.image.locations, self.image.generation.location_roots) = made;
    }

    /// Loads the program with these tables.
    pub fn start(&self) -> Fixture {
        let mut run = ProgRun::load().unwrap();
        run.activate(&self.image).unwrap();
        Fixture { run }
    }
}

/// A program with tables.
pub struct Fixture {
    pub run: ProgRun,
}

/// A reply that has passed every check that does not depend on what was asked.
pub struct Reply {
    pub parsed: Parsed,
    pub message: Message,
    /// The OPT record and what follows it.
    pub opt: Vec<u8>,
}

impl Reply {
    /// The answer section in presentation form.
    pub fn answers(&self) -> Vec<String> {
        self.message.answers.iter().map(ToString::to_string).collect()
    }

    /// The authority section in presentation form.
    pub fn authorities(&self) -> Vec<String> {
        self.message.authorities.iter().map(ToString::to_string).collect()
    }
}

impl Fixture {
    /// The usual tables with a few names, for tests that are about packets.
    pub fn standard() -> Self {
        standard().start()
    }

    /// Runs a frame and says which counters moved.
    pub fn observe(&self, frame: &[u8]) -> (Outcome, Vec<(Counter, u64)>) {
        let before = self.run.counters().unwrap();
        let outcome = self.run.run(frame).unwrap();
        (outcome, moved(&before, &self.run.counters().unwrap()))
    }

    /// The query is answered with records; checks everything but the records.
    #[track_caller]
    pub fn answered(&self, frame: &Frame, query: &Query) -> Reply {
        self.answered_as(frame, query, &[(Counter::AnswerRecords, 1)])
    }

    /// The query is answered and exactly these counters move.
    #[track_caller]
    pub fn answered_as(&self, frame: &Frame, query: &Query, counters: &[(Counter, u64)]) -> Reply {
        let frame = frame.with(|frame| frame.payload = query.bytes());
        let (outcome, moved) = self.observe(&frame.bytes());
        assert_eq!((outcome.action, moved.as_slice()), (action::TX, counters), "{query:?}");
        let reply = parse(&outcome.frame).unwrap_or_else(|error| panic!("{error}: {:02x?}", outcome.frame));
        check_headers(&frame, &reply);
        check_message(query, reply)
    }

    /// The frame is passed, untouched, and exactly this counter moves.
    #[track_caller]
    pub fn passed(&self, why: &str, frame: &[u8], counter: Counter) {
        self.untouched(why, frame, action::PASS, counter);
    }

    /// The frame is dropped, and exactly this counter moves.
    #[track_caller]
    pub fn dropped(&self, why: &str, frame: &[u8], counter: Counter) {
        self.untouched(why, frame, action::DROP, counter);
    }

    #[track_caller]
    fn untouched(&self, why: &str, frame: &[u8], action: u32, counter: Counter) {
        let (outcome, moved) = self.observe(frame);
        assert_eq!((outcome.action, moved), (action, vec![(counter, 1)]), "{why}: {frame:02x?}");
        assert!(outcome.frame == frame, "{why}: the frame was changed\n{frame:02x?}\n{:02x?}", outcome.frame);
    }
}

/// `www` (A, AAAA), `v4only` (A, NODATA), `alias` (CNAME), in the usual zone.
pub fn standard() -> Builder {
    let mut tables = Builder::new(64);
    let (v4, v6) = (tables.records(&[a([192, 0, 2, 10])]), tables.records(&[aaaa("2001:db8::10")]));
    tables.simple("www.example.test", v4, v6);
    let (v4, none) =
        (tables.records(&[a([192, 0, 2, 11])]), tables.nodata("ns1.example.test", "host.example.test"));
    tables.simple("v4only.example.test", v4, none);
    let alias = tables.records(&[cname("eu1.example.net")]);
    tables.simple("alias.example.test", alias, alias);
    tables
}

/// A query over IPv4.
pub fn v4(query: &Query) -> Frame {
    Frame::ipv4(CLIENT4, SERVICE4, query.bytes())
}

/// A query over IPv6.
pub fn v6(query: &Query) -> Frame {
    Frame::ipv6(CLIENT6, SERVICE6, query.bytes())
}

/// The control word of a program that answers from a half.
pub const fn ready(half: u8) -> Control {
    Control::new(half, Control::READY, u32::MAX)
}

#[track_caller]
fn check_headers(query: &Frame, reply: &Parsed) {
    assert_eq!((reply.to, reply.from, &reply.tags), (query.from, query.to, &query.tags));
    let (source, destination, extra): (IpAddr, IpAddr, u32) = match &query.ip {
        // DF and no fragment.
        Ip::V4(ip) => (ip.source.into(), ip.destination.into(), 0x4000),
        // Flow label.
        Ip::V6(ip) => (ip.source.into(), ip.destination.into(), 0),
    };
    assert_eq!((reply.source, reply.destination), (destination, source));
    assert_eq!((reply.hops, reply.class, reply.extra), (64, 0, extra));
    assert_eq!(reply.ports, (query.udp.destination, query.udp.source));
}

#[track_caller]
fn check_message(query: &Query, parsed: Parsed) -> Reply {
    let wire = &parsed.payload;
    let question = query.question();
    assert_eq!(wire[12..12 + question.len()], question, "the question, bit for bit");
    assert_eq!(wire[..2], query.id.to_be_bytes());
    let flags = u16::from_be_bytes([wire[2], wire[3]]);
    assert_eq!(flags, 0x8400 | (query.flags & 0x0100), "QR, AA, RD as asked, nothing else");
    let count = |at: usize| u16::from_be_bytes([wire[at], wire[at + 1]]);
    assert_eq!((count(4), count(10)), (1, u16::from(query.opt.is_some())));
    let message = Message::from_vec(wire).expect("hickory decodes the reply");
    assert_eq!(message.metadata.message_type, MessageType::Response);
    assert_eq!(message.metadata.op_code, OpCode::Query);
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    assert_eq!(usize::from(count(6)), message.answers.len());
    assert_eq!(usize::from(count(8)), message.authorities.len());
    assert!(message.additionals.is_empty());
    assert_eq!(message.edns.is_some(), query.opt.is_some());
    let mut opt = Vec::new();
    if let (Some(ours), Some(asked)) = (&message.edns, &query.opt) {
        assert_eq!((ours.version(), ours.rcode_high(), ours.max_payload()), (0, 0, EDNS_SIZE));
        assert_eq!(ours.flags().dnssec_ok, asked.flags & 0x8000 != 0);
        assert_eq!(ours.flags().z, 0);
        let ecs = asked.options.iter().find(|(code, ..)| *code == 8);
        let len = 11 + ecs.map_or(0, |(_, _, content)| 4 + content.len());
        opt = wire[wire.len() - len..].to_vec();
        let rdlen = (len - 11) as u16;
        let mut head = vec![0, 0, 41];
        head.extend(EDNS_SIZE.to_be_bytes());
        head.extend([0, 0, (asked.flags >> 8) as u8 & 0x80, 0]);
        head.extend(rdlen.to_be_bytes());
        assert_eq!(opt[..11], head, "the OPT record, bit for bit");
        if let Some((_, _, content)) = ecs {
            let mut echoed = opt[11..].to_vec();
            let scope = std::mem::replace(&mut echoed[7], 0);
            let expected = [&[0, 8, 0, content.len() as u8], &content[..]].concat();
            assert_eq!(echoed, expected, "Client Subnet but for its scope ({scope}), bit for bit");
        }
    }
    Reply { parsed, message, opt }
}

impl Reply {
    /// SCOPE PREFIX-LENGTH of the Client Subnet option.
    pub fn scope(&self) -> u8 {
        self.opt[11 + 7]
    }
}
