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
}
