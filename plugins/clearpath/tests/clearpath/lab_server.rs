//! A lab that answers as the test says, and remembers what it was asked.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// How the lab answers.
#[derive(Clone)]
pub(crate) enum Mood {
    /// These records.
    Records(Vec<Value>),
    /// This status, and nothing else to say.
    Status(u16),
    /// This text, as if it were an answer.
    Text(String),
    /// Half an answer.
    HangsUp,
    /// Nothing, without hanging up.
    SaysNothing,
    /// Half an answer, without hanging up.
    StopsHalfway,
}

impl Mood {
    /// Whether the one who asks has to end it.
    fn is_open_ended(&self) -> bool {
        matches!(self, Self::SaysNothing | Self::StopsHalfway)
    }
}

#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) url: String,
    state: Arc<Mutex<(Mood, Vec<String>)>>,
}

impl Lab {
    pub(crate) fn start() -> Self {
        let (lab, door) = Self::closed();
        lab.open(door);
        lab
    }

    /// One that is not there until it is opened; nobody else takes its place meanwhile.
    pub(crate) fn closed() -> (Self, TcpSocket) {
        let door = TcpSocket::new_v4().unwrap();
        door.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/api/", door.local_addr().unwrap());
        (Self { url, state: Arc::new(Mutex::new((Mood::Records(Vec::new()), Vec::new()))) }, door)
    }

    pub(crate) fn open(&self, door: TcpSocket) {
        let listener = door.listen(16).unwrap();
        let served = self.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut asked = Vec::new();
                while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut bytes = [0; 1024];
                    match socket.read(&mut bytes).await {
                        Ok(count) if count > 0 => asked.extend_from_slice(&bytes[..count]),
                        _ => break,
                    }
                }
                let (answer, mood) = served.answer(String::from_utf8_lossy(&asked).into_owned());
                let _ = socket.write_all(answer.as_bytes()).await;
                if mood.is_open_ended() {
                    // They say nothing more, so this is their end.
                    let _ = socket.read(&mut [0]).await;
                }
                let _ = socket.shutdown().await;
            }
        });
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = mood;
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn answer(&self, asked: String) -> (String, Mood) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.push(asked);
        let with = |status: u16, body: &str| {
            format!(
                "HTTP/1.1 {status} Lab\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        };
        let answer = match &state.0 {
            Mood::Records(records) => with(200, &serde_json::json!({ "results": records }).to_string()),
            Mood::Status(status) => with(*status, "{}"),
            Mood::Text(text) => with(200, text),
            Mood::HangsUp | Mood::StopsHalfway => {
                "HTTP/1.1 200 Lab\r\ncontent-length: 1000\r\nconnection: close\r\n\r\n{\"results\":[".to_owned()
            }
            Mood::SaysNothing => String::new(),
        };
        (answer, state.0.clone())
    }
}
