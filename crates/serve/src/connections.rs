//! Connections: how they are accepted, limited and ended, and TLS.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::metrics::Metrics;

/// The longest wait for the head of a request, and for the greeting of TLS.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a client that takes no bytes of its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// A pause after a connection could not be accepted, for example for want of handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The files of a certificate, as PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, and those that sign it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A certificate, which is read again when its files change. Clones are the same certificate.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    now: RwLock<(Versions, Arc<ServerConfig>)>,
}

/// When the files were written.
type Versions = [Option<SystemTime>; 2];

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn open(files: TlsFiles) -> io::Result<Self> {
        let now = (versions(&files), configuration(&files)?);
        Ok(Self(Arc::new(Inner {
            files,
            now: RwLock::new(now),
        })))
    }

    /// Reads the files if they have changed. Connections that are open keep the certificate that they have.
    ///
    /// # Errors
    /// As of [`Tls::open`]: the certificate stays as it is.
    pub fn reload(&self) -> io::Result<()> {
        let found = versions(&self.0.files);
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        if now.0 == found {
            return Ok(());
        }
        drop(now);
        let new = (found, configuration(&self.0.files)?);
        *self.0.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&now.1))
    }
}

fn versions(files: &TlsFiles) -> Versions {
    let of = |file: &Path| {
        std::fs::metadata(file)
            .and_then(|found| found.modified())
            .ok()
    };
    [of(&files.certificate), of(&files.key)]
}

fn configuration(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let wrong = |file: &Path, error: &dyn std::fmt::Display| {
        io::Error::other(format!("{}: {error}", file.display()))
    };
    let read = CertificateDer::pem_file_iter(&files.certificate)
        .map_err(|error| wrong(&files.certificate, &error))?;
    let chain: Result<Vec<_>, _> = read.collect();
    let chain = chain.map_err(|error| wrong(&files.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut configuration = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&files.certificate, &error))?;
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(configuration))
}

/// How connections are taken.
pub struct Connections {
    /// Connections at a time. Further ones wait.
    pub limit: usize,
    /// The time that open requests have at the end.
    pub drain: Duration,
    /// The certificate, if the server has one.
    pub tls: Option<Tls>,
    /// Counts open connections.
    pub metrics: Metrics,
}

impl Connections {
    /// Serves until `stopped`. Then calls `finish` on another thread, which ends the work that open requests wait for.
    pub async fn serve(
        self,
        listener: TcpListener,
        routes: Router,
        mut stopped: oneshot::Receiver<()>,
        finish: impl FnOnce() + Send + 'static,
    ) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let permits = Arc::new(Semaphore::new(self.limit));
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                _ = &mut stopped => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Answers are small: none waits for more of it.
            let _ = stream.set_nodelay(true);
            let (routes, watcher) = (routes.clone(), graceful.watcher());
            let acceptor = self.tls.as_ref().map(Tls::acceptor);
            let connected = self.metrics.connected();
            tokio::spawn(async move {
                speak(stream, acceptor, routes, watcher).await;
                drop((permit, connected));
            });
        }
        drop(listener);
        let finished = tokio::task::spawn_blocking(finish);
        let _ = timeout(self.drain, graceful.shutdown()).await;
        // It has the same time, and a panic of it was told where it happened.
        let _ = finished.await;
    }
}

async fn speak(stream: TcpStream, tls: Option<TlsAcceptor>, routes: Router, watcher: Watcher) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = Box::pin(stream);
    match tls {
        None => speak_http(stream, routes, watcher).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                speak_http(stream, routes, watcher).await;
            }
        }
    }
}

async fn speak_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
    watcher: Watcher,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD);
    let service = TowerToHyperService::new(routes);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // What goes wrong with a connection is the client's to know.
    let _ = watcher.watch(connection).await;
}
