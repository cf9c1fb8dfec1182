//! The transport `smtp`: e-mails by way of a mail server, over a few connections that are kept.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::response::{Category, Code, Detail};
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, PoolConfig};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::outbox::Message;
use reqwest::Url;
use tokio::sync::Semaphore;

use super::mail::Mail;

/// How many connections there are at the most; each sends one e-mail at a time.
const CONNECTIONS: u32 = 8;
/// How long the server may take for each of its answers.
const ANSWER: Duration = Duration::from_secs(60);
/// An answer to commands that came in a wrong order.
const BAD_SEQUENCE: (Category, Detail) = (Category::Syntax, Detail::Three);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);

/// Sends e-mails by way of a mail server.
///
/// Who waits for an e-mail may lose patience in the middle of it. lettre's own pool would take back such a connection, and the
/// next e-mail would be answered what was meant for that one. So each sending has a connection to itself, and only who comes to its
/// end gives it back.
pub(crate) struct Smtp {
    server: AsyncSmtpTransportBuilder,
    from: Mailbox,
    /// Those that nobody uses at the moment; each has one connection at the most.
    idle: Mutex<Vec<AsyncSmtpTransport<Tokio1Executor>>>,
    /// Whoever comes on top of so many waits here.
    places: Semaphore,
}

impl Smtp {
    /// Prepares connections to the server at `url`, without making any.
    ///
    /// # Errors
    /// When the URL cannot be understood; what it says of it has no password in it.
    pub(crate) fn new(url: &str, from: Mailbox) -> Result<Self, String> {
        let server = AsyncSmtpTransport::<Tokio1Executor>::from_url(explicit(url)?.as_str())
            .map_err(|error| error.to_string())?
            .timeout(Some(ANSWER))
            .pool_config(PoolConfig::new().max_size(1).idle_timeout(IDLE));
        Ok(Self { server, from, idle: Mutex::default(), places: Semaphore::new(CONNECTIONS as usize) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<AsyncSmtpTransport<Tokio1Executor>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Smtp {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        let mail = Mail::of(message, &self.from)?;
        let message_id = mail.message_id.clone();
        let is_plain = mail.to.email.to_string().is_ascii();
        let mail = compose(mail)?;
        let _place = self.places.acquire().await.map_err(DeliveryError::later)?;
        let idle = self.idle().pop();
        let server = idle.unwrap_or_else(|| self.server.clone().build());
        let sent = server.send(mail).await;
        self.idle().push(server);
        sent.map(|_| message_id).map_err(|error| refusal(error, is_plain))
    }

    fn concurrency(&self) -> u32 {
        CONNECTIONS
    }
}

/// The same URL with everything said that is left open: whether to encrypt, and the port.
///
/// A password goes over an encrypted connection only, unless the server is on this machine, or the URL says otherwise.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn explicit(url: &str) -> Result<Url, String> {
    let expected = "a URL such as smtps://USER:PASSWORD@HOST or smtp://HOST:25";
    let mut url = Url::parse(url).map_err(|error| format!("{expected} ({error})"))?;
    if !matches!(url.scheme(), "smtp" | "smtps") || url.host_str().is_none_or(str::is_empty) {
        return Err(expected.to_owned());
    }
    let said = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    let is_known = url.query_pairs().all(|(name, _)| name == "tls");
    let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let tls = match (url.scheme(), said.as_deref()) {
        ("smtps", None) => None,
        ("smtp", Some("none")) => None,
        ("smtp", Some("required")) => Some("required"),
        ("smtp", Some("opportunistic")) => Some("opportunistic"),
        ("smtp", None) if url.password().is_some() && !is_local => Some("required"),
        ("smtp", None) => Some("opportunistic"),
        _ => return Err("smtp:// with tls=required, tls=opportunistic or tls=none, or smtps:// without".into()),
    };
    if !is_known {
        return Err("no other parameter than tls".into());
    }
    let usual_port = match (url.scheme(), url.password()) {
        ("smtps", _) => 465,
        (_, Some(_)) => 587,
        (_, None) => 25,
    };
    // A URL that has a host can have a port.
    let _ = url.set_port(Some(url.port().unwrap_or(usual_port)));
    url.set_query(tls.map(|tls| format!("tls={tls}")).as_deref());
    Ok(url)
}

fn compose(mail: Mail) -> Result<lettre::Message, DeliveryError> {
    let Mail { from, to, subject, text, html, message_id, written_at } = mail;
    let headers = lettre::Message::builder()
        .from(from)
        .to(to)
        .subject(subject)
        .message_id(Some(message_id))
        .date(written_at.into());
    let composed = match html {
        Some(html) => headers.multipart(MultiPart::alternative_plain_html(text, html)),
        // With its type: readers take a bare body for ASCII.
        None => headers.singlepart(SinglePart::plain(text)),
    };
    composed.map_err(|error| DeliveryError::never(format!("the e-mail cannot be written: {error}")))
}

/// What a failure means for an e-mail to an address that is plain ASCII, or is not. A server that does not let us in may do so
/// another time: the e-mail is not to blame.
fn refusal(error: lettre::transport::smtp::Error, is_plain: bool) -> DeliveryError {
    let said = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    // 530, 534, 535, 538: who we are, and how we say so. 503: what we said before.
    let is_about_us =
        |code: Code| code.category == Category::Unspecified3 || (code.category, code.detail) == BAD_SEQUENCE;
    let is_about_us = error.status().is_some_and(is_about_us);
    // lettre asks the server before it sends such an address. A sender of ours that is not plain is for us to change.
    let is_about_the_address = error.is_client() && !is_plain && said.contains("SMTPUTF8");
    if (error.is_permanent() && !is_about_us) || is_about_the_address {
        DeliveryError::never(said)
    } else {
        DeliveryError::later(said)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::super::mail::tests::message;
    use super::*;

    #[test]
    fn what_a_url_leaves_open_is_said() {
        for (url, explicit_url) in [
            ("smtp://mail", "smtp://mail:25?tls=opportunistic"),
            ("smtp://mail:2525", "smtp://mail:2525?tls=opportunistic"),
            ("smtp://me:swordfish@mail", "smtp://me:swordfish@mail:587?tls=required"),
            ("smtp://me:swordfish@mail:25?tls=none", "smtp://me:swordfish@mail:25"),
            ("smtp://me:swordfish@127.0.0.1:1025", "smtp://me:swordfish@127.0.0.1:1025?tls=opportunistic"),
            ("smtp://mail?tls=required", "smtp://mail:25?tls=required"),
            ("smtps://me:sword%2Ffish@mail", "smtps://me:sword%2Ffish@mail:465"),
        ] {
            assert_eq!(explicit(url).unwrap().as_str(), explicit_url, "{url}");
        }
        for refused in
            ["mail", "http://mail", "smtp://", "smtp://mail?tls=maybe", "smtps://mail?tls=none", "smtp://m?x=1"]
        {
            assert!(explicit(refused).is_err(), "{refused}");
        }
    }

    /// A server that greets whoever comes, and offers nothing special; answers its URL.
    async fn plain_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let (reader, mut writer) = connection.split();
                let mut lines = BufReader::new(reader).lines();
                writer.write_all(b"220 here\r\n").await.unwrap();
                while let Ok(Some(_)) = lines.next_line().await {
                    writer.write_all(b"250-here\r\n250 8BITMIME\r\n").await.unwrap();
                }
            }
        });
        url
    }

    #[tokio::test]
    async fn an_address_that_the_server_cannot_take_fails_for_good() {
        let url = plain_server().await;
        let send = async |from: &str, to: &str| {
            let smtp = Smtp::new(&url, from.parse().unwrap()).unwrap();
            smtp.send(&message(to, "x")).await.unwrap_err()
        };
        let refused = send("punctual@example.com", "søren@example.com").await;
        assert!(
            matches!(&refused, DeliveryError::Never { .. }) && refused.to_string().contains("SMTPUTF8"),
            "{refused:?}"
        );
        // That is for us to change, and the e-mail waits for it.
        let refused = send("pünctual@example.com", "ada@example.com").await;
        assert!(
            matches!(&refused, DeliveryError::Later { .. }) && refused.to_string().contains("SMTPUTF8"),
            "{refused:?}"
        );
    }

    #[test]
    fn an_email_has_the_headers_it_should_have_and_no_others() {
        let from: Mailbox = "Punctual <punctual@example.com>".parse().unwrap();
        let mut message = message("Ada Lovelace <ada@example.org>", "Grüße\r\nBcc: eve@example.com");
        let written = |message: &Message| {
            let composed = compose(Mail::of(message, &from).unwrap()).unwrap();
            String::from_utf8(composed.formatted()).unwrap()
        };
        let plain = written(&message);
        let (headers, body) = plain.split_once("\r\n\r\n").unwrap();
        let names: Vec<_> = headers.split("\r\n").map(|line| line.split(':').next().unwrap()).collect();
        let expected = ["From", "To", "Subject", "Message-ID", "Date"];
        assert_eq!(names[..5], expected, "{headers}");
        let of_the_body = ["Content-Transfer-Encoding", "Content-Type", "MIME-Version"];
        assert!(names[5..].iter().all(|name| of_the_body.contains(name)) && names.len() == 8, "{headers}");
        assert!(headers.contains("Content-Type: text/plain; charset=utf-8"), "{headers}");
        assert!(headers.contains("Date: Mon, 16 Nov 2026 14:30:00"), "{headers}");
        assert_eq!(body, "Hello\r\n");
        let body = r#"{"subject":"x","text":"Hello","html":"<p>Hello</p>"}"#;
        message.body = punctual_domain::json::Json::parse(body).unwrap();
        assert!(written(&message).contains("Content-Type: multipart/alternative;"));
    }
}
