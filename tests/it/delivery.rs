//! The model of what a kernel delivers (`router_tests::delivery`), which the mutated packets are judged by,
//! against the kernel: the same frames through a veth to sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use router_tests::delivery::{Host, Refusal, deliver};
use router_tests::invariants::hex;
use router_tests::kernel::{LOCALS4, SERVICE4, SERVICE6};
use router_tests::mutation::Recipe;
use router_tests::netns::{Namespace, need_netns};
use router_tests::packet::Frame;

/// Frames that are sent.
const FRAMES: u64 = 20_000;
/// Frames are numbered from here: others than those of `mutation.rs`.
const FIRST: u64 = 0x6465_6c69_7665_0000;
/// The longest that an interface with an MTU of 1500 takes.
const LONGEST: usize = 1500;
/// The shortest that a packet socket takes.
const SHORTEST: usize = 15;

#[test]
fn netns_a_kernel_delivers_what_the_model_says() {
    if !need_netns() {
        return;
    }
    let (host, sender) = (Namespace::new(), Namespace::new());
    host.sh(&format!(
        "ip link add xr0 address 02:00:00:00:00:01 type veth peer name xr1 netns {}
         echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter
         ip link set xr0 up; ip addr add {SERVICE4}/32 dev xr0; ip addr add {SERVICE6}/128 dev xr0 nodad
         ip addr add {local}/24 dev xr0
         ip route add default dev xr0; ip -6 route add default dev xr0",
        sender.path(),
        local = LOCALS4[0],
    ));
    sender.sh("ip link set xr1 up");
    // A kernel may be without VLAN devices; then it refuses all tags.
    let vlans = host.sh("for id in 7 4094; do
             ip link add link xr0 name v$id type vlan id $id 2>&1 || exit 0; ip link set v$id up
             for inner in 7 4094; do
                 ip link add link v$id name v$id.$inner type vlan id $inner; ip link set v$id.$inner up
             done
         done");
    let vlans = if vlans.is_empty() { vec![7, 4094] } else { Vec::new() };
    let sockets = host.run(|| {
        [SocketAddr::from((SERVICE4, 53)), SocketAddr::from((SERVICE6, 53))].map(|address| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        })
    });
    let tally = sender.run(|| {
        stay_on_this_cpu();
        let wire = Wire { socket: packet_socket("xr1").unwrap(), sockets };
        wire.compare(vlans)
    });
    println!("{tally:?}");
    assert!(tally.delivered > FRAMES / 4, "{tally:?}");
    assert!(tally.refused > FRAMES / 4, "{tally:?}");
}

#[derive(Default, Debug)]
struct Tally {
    delivered: u64,
    refused: u64,
    /// The model does not say, or the frame cannot be sent.
    skipped: u64,
}

/// A way to put frames before the host, and its sockets.
struct Wire {
    socket: OwnedFd,
    sockets: [UdpSocket; 2],
}

impl Wire {
    fn compare(&self, vlans: Vec<u16>) -> Tally {
        let host = Host {
            mac: [2, 0, 0, 0, 0, 1],
            vlans,
            addresses: vec![SERVICE4.into(), SERVICE6.into()],
            locals: LOCALS4.to_vec(),
            port: 53,
        };
        let mut tally = Tally::default();
        for number in FIRST..FIRST + FRAMES {
            let made = Recipe::new(number).make();
            if !(SHORTEST..=LONGEST).contains(&made.octets.len()) {
                tally.skipped += 1;
                continue;
            }
            let expected = match deliver(&host, &made.octets) {
                // A packet socket leaves no checksum to a device.
                Ok(datagram) => (!datagram.offloaded).then_some(datagram),
                Err(refusal) if is_sure(refusal, &made.octets) => None,
                Err(_) => {
                    tally.skipped += 1;
                    continue;
                }
            };
            let found = self.through(&made.octets, number);
            let right = match (&expected, found.as_slice()) {
                (None, []) => true,
                (Some(expected), [found]) => {
                    (expected.source, expected.source_port, &expected.payload)
                        == (found.0.ip(), found.0.port(), &found.1)
                }
                _ => false,
            };
            assert!(
                right,
                "the kernel delivers {found:?}, the model {:?}\nframe {}\n{}",
                deliver(&host, &made.octets),
                hex(&made.octets),
                made.story.join("\n")
            );
            if expected.is_some() {
                tally.delivered += 1;
            } else {
                tally.refused += 1;
            }
        }
        tally
    }

    /// Sends a frame; what reaches the sockets. A good frame is sent after it, and waited for.
    fn through(&self, frame: &[u8], number: u64) -> Vec<(SocketAddr, Vec<u8>)> {
        let end = format!("end of {number}").into_bytes();
        self.send(frame).unwrap();
        self.send(&Frame::ipv4([198, 18, 99, 99].into(), SERVICE4, end.clone()).bytes()).unwrap();
        let mut found = Vec::new();
        let mut octets = vec![0; 4096];
        loop {
            let (len, from) = self.sockets[0].recv_from(&mut octets).expect("the frame behind it arrives");
            if octets[..len] == end {
                break;
            }
            found.push((from, octets[..len].to_vec()));
        }
        self.sockets[1].set_nonblocking(true).unwrap();
        while let Ok((len, from)) = self.sockets[1].recv_from(&mut octets) {
            found.push((from, octets[..len].to_vec()));
        }
        found
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: reads as many octets as there are.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent == frame.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whether the kernel, too, has to refuse it.
fn is_sure(refusal: Refusal, frame: &[u8]) -> bool {
    // A second tag makes another packet of it, which only devices for both would take.
    let service_tag = frame[12..].chunks_exact(4).take(2).any(|tag| tag[..2] == [0x88, 0xa8]);
    refusal != Refusal::Unusual && !service_tag
}

/// Frames in flight are in order on one CPU only.
fn stay_on_this_cpu() {
    // SAFETY: a set of CPUs is plain data, and the call reads as much as it is told.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A socket that sends whole frames on an interface.
fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened and known to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: plain data, for which zeros are a value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    // SAFETY: reads a terminated string.
    to.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    // SAFETY: reads an address of the size that is said.
    let bound =
        unsafe { libc::bind(fd, (&raw const to).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
