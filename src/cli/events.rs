//! `punctual events`: what happens, as it happens.
//!
//! The stream is followed through restarts of the service: a new one goes on behind the event that was seen last.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::output::{Clockface, print};
use super::task::CommonArgs;
use super::{client::Client, output::field, when};

/// How long to wait until a stream that ended is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a stream may be silent; the service says something every five seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// Follows the events of a running service, until it is stopped by Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual events
  punctual events --topic 'mail.*' --type task.failed
  punctual events --json | jq .userPayload")]
pub(super) struct EventsArgs {
    /// Only of these topics, with commas; prefixes too, such as 'mail.*'
    #[arg(long, value_name = "T")]
    topic: Option<String>,
    /// Only these: schedule.arrived, task.completed, task.failed, task.cancelled, schedule.missed; several with commas
    #[arg(long = "type", value_name = "NAME")]
    kind: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

impl EventsArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let client = self.common.client.connect()?;
        let clockface = Clockface::new(when::zones()?);
        let query = [("topic", self.topic.clone()), ("type", self.kind.clone())];
        let mut last = None;
        let mut response = client.stream(&["events"], &query, None).await?;
        loop {
            let mut frames = Frames::default();
            while let Ok(Ok(Some(chunk))) = tokio::time::timeout(SILENCE, response.chunk()).await {
                for frame in frames.read(&chunk) {
                    last = frame.id.or(last);
                    match self.common.json {
                        true => print(&frame.data)?,
                        false => print(&told(&frame.name, &frame.data, &clockface))?,
                    }
                }
            }
            response = reopened(&client, &query, last.as_deref()).await?;
        }
    }
}

/// Opens the stream again, however long that takes. A refusal ends it.
async fn reopened(client: &Client, query: &[(&str, Option<String>)], last: Option<&str>) -> Result<reqwest::Response> {
    let mut was_told = false;
    loop {
        tokio::time::sleep(AGAIN).await;
        match client.stream(&["events"], query, last).await {
            Ok(response) => return Ok(response),
            Err(error) if error.downcast_ref::<super::client::Refused>().is_some() => return Err(error),
            Err(error) if !was_told => {
                eprintln!("{error}; trying again");
                was_told = true;
            }
            Err(_) => {}
        }
    }
}

/// One event in a line.
fn told(name: &str, data: &str, clockface: &Clockface) -> String {
    let Ok(event) = serde_json::from_str::<Value>(data) else { return format!("{name}  {data}") };
    let zone = event["timezone"].as_str().unwrap_or("UTC");
    let at = ["completedAt", "firedAt", "notedAt"].iter().find(|at| event[**at].is_string()).copied();
    let at = at.and_then(|at| clockface.show_field(&event[at], zone)).unwrap_or_default();
    let id = if event["scheduledJobId"].is_string() { &event["scheduledJobId"] } else { &event["scheduleId"] };
    let mut line = format!("{at}  {name:<16}  {}  {}", field(&event["topic"]), field(id));
    for why in ["error", "reason"] {
        if let Some(text) = event[why].as_str() {
            line.push_str(&format!("  {}", super::output::shortened(text, 100)));
        }
    }
    line
}

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    name: String,
    id: Option<String>,
    data: String,
}

/// Puts events together from the pieces that arrive.
#[derive(Default)]
struct Frames {
    /// Of the last line, what has come of it.
    rest: Vec<u8>,
    frame: Frame,
}

impl Frames {
    fn read(&mut self, piece: &[u8]) -> Vec<Frame> {
        self.rest.extend_from_slice(piece);
        let mut complete = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.line(line.trim_end_matches(['\r', '\n']), &mut complete);
        }
        complete
    }

    fn line(&mut self, line: &str, complete: &mut Vec<Frame>) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                let frame = std::mem::take(&mut self.frame);
                complete.extend(Some(frame).filter(|frame| !frame.data.is_empty()));
            }
            "event" => self.frame.name = value.to_owned(),
            "id" => self.frame.id = Some(value.to_owned()),
            "data" if self.frame.data.is_empty() => self.frame.data = value.to_owned(),
            "data" => self.frame.data.extend(["\n", value]),
            // A comment, or something that we do not know.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::time::ZoneDatabase;

    #[test]
    fn events_are_put_together_from_any_pieces() {
        let stream =
            "retry: 1000\n: hello\n\nevent: a\nid: 1\ndata: {\ndata: }\n\n:\n\nevent: b\ndata: é\n\nevent: c\n";
        let expected = [
            Frame { name: "a".into(), id: Some("1".into()), data: "{\n}".into() },
            Frame { name: "b".into(), id: None, data: "é".into() },
        ];
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::default();
            let read: Vec<_> = stream.as_bytes().chunks(size).flat_map(|piece| frames.read(piece)).collect();
            assert_eq!(read, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_is_told_in_a_line() {
        let clockface = Clockface::new(ZoneDatabase::bundled());
        for (name, data, line) in [
            (
                "task.failed",
                r#"{"topic":"mail","scheduledJobId":"t","completedAt":"2026-11-16T14:30:00Z","error":"no\nroute"}"#,
                "2026-11-16 14:30:00 UTC  task.failed       mail  t  no…",
            ),
            (
                "schedule.arrived",
                r#"{"topic":"mail","scheduledJobId":"t","timezone":"America/Edmonton","firedAt":"2026-11-16T14:30:00Z"}"#,
                "2026-11-16 08:30:00 -06:00  schedule.arrived  mail  t",
            ),
            (
                "schedule.missed",
                r#"{"topic":"mail","scheduledJobId":null,"scheduleId":"s","notedAt":"2026-11-16T14:30:00Z"}"#,
                "2026-11-16 14:30:00 UTC  schedule.missed   mail  s",
            ),
        ] {
            assert_eq!(told(name, data, &clockface), line);
        }
    }
}
