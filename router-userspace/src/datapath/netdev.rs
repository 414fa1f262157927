//! What XDP a driver has: generic netlink, family `netdev` (Linux 6.3; `linux/netdev.h`).

use std::io;

use super::interface::{HEADER, attributes, u16_at, u32_at};
use super::sys;

/// Native XDP, without redirection.
pub const BASIC: u64 = 1;
/// Frames in several buffers, so that a large MTU is no obstacle.
pub const FRAGMENTS: u64 = 1 << 5;

/// Octets of `struct genlmsghdr`.
const GENERIC: usize = 4;
/// The family of families (`linux/genetlink.h`).
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// What the driver of an interface says it has; `None` when the kernel does not say.
pub fn features(index: u32) -> Option<u64> {
    let family = ask(CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0").ok()?;
    let family = find(&family, FAMILY_ID).and_then(|content| u16_at(content, 0))?;
    let device = ask(family, GET_DEVICE, INDEX, &index.to_ne_bytes()).ok()?;
    let content = find(&device, XDP_FEATURES)?;
    Some(u64::from_ne_bytes(content.get(..8)?.try_into().ok()?))
}

fn find(message: &[u8], wanted: u16) -> Option<&[u8]> {
    let attributes = attributes(message.get(HEADER + GENERIC..)?);
    attributes.into_iter().find(|(kind, _)| *kind == wanted).map(|(_, content)| content)
}

/// Sends a command with one attribute; the message that answers it.
fn ask(family: u16, command: u8, kind: u16, content: &[u8]) -> io::Result<Vec<u8>> {
    let len = 4 + content.len();
    let mut message = vec![0; HEADER + GENERIC + len.next_multiple_of(4)];
    let total = message.len() as u32;
    message[0..4].copy_from_slice(&total.to_ne_bytes());
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[HEADER..HEADER + 2].copy_from_slice(&[command, 1]);
    let attribute = &mut message[HEADER + GENERIC..];
    attribute[0..2].copy_from_slice(&(len as u16).to_ne_bytes());
    attribute[2..4].copy_from_slice(&kind.to_ne_bytes());
    attribute[4..len].copy_from_slice(content);
    let mut answer = sys::generic_request(&message)?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    if u16_at(&answer, 4).map(i32::from) == Some(libc::NLMSG_ERROR) {
        let code = u32_at(&answer, HEADER).ok_or_else(bad)? as i32;
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    let len = u32_at(&answer, 0).ok_or_else(bad)? as usize;
    answer.truncate(len);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_native_xdp_where_the_kernel_says_so() {
        if let Some(features) = features(1) {
            assert_eq!(features & BASIC, 0);
        }
        assert_eq!(super::features(u32::MAX >> 1), None);
    }
}
