//! Bodies: JSON of bounded size that arrives in bounded time, in bounded memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt;
use punctual_domain::task::MAX_PAYLOAD_BYTES;

use super::Api;
use super::memory::Held;
use super::problem::{Code, Problem};

/// The largest body, and how long it may take to arrive.
const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
const ARRIVAL: Duration = Duration::from_secs(30);
/// The largest form with a payload in it: a byte becomes three there, a line end six, and other fields stand beside it.
const MAX_PAYLOAD_FORM_BYTES: usize = 6 * MAX_PAYLOAD_BYTES + 1024 * 1024;
/// The same for a batch.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;
const BATCH_ARRIVAL: Duration = Duration::from_secs(60);
/// How long a batch waits for its memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read all the same, and for how long.
const DISCARDED_BYTES: usize = 64 * 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(5);
/// How much memory all bodies together may take.
pub(crate) const ALL_BODIES_BYTES: usize = 256 * 1024 * 1024;
/// The same for batches. What becomes of one takes several times as much, so there is one large one at a time.
pub(crate) const ALL_BATCHES_BYTES: usize = MAX_BATCH_BYTES;

/// A body of JSON, as text; its memory is given back when it is dropped.
pub(crate) struct JsonBody {
    pub(crate) text: String,
    _memory: Held,
}

impl FromRequest<Arc<Api>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_json(request.headers())?;
        receive(request.into_body(), MAX_BODY_BYTES, api).await
    }
}

/// A body that is merged into what there is: JSON, or a merge patch.
pub(crate) struct PatchBody(pub(crate) JsonBody);

impl FromRequest<Arc<Api>> for PatchBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_one_of(&["application/json", "application/merge-patch+json"], request.headers())?;
        receive(request.into_body(), MAX_BODY_BYTES, api).await.map(Self)
    }
}

/// The body of a call that needs none: nothing, or JSON, as text.
pub(crate) struct OptionalBody(pub(crate) JsonBody);

impl FromRequest<Arc<Api>> for OptionalBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        // Clients that send nothing say all kinds of things about it.
        let is_json = check_is_json(request.headers());
        let mut body = receive(request.into_body(), MAX_BODY_BYTES, api).await?;
        if body.text.trim_ascii().is_empty() {
            body.text = "{}".to_owned();
        } else {
            is_json?;
        }
        Ok(Self(body))
    }
}

/// The fields of a form of the dashboard, as text.
pub(crate) struct FormBody(pub(crate) JsonBody);

impl FromRequest<Arc<Api>> for FormBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_form(request.headers())?;
        receive(request.into_body(), MAX_BODY_BYTES, api).await.map(Self)
    }
}

/// The same for a form that has a payload among its fields: any that the API takes finds room.
pub(crate) struct PayloadFormBody(pub(crate) JsonBody);

impl FromRequest<Arc<Api>> for PayloadFormBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_form(request.headers())?;
        receive(request.into_body(), MAX_PAYLOAD_FORM_BYTES, api).await.map(Self)
    }
}

/// The body of a batch.
pub(crate) struct BatchBody(pub(crate) JsonBody);

impl FromRequest<Arc<Api>> for BatchBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        check_is_json(request.headers())?;
        let (body, expected) = sized(request.into_body(), MAX_BATCH_BYTES).await?;
        let Some(mut memory) = api.batch_memory.wait_for(expected, PATIENCE).await else {
            return Err(Problem::unavailable("too many large batches at once; try again"));
        };
        let text = arrive(body, expected, MAX_BATCH_BYTES, BATCH_ARRIVAL).await?;
        memory.shrink_to(text.len());
        Ok(Self(JsonBody { text, _memory: memory }))
    }
}

async fn receive(body: Body, most: usize, api: &Api) -> Result<JsonBody, Problem> {
    let (body, expected) = sized(body, most).await?;
    let Some(memory) = api.body_memory.take(expected) else {
        return Err(Problem::unavailable("too many large requests at once; try again"));
    };
    let text = arrive(body, expected, most, ARRIVAL).await?;
    Ok(JsonBody { text, _memory: memory })
}

/// A body and the most bytes it can have; one that says itself that it is too large is refused.
async fn sized(body: Body, most: usize) -> Result<(Body, usize), Problem> {
    let expected = body.size_hint().upper().map_or(most, |bytes| bytes.try_into().unwrap_or(usize::MAX));
    if expected > most {
        discard(body.into_data_stream()).await;
        return Err(too_large(most));
    }
    Ok((body, expected))
}

async fn arrive(body: Body, expected: usize, most: usize, within: Duration) -> Result<String, Problem> {
    let late = |_| Problem::new(Code::RequestTimeout, format!("the body did not arrive within {within:?}"));
    let bytes = tokio::time::timeout(within, read(body, expected, most)).await.map_err(late)??;
    String::from_utf8(bytes).map_err(|_| Problem::new(Code::Invalid, "the body is not UTF-8"))
}

async fn read(body: Body, expected: usize, most: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(expected.min(64 * 1024));
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Code::Invalid, "the body broke off"))?;
        if bytes.len() + chunk.len() > most {
            discard(chunks).await;
            return Err(too_large(most));
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

fn too_large(most: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("a body has at most {most} bytes ({} MiB) here", most / (1024 * 1024)))
}

fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    check_is_one_of(&["application/json"], headers)
}

fn check_is_form(headers: &HeaderMap) -> Result<(), Problem> {
    check_is_one_of(&["application/x-www-form-urlencoded"], headers)
}

fn check_is_one_of(types: &[&str], headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if !types.iter().any(|wanted| media_type.eq_ignore_ascii_case(wanted)) {
        let given = if given.is_empty() { "nothing".to_owned() } else { format!("{given:?}") };
        let detail = format!("the header Content-Type must be {}, and is {given}", types.join(" or "));
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
