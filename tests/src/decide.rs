//! The oracle as a subject: authority, then the decision.

use anyhow::Result;
use router_common::authority::{Authority, authority};
use router_common::decide::{Asked, Snapshot, distribution};
use router_common::model::rtype;
use router_common::share::Share;

use crate::rendering;
use crate::subject::{Answer, Question, Rcode, Subject};

/// What is right.
pub struct Decide {
    snapshot: Snapshot,
}

impl Decide {
    /// The oracle over a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }
}

impl Subject for Decide {
    fn name(&self) -> &'static str {
        "decide"
    }

    fn must_answer(&self, _: &Question) -> bool {
        true
    }

    fn ask(&mut self, question: &Question) -> Result<Option<Answer>> {
        let (profile, node) = match authority(&self.snapshot.model, &question.name) {
            Authority::Outside => {
                return Ok(Some(Answer { soa: false, ..Answer::negative(Rcode::Refused) }));
            }
            Authority::Absent { .. } => return Ok(Some(Answer::negative(Rcode::NxDomain))),
            // Referrals and rewritten names are no decisions: the server's own tests look at them.
            Authority::Delegated { .. } | Authority::Redirected { .. } => return Ok(None),
            Authority::Exists { profile, node, .. } => (profile, node),
        };
        let asked = match question.qtype {
            rtype::A => Some(Asked::A),
            rtype::AAAA => Some(Asked::Aaaa),
            rtype::CNAME => Some(Asked::Cname),
            rtype::ANY => Some(Asked::Any),
            _ => None,
        };
        if let (Some(profile), Some(asked)) = (profile, asked) {
            let found = distribution(&self.snapshot, profile, asked, &question.asker);
            let parts = found.outcomes.into_iter().map(|outcome| {
                (outcome.records.as_ref().map(rendering::of_records), outcome.ttl, outcome.share)
            });
            return Ok(Some(Answer::of_shares(parts, Some(found.scope))));
        }
        let Some(set) = node.and_then(|node| node.get(&question.qtype)) else {
            return Ok(Some(Answer::negative(Rcode::NoError)));
        };
        let records: Result<Vec<String>> =
            set.rdata.iter().map(|rdata| rendering::of_rdata(question.qtype, rdata)).collect();
        let part = (Some(rendering::joined(records?)), set.ttl, Share::one());
        Ok(Some(Answer::of_shares([part], Some(0))))
    }
}
