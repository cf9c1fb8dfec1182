use std::panic::resume_unwind;

/// Runs work that blocks its thread (heavy computing, files, a library that is not async) where it holds up nobody
/// else.
///
/// A panic inside is the caller's panic. Work that has begun cannot be stopped: it runs to its end, also when the
/// attempt was told to stop; ask its [`cancelled`](crate::Attempt::cancelled) now and then if it may take long.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Only a runtime that shuts down drops work it has not begun, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}
