//! Frame Streams (<https://github.com/farsightsec/fstrm>): frames with their length before them, and a few
//! control frames. Only the side that writes.

use std::io::{self, Read, Write};

/// What frames carry.
pub const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";

/// Control frames.
const ACCEPT: u32 = 1;
const START: u32 = 2;
const STOP: u32 = 3;
const READY: u32 = 4;
const FINISH: u32 = 5;
/// The field of a control frame that names a content type.
const FIELD_CONTENT_TYPE: u32 = 1;
/// Octets of a control frame, at most.
const MAX_CONTROL: u32 = 512;
/// Octets of a STOP frame.
pub const STOP_LEN: u64 = 12;

/// Appends a data frame.
pub fn data(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}

/// What a stream without a handshake begins with, and one with a handshake after it.
pub fn start() -> Vec<u8> {
    control(START, true)
}

/// What a stream ends with.
pub fn stop() -> Vec<u8> {
    control(STOP, false)
}

fn control(kind: u32, with_type: bool) -> Vec<u8> {
    let mut body = kind.to_be_bytes().to_vec();
    if with_type {
        body.extend_from_slice(&FIELD_CONTENT_TYPE.to_be_bytes());
        body.extend_from_slice(&(CONTENT_TYPE.len() as u32).to_be_bytes());
        body.extend_from_slice(CONTENT_TYPE);
    }
    // A data frame is never empty, so length 0 announces a control frame.
    let mut frame = vec![0; 4];
    data(&body, &mut frame);
    frame
}

/// Agrees with a reader: READY, ACCEPT, START.
///
/// # Errors
/// Of the connection, or that the reader takes something else.
pub fn shake_hands(peer: &mut (impl Read + Write)) -> io::Result<()> {
    peer.write_all(&control(READY, true))?;
    peer.flush()?;
    let body = read_control(peer)?;
    let (kind, mut fields) = split(&body)?;
    if kind != ACCEPT {
        return Err(broken("the reader does not accept"));
    }
    // A reader that names no type takes any.
    let (mut named, mut ours) = (false, false);
    while !fields.is_empty() {
        let (field, rest) = split(fields)?;
        let (len, rest) = split(rest)?;
        let (value, rest) =
            rest.split_at_checked(len as usize).ok_or_else(|| broken("a field is cut short"))?;
        named |= field == FIELD_CONTENT_TYPE;
        ours |= field == FIELD_CONTENT_TYPE && value == CONTENT_TYPE;
        fields = rest;
    }
    if named && !ours {
        return Err(broken("the reader does not take dnstap"));
    }
    peer.write_all(&start())
}

/// Ends a stream that began with a handshake: STOP, and FINISH from the reader, which has then seen everything.
///
/// # Errors
/// Of the connection.
pub fn part(peer: &mut (impl Read + Write)) -> io::Result<()> {
    peer.write_all(&stop())?;
    peer.flush()?;
    let body = read_control(peer)?;
    if split(&body)?.0 == FINISH { Ok(()) } else { Err(broken("the reader does not finish")) }
}

/// The body of a control frame.
fn read_control(peer: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 8];
    peer.read_exact(&mut head)?;
    let (escape, rest) = split(&head)?;
    let len = split(rest)?.0;
    if escape != 0 || !(4..=MAX_CONTROL).contains(&len) {
        return Err(broken("the reader does not speak Frame Streams"));
    }
    let mut body = vec![0; len as usize];
    peer.read_exact(&mut body)?;
    Ok(body)
}

/// The next 32 bits.
fn split(octets: &[u8]) -> io::Result<(u32, &[u8])> {
    let (number, rest) = octets.split_first_chunk().ok_or_else(|| broken("a control frame is cut short"))?;
    Ok((u32::from_be_bytes(*number), rest))
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Where the frames of a file end that is to be gone on with: before its STOP, or, when whoever wrote it did not
/// get to that, behind the last whole frame. `None`: it is no dnstap file.
///
/// # Errors
/// When it cannot be read.
pub fn end_of_frames(file: &mut impl Read, len: u64) -> io::Result<Option<u64>> {
    let start = start();
    let mut begin = vec![0; start.len()];
    if len < start.len() as u64 {
        return Ok(None);
    }
    file.read_exact(&mut begin)?;
    if begin != start {
        return Ok(None);
    }
    let mut at = start.len() as u64;
    loop {
        let mut head = [0; 4];
        if len - at < 4 {
            return Ok(Some(at));
        }
        file.read_exact(&mut head)?;
        let size = u64::from(u32::from_be_bytes(head));
        // A control frame: it can only be STOP.
        if size == 0 || len - at - 4 < size {
            return Ok(Some(at));
        }
        if io::copy(&mut file.take(size), &mut io::sink())? < size {
            return Ok(Some(at));
        }
        at += 4 + size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that says what it is told to.
    struct Peer {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.says.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.heard.extend_from_slice(octets);
            Ok(octets.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shake(says: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let mut peer = Peer { says: io::Cursor::new(says), heard: Vec::new() };
        (shake_hands(&mut peer), peer.heard)
    }

    #[test]
    fn a_reader_is_agreed_with_or_told_apart() {
        let (done, heard) = shake(control(ACCEPT, true));
        done.unwrap();
        assert_eq!(heard, [control(READY, true), start()].concat());
        shake(control(ACCEPT, false)).0.unwrap();
        let mut other = control(ACCEPT, true);
        *other.last_mut().unwrap() = b'?';
        for says in [other, control(STOP, false), b"HTTP/1.1 400 Bad".to_vec(), vec![0; 4], vec![0xff; 600]] {
            let (failed, heard) = shake(says);
            failed.unwrap_err();
            assert_eq!(heard, control(READY, true), "it went on");
        }
    }

    #[test]
    fn a_file_goes_on_where_its_frames_end() {
        let mut whole = start();
        data(b"one", &mut whole);
        data(b"two", &mut whole);
        let end = whole.len() as u64;
        let find = |file: &[u8]| end_of_frames(&mut &*file, file.len() as u64).unwrap();
        assert_eq!(find(&whole), Some(end));
        let stopped = [whole.clone(), stop()].concat();
        assert_eq!(find(&stopped), Some(end));
        assert_eq!(stopped.len() as u64 - end, STOP_LEN);
        // Cut inside the last frame.
        for cut in 1..7 {
            assert_eq!(find(&whole[..whole.len() - cut]), Some(end - 7), "{cut}");
        }
        assert_eq!(find(b"something else that is quite as long as a START"), None);
        assert_eq!(find(b""), None);
    }
}
