//! A transfer's messages on a connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Transfer;
use crate::clock::unix_now;

/// Sends every message, the next one made when the one before is written. Each has `idle` to be taken in,
/// and `taken` is called when it was.
///
/// # Errors
/// When the client does not take it, or is gone; or after the message that says why the zone cannot be sent.
pub(in crate::dns) async fn send<W: AsyncWrite + Unpin>(
    mut transfer: Transfer,
    to: &mut W,
    idle: Duration,
    taken: impl Fn(),
) -> io::Result<()> {
    loop {
        // A message holds thousands of records, and decisions for as many names.
        let made = spawn_blocking(move || {
            let message = transfer.next_message(unix_now());
            (transfer, message)
        });
        let message;
        (transfer, message) = made.await.map_err(io::Error::other)?;
        let Some(message) = message else { break };
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        let framed = [&len.to_be_bytes()[..], &message].concat();
        timeout(idle, to.write_all(&framed)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        taken();
    }
    if !transfer.is_whole() {
        return Err(io::Error::other("the transfer ended with an error"));
    }
    transfer.finish();
    Ok(())
}
