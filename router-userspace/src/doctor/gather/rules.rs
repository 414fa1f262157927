//! Rules of netfilter that name port 53, as its own tools print them.

use std::process::{Command, Stdio};

/// Rules that are told at most.
const MOST: usize = 100;

/// Asks the tools that are there; nothing without them, or without the right to ask.
pub fn for_port_53() -> Vec<String> {
    let mut found = Vec::new();
    for (program, arguments) in
        [("nft", &["list", "ruleset"][..]), ("iptables-save", &[][..]), ("ip6tables-save", &[][..])]
    {
        let path = ["/usr/sbin", "/sbin", "/usr/bin"]
            .map(|directory| format!("{directory}/{program}"))
            .into_iter()
            .find(|path| std::path::Path::new(path).exists());
        let Some(path) = path else { continue };
        let output = Command::new(path).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
        if let Ok(output) = output {
            found.extend(matching(&String::from_utf8_lossy(&output.stdout)));
        }
    }
    found.sort();
    found.dedup();
    found.truncate(MOST);
    found
}

/// The lines that are rules for packets to port 53.
fn matching(text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| {
            let words: Vec<&str> = line.split([' ', ',', '{', '}']).filter(|word| !word.is_empty()).collect();
            let to = words.iter().position(|word| matches!(*word, "dport" | "--dport" | "--dports"));
            to.is_some_and(|to| words[to + 1..].iter().take(16).any(|word| matches!(*word, "53" | "domain")))
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_port_53_are_told_from_others() {
        let text = "table inet filter {\n  chain input {\n    type filter hook input priority 0;\n    udp dport 53 \
                    limit rate 10/second accept\n    tcp dport { 22, 53, 80 } accept\n    udp sport 53 accept\n    tcp \
                    dport 5353 accept\n  }\n}\n-A INPUT -p udp -m udp --dport 53 -j DROP\n-A INPUT -p tcp --dport 443 \
                    -j ACCEPT\n";
        let found = matching(text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("udp dport 53") && found[2].starts_with("-A INPUT"), "{found:?}");
    }
}
