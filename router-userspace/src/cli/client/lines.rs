//! What comes line by line, for as long as somebody reads it.

use std::ops::ControlFlow;
use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};

use super::{Connection, LOOK, QUEUE, is_queue_full, refused};

/// How [`Connection::read_lines`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The agent said everything, or is gone.
    Closed,
    /// Nobody wants more.
    Enough,
}

impl Connection {
    /// Asks for a resource that comes line by line, until it ends, `each` has enough of it, or the process is
    /// interrupted. Fields of `query` that are null are left out.
    pub fn read_lines(
        &self,
        resource: &str,
        query: &impl serde::Serialize,
        each: &mut dyn FnMut(&str) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<End> {
        let mut url = reqwest::Url::parse("http://xroute")?.join(resource)?;
        if let serde_json::Value::Object(fields) = serde_json::to_value(query)? {
            let mut pairs = url.query_pairs_mut();
            for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                pairs.append_pair(key, value.as_str().unwrap_or(&value.to_string()));
            }
        }
        self.runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let began = Instant::now();
            let mut response = loop {
                match self.client.get(url.clone()).send().await {
                    Ok(response) => break response,
                    Err(error) if is_queue_full(&error) && began.elapsed() < QUEUE.0 => {
                        tokio::time::sleep(QUEUE.1).await;
                    }
                    Err(error) => return Err(self.unsent(error, LOOK)),
                }
            };
            let status = response.status();
            if !status.is_success() {
                let text = response.text().await.unwrap_or_else(|_| status.to_string());
                return Err(refused(status, &text).into());
            }
            let mut held = Vec::new();
            loop {
                let chunk = tokio::select! {
                    chunk = response.chunk() => chunk,
                    _ = tokio::signal::ctrl_c() => return Ok(End::Enough),
                    _ = terminate.recv() => return Ok(End::Enough),
                };
                // An agent that is killed closes in the middle.
                let Ok(Some(chunk)) = chunk else { return Ok(End::Closed) };
                held.extend_from_slice(&chunk);
                while let Some(end) = held.iter().position(|&octet| octet == b'\n') {
                    let line: Vec<u8> = held.drain(..=end).collect();
                    if each(String::from_utf8_lossy(&line).trim_end())?.is_break() {
                        return Ok(End::Enough);
                    }
                }
            }
        })
    }
}
