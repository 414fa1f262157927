//! Why a profile chose what it chose; becomes text only when somebody asks.

use std::fmt;

use crate::model::GeoCode;

use super::dial::Walker;
use super::nearest::Nearness;

/// Reason of a verdict.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Why {
    /// The profile is disabled.
    ProfileDisabled,
    /// No endpoint that takes part can answer the type.
    NoneCanAnswer,
    /// All down, and the policy is NODATA.
    AllDownNodata,
    /// All down, and the policy names a fallback.
    AllDownFallback,
    /// The fallback is off, or cannot answer the type.
    FallbackUnusable,
    /// All down, and the policy is to serve all; by the method then.
    ServingAll(Box<Why>),
    /// First by priority.
    Priority(u16),
    /// By the dials, in the order of priority.
    PriorityDial(Vec<Walker>),
    /// By weight.
    Weight,
    /// In the nearest region.
    Nearest {
        /// The region.
        region: Option<String>,
        /// How near.
        nearness: Nearness,
    },
    /// By the dials, in the order of nearness.
    NearestDial(Vec<Walker>),
    /// Fastest by our probes.
    Fastest,
    /// By the dials, fastest first.
    FastestDial(Vec<Walker>),
    /// No latency is measured: by weight.
    FastestUnknown,
    /// The client is in the endpoint's subnets.
    Override,
    /// The client is in the subnets of an endpoint that cannot answer the type.
    OverrideUnable,
    /// The client is in the subnets of an endpoint that is off.
    OverrideStopped,
    /// The narrowest code that matches.
    Code(GeoCode),
    /// The match cannot answer the type; it is not looked further up.
    CodeUnable(GeoCode),
    /// The match is off; it is not looked further up.
    CodeStopped(GeoCode),
    /// No code of the client is mapped.
    NoCode,
    /// The client is in the endpoint's subnets (`subnet`).
    Subnet,
    /// The client is in no subnet: the endpoint for the rest.
    Rest,
    /// The client is in no subnet, and there is no endpoint for the rest.
    NoSubnet,
    /// The mapped endpoint is off.
    SubnetStopped,
    /// The mapped endpoint cannot answer the type.
    SubnetUnable,
    /// All healthy addresses.
    Addresses,
    /// More healthy addresses than may be returned: windows of them.
    Windows(usize),
}

impl Why {
    /// The order that dials were walked in, when they were.
    pub fn walked(&self) -> Option<&[Walker]> {
        match self {
            Self::PriorityDial(order) | Self::NearestDial(order) | Self::FastestDial(order) => Some(order),
            Self::ServingAll(why) => why.walked(),
            _ => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProfileDisabled => "the profile is disabled",
            Self::NoneCanAnswer => "no endpoint that takes part can answer this type",
            Self::AllDownNodata => "every endpoint is Degraded and all_down is nodata",
            Self::AllDownFallback => "every endpoint is Degraded and this is the fallback",
            Self::FallbackUnusable => {
                "every endpoint is Degraded and the fallback is off or cannot answer this type"
            }
            Self::ServingAll(then) => {
                return write!(f, "every endpoint is Degraded, so all are served; {then}");
            }
            Self::Priority(priority) => {
                return write!(f, "lowest priority number of those available: {priority}");
            }
            Self::PriorityDial(_) => "traffic dials, in the order of priority",
            Self::Weight => "by weight",
            Self::Nearest { region, nearness } => {
                match region {
                    Some(region) => write!(f, "nearest available region: {region}")?,
                    None => f.write_str("nearest available, without a region")?,
                }
                return match nearness {
                    Nearness::Latency(milliseconds) => write!(f, " at {milliseconds} ms by the table"),
                    Nearness::Distance(kilometres) => {
                        write!(f, ", which the table does not give for this client, {kilometres:.0} km away")
                    }
                    Nearness::Unknown => {
                        f.write_str(", of which nothing is known for this client: order of the file")
                    }
                };
            }
            Self::NearestDial(_) => "traffic dials, nearest region first",
            Self::Fastest => "fastest by our own probes, within the sensitivity, by weight",
            Self::FastestDial(_) => "traffic dials, fastest by our own probes first",
            Self::FastestUnknown => "no latency is measured, so by weight",
            Self::Override => "the client is in its subnets, which override the method",
            Self::OverrideUnable => {
                "the client is in the subnets of an endpoint that cannot answer this type"
            }
            Self::OverrideStopped => "the client is in the subnets of an endpoint that is Stopped",
            Self::Code(code) => return write!(f, "narrowest match: {code}"),
            Self::CodeUnable(code) => {
                return write!(
                    f,
                    "the match {code} cannot answer this type, and it is not looked further up"
                );
            }
            Self::CodeStopped(code) => {
                return write!(f, "the match {code} is Stopped, and it is not looked further up");
            }
            Self::NoCode => "no region code of this client is mapped",
            Self::Subnet => "the client is in its subnets",
            Self::Rest => "the client is in no subnet, and this is the endpoint for the rest",
            Self::NoSubnet => "the client is in no subnet, and there is no endpoint for the rest",
            Self::SubnetStopped => "the mapped endpoint is Stopped",
            Self::SubnetUnable => "the mapped endpoint cannot answer this type",
            Self::Addresses => "all healthy addresses of the family",
            Self::Windows(count) => {
                return write!(
                    f,
                    "{count} healthy addresses are more than max_return: each is in as many answers as \
                     any other"
                );
            }
        })
    }
}
