//! A stream of server-sent events, read as a browser would.

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::timeout;

use super::process::PATIENCE;

/// An open stream.
pub struct Stream {
    response: Response,
    read: Vec<u8>,
    /// How much of that holds no end of an event.
    searched: usize,
    /// How many comments came by.
    pub comments: usize,
}

/// One event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    pub event: String,
    pub id: String,
    pub data: String,
}

impl Stream {
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, read: Vec::new(), searched: 0, comments: 0 }
    }

    /// The next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let end = end_of_event(&self.read[self.searched..]).map(|end| self.searched + end);
            self.searched = self.read.len().saturating_sub(1);
            if let Some(end) = end {
                self.searched = 0;
                let text = String::from_utf8(self.read.drain(..end + 2).collect()).unwrap();
                let frame = Frame::of(&text);
                if frame != Frame::default() {
                    return Some(frame);
                }
                self.comments += 1;
                continue;
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await.expect("nothing comes").unwrap_or_default()?;
            self.read.extend_from_slice(&chunk);
        }
    }

    /// The next so many events.
    pub async fn take(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            frames.push(self.next().await.expect("the stream has ended"));
        }
        frames
    }
}

impl Frame {
    fn of(text: &str) -> Self {
        let mut frame = Self::default();
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("event", event)) => frame.event = event.into(),
                Some(("id", id)) => frame.id = id.into(),
                Some(("data", data)) => frame.data.extend([data, "\n"]),
                _ => {}
            }
        }
        frame
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The task it is about.
    pub fn task_id(&self) -> String {
        self.json()["scheduledJobId"].as_str().unwrap().to_owned()
    }
}

/// Where the first empty line is.
fn end_of_event(bytes: &[u8]) -> Option<usize> {
    // As text, which is searched much faster than pairs of bytes; what is not text has no empty lines.
    let text = bytes.utf8_chunks().next()?.valid();
    text.find("\n\n")
}
