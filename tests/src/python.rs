//! A Python that has what a script of the tests imports.

use std::process::Command;

/// A Python that can import this module: Debian's packages belong to Debian's Python, which need not be the first in
/// PATH.
///
/// # Panics
/// When there is none.
pub fn having(module: &str) -> &'static str {
    let has = |python: &&str| {
        let tried = Command::new(python).args(["-c", &format!("import {module}")]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = ["/usr/bin/python3", "python3"].into_iter().find(has);
    found.unwrap_or_else(|| panic!("no Python with {module}; `cargo xtask setup`"))
}
