//! Who is at the other end of the control socket, and what they may do.
//!
//! The permissions of the socket decide who may connect, and the API asks once more, so that a socket
//! that somebody opened wide gives nothing away. To look is for root, for the user that the agent runs as, and for
//! the members of `server.control_group` and `server.admin_group` (without both: of the agent's own group,
//! which the socket has then). Changes are for root, that user, and the members of `server.admin_group`. A member is
//! who has the group as a process, and who is in it by the system's lists.

use std::os::fd::AsRawFd;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist};
use tokio::net::UnixStream;

use super::Refusal;
use crate::audit::Who;

/// The groups that the configuration names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// `server.control_group`.
    pub control: Option<String>,
    /// `server.admin_group`.
    pub admin: Option<String>,
}

/// A client of the control socket, as it was when it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// What the kernel says of it (unix(7), SO_PEERCRED).
    credentials: Option<Credentials>,
    may_look: bool,
    may_change: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Credentials {
    uid: u32,
    gid: u32,
    pid: Option<i32>,
}

impl Peer {
    /// Asks the kernel, and the system's lists of users and groups: those may be in a directory service, so this
    /// blocks.
    pub(super) fn of(stream: &UnixStream, groups: &Groups) -> Self {
        let found = stream.peer_cred().ok();
        let credentials = found.map(|of| Credentials { uid: of.uid(), gid: of.gid(), pid: of.pid() });
        let Some(Credentials { uid, gid, .. }) = credentials else {
            return Self { credentials: None, may_look: false, may_change: false };
        };
        if uid == 0 || uid == geteuid().as_raw() {
            return Self { credentials, may_look: true, may_change: true };
        }
        let mut held = supplementary(stream);
        held.push(Gid::from_raw(gid));
        let is_in = |group: &Option<String>| {
            let group = group.as_deref().and_then(|name| Group::from_name(name).ok().flatten());
            group.is_some_and(|group| held.contains(&group.gid) || is_listed(uid, group.gid))
        };
        let may_change = is_in(&groups.admin);
        let none_named = groups.control.is_none() && groups.admin.is_none();
        let own = none_named && (held.contains(&getegid()) || is_listed(uid, getegid()));
        Self { credentials, may_look: may_change || own || is_in(&groups.control), may_change }
    }

    /// Whether changes are theirs to make.
    pub(super) fn may_change(&self) -> bool {
        self.may_change
    }

    /// Who that is, for the audit file.
    pub fn who(&self) -> Who {
        let Some(Credentials { uid, pid, .. }) = self.credentials else {
            return Who { user: String::from("unknown"), uid: None, pid: None };
        };
        let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        Who { user: name.unwrap_or_else(|| format!("uid {uid}")), uid: Some(uid), pid }
    }

    /// Whether that is root, or the user that the agent runs as: somebody with the agent's own rights.
    pub(super) fn is_agent_or_root(&self) -> bool {
        self.credentials.is_some_and(|Credentials { uid, .. }| uid == 0 || uid == geteuid().as_raw())
    }
}

/// Whether a user is in a group by the system's lists.
fn is_listed(uid: u32, group: Gid) -> bool {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    getgrouplist(&name, user.gid).is_ok_and(|groups| groups.contains(&group))
}

/// Groups that the client's process had besides its first one (unix(7), SO_PEERGROUPS); none when the kernel does not
/// say.
fn supplementary(stream: &UnixStream) -> Vec<Gid> {
    // The most that a process can have (NGROUPS_MAX).
    let mut groups = vec![0 as libc::gid_t; 65_536];
    let mut octets = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `octets` octets into the list, which has as many and outlives the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut octets,
        )
    };
    if result != 0 {
        return Vec::new();
    }
    groups.truncate(octets as usize / size_of::<libc::gid_t>());
    groups.into_iter().map(Gid::from_raw).collect()
}

/// Lets only those through that may look.
pub(super) async fn admit_looking(
    State(groups): State<Groups>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.may_look {
        return next.run(request).await;
    }
    let who = named(&peer).await;
    let names: Vec<&str> =
        [&groups.control, &groups.admin].into_iter().flatten().map(String::as_str).collect();
    let also = match names.as_slice() {
        [] => String::from("root (server.control_group names a group that may as well)"),
        names => format!("root and members of the group {}", names.join(" or ")),
    };
    Refusal(StatusCode::FORBIDDEN, format!("{who} may not ask this agent; that is for {also}"))
        .into_response()
}

/// Lets only those through that may change something.
pub(super) async fn admit(
    State(admin_group): State<Option<String>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.may_change {
        return next.run(request).await;
    }
    let who = named(&peer).await;
    let also = match &admin_group {
        Some(group) => format!("root and members of the group {group}"),
        None => String::from("root (server.admin_group names a group that may as well)"),
    };
    Refusal(StatusCode::FORBIDDEN, format!("{who} may look, and change nothing; changes are for {also}"))
        .into_response()
}

/// What a user is called may be a question to a directory service, which takes its time.
pub(super) async fn named(peer: &Peer) -> String {
    let peer = *peer;
    let who = tokio::task::spawn_blocking(move || peer.who().user).await;
    who.unwrap_or_else(|_| String::from("this user"))
}
