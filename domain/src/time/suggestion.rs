pub(super) fn sentence(_: &Option<String>) -> String {
    String::new()
}
pub(super) fn for_zone<T>(_: &str, _: T) -> Option<String> {
    None
}
