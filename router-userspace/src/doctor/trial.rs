//! One query through the program, in the kernel, attached to nothing.

use std::collections::BTreeMap;

use crate::agent::Agent;
use crate::config;
use crate::datapath::survey;

/// What is loaded for it.
const CONFIGURATION: &str = r#"
[server]
interfaces = []
listen     = ["192.0.2.53:53"]

[[zone]]
name = "doctor.invalid"
soa  = { mname = "ns.elsewhere.invalid.", rname = "root.doctor.invalid.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }
ns   = ["ns.elsewhere.invalid."]

[[profile]]
name   = "w"
names  = ["w.doctor.invalid"]
method = "weighted"
monitor = "off"

  [[profile.endpoint]]
  name    = "a"
  address = ["192.0.2.1"]
"#;

/// The hardware address that the frame is for.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// `XDP_TX`.
const SENT_BACK: u32 = 3;

/// Loads the program and asks it; nanoseconds of the quickest run.
///
/// # Errors
/// What went wrong, in one sentence.
pub fn run() -> Result<u32, String> {
    let none = BTreeMap::<String, Vec<u8>>::new();
    let config = config::parse(CONFIGURATION, "doctor", &none).map_err(|errors| errors.to_string())?;
    let agent = Agent::new(config, Default::default()).map_err(|refused| refused.to_string())?;
    let frame = frame();
    let tried =
        survey::try_query(&agent.compiled().tables, MAC, &frame).map_err(|error| format!("{error:#}"))?;
    let answered = tried.action == SENT_BACK && tried.frame.ends_with(&[0, 4, 192, 0, 2, 1]);
    if answered {
        return Ok(tried.nanoseconds);
    }
    Err(format!("it did not answer a query that it should answer (XDP action {})", tried.action))
}

/// `w.doctor.invalid. A` from 198.51.100.7; its UDP checksum is left out, as IPv4 allows.
fn frame() -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(b"\x01w\x06doctor\x07invalid\0\0\x01\0\x01");
    let udp = 8 + message.len() as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 51, 100, 7, 192, 0, 2, 53];
    ip[2..4].copy_from_slice(&(20 + udp).to_be_bytes());
    let sum: u32 = ip.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2, 8, 0]);
    frame.extend(ip);
    frame.extend([0x9c, 0x40, 0, 53]);
    frame.extend(udp.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_trial_hold_its_answer() {
        let none = BTreeMap::<String, Vec<u8>>::new();
        let config =
            config::parse(CONFIGURATION, "doctor", &none).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.warnings, []);
        let agent = Agent::new(config, Default::default()).expect("it compiles");
        assert!(agent.compiled().tables.owners.iter().any(|owner| owner.name_len == 18));
    }
}
