//! What of a profile stands in a transferred zone: its present answer, as records that a zone may hold.

use std::borrow::Cow;

use router_common::decide::{Asked, Asker, Distribution, Outcome, Records, Snapshot, distribution};
use router_common::model::{ProfileId, Zone, rtype};
use router_common::name::Name;

use super::RecordSet;

const TYPE_TXT: u16 = 16;
/// The label that keeps a name without records in existence, by a record below it.
const HOLDER: &[u8] = b"\x07_xroute";
const WHY_HELD: &[u8] = b"\x15no address at present";

/// One record set of a profile, whatever name it stands at.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Present {
    rtype: u16,
    ttl: u32,
    rdata: Vec<Vec<u8>>,
}

impl Present {
    /// At a name.
    pub fn at<'m>(&'m self, owner: &'m Name) -> RecordSet<'m> {
        RecordSet {
            owner: Cow::Borrowed(owner),
            rtype: self.rtype,
            ttl: self.ttl,
            rdata: Cow::Borrowed(&self.rdata),
        }
    }
}

/// What a profile answers one asker with at present. Of answers by chance the likeliest counts, of equally
/// likely ones the first. An alias cannot stand beside addresses, and is left out where there are any.
pub(super) fn present(snapshot: &Snapshot, profile: ProfileId, asker: &Asker) -> Vec<Present> {
    let mut sets: Vec<Present> = Vec::new();
    let mut alias = None;
    for asked in [Asked::A, Asked::Aaaa] {
        let distribution = distribution(snapshot, profile, asked, asker);
        let Some(Outcome { records: Some(records), ttl, .. }) = likeliest(&distribution) else { continue };
        let (rtype, rdata): (_, Vec<Vec<u8>>) = match records {
            Records::A(ips) => (rtype::A, ips.iter().map(|ip| ip.octets().to_vec()).collect()),
            Records::Aaaa(ips) => (rtype::AAAA, ips.iter().map(|ip| ip.octets().to_vec()).collect()),
            Records::Cname(target) => {
                let rdata = vec![target.as_wire().to_vec()];
                alias.get_or_insert(Present { rtype: rtype::CNAME, ttl: *ttl, rdata });
                continue;
            }
        };
        sets.push(Present { rtype, ttl: *ttl, rdata });
    }
    if sets.is_empty() { alias.into_iter().collect() } else { sets }
}

fn likeliest(distribution: &Distribution) -> Option<&Outcome> {
    let mut outcomes = distribution.outcomes.iter();
    let first = outcomes.next()?;
    Some(outcomes.fold(first, |best, outcome| if outcome.share > best.share { outcome } else { best }))
}

/// What keeps a profile's name in existence that has no record at all at present: a record below it, which
/// makes it an empty non-terminal. Without it a secondary would say NXDOMAIN where we say NODATA, or answer
/// from a wildcard above. `None`: static records do it, or the name is too long.
pub(super) fn holder(zone: &Zone, name: &Name) -> Option<RecordSet<'static>> {
    let exists = zone.nodes.range(name..).next().is_some_and(|(at, _)| at.is_within(name));
    if exists {
        return None;
    }
    let owner = Name::from_wire(&[HOLDER, name.as_wire()].concat()).ok()?;
    Some(RecordSet {
        owner: Cow::Owned(owner),
        rtype: TYPE_TXT,
        ttl: zone.negative_ttl(),
        rdata: Cow::Owned(vec![WHY_HELD.to_vec()]),
    })
}
