//! The latency table: what each client prefix measures to each region.

use std::collections::HashMap;

use router_common::view::Latency;

use crate::csv;
use crate::fault::Fault;

/// Longest name of a region, octets.
const MAX_REGION: usize = 128;

/// Reads `prefix,region,milliseconds` rows. `file` is how mistakes name the file.
///
/// # Errors
/// Every malformed row, and every prefix that gives a region twice.
pub fn parse(file: &str, octets: &[u8]) -> Result<Latency, Vec<Fault>> {
    let mut latency = Latency::default();
    let mut seen = HashMap::new();
    csv::read(file, octets, ["prefix", "region", "milliseconds"], |line, [prefix, region, milliseconds]| {
        let net = csv::prefix(prefix).map_err(|why| (0, why))?;
        if region.is_empty() || region.len() > MAX_REGION {
            return Err((1, format!("region {region:?}; allowed are 1 to {MAX_REGION} octets")));
        }
        let time =
            milliseconds.parse::<f64>().ok().filter(|time| time.is_finite() && *time >= 0.0).ok_or_else(
                || (2, format!("{milliseconds:?} is not milliseconds; allowed are 0 and more")),
            )?;
        if let Some(before) = seen.insert((net, region.to_owned()), line) {
            return Err((0, format!("{net} has a latency to {region:?} already, in line {before}")));
        }
        latency.rows.push((net, region.to_owned(), time));
        Ok(())
    })?;
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_with_and_without_a_heading() {
        let table =
            "prefix,region,milliseconds\n198.51.100.0/24, eu ,10\n\n# a note\r\n2001:db8::/32,us,0.5\r\n";
        let with = parse("l.csv", table.as_bytes()).unwrap();
        let without = parse("l.csv", table.split_once('\n').unwrap().1.as_bytes()).unwrap();
        assert_eq!(with, without);
        let shown: Vec<String> =
            with.rows.iter().map(|(net, region, time)| format!("{net} {region} {time}")).collect();
        assert_eq!(shown, ["198.51.100.0/24 eu 10", "2001:db8::/32 us 0.5"]);
    }

    #[test]
    fn mistakes_name_line_and_column() {
        let table = "198.51.100.1/24,eu,10\n198.51.100.0/24,eu,1\n198.51.100.0/24,eu,2\n10.0.0.0/8,us,-1\n\
                     10.0.0.0/8,us\n10.0.0.0,us,3\n::ffff:10.0.0.0/104,us,3\n10.0.0.0/8,  ,nan\n";
        let shown: Vec<String> =
            parse("l.csv", table.as_bytes()).unwrap_err().iter().map(Fault::to_string).collect();
        assert_eq!(
            shown,
            [
                "l.csv:1:1: \"198.51.100.1/24\" has host bits set; the prefix is 198.51.100.0/24",
                "l.csv:3:1: 198.51.100.0/24 has a latency to \"eu\" already, in line 2",
                "l.csv:4:15: \"-1\" is not milliseconds; allowed are 0 and more",
                "l.csv:5: 2 fields; allowed are 3: prefix,region,milliseconds",
                "l.csv:6:1: \"10.0.0.0\" is an address; a prefix is wanted, e.g. \"10.0.0.0/32\"",
                "l.csv:7:1: \"::ffff:10.0.0.0/104\" is IPv4 inside IPv6; write 10.0.0.0/8",
                "l.csv:8:14: region \"\"; allowed are 1 to 128 octets",
            ]
        );
    }

    #[test]
    fn a_file_of_mistakes_is_cut_short() {
        let faults = parse("l.csv", "x\n".repeat(1000).as_bytes()).unwrap_err();
        assert_eq!(faults.len(), 51);
        assert_eq!(faults[50].to_string(), "l.csv: 950 more mistakes like these");
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse("l.csv", &octets);
        }

        #[test]
        fn no_near_miss_panics(text in "([0-9a-f:./,\n #-]|eu){0,60}") {
            let _ = parse("l.csv", text.as_bytes());
        }
    }
}
