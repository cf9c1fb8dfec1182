//! The listening socket: a bounded number of connections, none of which may stand idle for good.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How many connections are open at the most; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// How long a connection may pass without a byte in either direction; longer than any request takes.
const IDLE: Duration = Duration::from_secs(120);
/// How long a connection may take before it says anything at all.
const FIRST_WORD: Duration = Duration::from_secs(30);
/// How long the headers of a request may take to arrive, however busily they trickle.
const HEADERS: Duration = Duration::from_secs(15);
/// The same with the body; longer than any body may.
const ARRIVAL: Duration = Duration::from_secs(90);
/// How long to wait after the machine could not accept, for lack of file handles mostly.
const RECOVERY: Duration = Duration::from_millis(100);

/// Accepts connections, as many as there is room for.
pub(crate) struct BoundedListener {
    socket: TcpListener,
    room: Arc<Semaphore>,
}

impl BoundedListener {
    pub(crate) fn new(socket: TcpListener) -> Self {
        Self { socket, room: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(place) = Arc::clone(&self.room).acquire_owned().await else { std::future::pending().await };
            match self.socket.accept().await {
                Ok((stream, address)) => {
                    // Answers are small: waiting to fill a packet would only delay them.
                    let _ = stream.set_nodelay(true);
                    return (Connection::new(stream, place), address);
                }
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    sleep(RECOVERY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Whether the headers of the request that is arriving on a connection have been read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headers(Arc<AtomicBool>);

impl Headers {
    /// Tells that they have.
    pub(crate) fn were_read(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn are_read(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn are_awaited(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Headers {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        stream.io().headers.clone()
    }
}

/// A connection that ends by itself when nothing has moved for too long, or too little.
pub(crate) struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    /// Since when bytes have been arriving without anything being answered.
    arriving_since: Option<Instant>,
    headers: Headers,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            idle: Box::pin(sleep(FIRST_WORD)),
            arriving_since: None,
            headers: Headers::default(),
            _place: place,
        }
    }

    /// When the connection ends unless something moves.
    fn deadline(&self, now: Instant) -> Instant {
        match self.arriving_since {
            Some(since) if !self.headers.are_read() => since + HEADERS,
            _ => now + IDLE,
        }
    }

    /// Something is answered: what arrives next is another request.
    fn answers(&mut self) {
        self.arriving_since = None;
        self.headers.are_awaited();
    }

    /// Hands on what the stream said; nothing for too long is an error.
    fn unless_idle<T>(&mut self, context: &mut Context<'_>, said: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if said.is_ready() {
            let deadline = self.deadline(Instant::now());
            self.idle.as_mut().reset(deadline);
            return said;
        }
        match self.idle.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let said = Pin::new(&mut self.stream).poll_read(context, buffer);
        if said.is_ready() {
            let now = Instant::now();
            let most = if self.headers.are_read() { ARRIVAL } else { HEADERS };
            if now - *self.arriving_since.get_or_insert(now) > most {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        self.unless_idle(context, said)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers();
        let said = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_idle(context, said)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answers();
        let said = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.unless_idle(context, said)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
