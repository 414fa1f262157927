//! Everything that can happen to a query, as one enum: array index in both executors and metric label.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// An outcome that is counted. The discriminant is the index into the counter arrays.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[$doc])* $variant),+
        }

        impl Counter {
            /// Every counter, in the order of the discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The metric label: `action_reason`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

counters! {
    /// The fast path sent records.
    AnswerRecords = "answer_records",
    /// The fast path sent NODATA with the SOA.
    AnswerNodata = "answer_nodata",
    /// An answer was sent although the lease had lapsed (`stale = "serve"`).
    AnswerStale = "answer_stale",
    /// QR=1: never answered.
    DropResponse = "drop_response",
    /// UDP source port 0 cannot be answered.
    DropSourcePort = "drop_source_port",
    /// A reply that could not be written whole. Never seen: the sizes are checked before the first write.
    AbortReply = "abort_reply",
    /// The tables are not filled yet.
    PassNotReady = "pass_not_ready",
    /// The lease has lapsed and `stale = "pass"`.
    PassStale = "pass_stale",
    /// Too short for the headers it claims, or not in the first buffer.
    PassShort = "pass_short",
    /// Not IPv4, IPv6 or a VLAN tag with one of them.
    PassNotIp = "pass_not_ip",
    /// A VLAN id that is not configured.
    PassVlan = "pass_vlan",
    /// Not to the interface's MAC address, or from a multicast one.
    PassMac = "pass_mac",
    /// IPv4 with options, a wrong version or header length, or a bad header checksum.
    PassIpHeader = "pass_ip_header",
    /// An IPv4 fragment.
    PassFragment = "pass_fragment",
    /// An IPv6 extension header.
    PassExtension = "pass_extension_header",
    /// Not UDP to port 53.
    PassNotDns = "pass_not_dns",
    /// A source address that nobody can be reached at, this machine's own, or a broadcast address of its networks.
    PassMartian = "pass_martian",
    /// A UDP length other than that of the IP payload.
    PassLength = "pass_length",
    /// A wrong UDP checksum (or none on IPv6).
    PassChecksum = "pass_checksum",
    /// Not one of our service addresses.
    PassAddress = "pass_address",
    /// An opcode other than QUERY.
    PassOpcode = "pass_opcode",
    /// QDCOUNT, ANCOUNT, NSCOUNT or ARCOUNT out of the canonical form.
    PassCounts = "pass_counts",
    /// A label over 63 octets, a pointer, a name over 255 octets, or one cut short.
    PassName = "pass_name",
    /// A class other than IN.
    PassClass = "pass_class",
    /// A type other than A and AAAA.
    PassType = "pass_type",
    /// An additional record that is not a well-formed OPT.
    PassOpt = "pass_opt",
    /// EDNS version above 0.
    PassEdnsVersion = "pass_edns_version",
    /// A malformed or second EDNS Client Subnet option.
    PassEcs = "pass_ecs",
    /// A COOKIE option, and cookies are configured.
    PassCookie = "pass_cookie",
    /// An NSID option, and NSID is configured.
    PassNsid = "pass_nsid",
    /// Octets after the message.
    PassTrailing = "pass_trailing",
    /// A query longer than the fast path reads.
    PassLong = "pass_long",
    /// A name that is not in the tables.
    PassUnknownName = "pass_unknown_name",
    /// A name that is left to userspace, or hashes like one that is there.
    PassDeferred = "pass_deferred",
    /// A share of the answer that is left to userspace.
    PassDeferredShare = "pass_deferred_share",
    /// The answer does not fit the client's size.
    PassTooBig = "pass_too_big",
    /// The packet could not be grown.
    PassNoRoom = "pass_no_room",
    /// Tables that lead nowhere.
    PassBroken = "pass_broken",
    /// The userspace server sent records.
    ServerRecords = "server_records",
    /// The userspace server sent NODATA.
    ServerNodata = "server_nodata",
    /// The userspace server sent NXDOMAIN.
    ServerNxdomain = "server_nxdomain",
    /// The userspace server sent a referral.
    ServerReferral = "server_referral",
    /// The userspace server sent REFUSED.
    ServerRefused = "server_refused",
    /// The userspace server sent FORMERR.
    ServerFormerr = "server_formerr",
    /// The userspace server sent NOTIMP.
    ServerNotimp = "server_notimp",
    /// The userspace server sent BADVERS.
    ServerBadvers = "server_badvers",
    /// The userspace server sent SERVFAIL.
    ServerServfail = "server_servfail",
    /// The userspace server sent another error (NOTAUTH, YXDOMAIN).
    ServerOther = "server_other",
    /// The userspace server sent nothing but a cookie: BADCOOKIE, or to a query without a question.
    ServerCookie = "server_cookie",
    /// The userspace server set TC.
    ServerTruncated = "server_truncated",
    /// The userspace server did not answer (QR=1, or shorter than a header).
    ServerDropped = "server_dropped",
    /// A reply over the rate limit that was not sent.
    ServerRateDropped = "server_rate_dropped",
    /// A reply over the rate limit of which question and TC were sent.
    ServerRateSlipped = "server_rate_slipped",
    /// A reply over the rate limit that was sent, because the limit only counts.
    ServerRateDryRun = "server_rate_dry_run",
    /// The userspace server began to send a whole zone.
    ServerTransfer = "server_transfer",
    /// A zone was sent to its end.
    ServerTransferFinished = "server_transfer_finished",
    /// A zone was begun, and not sent to its end.
    ServerTransferFailed = "server_transfer_failed",
    /// A zone was not sent: not allowed, not ours, or too many were under way.
    ServerTransferRefused = "server_transfer_refused",
    /// A NOTIFY was sent to a secondary, repetitions counted.
    ServerNotifySent = "server_notify_sent",
    /// A secondary acknowledged a NOTIFY.
    ServerNotifyAnswered = "server_notify_answered",
    /// A secondary refused a NOTIFY, or never answered it.
    ServerNotifyFailed = "server_notify_failed",
}

impl Counter {
    /// How many of them, from the first on, the fast path counts. The others are the userspace server's, and
    /// more of those change nothing in the BPF object.
    pub const FAST: usize = Self::ServerRecords as usize;
    /// Elements of the fast path's counter array: after the outcomes, how many of the answers had a client subnet,
    /// of IPv4 and of IPv6 (RFC 7871's FAMILY 1 and 2).
    pub const SLOTS: usize = Self::FAST + 2;

    /// The element for a client subnet of this FAMILY.
    pub const fn subnet_slot(family: u16) -> u32 {
        Self::FAST as u32 + (family != 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_are_positions_and_names_are_unique() {
        let mut names = std::collections::HashSet::new();
        for (i, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, i);
            assert!(names.insert(counter.name()));
            assert_eq!(counter.name().starts_with("server_"), i >= Counter::FAST, "{counter:?}");
        }
        assert_eq!([1, 2].map(Counter::subnet_slot), [Counter::FAST as u32, Counter::SLOTS as u32 - 1]);
    }
}
