//! Bodies: JSON of bounded size that arrives in bounded time, in bounded memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt;

use super::Api;
use super::memory::Held;
use super::problem::{Code, Problem};

/// The largest body.
pub(crate) const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read all the same, and for how long.
const DISCARDED_BYTES: usize = 64 * 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(5);
/// How much memory all bodies together may take.
pub(crate) const ALL_BODIES_BYTES: usize = 256 * 1024 * 1024;

/// A body of JSON, as text; its memory is given back when it is dropped.
pub(crate) struct JsonBody {
    pub(crate) text: String,
    _memory: Held,
}

impl FromRequest<Arc<Api>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_json(request.headers())?;
        let body = request.into_body();
        let expected = body.size_hint().upper().map_or(MAX_BODY_BYTES, |bytes| bytes.try_into().unwrap_or(usize::MAX));
        if expected > MAX_BODY_BYTES {
            discard(body.into_data_stream()).await;
            return Err(too_large());
        }
        let Some(memory) = api.body_memory.take(expected) else {
            return Err(Problem::unavailable("too many large requests at once; try again"));
        };
        let bytes = tokio::time::timeout(ARRIVAL, read(body, expected))
            .await
            .map_err(|_| Problem::new(Code::RequestTimeout, "the body did not arrive within 30 seconds"))??;
        let text = String::from_utf8(bytes).map_err(|_| Problem::new(Code::Invalid, "the body is not UTF-8"))?;
        Ok(Self { text, _memory: memory })
    }
}

async fn read(body: Body, expected: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(expected.min(64 * 1024));
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Code::Invalid, "the body broke off"))?;
        if bytes.len() + chunk.len() > MAX_BODY_BYTES {
            discard(chunks).await;
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Reads what is left of a body, within reason: a client that is cut off while it sends may never see the answer.
async fn discard(mut chunks: BodyDataStream) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(chunk)) = chunks.next().await {
            bytes += chunk.len();
            if bytes > DISCARDED_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARDING, reading).await;
}

fn too_large() -> Problem {
    Problem::new(Code::TooLarge, format!("a body has at most {MAX_BODY_BYTES} bytes (2 MiB)"))
}

fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let given = if given.is_empty() { "nothing".to_owned() } else { format!("{given:?}") };
        let detail = format!("the header Content-Type must be application/json, and is {given}");
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "bodies with a Content-Encoding are not read; send plain JSON",
        ));
    }
    Ok(())
}
