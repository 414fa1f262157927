//! Mutations of a finished frame, which know nothing of what stands where.

use crate::random::Rng;

/// Makes one, and says which.
pub fn mutate(octets: &mut Vec<u8>, rng: &mut Rng) -> String {
    if octets.is_empty() {
        octets.push(0);
    }
    let at = rng.below(octets.len());
    let len = rng.below((octets.len() - at).min(32)) + 1;
    match rng.below(9) {
        0 | 1 => {
            octets[at] ^= 1 << rng.below(8);
            format!("a bit of octet {at}")
        }
        2 => {
            octets[at] = rng.of(&[0, 1, 0x0c, 0x29, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff]);
            format!("octet {at} is {:#04x}", octets[at])
        }
        3 => {
            octets[at] = octets[at].wrapping_add(rng.of(&[1, 255]));
            format!("octet {at} is {:#04x}", octets[at])
        }
        4 => {
            octets.truncate(at);
            format!("{at} octets are left")
        }
        5 => {
            octets.extend((0..len).map(|_| rng.draw() as u8));
            format!("{len} octets more")
        }
        6 => {
            octets.drain(at..at + len);
            format!("{len} octets at {at} are away")
        }
        7 => {
            let to = rng.below(octets.len());
            let copied = octets[at..at + len].to_vec();
            octets.splice(to..to, copied);
            format!("{len} octets at {at} once more at {to}")
        }
        _ => {
            octets.splice(at..at, (0..len).map(|_| rng.draw() as u8));
            format!("{len} octets put in at {at}")
        }
    }
}
