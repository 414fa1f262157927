//! The XDP program: the BPF object that the build script made, embedded.

/// Raises the alignment of what it holds to that of ELF structures.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xroute-xdp")));

/// The object file, aligned to 8 octets. Its program is [`router_common::abi::PROGRAM`].
pub static OBJECT: &[u8] = &ALIGNED.0;
