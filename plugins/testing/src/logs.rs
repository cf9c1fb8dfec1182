use std::io;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

static WRITTEN: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(|| {
    // What the plugin and the engine say; not every statement.
    let wanted = tracing_subscriber::EnvFilter::new("debug,sqlx=off,ractor=off,hyper=off,hyper_util=off,reqwest=off");
    let _ = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(wanted).with_writer(Memory).try_init();
    Mutex::default()
});

/// What was logged in this process since this was first called: each line as JSON, with `level` and `message` beside its own
/// fields. Other tests of the process may have logged too: look for ids.
///
/// # Panics
/// When something else takes the log already.
pub fn logs() -> Vec<Value> {
    let written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&written);
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// The lines with this message and these fields, in order.
pub fn logged(message: &str, fields: Value) -> Vec<Value> {
    let has =
        |line: &Value| fields.as_object().is_none_or(|fields| fields.iter().all(|(name, value)| line[name] == *value));
    logs().into_iter().filter(|line| line["message"] == message && has(line)).collect()
}

struct Memory;

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Memory {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}
