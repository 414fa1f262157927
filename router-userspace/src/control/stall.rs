//! A stream whose writes must get on: who does not take its reply loses the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// See the module. Reading is left alone.
pub(super) struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Lets a write wait so long without a single octet taken.
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, deadline: None }
    }

    fn hurry<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let patience = self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.deadline = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        self.hurry(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, octets);
        self.hurry(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.hurry(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.hurry(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_write_that_gets_nowhere_fails_and_one_that_gets_on_does_not() {
        let patience = Duration::from_millis(400);
        let (mut client, server) = tokio::io::duplex(16);
        let mut server = Impatient::new(server, patience);
        let failed = server.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);

        let reading = tokio::spawn(async move {
            let mut octets = [0; 8];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                client.read_exact(&mut octets).await.expect("octets");
            }
            client
        });
        server.write_all(&[0; 48]).await.expect("slower than its patience as a whole, but it gets on");
        reading.await.expect("no panic");
    }
}
