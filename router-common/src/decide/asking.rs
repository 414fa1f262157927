//! Whose address decides, what is known of it, and the scope (ROUTING.md §7), as `lookup::locate` does
//! it on the tables.

use std::net::IpAddr;

use crate::atlas::{Atlas, Location};
use crate::lookup::{self, Client};
use crate::model::{Model, ProfileId};

use super::{Asker, Choice};

/// Where an asker stands towards a profile.
#[derive(Clone, Debug)]
pub(crate) struct Standing<'a> {
    /// The address that decides, folded.
    pub client: Client,
    /// What is known of it.
    pub location: &'a Location,
    /// Scope by the location table.
    scope: u8,
    /// What [`Choice::Hashed`] makes of it at least.
    hashed_scope: u8,
}

impl Standing<'_> {
    /// The scope of positive answers of a choice.
    pub fn scope_of(&self, choice: &Choice) -> u8 {
        if choice.is_hashed() { self.scope.max(self.hashed_scope) } else { self.scope }
    }
}

/// The cheap part of a [`Standing`]: whose address decides, and which location it is in.
pub(crate) struct Whereabouts {
    /// The address that decides, folded.
    pub client: Client,
    /// Its location; 0 towards a profile that does not look at clients.
    pub id: u32,
    /// Scope by the location table.
    pub scope: u8,
    hashed_scope: u8,
}

/// Finds where an asker is.
pub(crate) fn locate(model: &Model, atlas: &Atlas, profile: ProfileId, asker: &Asker) -> Whereabouts {
    let uses_ecs = model.profile(profile).ecs;
    let (source, source_folded) = client(asker.source).fold(128);
    let ecs = asker.ecs.filter(|&(_, known)| uses_ecs && known > 0);
    let (mut client, folded) =
        ecs.map_or((source, source_folded), |(address, known)| client(address).fold(known));
    let mut hashed_scope = lookup::hashed_bits(client.family).saturating_add(folded);
    let (mut scope, mut id) = (0, 0);
    if atlas.looks_at_client(profile) {
        let entry = atlas.find(&client);
        scope = entry.prefix_len.saturating_add(folded);
        id = entry.location;
        if entry.special && ecs.is_some() {
            // RFC 7871 §11.3: the option says nothing, so the resolver's own address decides, and the
            // answer holds for the whole block.
            client = source;
            hashed_scope = 0;
            id = atlas.find(&client).location;
        }
    }
    if !uses_ecs {
        (scope, hashed_scope) = (0, 0);
    }
    Whereabouts { client, id, scope, hashed_scope }
}

/// Finds where an asker stands.
pub(crate) fn stand<'a>(model: &Model, atlas: &'a Atlas, profile: ProfileId, asker: &Asker) -> Standing<'a> {
    let Whereabouts { client, id: _, scope, hashed_scope } = locate(model, atlas, profile, asker);
    let location =
        if atlas.looks_at_client(profile) { atlas.facts(&client) } else { atlas.default_location() };
    Standing { client, location, scope, hashed_scope }
}

/// An address as a client, not folded.
fn client(address: IpAddr) -> Client {
    match address {
        IpAddr::V4(address) => Client::ipv4(address.octets()),
        IpAddr::V6(address) => Client::ipv6(address.octets()),
    }
}
