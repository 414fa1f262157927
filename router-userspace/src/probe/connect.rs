//! The TCP connection of a probe.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Instant;

use router_common::health::{ProbeFault, Stage};
use router_common::model::Source;
use tokio::net::{TcpSocket, TcpStream};

use super::fault::Failed;
use super::transcript::Transcript;

/// Connects to the first address that lets us, each given an even share of the time that is left. Also
/// returns when that connection was begun.
pub(super) async fn connect(
    addresses: &[SocketAddr],
    source: &Source,
    deadline: Instant,
    transcript: &mut Transcript,
) -> Result<(TcpStream, Instant), Failed> {
    // A source of one family reaches only that family.
    let reachable = |to: &&SocketAddr| source.address.is_none_or(|from| from.is_ipv4() == to.is_ipv4());
    let addresses: Vec<SocketAddr> = addresses.iter().filter(reachable).copied().collect();
    let mut failed = Failed::new(ProbeFault::Resolve, "no address of the source's family");
    for (i, &address) in addresses.iter().enumerate() {
        transcript.tried.push(address);
        let socket = socket(address, source)?;
        let started = Instant::now();
        let left = (addresses.len() - i) as u32;
        let share = deadline.saturating_duration_since(started) / left;
        match tokio::time::timeout(share, socket.connect(address)).await {
            Ok(Ok(stream)) => {
                if transcript.wanted {
                    transcript.local = stream.local_addr().ok();
                }
                return Ok((stream, started));
            }
            Ok(Err(error)) => failed = Failed::from_chain(&error, ProbeFault::Unreachable),
            Err(_) => {
                let fault = ProbeFault::Timeout(Stage::Connect);
                failed = Failed::new(fault, format!("{fault} to {address}, after {share:?}"));
            }
        }
    }
    Err(failed)
}

/// A socket that comes from where it shall. A source that this machine does not have is no fault of the
/// endpoint.
fn socket(to: SocketAddr, source: &Source) -> Result<TcpSocket, Failed> {
    let local = |what: &str, error: io::Error| Failed::new(ProbeFault::Local, format!("{what}: {error}"));
    let made = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = made.map_err(|error| local("socket", error))?;
    if let Some(interface) = &source.interface {
        socket
            .bind_device(Some(interface.as_bytes()))
            .map_err(|error| local(&format!("source_interface {interface}"), error))?;
    }
    if let Some(address) = source.address {
        choose_port_at_connect(&socket);
        socket
            .bind(SocketAddr::new(address, 0))
            .map_err(|error| local(&format!("source {address}"), error))?;
    }
    Ok(socket)
}

/// Leaves the port open when the address is bound: chosen then, it would have to differ from every other
/// probe's, and 28,000 of them would be all. A kernel that cannot do it chooses early; that works too.
fn choose_port_at_connect(socket: &TcpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and value and length describe one int that outlives the call.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        );
    }
}
