//! What a question is answered with: static data and profiles, as record sets, before any octet is written.

use std::borrow::Cow;

use router_common::authority::{Authority, authority};
use router_common::counter::Counter;
use router_common::decide::{Asked, Asker, Records, Snapshot, distribution};
use router_common::model::{Model, Node, ProfileId, RrSet, ZoneId, rtype};
use router_common::name::Name;

use super::account::{Account, Class};
use super::query::{Fault, Question};
use super::tallies::Credited;

/// Names looked at for one question. A chain that is longer, or comes back to itself, ends where it is.
const MAX_CHAIN: usize = 16;

pub(super) const CLASS_IN: u16 = 1;
const TYPE_DS: u16 = 43;
const TYPE_NXNAME: u16 = 128;
pub(super) const TYPE_IXFR: u16 = 251;
pub(super) const TYPE_AXFR: u16 = 252;

/// Response codes that we send, by the registry's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    YxDomain = 6,
    NotAuth = 9,
    BadVers = 16,
    BadCookie = 23,
}

impl Rcode {
    /// The four bits of the header.
    pub fn low(self) -> u8 {
        self as u8 & 0xf
    }

    /// The eight bits in OPT.
    pub fn high(self) -> u8 {
        self as u8 >> 4
    }
}

/// Records of one owner and type, to be written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RecordSet<'m> {
    pub owner: Cow<'m, Name>,
    pub rtype: u16,
    /// Seconds.
    pub ttl: u32,
    /// Wire form, names uncompressed.
    pub rdata: Cow<'m, [Vec<u8>]>,
}

/// The content of a reply.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Answer<'m> {
    pub rcode: Rcode,
    pub authoritative: bool,
    pub answers: Vec<RecordSet<'m>>,
    pub authority: Vec<RecordSet<'m>>,
    /// Addresses that a referral is useless without (RFC 9471 §2).
    pub glue: Vec<RecordSet<'m>>,
    /// Addresses that may be left out.
    pub further: Vec<RecordSet<'m>>,
    /// SCOPE PREFIX-LENGTH of a client subnet in the reply.
    pub scope: u8,
    /// Whether the target of an alias is written whole, as in the fast path's ready-made records: both give the
    /// same octets then.
    pub whole_target: bool,
    /// How the reply is counted.
    pub counter: Counter,
    /// What the limit on replies counts it under.
    pub account: Account,
    /// Whether the same question may be given the same answer again.
    pub keep: Keep,
    /// Whom the records of a profile come by.
    pub credited: Option<Credited>,
}

/// What an answer holds for, as long as the service stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    /// Not worth keeping: there is no end of names that are answered so.
    No,
    /// Everybody who asks this.
    Everybody,
    /// What this profile does not tell apart.
    Decided(ProfileId, Asked),
}

impl Answer<'_> {
    /// A reply without records.
    pub fn bare(rcode: Rcode, counter: Counter) -> Self {
        Self {
            rcode,
            authoritative: false,
            answers: Vec::new(),
            authority: Vec::new(),
            glue: Vec::new(),
            further: Vec::new(),
            scope: 0,
            whole_target: false,
            counter,
            keep: Keep::No,
            account: Account::ERROR,
            credited: None,
        }
    }

    /// REFUSED.
    pub fn refused() -> Self {
        Self::bare(Rcode::Refused, Counter::ServerRefused)
    }

    /// The reply to a query that is not looked at further.
    pub fn to_fault(fault: Fault) -> Self {
        match fault {
            Fault::Format | Fault::NoQuestion => Self::bare(Rcode::FormErr, Counter::ServerFormerr),
            Fault::Opcode => Self::bare(Rcode::NotImp, Counter::ServerNotimp),
            Fault::Version => Self::bare(Rcode::BadVers, Counter::ServerBadvers),
            Fault::Signature => Self::bare(Rcode::NotAuth, Counter::ServerOther),
        }
    }
}

/// Answers a question (RFC 1034 §4.3.2).
pub(super) fn answer<'m>(
    snapshot: &'m Snapshot,
    question: &Question<'_>,
    asker: &Asker,
    random: &mut dyn FnMut() -> u64,
) -> Answer<'m> {
    if question.qclass != CLASS_IN {
        return Answer::refused();
    }
    if question.qtype == TYPE_NXNAME {
        // RFC 9824 §3.2: the type only ever stands in an NSEC record.
        return Answer::to_fault(Fault::Format);
    }
    let walk = Walk {
        snapshot,
        qtype: question.qtype,
        asker,
        answers: Vec::new(),
        scope: 0,
        keep: Keep::No,
        decided: false,
        synthesised: false,
        credited: None,
    };
    walk.run(&question.name, random)
}

/// Where the walk along aliases ends.
enum End<'m> {
    /// With what was found, or with an alias that leads out of the zone or round in a circle.
    Found,
    Nodata(ZoneId),
    Absent(ZoneId),
    Referral {
        zone: ZoneId,
        cut: &'m Name,
        node: &'m Node,
    },
    TooLong,
    Outside,
    /// A decision without an outcome, which is a fault of ours.
    Undecided,
}

/// One step of the walk.
enum Step<'m> {
    End(End<'m>),
    Alias(Name),
}

/// The walk from QNAME along CNAME and DNAME records.
struct Walk<'m, 'a> {
    snapshot: &'m Snapshot,
    qtype: u16,
    asker: &'a Asker,
    answers: Vec<RecordSet<'m>>,
    scope: u8,
    /// Whether a profile decided on QNAME itself.
    decided: bool,
    keep: Keep,
    /// Whether some owner name was made from a wildcard or a DNAME.
    synthesised: bool,
    credited: Option<Credited>,
}

impl<'m> Walk<'m, '_> {
    fn run(mut self, qname: &Name, random: &mut dyn FnMut() -> u64) -> Answer<'m> {
        let mut seen: Vec<Name> = Vec::new();
        let mut home = None;
        let mut at = qname.clone();
        let end = loop {
            let found = self.find(&at);
            let zone = zone_of(&found);
            if home.is_none() && is_configured(&found, &at) {
                self.keep = Keep::Everybody;
            }
            // A resolver takes nothing from us that lies outside the zone it asked about.
            if *home.get_or_insert(zone) != zone || seen.len() >= MAX_CHAIN {
                break End::Found;
            }
            match self.step(&at, found, random) {
                Step::End(end) => break end,
                Step::Alias(next) => {
                    seen.push(std::mem::replace(&mut at, next));
                    if seen.contains(&at) {
                        break End::Found;
                    }
                }
            }
        };
        let account = self.account(&end, qname, home.flatten());
        let mut answer = self.finish(end);
        answer.account = account;
        answer
    }

    /// What replies like this one have in common: never a name that a client can make up.
    fn account(&self, end: &End<'m>, qname: &Name, home: Option<ZoneId>) -> Account {
        let about = |class, zone: Option<ZoneId>| match zone {
            Some(zone) => Account::new(class, &self.snapshot.model.zone(zone).name),
            None => Account::ERROR,
        };
        match *end {
            End::Found if self.synthesised => about(Class::Answer, home),
            End::Found => Account::new(Class::Answer, qname),
            End::Nodata(zone) => about(Class::Nodata, Some(zone)),
            End::Absent(zone) => about(Class::Nxdomain, Some(zone)),
            End::Referral { cut, .. } => Account::new(Class::Referral, cut),
            End::TooLong => about(Class::Error, home),
            End::Outside | End::Undecided => Account::ERROR,
        }
    }

    /// What exists at a name; for DS, on the parent's side of a cut (RFC 4035 §3.1.4.1).
    fn find(&self, name: &Name) -> Authority<'m> {
        let model: &'m Model = &self.snapshot.model;
        let above = name.parent().filter(|_| self.qtype == TYPE_DS && model.zone_at(name).is_some());
        if let Some(Authority::Exists { zone, .. } | Authority::Absent { zone }) =
            above.map(|above| authority(model, &above))
        {
            let node = model.zone(zone).nodes.get(name);
            return Authority::Exists { zone, profile: None, node, wildcard: false };
        }
        authority(model, name)
    }

    fn step(&mut self, at: &Name, found: Authority<'m>, random: &mut dyn FnMut() -> u64) -> Step<'m> {
        self.synthesised |=
            matches!(found, Authority::Exists { wildcard: true, .. } | Authority::Redirected { .. });
        match found {
            Authority::Outside => Step::End(End::Outside),
            Authority::Absent { zone } => Step::End(End::Absent(zone)),
            Authority::Delegated { zone, cut, node } if self.qtype == TYPE_DS && at == cut => {
                Step::End(self.only_type(at, zone, Some(node)))
            }
            Authority::Delegated { zone, cut, node } => Step::End(End::Referral { zone, cut, node }),
            Authority::Redirected { owner, node, .. } => self.redirect(at, owner, node),
            Authority::Exists { zone, profile, node, .. } => {
                let asked = profile.and_then(|profile| Some((profile, asked(self.qtype)?)));
                match (asked, node.and_then(|node| node.get(&rtype::CNAME))) {
                    (Some((profile, asked)), _) => {
                        Step::End(self.decide(at, zone, node, profile, asked, random))
                    }
                    // What a profile answers with is its own business; other types stand beside it.
                    (None, Some(alias)) if profile.is_none() && self.qtype != rtype::ANY => {
                        self.push(at, rtype::CNAME, alias);
                        match alias.rdata.first().and_then(|target| Name::from_wire(target).ok()) {
                            Some(target) if self.qtype != rtype::CNAME => Step::Alias(target),
                            _ => Step::End(End::Found),
                        }
                    }
                    _ => Step::End(self.only_type(at, zone, node)),
                }
            }
        }
    }

    /// Answers by a profile. An alias it answers with is left to the resolver, as the fast path does.
    fn decide(
        &mut self,
        at: &Name,
        zone: ZoneId,
        node: Option<&'m Node>,
        profile: ProfileId,
        asked: Asked,
        random: &mut dyn FnMut() -> u64,
    ) -> End<'m> {
        self.decided = self.answers.is_empty();
        if self.keep == Keep::Everybody {
            self.keep = Keep::Decided(profile, asked);
        }
        let distribution = distribution(self.snapshot, profile, asked, self.asker);
        let Some((outcome, credits)) = distribution.pick_credited(random()) else { return End::Undecided };
        let (rtype, rdata): (u16, Vec<Vec<u8>>) = match &outcome.records {
            Some(Records::A(ips)) => (rtype::A, ips.iter().map(|ip| ip.octets().to_vec()).collect()),
            Some(Records::Aaaa(ips)) => (rtype::AAAA, ips.iter().map(|ip| ip.octets().to_vec()).collect()),
            Some(Records::Cname(target)) => (rtype::CNAME, vec![target.as_wire().to_vec()]),
            None => (0, Vec::new()),
        };
        if rdata.is_empty() {
            // ANY asks for whatever there is.
            return if asked == Asked::Any { self.only_type(at, zone, node) } else { End::Nodata(zone) };
        }
        self.credited = credits.map(|credits| Credited { credits: credits.clone(), ttl: outcome.ttl });
        self.answers.push(RecordSet {
            owner: Cow::Owned(at.clone()),
            rtype,
            ttl: outcome.ttl,
            rdata: Cow::Owned(rdata),
        });
        self.scope = distribution.scope;
        End::Found
    }

    /// The records of the asked type at a name, or for ANY those of one type (RFC 8482 §4.1).
    fn only_type(&mut self, at: &Name, zone: ZoneId, node: Option<&'m Node>) -> End<'m> {
        let found = node.and_then(|node| match self.qtype {
            rtype::ANY => node.iter().next(),
            qtype => node.get_key_value(&qtype),
        });
        match found {
            Some((&rtype, set)) => {
                self.push(at, rtype, set);
                End::Found
            }
            None => End::Nodata(zone),
        }
    }

    /// A DNAME and the CNAME that it stands for (RFC 6672 §3.2).
    fn redirect(&mut self, at: &Name, owner: &'m Name, node: &'m Node) -> Step<'m> {
        let set = node.get(&rtype::DNAME);
        let Some((set, target)) = set.and_then(|set| Some((set, set.rdata.first()?))) else {
            return Step::End(End::Found);
        };
        if !self.answers.iter().any(|held| held.rtype == rtype::DNAME && *held.owner == *owner) {
            self.push(owner, rtype::DNAME, set);
        }
        let kept = at.as_wire().len().saturating_sub(owner.as_wire().len());
        let mut octets = at.as_wire().get(..kept).unwrap_or_default().to_vec();
        octets.extend_from_slice(target);
        let Ok(next) = Name::from_wire(&octets) else {
            return Step::End(End::TooLong);
        };
        self.answers.push(RecordSet {
            owner: Cow::Owned(at.clone()),
            rtype: rtype::CNAME,
            ttl: set.ttl,
            rdata: Cow::Owned(vec![octets]),
        });
        // A DNAME that leads below itself applies to whatever it makes, without end. How far servers follow
        // it is anybody's choice (RFC 6672 has none); once, as NSD does, is a whole answer, and a
        // resolver that wants more asks for the next name. YXDOMAIN would be told of a name nobody asked for.
        let endless = Name::from_wire(target).is_ok_and(|target| target.is_within(owner));
        if endless || matches!(self.qtype, rtype::CNAME | rtype::ANY) {
            return Step::End(End::Found);
        }
        Step::Alias(next)
    }

    fn push(&mut self, owner: &Name, rtype: u16, set: &'m RrSet) {
        self.answers.push(RecordSet {
            owner: Cow::Owned(owner.clone()),
            rtype,
            ttl: set.ttl,
            rdata: Cow::Borrowed(&set.rdata),
        });
    }

    fn finish(self, end: End<'m>) -> Answer<'m> {
        let model: &'m Model = &self.snapshot.model;
        let aliased = !self.answers.is_empty();
        let mut answer = Answer {
            rcode: Rcode::NoError,
            authoritative: true,
            answers: self.answers,
            authority: Vec::new(),
            glue: Vec::new(),
            further: Vec::new(),
            scope: 0,
            whole_target: self.decided,
            counter: Counter::ServerRecords,
            keep: self.keep,
            account: Account::ERROR,
            credited: self.credited,
        };
        match end {
            End::Outside => return Answer::refused(),
            End::Undecided => return Answer::bare(Rcode::ServFail, Counter::ServerServfail),
            End::Found => answer.scope = self.scope,
            End::Nodata(zone) => {
                answer.authority.push(negative_soa(model, zone));
                answer.counter = Counter::ServerNodata;
            }
            // After aliases the code is that of the last name (RFC 6604 §3).
            End::Absent(zone) => {
                answer.rcode = Rcode::NxDomain;
                answer.authority.push(negative_soa(model, zone));
                answer.counter = Counter::ServerNxdomain;
            }
            End::TooLong => {
                answer.rcode = Rcode::YxDomain;
                answer.counter = Counter::ServerOther;
            }
            End::Referral { zone, cut, node } => {
                answer.authoritative = aliased;
                answer.counter = Counter::ServerReferral;
                refer(model, zone, cut, node, &mut answer);
            }
        }
        answer
    }
}

/// Fills in a referral: the servers of the cut, and the addresses that we know of them.
fn refer<'m>(model: &'m Model, zone: ZoneId, cut: &'m Name, node: &'m Node, answer: &mut Answer<'m>) {
    let Some(servers) = node.get(&rtype::NS) else { return };
    answer.authority.push(RecordSet {
        owner: Cow::Borrowed(cut),
        rtype: rtype::NS,
        ttl: servers.ttl,
        rdata: Cow::Borrowed(&servers.rdata),
    });
    let nodes = &model.zone(zone).nodes;
    for server in servers.rdata.iter().filter_map(|rdata| Name::from_wire(rdata).ok()) {
        let Some((owner, node)) = nodes.get_key_value(&server) else { continue };
        let section = if server.is_within(cut) { &mut answer.glue } else { &mut answer.further };
        for address in [rtype::A, rtype::AAAA] {
            if let Some(set) = node.get(&address) {
                section.push(RecordSet {
                    owner: Cow::Borrowed(owner),
                    rtype: address,
                    ttl: set.ttl,
                    rdata: Cow::Borrowed(&set.rdata),
                });
            }
        }
    }
}

/// The SOA of a negative answer (RFC 2308 §3).
fn negative_soa(model: &Model, zone: ZoneId) -> RecordSet<'_> {
    let zone = model.zone(zone);
    RecordSet {
        owner: Cow::Borrowed(&zone.name),
        rtype: rtype::SOA,
        ttl: zone.negative_ttl(),
        rdata: Cow::Owned(vec![zone.soa.to_wire()]),
    }
}

/// Whether a name is one of those that the configuration names, of which there are only so many.
fn is_configured(found: &Authority<'_>, name: &Name) -> bool {
    match found {
        Authority::Exists { wildcard, .. } => !wildcard,
        Authority::Delegated { cut, .. } => *cut == name,
        Authority::Outside | Authority::Redirected { .. } | Authority::Absent { .. } => false,
    }
}

/// The zone that answers for what was found.
fn zone_of(found: &Authority<'_>) -> Option<ZoneId> {
    match found {
        Authority::Outside => None,
        Authority::Delegated { zone, .. }
        | Authority::Redirected { zone, .. }
        | Authority::Exists { zone, .. }
        | Authority::Absent { zone } => Some(*zone),
    }
}

/// The types that a profile answers.
fn asked(qtype: u16) -> Option<Asked> {
    match qtype {
        rtype::A => Some(Asked::A),
        rtype::AAAA => Some(Asked::Aaaa),
        rtype::CNAME => Some(Asked::Cname),
        rtype::ANY => Some(Asked::Any),
        _ => None,
    }
}
