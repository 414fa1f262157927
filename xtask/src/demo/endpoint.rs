//! An HTTP server that answers every request with its name: what the demo's probes meet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A client that says nothing for this long is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request head that is read.
const LONGEST: usize = 8192;

/// Serves until it is killed.
pub fn serve(name: &str, addresses: &[SocketAddr]) -> Result<()> {
    thread::scope(|scope| {
        for address in addresses {
            let listener =
                TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
            scope.spawn(move || {
                for stream in listener.incoming().flatten() {
                    let name = name.to_owned();
                    // A client that breaks off has only itself to tell.
                    thread::spawn(move || answer(stream, &name).ok());
                }
            });
        }
        Ok(())
    })
}

/// Reads one request and answers it; the connection ends with that.
fn answer(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part)?;
        if length == 0 || request.len() > LONGEST {
            return Ok(());
        }
        request.extend_from_slice(&part[..length]);
    }
    let body = format!("endpoint {name}\n");
    let mut response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !request.starts_with(b"HEAD ") {
        response += &body;
    }
    stream.write_all(response.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_with_the_name_and_a_head_without_a_body() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, "b").unwrap();
            }
        });
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            response
        };
        let get = ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\nendpoint b\n"), "{get}");
        let head = ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.contains("Content-Length: 11\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
