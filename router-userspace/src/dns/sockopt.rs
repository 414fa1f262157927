//! Socket options that neither the standard library nor socket2 knows.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option whose value is a number.
///
/// # Errors
/// When the kernel does not know it, or does not allow it.
pub(super) fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the option value is a `c_int`
    // that lives through the call, with its size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
