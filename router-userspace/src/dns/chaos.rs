//! Names of class CH that say which server this is: `version.bind`, `id.server` and their likes (RFC 4892).

use std::borrow::Cow;

use router_common::counter::Counter;
use router_common::model::rtype::ANY;

use super::account::{Account, Class};
use super::answer::{Answer, Rcode, RecordSet};
use super::query::Question;
use crate::settings::Dns;

/// QCLASS.
pub(super) const CLASS_CH: u16 = 3;

const TYPE_TXT: u16 = 16;

/// Names that ask for the version.
const VERSION: [&[u8]; 2] = [b"\x07version\x04bind\x00", b"\x07version\x06server\x00"];
/// Names that ask for the identity.
const ID: [&[u8]; 2] = [b"\x02id\x06server\x00", b"\x08hostname\x04bind\x00"];

/// Answers a question of class CH: TXT (also for ANY) at a name that is set, else REFUSED, as NSD and Knot do.
pub(super) fn answer<'m>(settings: &Dns, question: &Question<'_>) -> Answer<'m> {
    let name = question.name.as_wire();
    let text = if VERSION.contains(&name) {
        settings.version.as_deref()
    } else if ID.contains(&name) {
        settings.id.as_deref()
    } else {
        None
    };
    let text = text.filter(|_| matches!(question.qtype, TYPE_TXT | ANY));
    let Some((text, len)) = text.and_then(|text| Some((text, u8::try_from(text.len()).ok()?))) else {
        return Answer::refused();
    };
    let mut answer = Answer::bare(Rcode::NoError, Counter::ServerRecords);
    answer.authoritative = true;
    answer.account = Account::new(Class::Answer, &question.name);
    answer.answers.push(RecordSet {
        owner: Cow::Owned(question.name.clone()),
        rtype: TYPE_TXT,
        // Another server may be behind the address a moment later.
        ttl: 0,
        rdata: Cow::Owned(vec![[&[len], text.as_bytes()].concat()]),
    });
    answer
}
