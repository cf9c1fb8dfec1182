//! Cursors: where the next page of a list begins, opaque to whoever carries them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// Changes when what a cursor holds changes, so that an old one is refused and not misread.
const VERSION: u8 = 1;

/// The cursor after the item `id`.
pub(crate) fn after(id: Uuid) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(id.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The item that a cursor stands behind.
pub(crate) fn read(cursor: &str) -> Option<Uuid> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    match bytes.split_first() {
        Some((&VERSION, id)) => Uuid::from_slice(id).ok(),
        _ => None,
    }
}

/// The cursor after the item of that name.
pub(crate) fn after_name(name: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(name.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The name that a cursor stands behind.
pub(crate) fn read_name(cursor: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    match bytes.split_first() {
        Some((&VERSION, name)) => String::from_utf8(name.to_vec()).ok(),
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
    }

    #[test]
    fn a_cursor_leads_back_to_its_name() {
        assert_eq!(read_name(&after_name("ferien ü")).as_deref(), Some("ferien ü"));
        for malformed in ["", "x", "!!!", &URL_SAFE_NO_PAD.encode([2, 65]), &URL_SAFE_NO_PAD.encode([1, 255])] {
            assert_eq!(read_name(malformed), None, "{malformed}");
        }
    }
}
