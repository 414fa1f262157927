//! A transfer on its way to a connection.

use std::io;

use tokio::task::spawn_blocking;

use super::Transfer;
use crate::clock::unix_now;

/// Makes one message when the one before was written.
pub(in crate::dns) struct Sending(Option<Transfer>);

impl Sending {
    /// Of a transfer that has sent nothing.
    pub fn new(transfer: Transfer) -> Self {
        Self(Some(transfer))
    }

    /// The next message, its length before it; to be asked for when the client has taken the one before.
    /// `None`: that was the last, and the transfer counts as finished.
    ///
    /// # Errors
    /// When the zone cannot be sent to its end, which the message before has said. The connection is of no
    /// more use.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(mut transfer) = self.0.take() else { return Ok(None) };
        // A message holds thousands of records, and decisions for as many names.
        let made = spawn_blocking(move || {
            let message = transfer.next_message(unix_now());
            (transfer, message)
        });
        let (transfer, message) = made.await.map_err(io::Error::other)?;
        let Some(message) = message else {
            if !transfer.is_whole() {
                return Err(io::Error::other("the transfer ended with an error"));
            }
            transfer.finish();
            return Ok(None);
        };
        self.0 = Some(transfer);
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        Ok(Some([&len.to_be_bytes()[..], &message].concat()))
    }
}
