//! Who may fetch a zone, and who is told when it changes.

use std::net::{IpAddr, SocketAddr};

use router_common::model::AddressRange;
use router_common::name::Name;

/// The secondaries of one zone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secondaries {
    /// Who may transfer it; none = nobody.
    pub transfer: Vec<Allowed>,
    /// Who is sent NOTIFY (RFC 1996) when its serial changed.
    pub notify: Vec<Notified>,
}

impl Secondaries {
    /// Whether the zone may be transferred to an address, by a message that was signed with this key.
    pub fn may_transfer(&self, client: IpAddr, key: Option<&Name>) -> bool {
        self.transfer.iter().any(|allowed| allowed.admits(client, key))
    }
}

/// One entry of `transfer`: everything that it names must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// The client's address is one of these; `None`: any.
    pub from: Option<AddressRange>,
    /// The message is signed with the key of this name; `None`: signed or not.
    pub key: Option<Name>,
}

impl Allowed {
    fn admits(&self, client: IpAddr, key: Option<&Name>) -> bool {
        let client = client.to_canonical();
        // Addresses of one family never lie between two of the other.
        self.from.is_none_or(|from| from.first <= client && client <= from.last)
            && self.key.as_ref().is_none_or(|wanted| Some(wanted) == key)
    }
}

/// One entry of `notify`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notified {
    /// Where NOTIFY is sent to.
    pub address: SocketAddr,
    /// What it is signed with.
    pub key: Option<Name>,
    /// The address it is sent from; `None`: the first listen address that can be used.
    pub source: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> Option<AddressRange> {
        Some(AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() })
    }

    #[test]
    fn an_entry_admits_what_meets_all_of_it() {
        let (mine, other): (Name, Name) = ("mine".parse().unwrap(), "other".parse().unwrap());
        let v4 = range("192.0.2.0", "192.0.2.255");
        let v6 = range("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff");
        let any = range("0.0.0.0", "255.255.255.255");
        let mut secondaries = Secondaries::default();
        let mut check = |from, key: Option<&Name>, expected: [bool; 6]| {
            secondaries.transfer = vec![Allowed { from, key: key.cloned() }];
            let clients = ["192.0.2.0", "::ffff:192.0.2.255", "192.0.3.0", "2001:db8::1", "::1"];
            let mut found: Vec<bool> = clients
                .iter()
                .map(|client| secondaries.may_transfer(client.parse().unwrap(), Some(&mine)))
                .collect();
            found.push(secondaries.may_transfer("192.0.2.1".parse().unwrap(), None));
            assert_eq!(found, expected, "{from:?} {key:?}");
        };
        check(v4, None, [true, true, false, false, false, true]);
        check(v6, None, [false, false, false, true, false, false]);
        check(any, None, [true, true, true, false, false, true]);
        check(None, Some(&mine), [true, true, true, true, true, false]);
        check(None, Some(&other), [false; 6]);
        check(v4, Some(&mine), [true, true, false, false, false, false]);
        assert!(!Secondaries::default().may_transfer("192.0.2.1".parse().unwrap(), Some(&mine)));
    }
}
