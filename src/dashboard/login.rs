//! `/login`: an API key becomes a session; `/logout` ends it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::form::Form;
use super::visitor::{led, set_cookie};
use super::{layout, session};
use crate::http::Api;
use crate::http::auth::known_key;
use crate::http::problem::{Code, Problem};

pub(crate) const PATH: &str = "/login";

/// `GET /login`.
pub(crate) async fn show(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let asked = Form::of(uri.query().unwrap_or_default()).unwrap_or_default();
    let next = destination(asked.text("next"));
    if !api.keys.are_needed().await? {
        return Ok(led(&next));
    }
    Ok(layout::alone("Log in", &form(&next, None)).into_response())
}

/// `POST /login`.
pub(crate) async fn log_in(State(api): State<Arc<Api>>, headers: HeaderMap, form: Form) -> Result<Response, Problem> {
    let next = destination(form.text("next"));
    let key = form.text("key").unwrap_or_default();
    match known_key(&api, key).await {
        Ok(key) => {
            let mut response = led(&next);
            set_cookie(&mut response, &session::begin(&key, api.time.now(), &headers));
            Ok(response)
        }
        Err(problem) if problem.code == Code::Unauthenticated => {
            let page = layout::alone("Log in", &self::form(&next, Some("This API key is unknown, or it was revoked.")));
            Ok((StatusCode::UNAUTHORIZED, page).into_response())
        }
        Err(problem) => Err(problem),
    }
}

/// `POST /logout`.
pub(crate) async fn log_out(headers: HeaderMap) -> Response {
    let mut response = led(PATH);
    set_cookie(&mut response, &session::end(&headers));
    response
}

fn form(next: &str, refusal: Option<&str>) -> Markup {
    html! {
        form.login method="post" action=(PATH) {
            h1 { "Log in to Punctual" }
            @if let Some(refusal) = refusal {
                p.notice.refused role="alert" { (refusal) }
            }
            label for="key" { "API key" }
            input #key name="key" type="password" autocomplete="current-password" required autofocus placeholder="pk_…"
                spellcheck="false";
            input type="hidden" name="next" value=(next);
            button.primary type="submit" { "Log in" }
            p.hint { "An administrator makes keys with " code { "punctual key create" } ". What you can do here depends on the key's role." }
        }
    }
}

/// Where to go once logged in: a page of ours, and nothing else.
fn destination(next: Option<&str>) -> String {
    let is_ours = |next: &&str| {
        next.starts_with('/')
            && !next.starts_with("//")
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    next.filter(is_ours).unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_own_pages_only() {
        for (next, expected) in [
            (Some("/tasks?status=failed"), "/tasks?status=failed"),
            (Some("//evil.example"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("https://evil.example"), "/"),
            (Some("/a\r\nb"), "/"),
            (Some("javascript:alert(1)"), "/"),
            (None, "/"),
        ] {
            assert_eq!(destination(next), expected, "{next:?}");
        }
    }
}
