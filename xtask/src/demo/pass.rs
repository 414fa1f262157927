//! The smallest XDP program, `return XDP_PASS`, as an object file that `ip link set … xdp` loads.
//!
//! A veth hands over what XDP_TX sends only when its peer has a program too: `veth_xdp_flush` in
//! drivers/net/veth.c wakes the receiver under that condition alone. GRO on the peer lets the frames into
//! the ring, where they stay until something else wakes it. A real network card knows no such condition.

/// `r0 = XDP_PASS; exit`.
const CODE: [u8; 16] = [0xb7, 0, 0, 0, 2, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
const LICENSE: &[u8] = b"GPL\0";
/// Names of sections and of the function, in one table.
const NAMES: &[u8] = b"\0xdp\0license\0.symtab\0.strtab\0pass\0";
/// The section that holds the program.
pub const SECTION: &str = "xdp";

const EM_BPF: u16 = 247;
const HEADER: u64 = 64;
const SYMBOL: u64 = 24;

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;
const EXECINSTR: u64 = 4;

/// A section and its header (Elf64_Shdr), without what follows from its place.
#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a str,
    kind: u32,
    flags: u64,
    bytes: &'a [u8],
    link: u32,
    info: u32,
    alignment: u64,
    entry: u64,
}

/// A relocatable ELF file for BPF, in this machine's byte order.
pub fn object() -> Vec<u8> {
    let name = |name: &str| {
        let with_end = [name.as_bytes(), b"\0"].concat();
        NAMES.windows(with_end.len()).position(|w| w == with_end).unwrap_or(0) as u32
    };
    let mut symbols = vec![0; SYMBOL as usize];
    symbols.extend(name("pass").to_ne_bytes());
    symbols.extend([0x12, 0]); // STB_GLOBAL, STT_FUNC
    symbols.extend(1u16.to_ne_bytes()); // in section 1
    symbols.extend(0u64.to_ne_bytes());
    symbols.extend((CODE.len() as u64).to_ne_bytes());

    let plain =
        Section { name: "", kind: PROGBITS, flags: 0, bytes: &[], link: 0, info: 0, alignment: 8, entry: 0 };
    let sections = [
        Section { name: SECTION, flags: ALLOC | EXECINSTR, bytes: &CODE, ..plain },
        Section { name: "license", flags: ALLOC | WRITE, bytes: LICENSE, ..plain },
        // Its names are in section 4, its global symbols begin with number 1.
        Section { name: ".symtab", kind: SYMTAB, bytes: &symbols, link: 4, info: 1, entry: SYMBOL, ..plain },
        Section { name: ".strtab", kind: STRTAB, bytes: NAMES, ..plain },
    ];
    let mut content = Vec::new();
    let mut table = vec![0; HEADER as usize];
    for section in &sections {
        content.resize(content.len().next_multiple_of(8), 0);
        let at = HEADER + content.len() as u64;
        content.extend_from_slice(section.bytes);
        table.extend(name(section.name).to_ne_bytes());
        table.extend(section.kind.to_ne_bytes());
        for number in [section.flags, 0, at, section.bytes.len() as u64] {
            table.extend(number.to_ne_bytes());
        }
        table.extend(section.link.to_ne_bytes());
        table.extend(section.info.to_ne_bytes());
        table.extend(section.alignment.to_ne_bytes());
        table.extend(section.entry.to_ne_bytes());
    }
    content.resize(content.len().next_multiple_of(8), 0);

    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(1u16.to_ne_bytes()); // relocatable
    file.extend(EM_BPF.to_ne_bytes());
    file.extend(1u32.to_ne_bytes());
    for number in [0, 0, HEADER + content.len() as u64] {
        file.extend(number.to_ne_bytes()); // no entry, no program headers, the sections' table
    }
    file.extend(0u32.to_ne_bytes());
    for number in [HEADER as u16, 0, 0, HEADER as u16, sections.len() as u16 + 1, sections.len() as u16] {
        file.extend(number.to_ne_bytes());
    }
    file.extend(content);
    file.extend(table);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_an_elf_file_for_bpf_with_its_table_at_the_end() {
        let object = object();
        assert_eq!(&object[..4], b"\x7fELF");
        assert_eq!(u16::from_ne_bytes([object[18], object[19]]), EM_BPF);
        let table = u64::from_ne_bytes(object[40..48].try_into().unwrap()) as usize;
        assert_eq!(object.len(), table + 5 * HEADER as usize);
        let section = &object[table + HEADER as usize..];
        let at = u64::from_ne_bytes(section[24..32].try_into().unwrap()) as usize;
        assert_eq!(object[at..at + CODE.len()], CODE);
    }
}
