//! The TLS of HTTP clients and of Redis: they use the process's default, and there is none until it is installed.

/// Installs a provider, unless the process has one already.
pub(crate) fn provide() {
    // Whoever came first brought one that serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
