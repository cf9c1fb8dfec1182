//! Cursors: where the next page of a list begins, opaque to whoever carries them.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use punctual_domain::store::Page;
use serde::Serialize;
use uuid::Uuid;

use super::json;
use super::problem::Problem;

/// Changes when what a cursor holds changes, so that an old one is refused and not misread.
const VERSION: u8 = 1;
/// The same for a cursor that holds a name.
const BY_NAME: u8 = 2;

/// The cursor after the item `id`.
pub(crate) fn after(id: Uuid) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(id.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The same, where items have names.
pub(crate) fn after_name(name: &str) -> String {
    let mut bytes = vec![BY_NAME];
    bytes.extend_from_slice(name.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The name that a cursor stands behind.
pub(crate) fn read_name(cursor: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    match bytes.split_first() {
        Some((&BY_NAME, name)) => String::from_utf8(name.to_vec()).ok(),
        _ => None,
    }
}

/// A page of a list, with where the next one is, in the body and as a `Link`.
pub(crate) fn page(uri: &Uri, items: &[impl Serialize], next_cursor: Option<String>) -> Result<Response, Problem> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a, T> {
        items: &'a [T],
        next_cursor: Option<&'a str>,
    }
    let mut response = json(StatusCode::OK, &List { items, next_cursor: next_cursor.as_deref() })?;
    link(&mut response, uri, next_cursor.as_deref());
    Ok(response)
}

/// A page of a list that is at hand as a whole: what stands behind the item that the cursor names.
pub(crate) fn page_of<T: Serialize, Id: PartialEq + Into<Uuid>>(
    uri: &Uri,
    all: &[T],
    page: Page<Id>,
    id: impl Fn(&T) -> Id,
) -> Result<Response, Problem> {
    let begin = match page.after {
        Some(after) => all.iter().position(|item| id(item) == after).map_or(all.len(), |position| position + 1),
        None => 0,
    };
    let end = all.len().min(begin + page.limit as usize);
    let next_cursor = all[begin..end].last().filter(|_| end < all.len()).map(|last| after(id(last).into()));
    self::page(uri, &all[begin..end], next_cursor)
}

/// Says in a header where the next page of a list is.
pub(crate) fn link(response: &mut Response, uri: &Uri, next_cursor: Option<&str>) {
    let Some(cursor) = next_cursor else { return };
    let others = uri.query().unwrap_or_default().split('&');
    let others = others.filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    let query: Vec<_> = others.map(str::to_owned).chain([format!("cursor={cursor}")]).collect();
    let link = format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"));
    if let Ok(link) = HeaderValue::try_from(link) {
        response.headers_mut().insert(header::LINK, link);
    }
}

/// The item that a cursor stands behind.
pub(crate) fn read(cursor: &str) -> Option<Uuid> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    match bytes.split_first() {
        Some((&VERSION, id)) => Uuid::from_slice(id).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_item() {
        let id = Uuid::now_v7();
        assert_eq!(read(&after(id)), Some(id));
        for malformed in ["", "x", "!!!", &id.to_string(), "AQ", &URL_SAFE_NO_PAD.encode([2; 17])] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
        assert_eq!(read_name(&after_name("mail.*")).as_deref(), Some("mail.*"));
        assert_eq!((read_name(&after(id)), read(&after_name("mail.*"))), (None, None));
    }

    #[test]
    fn the_next_page_is_the_same_list_from_there() {
        let next = |uri: &str, cursor| {
            let mut response = Response::default();
            link(&mut response, &uri.parse().unwrap(), cursor);
            response.headers().get(header::LINK).map(|link| link.to_str().unwrap().to_owned())
        };
        assert_eq!(next("/a?x=1&cursor=old&y=%20", Some("n")).unwrap(), r#"</a?x=1&y=%20&cursor=n>; rel="next""#);
        assert_eq!(next("/a", Some("n")).unwrap(), r#"</a?cursor=n>; rel="next""#);
        assert_eq!(next("/a?x=1", None), None);
    }

    #[test]
    fn a_cursor_leads_back_to_its_name() {
        assert_eq!(read_name(&after_name("ferien ü")).as_deref(), Some("ferien ü"));
        for malformed in ["", "x", "!!!", &URL_SAFE_NO_PAD.encode([1, 65]), &URL_SAFE_NO_PAD.encode([2, 255])] {
            assert_eq!(read_name(malformed), None, "{malformed}");
        }
    }
}
