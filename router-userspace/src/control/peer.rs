//! Who is at the other end of the control socket, and what they may do.
//!
//! The permissions of the socket decide who may connect, and so look. Changes are for root, for the user
//! that the agent runs as, and for the members of `server.admin_group`.

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};
use tokio::net::UnixListener;

use super::Refusal;
use crate::audit::Who;

/// The credentials that a client had when it connected (unix(7), SO_PEERCRED).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(Option<Credentials>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Credentials {
    uid: u32,
    gid: u32,
    pid: Option<i32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        Self(credentials.map(|of| Credentials { uid: of.uid(), gid: of.gid(), pid: of.pid() }))
    }
}

impl Peer {
    /// Who that is, for the audit file.
    pub fn who(&self) -> Who {
        let Some(Credentials { uid, pid, .. }) = self.0 else {
            return Who { user: String::from("unknown"), uid: None, pid: None };
        };
        let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        Who { user: name.unwrap_or_else(|| format!("uid {uid}")), uid: Some(uid), pid }
    }

    /// Whether that is root, or the user that the agent runs as: somebody with the agent's own rights.
    pub(super) fn is_agent_or_root(&self) -> bool {
        self.0.is_some_and(|Credentials { uid, .. }| uid == 0 || uid == geteuid().as_raw())
    }

    /// Whether changes are theirs to make.
    fn may_change(&self, admin_group: Option<&str>) -> bool {
        let Some(Credentials { uid, gid, .. }) = self.0 else { return false };
        uid == 0 || uid == geteuid().as_raw() || admin_group.is_some_and(|group| is_member(uid, gid, group))
    }
}

/// Whether a user is in a group, by the group they connect with or by the system's list.
fn is_member(uid: u32, gid: u32, group: &str) -> bool {
    let Ok(Some(group)) = Group::from_name(group) else { return false };
    if Gid::from_raw(gid) == group.gid {
        return true;
    }
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    getgrouplist(&name, user.gid).is_ok_and(|groups| groups.contains(&group.gid))
}

/// Lets only those through that may change something.
pub(super) async fn admit(
    State(admin_group): State<Option<String>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    // Who is in a group may be a question to a directory service, which takes its time.
    let allowed = {
        let admin_group = admin_group.clone();
        tokio::task::spawn_blocking(move || peer.may_change(admin_group.as_deref())).await
    };
    if allowed.unwrap_or(false) {
        return next.run(request).await;
    }
    let who = peer.who().user;
    let also = match &admin_group {
        Some(group) => format!("root and members of the group {group}"),
        None => String::from("root (server.admin_group names a group that may as well)"),
    };
    Refusal(StatusCode::FORBIDDEN, format!("{who} may look, and change nothing; changes are for {also}"))
        .into_response()
}
