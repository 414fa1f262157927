//! Master file text to entries of tokens: comments, quotes, parentheses, escapes (RFC 1035 §5.1).

/// A word of an entry. Octets beyond ASCII are written as `\DDD`; other escapes stay as they are, to be
/// read by whoever knows what the word is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// Whether it begins with a quote: then it is a string, never a keyword.
    pub(super) quoted: bool,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// The tokens of one entry: a line, or several that parentheses join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Whether it begins with a blank: it has the owner of the entry before.
    pub(super) indented: bool,
    pub(super) tokens: Vec<Token>,
}

/// An entry that could not be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
}

/// The entries of a text, empty ones left out.
pub(super) fn entries(octets: &[u8]) -> impl Iterator<Item = Result<Entry, Broken>> {
    let octets = octets.strip_prefix(b"\xef\xbb\xbf").unwrap_or(octets);
    let mut lexer = Lexer { octets, at: 0, line: 1, start: 0 };
    std::iter::from_fn(move || {
        loop {
            match lexer.entry()? {
                Ok(entry) if entry.tokens.is_empty() => {}
                other => return Some(other),
            }
        }
    })
}

struct Lexer<'t> {
    octets: &'t [u8],
    at: usize,
    line: usize,
    /// Where the line begins.
    start: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.octets.get(self.at).copied()
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
        self.start = self.at;
    }

    fn broken(&self, message: &str) -> Broken {
        Broken { line: self.line, column: self.at - self.start + 1, message: message.into() }
    }

    /// Skips to the next line after a mistake.
    fn recover(&mut self) {
        while let Some(octet) = self.peek() {
            if octet == b'\n' {
                self.newline();
                return;
            }
            self.at += 1;
        }
    }

    fn entry(&mut self) -> Option<Result<Entry, Broken>> {
        self.peek()?;
        let mut entry = Entry { indented: matches!(self.peek(), Some(b' ' | b'\t')), tokens: Vec::new() };
        let mut open: Option<Broken> = None;
        let mut depth = 0usize;
        loop {
            match self.peek() {
                None => {
                    return Some(match open {
                        Some(open) => Err(open),
                        None => Ok(entry),
                    });
                }
                Some(b'\n') => {
                    self.newline();
                    if depth == 0 {
                        return Some(Ok(entry));
                    }
                }
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b';') => {
                    while self.peek().is_some_and(|octet| octet != b'\n') {
                        self.at += 1;
                    }
                }
                Some(b'(') => {
                    open.get_or_insert_with(|| self.broken("a parenthesis that is never closed"));
                    depth += 1;
                    self.at += 1;
                }
                Some(b')') => {
                    if depth == 0 {
                        let broken = self.broken("a closing parenthesis without an opening one");
                        self.recover();
                        return Some(Err(broken));
                    }
                    depth -= 1;
                    if depth == 0 {
                        open = None;
                    }
                    self.at += 1;
                }
                Some(_) => match self.token() {
                    Ok(token) => entry.tokens.push(token),
                    Err(broken) => {
                        self.recover();
                        return Some(Err(broken));
                    }
                },
            }
        }
    }

    /// One word; quotes may begin anywhere in it, as in `alpn="h2,h3"`.
    fn token(&mut self) -> Result<Token, Broken> {
        let mut token = Token {
            text: String::new(),
            quoted: self.peek() == Some(b'"'),
            line: self.line,
            column: self.at - self.start + 1,
        };
        let mut inside: Option<Broken> = None;
        while let Some(octet) = self.peek() {
            match (octet, &inside) {
                (b'\n', Some(_)) => break,
                (b'"', None) => inside = Some(self.broken("a quote that is not closed on its line")),
                (b'"', Some(_)) => inside = None,
                (b'\n' | b' ' | b'\t' | b'\r' | b';' | b'(' | b')', None) => return Ok(token),
                (b'\\', _) => {
                    self.at += 1;
                    let Some(next) = self.peek().filter(|&next| next != b'\n') else {
                        return Err(self.broken("a \\ at the end of the line"));
                    };
                    token.text.push('\\');
                    push(&mut token.text, next, true);
                }
                (other, _) => push(&mut token.text, other, false),
            }
            self.at += 1;
        }
        match inside {
            Some(broken) => Err(broken),
            None => Ok(token),
        }
    }
}

/// Adds an octet, after a `\` or not, so that the text stays ASCII.
fn push(text: &mut String, octet: u8, escaped: bool) {
    if octet.is_ascii() {
        text.push(char::from(octet));
    } else if escaped {
        text.push_str(&format!("{octet:03}"));
    } else {
        text.push_str(&format!("\\{octet:03}"));
    }
}
