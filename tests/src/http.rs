//! HTTP as octets, so that a test sees what is really sent: one request, one reply.

use std::io::{self, Read, Write};

/// A reply as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Status line and header fields.
    pub head: String,
    /// What follows.
    pub body: String,
}

impl Reply {
    /// Value of a header field; empty when it is not there.
    pub fn field(&self, name: &str) -> &str {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
    }

    /// Reads one from all that came on a connection.
    ///
    /// # Errors
    /// When it is no reply.
    pub fn parse(octets: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(octets);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (Some((head, body)), Some(status)) = (text.split_once("\r\n\r\n"), status) else {
            return Err(io::Error::other(format!("no reply: {text:?}")));
        };
        Ok(Self { status, head: head.to_owned(), body: body.to_owned() })
    }
}

/// Sends a request on a new connection and reads until its end.
///
/// # Errors
/// What goes wrong on the way.
pub fn exchange(mut stream: impl Read + Write, method: &str, path: &str, body: &str) -> io::Result<Reply> {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: xroute\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )?;
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets)?;
    Reply::parse(&octets)
}
