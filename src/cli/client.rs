//! The client of a running service, for every command that talks to one.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use punctual_domain::json::read_deep;
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};

use super::hidden;
use crate::config::Secret;

use super::named_schedule;

/// Where the service is, and who asks.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ClientArgs {
    /// The service's address
    #[arg(
        long,
        value_name = "URL",
        env = "PUNCTUAL_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7878",
        help_heading = "Connection"
    )]
    url: String,
    /// An API key, pk_…
    #[arg(
        long,
        value_name = "KEY",
        env = "PUNCTUAL_TOKEN",
        hide_env_values = true,
        value_parser = hidden,
        help_heading = "Connection"
    )]
    token: Option<Secret>,
}

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How many items of a list are asked for at a time: the most there are on a page.
const PAGE: &str = "1000";
/// How long an answer may take; the service has its own, shorter deadlines.
const ANSWER: Duration = Duration::from_secs(11 * 60);

/// Calls a service.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    /// Whether its command can do without a service.
    takes_database: bool,
}

/// It answered, and refused.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    message: String,
}

/// What it answered.
pub(super) struct Answer {
    /// As it came.
    pub(super) text: String,
}

impl ClientArgs {
    /// A service that needs no key.
    pub(super) fn at(url: String) -> Self {
        Self { url, token: None }
    }

    pub(super) fn connect(&self) -> Result<Client> {
        let base = Url::parse(&self.url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .with_context(|| {
                let shown = punctual_store::redacted(&self.url);
                format!("PUNCTUAL_URL is {shown:?}, which is not an address such as http://127.0.0.1:7878")
            })?;
        let http = reqwest::Client::builder().connect_timeout(CONNECT).timeout(ANSWER).no_proxy().build()?;
        let token = self.token.clone().filter(|token| !token.expose().is_empty());
        Ok(Client { http, base, token, takes_database: false })
    }
}

impl Client {
    /// The client of a command that has `--database`.
    pub(super) fn or_database(self) -> Self {
        Self { takes_database: true, ..self }
    }

    /// Whether it shows an API key.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) async fn get(&self, path: &[&str], query: &[(&str, Option<String>)]) -> Result<Answer> {
        self.call(Method::GET, path, query, None).await
    }

    /// Every item of a list that is not long: the answer as it came, or all its pages as one.
    pub(super) async fn all(&self, path: &[&str]) -> Result<Answer> {
        let mut items = Vec::new();
        let mut cursor = None;
        loop {
            let answer = self.get(path, &[("limit", Some(PAGE.to_owned())), ("cursor", cursor)]).await?;
            let mut page = answer.json()?;
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() && items.is_empty() {
                return Ok(answer);
            }
            items.append(page["items"].as_array_mut().context("the answer is no list")?);
            if cursor.is_none() {
                return Ok(Answer { text: json!({"items": items, "nextCursor": null}).to_string() });
            }
        }
    }

    pub(super) async fn post(&self, path: &[&str], body: Value) -> Result<Answer> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    pub(super) async fn put(&self, path: &[&str], body: Value) -> Result<Answer> {
        self.call(Method::PUT, path, &[], Some(body)).await
    }

    /// Changes what is there, if it has that version where one is named.
    pub(super) async fn patch(&self, path: &[&str], body: Value, version: Option<u64>) -> Result<Answer> {
        let mut request = self.request(Method::PATCH, path, &[]);
        if let Some(version) = version {
            request = request.header("if-match", format!("\"{version}\""));
        }
        self.answer(request, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &[&str]) -> Result<Answer> {
        self.call(Method::DELETE, path, &[], None).await
    }

    /// The id of a schedule that is named by its id or its name.
    pub(super) async fn schedule_id(&self, name_or_id: &str) -> Result<String> {
        if name_or_id.len() == 36 && name_or_id.parse::<uuid::Uuid>().is_ok() {
            return Ok(name_or_id.to_owned());
        }
        // A filter that is empty is none: every schedule would match.
        let name = named_schedule(name_or_id).map_err(anyhow::Error::msg)?;
        let found = self.get(&["schedules"], &[("name", Some(name))]).await?.json()?;
        let schedule = &found["items"][0];
        let id = schedule["id"].as_str().filter(|_| schedule["name"] == name_or_id);
        id.map(str::to_owned).with_context(|| {
            format!("there is no schedule {name_or_id:?}; `punctual schedule list` shows those there are")
        })
    }

    /// An answer that goes on for as long as somebody reads it; behind the event `last`, if one is named.
    pub(super) async fn stream(
        &self,
        path: &[&str],
        query: &[(&str, Option<String>)],
        last: Option<&str>,
    ) -> Result<reqwest::Response> {
        let mut request = self.request(Method::GET, path, query).timeout(Duration::MAX);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        self.send(request).await
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, Option<String>)],
        body: Option<Value>,
    ) -> Result<Answer> {
        self.answer(self.request(method, path, query), body).await
    }

    async fn answer(&self, mut request: RequestBuilder, body: Option<Value>) -> Result<Answer> {
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = self.send(request).await?;
        Ok(Answer { text: response.text().await.context("the answer broke off")? })
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, Option<String>)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let given: Vec<_> = query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        if !given.is_empty() {
            url.query_pairs_mut().extend_pairs(given);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<reqwest::Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.context("the answer broke off")?;
        bail!(Refused { status, message: refusal(status, &text) })
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let base = punctual_store::redacted(self.base.as_str().trim_end_matches('/'));
        let mut reason = error.to_string();
        let mut kind = None;
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            reason = inner.to_string();
            kind = inner.downcast_ref().map(kind_of).or(kind);
            source = inner.source();
        }
        if !error.is_connect() {
            return match error.is_timeout() {
                true => anyhow!("{base} did not answer in time"),
                false => anyhow!("{base} cannot be asked: {reason}"),
            };
        }
        let why = match kind {
            Some(ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
                if self.base.scheme() == "https" =>
            {
                return anyhow!(
                    "{base} does not speak TLS, or not so that we understand it ({reason}); the address of a service without \
                     TLS begins with http://"
                );
            }
            Some(ErrorKind::ConnectionRefused) => String::new(),
            _ => format!(" ({reason})"),
        };
        let database = if self.takes_database { ", or name the database to do without one (--database)" } else { "" };
        anyhow!(
            "nothing answers at {base}{why}: start the service by `punctual serve`, or say where it is (PUNCTUAL_URL or --url)\
             {database}"
        )
    }
}

/// What kind of failure it is, also where another was wrapped around it.
fn kind_of(error: &std::io::Error) -> ErrorKind {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.map_or_else(|| error.kind(), kind_of)
}

impl Answer {
    pub(super) fn json(&self) -> Result<Value> {
        read_deep(&self.text).context("the answer is not JSON: is this address a punctual service?")
    }

    /// The answer as a type of ours.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        read_deep(&self.text).context("the answer is not as expected: is the service of another version?")
    }
}

/// What a problem says, for people: its detail, and each bad field.
fn refusal(status: StatusCode, text: &str) -> String {
    let Ok(problem) = serde_json::from_str::<Value>(text) else {
        return format!("the service answered {status}");
    };
    let Some(detail) = problem["detail"].as_str() else { return format!("the service answered {status}: {text}") };
    let errors = problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lines = errors.iter().map(|error| {
        let (field, message) =
            (error["field"].as_str().unwrap_or_default(), error["message"].as_str().unwrap_or_default());
        (format!("{field}: {message}"), format!("{}: {}", as_typed(field), in_flags(message)))
    });
    let mut told = detail.to_owned();
    for (line, typed) in lines {
        // The detail of a single bad field is that field.
        if line == detail {
            told = typed;
        } else {
            told.push_str("\n  ");
            told.push_str(&typed);
        }
    }
    if status == StatusCode::UNAUTHORIZED {
        told.push_str("\n  set PUNCTUAL_TOKEN to an API key; an admin's key makes more, and with the service stopped `punctual key create --database URL` does");
    }
    told
}

/// The fields of the API that this command line has flags for.
const FLAGS: &[(&str, &str)] = &[
    ("runAt", "--at"),
    ("delayMs", "--in"),
    ("timezone", "--tz"),
    ("cronExpression", "--cron"),
    ("everyMs", "--every"),
    ("payload", "--payload"),
    ("metadata", "--metadata"),
    ("priority", "--priority"),
    ("timeoutSeconds", "--timeout"),
    ("retry.attempts", "--attempts"),
    ("retry.backoff.type", "--backoff"),
    ("retry.backoff.delay", "--backoff-delay"),
    ("retry.backoff.maxDelay", "--backoff-max-delay"),
    ("retry.backoff.jitter", "--backoff-jitter"),
    ("clientRequestId", "--client-request-id"),
    ("dedupeKey", "--dedupe-key"),
    ("serialKey", "--serial-key"),
    ("maxRetries", "--max-retries"),
    ("overlapPolicy", "--overlap"),
    ("misfirePolicy", "--misfire"),
    ("misfireWindowSeconds", "--misfire-window"),
    ("jitterSeconds", "--jitter"),
    ("startAt", "--start-at"),
    ("endAt", "--end-at"),
    ("maxFires", "--max-fires"),
    ("dstGap", "--dst-gap"),
    ("dstFold", "--dst-fold"),
    ("excludeCalendars", "--exclude-calendar"),
    ("createdBy", "--created-by"),
    ("status", "--status"),
    ("from", "--from"),
    ("to", "--to"),
    ("limit", "--limit"),
    ("concurrency", "--concurrency"),
    ("ratePerSecond", "--rate"),
    ("retentionDays", "--retention-days"),
    ("route.url", "--webhook"),
    ("route.secrets", "--secret"),
    ("route.queue", "--queue"),
    ("route.prefix", "--prefix"),
];

/// A field of the API as this command line has it; as it is where that has no flag.
fn as_typed(field: &str) -> &str {
    FLAGS.iter().find(|(name, _)| *name == field).map_or(field, |(_, flag)| flag)
}

/// A sentence of the API with the fields as this command line has them, but for those that are ordinary words.
fn in_flags(message: &str) -> String {
    let names = FLAGS.iter().filter(|(name, _)| name.contains(char::is_uppercase) && !name.contains('.'));
    names.fold(message.to_owned(), |told, (name, flag)| told.replace(name, flag))
}

#[cfg(test)]
mod tests {
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    #[test]
    fn a_problem_is_told_with_each_bad_field_once() {
        for (text, told) in [
            (
                r#"{"detail":"topic: is missing","errors":[{"field":"topic","message":"is missing"}]}"#,
                "topic: is missing",
            ),
            (
                r#"{"detail":"2 fields are wrong","errors":[{"field":"a","message":"b"},{"field":"c","message":"d"}]}"#,
                "2 fields are wrong\n  a: b\n  c: d",
            ),
            (r#"{"detail":"runAt: is past","errors":[{"field":"runAt","message":"is past"}]}"#, "--at: is past"),
            (
                r#"{"detail":"cronExpression: is required, or everyMs","errors":[{"field":"cronExpression","message":"is required, or everyMs"}]}"#,
                "--cron: is required, or --every",
            ),
            (r#"{"detail":"there is no task x"}"#, "there is no task x"),
            ("<html>", "the service answered 400 Bad Request"),
        ] {
            assert_eq!(refusal(StatusCode::BAD_REQUEST, text), told);
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let args = ClientArgs { url: "http://127.0.0.1".into(), token: Some(Secret::hidden("pk_swordfish")) };
        assert!(!format!("{args:?}").contains("swordfish"));
    }

    #[test]
    fn an_address_has_to_be_one() {
        for url in ["localhost:7878", "ftp://x", "", "http://"] {
            assert!(ClientArgs::at(url.into()).connect().is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_without_its_password() {
        for url in ["ftp://me:swordfish@host", "me:swordfish@host:7878", "http://me:swordfish", "htp:me?pass=swordfish"]
        {
            let error = ClientArgs::at(url.into()).connect().err().unwrap().to_string();
            assert!(error.contains("not an address") && !error.contains("swordfish"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_schedule_is_the_one_that_was_named_and_no_other() {
        crate::tls::provide();
        // A service that does not read the filter, or takes an empty one for none.
        let any =
            || async { r#"{"items": [{"id": "some id", "name": "nightly"}, {"id": "other"}], "nextCursor": null}"# };
        let router = axum::Router::new().route("/api/v1/schedules", axum::routing::get(any));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = ClientArgs::at(format!("http://{}", listener.local_addr().unwrap())).connect().unwrap();
        let _serving = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        assert_eq!(client.schedule_id("nightly").await.unwrap(), "some id");
        for (name, part) in
            [("", "give the name or id"), (" ", "give the name or id"), ("daily", "no schedule \"daily\"")]
        {
            let error = client.schedule_id(name).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
