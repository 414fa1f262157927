//! A reply on one line: the notation of `wireprobe.py`, and the records in it.

use hickory_proto::op::Message;
use hickory_proto::rr::Record;

const FLAGS: [(&str, u16); 7] =
    [("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80), ("z", 0x40), ("ad", 0x20), ("cd", 0x10)];

/// Most records of one RRset that are shown each.
const SHOWN: usize = 4;

/// As `wireprobe.py` shows a reply: RCODE, flags, counts, length, OPT, and whatever is wrong.
pub fn reply(reply: &[u8], query: &[u8]) -> String {
    if reply.len() < 12 {
        return format!("short {}", reply.len());
    }
    let word = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
    let (flags, counts) = (word(2), [4, 6, 8, 10].map(word));
    let mut notes = Vec::new();
    let mut rcode = u32::from(flags & 0xf);
    let mut opt = String::new();
    let read = sections(reply, query, counts, &mut notes, &mut rcode, &mut opt);
    match read {
        Some(end) if end != reply.len() => notes.push(format!("TRAIL{}", reply.len() - end)),
        Some(_) => {}
        None => notes.push("PARSE!".into()),
    }
    if reply[..2] != query[..2] {
        notes.push("IDDIFF".into());
    }
    if flags & 0x8000 == 0 {
        notes.push("QR0!".into());
    }
    if flags >> 11 & 0xf != 0 {
        notes.push(format!("op{}", flags >> 11 & 0xf));
    }
    let set: String =
        FLAGS.iter().filter(|(_, bit)| flags & bit != 0).map(|(name, _)| format!("{name} ")).collect();
    let [questions, answers, authorities, additionals] = counts;
    let mut line = format!(
        "{} {set}{questions}/{answers}/{authorities}/{additionals} {}B{opt}",
        rcode_name(rcode),
        reply.len()
    );
    for note in notes {
        line.push(' ');
        line.push_str(&note);
    }
    line
}

/// Walks the sections; the offset behind the last record.
fn sections(
    reply: &[u8],
    query: &[u8],
    counts: [u16; 4],
    notes: &mut Vec<String>,
    rcode: &mut u32,
    opt: &mut String,
) -> Option<usize> {
    let [questions, answers, authorities, additionals] = counts.map(usize::from);
    let mut at = 12;
    for _ in 0..questions {
        let start = at;
        at = after_name(reply, at)? + 4;
        if questions == 1 && reply.get(start..at)? != query.get(12..12 + at - start).unwrap_or_default() {
            notes.push("QDIFF".into());
        }
    }
    for record in 0..answers + authorities + additionals {
        at = after_name(reply, at)?;
        let head = reply.get(at..at + 10)?;
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let ttl = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let len = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let rdata = reply.get(at + 10..at + 10 + len)?;
        at += 10 + len;
        if kind == 41 {
            *rcode |= ttl >> 24 << 4;
            let size = u16::from_be_bytes([head[2], head[3]]);
            *opt = format!(" opt(v{},{size}{}{}", ttl >> 16 & 0xff, dnssec_ok(ttl), zeros(ttl));
            options(rdata, opt);
            opt.push(')');
        } else if kind == 6 && (answers..answers + authorities).contains(&record) {
            notes.push(format!("SOAttl{ttl}"));
        }
    }
    Some(at)
}

fn dnssec_ok(ttl: u32) -> &'static str {
    if ttl & 0x8000 == 0 { "" } else { ",DO" }
}

fn zeros(ttl: u32) -> String {
    if ttl & 0x7fff == 0 { String::new() } else { format!(",Z{:x}", ttl & 0x7fff) }
}

fn options(mut rdata: &[u8], opt: &mut String) {
    while let Some((&[a, b, c, d], rest)) = rdata.split_first_chunk::<4>() {
        let (code, len) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
        let content = rest.get(..len).unwrap_or(rest);
        if code == 8 {
            let hex: String = content.iter().map(|octet| format!("{octet:02x}")).collect();
            opt.push_str(&format!(" ecs[{hex}]"));
        } else {
            opt.push_str(&format!(" {code}:{len}"));
        }
        rdata = rest.get(len..).unwrap_or_default();
    }
}

fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            len => at += usize::from(len) + 1,
        }
    }
}

fn rcode_name(rcode: u32) -> String {
    let name = match rcode {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        9 => "NOTAUTH",
        16 => "BADVERS",
        23 => "BADCOOKIE",
        other => return other.to_string(),
    };
    name.into()
}

/// The records as hickory-proto reads them, by section, in the order of the message. Of a large RRset the first
/// is shown, and how many there are.
///
/// # Panics
/// When the message cannot be read.
pub fn records(reply: &[u8]) -> String {
    let message = Message::from_vec(reply).unwrap_or_else(|_| without_opt(reply));
    let sections = [("AN", &message.answers), ("NS", &message.authorities), ("AR", &message.additionals)];
    let mut shown = Vec::new();
    for (section, records) in sections {
        for set in
            records.chunk_by(|one, other| one.name == other.name && one.record_type() == other.record_type())
        {
            let one = |record: &Record| {
                format!("{section} {} {} {} {}", record.name, record.ttl, record.record_type(), record.data)
            };
            match set {
                [first, ..] if set.len() > SHOWN => shown.push(format!("{} ×{}", one(first), set.len())),
                _ => shown.extend(set.iter().map(one)),
            }
        }
    }
    shown.join("; ")
}

/// The same without OPT at its end: hickory-proto takes no client subnet of family 0, as `dig +subnet=0` sends it.
fn without_opt(reply: &[u8]) -> Message {
    let opt = reply.windows(3).rposition(|window| window == [0, 0, 41]).expect("OPT");
    let mut reply = reply[..opt].to_vec();
    reply[11] -= 1;
    Message::from_vec(&reply).expect("hickory-proto reads the reply without OPT")
}
