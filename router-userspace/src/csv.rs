//! Tables by client prefix: one row a line, fields between commas, a heading that may be left out.
//!
//! Blank lines and lines that begin with `#` are skipped. Fields are not quoted.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::fault::{Fault, MAX_FAULTS};

/// Reads the rows of a table. `row` gets the fields of one, spaces around them taken off, and says
/// what is wrong with which field (from 0).
///
/// # Errors
/// At most [`MAX_FAULTS`] mistakes, then how many there are.
pub(crate) fn read<const N: usize>(
    file: &str,
    octets: &[u8],
    heading: [&str; N],
    mut row: impl FnMut(usize, [&str; N]) -> Result<(), (usize, String)>,
) -> Result<(), Vec<Fault>> {
    let file: Arc<str> = file.into();
    let mut faults = Vec::new();
    let mut more = 0usize;
    let mut first = true;
    for (at, line) in octets.split(|&octet| octet == b'\n').enumerate() {
        let number = at + 1;
        let mut fault = |column: usize, message: String| {
            if faults.len() < MAX_FAULTS {
                faults.push(Fault { file: file.clone(), line: number, column, message });
            } else {
                more += 1;
            }
        };
        let Ok(text) = std::str::from_utf8(line) else {
            fault(0, "the line is not UTF-8 text".into());
            continue;
        };
        let text = if at == 0 { text.trim_start_matches('\u{feff}') } else { text };
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = text.split(',').collect();
        let Ok(fields) = <[&str; N]>::try_from(fields) else {
            let found = text.split(',').count();
            fault(0, format!("{found} fields; allowed are {N}: {}", heading.join(",")));
            first = false;
            continue;
        };
        let trimmed = fields.map(str::trim);
        if std::mem::take(&mut first) && trimmed.iter().zip(heading).all(|(a, b)| a.eq_ignore_ascii_case(b)) {
            continue;
        }
        if let Err((field, message)) = row(number, trimmed) {
            let before: usize = fields.iter().take(field).map(|field| field.chars().count() + 1).sum();
            let indent = fields
                .get(field)
                .map_or(0, |field| field.chars().take_while(|character| character.is_whitespace()).count());
            fault(before + indent + 1, message);
        }
    }
    if more > 0 {
        faults.push(Fault { file, line: 0, column: 0, message: format!("{more} more mistakes like these") });
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// A prefix in CIDR form whose host bits are zero. Prefixes of v4-mapped addresses are refused: clients
/// that have one are looked up by the IPv4 address in it.
pub(crate) fn prefix(text: &str) -> Result<IpNet, String> {
    let Ok(net) = text.parse::<IpNet>() else {
        return Err(match text.parse::<IpAddr>() {
            Ok(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                format!("{text:?} is an address; a prefix is wanted, e.g. \"{address}/{bits}\"")
            }
            Err(_) => format!("{text:?} is not a prefix; allowed are e.g. 198.51.100.0/24 and 2001:db8::/32"),
        });
    };
    if net.trunc() != net {
        return Err(format!("{text:?} has host bits set; the prefix is {}", net.trunc()));
    }
    if let IpNet::V6(v6) = net
        && v6.prefix_len() >= 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
    {
        return Err(format!("{text:?} is IPv4 inside IPv6; write {v4}/{}", v6.prefix_len() - 96));
    }
    Ok(net)
}
