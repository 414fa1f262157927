//! `[cookies]`: DNS cookies and the file of their secrets.

use std::sync::Arc;

use super::reader::{Table, truth};
use super::warnings::Warnings;
use crate::fault::Fault;
use crate::settings::{Cookies, Secret};

/// Hexadecimal digits of a secret.
const DIGITS: usize = 32;

/// Reads the table; `octets` are those of the file that `secret_file` names. `None`: cookies are off.
pub(super) fn read(
    table: Table<'_>,
    file: Option<(String, Vec<u8>)>,
    warnings: &mut Warnings,
) -> Option<Cookies> {
    let enabled = table.take("enabled", truth);
    let mut cookies = Cookies::default();
    if let Some(require) = table.take("require", truth) {
        cookies.require = require;
    }
    if let Some((file, octets)) = file {
        match secrets(&file, &octets) {
            Ok(secrets) => cookies.secrets = secrets,
            Err(faults) => table.faults().extend(faults),
        }
    }
    if !table.has("enabled") {
        warnings.add(&table.spot(), "[cookies] without enabled = true: cookies are off".into());
    }
    table.finish();
    enabled.unwrap_or(false).then_some(cookies)
}

/// Reads one secret a line, the one that signs first. No message shows what a line holds.
fn secrets(file: &str, octets: &[u8]) -> Result<Vec<Secret>, Vec<Fault>> {
    let name: Arc<str> = file.into();
    let fault = |line, message: String| Fault { file: name.clone(), line, column: 0, message };
    let (mut secrets, mut faults) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(octets.split(|&octet| octet == b'\n')) {
        let text = text.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        match secret(text) {
            None => faults.push(fault(
                line,
                format!(
                    "a secret is {DIGITS} hexadecimal digits; this line has {} octets{}",
                    text.len(),
                    if text.len() == DIGITS { " that are not all digits" } else { "" }
                ),
            )),
            Some(secret) if secrets.contains(&secret) => {
                faults.push(fault(line, "this secret stands in the file already".into()));
            }
            Some(_) if secrets.len() == Secret::MAX => {
                faults.push(fault(line, format!("one secret too many; allowed are {}", Secret::MAX)));
                break;
            }
            Some(secret) => secrets.push(secret),
        }
    }
    if secrets.is_empty() && faults.is_empty() {
        faults.push(fault(0, format!("no secret in it; a line of {DIGITS} hexadecimal digits is wanted")));
    }
    if faults.is_empty() { Ok(secrets) } else { Err(faults) }
}

fn secret(text: &[u8]) -> Option<Secret> {
    let mut octets = [0; DIGITS / 2];
    if text.len() != DIGITS {
        return None;
    }
    for (octet, digits) in octets.iter_mut().zip(text.chunks_exact(2)) {
        *octet = super::values::hex_octet(digits)?;
    }
    Some(Secret(octets))
}
