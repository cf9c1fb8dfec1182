//! Cursors: where the next page of a list begins, opaque to whoever carries them.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use punctual_domain::store::Page;
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::json;
use super::problem::Problem;

/// What a cursor holds, as its first byte; it changes when that changes, so that an old one is refused and not misread.
#[derive(Clone, Copy)]
enum Kind {
    Id = 3,
    Name = 4,
}

/// How many bytes tell whether a cursor is as it was given.
const CHECKED_BY: usize = 4;

/// The cursor after the item `id`.
pub(crate) fn after(id: Uuid) -> String {
    write(Kind::Id, id.as_bytes())
}

/// The same, where items have names.
pub(crate) fn after_name(name: &str) -> String {
    write(Kind::Name, name.as_bytes())
}

/// The item that a cursor stands behind.
pub(crate) fn read(cursor: &str) -> Option<Uuid> {
    Uuid::from_slice(&held(Kind::Id, cursor)?).ok()
}

/// The name that a cursor stands behind.
pub(crate) fn read_name(cursor: &str) -> Option<String> {
    String::from_utf8(held(Kind::Name, cursor)?).ok()
}

fn write(kind: Kind, held: &[u8]) -> String {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(held);
    bytes.extend_from_slice(&check(&bytes));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a cursor of that kind holds, if it is as it was given.
fn held(kind: Kind, cursor: &str) -> Option<Vec<u8>> {
    let mut bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let checked = bytes.split_off(bytes.len().checked_sub(CHECKED_BY)?);
    (checked == check(&bytes) && bytes.first() == Some(&(kind as u8))).then(|| bytes.split_off(1))
}

/// Tells what was changed or made up; that nobody does so on purpose need not be prevented.
fn check(bytes: &[u8]) -> [u8; CHECKED_BY] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|n| digest[n])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_item_unless_it_was_tampered_with() {
        let (id, name) = (Uuid::now_v7(), "ferien ü");
        let (by_id, by_name) = (after(id), after_name(name));
        assert_eq!((read(&by_id), read_name(&by_name).as_deref()), (Some(id), Some(name)));
        assert_eq!((read(&by_name), read_name(&by_id)), (None, None));
        for given in [by_id, by_name] {
            for position in 0..given.len() {
                let other = if given.as_bytes()[position] == b'A' { "B" } else { "A" };
                let mut tampered = given.clone();
                tampered.replace_range(position..=position, other);
                assert_eq!((read(&tampered), read_name(&tampered)), (None, None), "{given} {tampered}");
            }
        }
        for malformed in ["", "x", "!!!", &id.to_string(), "AQ", &URL_SAFE_NO_PAD.encode([3; 17])] {
            assert_eq!((read(malformed), read_name(malformed)), (None, None), "{malformed}");
        }
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
}
