//! A body on its way in: hashed while it comes, and kept in memory as long as it is small.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::{Stream, StreamExt};
use ring::digest::{Context, SHA256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::answer::Refusal;
use crate::spool::{Spool, SpoolFile};
use crate::store::Store;

/// The limits of bodies.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Bytes of one body.
    pub bytes: u64,
    /// Bytes of a body that stays in memory, and then in the store of jobs. Larger ones go to the spool.
    pub inline: usize,
    /// Bytes of all bodies in memory, and of the buffers before the spool. A body that finds no room there goes to the
    /// spool without a buffer.
    pub memory: usize,
    /// The longest wait for the next bytes of a client.
    pub idle: Duration,
    /// The time that each body has, however slow its client is.
    pub grace: Duration,
    /// Bytes a second that a client has to send after this time.
    pub slowest: u64,
}

/// Bytes that are written to the spool at a time.
const WRITE_BYTES: usize = 256 << 10;
/// After this many bytes of a body the disk is asked again whether it has room.
const ROOM_BYTES: u64 = 16 << 20;

/// Receives bodies.
#[derive(Clone)]
pub struct Receiver {
    limits: BodyLimits,
    spool: Spool,
    store: Store,
    memory: Arc<Semaphore>,
    /// Bytes of bodies that are not jobs yet.
    arriving: Arc<AtomicU64>,
}

/// A body that was received.
pub struct Received {
    /// Its bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// Its bytes, or their file.
    pub content: Content,
    /// Its share of what is limited: to be held until it is a job.
    pub share: Share,
}

/// What a body takes of the limits of all bodies. It is given back when it is dropped.
pub struct Share {
    memory: Option<OwnedSemaphorePermit>,
    bytes: u64,
    arriving: Arc<AtomicU64>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.arriving.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The place of a body.
pub enum Content {
    /// In memory.
    Inline(Vec<u8>),
    /// In the spool, synced.
    Spooled(SpoolFile),
}

impl Receiver {
    /// Bodies that are not small go to `spool`, and become jobs of `store`.
    pub fn new(limits: BodyLimits, spool: Spool, store: Store) -> Self {
        Self {
            limits,
            spool,
            store,
            memory: Arc::new(Semaphore::new(limits.memory.min(Semaphore::MAX_PERMITS))),
            arriving: Arc::default(),
        }
    }

    /// The folder of large bodies.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// The longest wait for the next bytes of a client.
    pub fn idle(&self) -> Duration {
        self.limits.idle
    }

    /// Takes a whole body, which comes in `pieces`. `announced` is its size, if the client has told it.
    ///
    /// # Errors
    /// `body_too_large`, `body_timeout`, `body_too_slow`, `body_broken`, `queue_full`, `disk_full` and `spool_failed`.
    pub async fn receive<E: Display>(
        &self,
        mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
        announced: Option<u64>,
    ) -> Result<Received, Refusal> {
        let announced = announced.unwrap_or(0);
        if announced > self.most_bytes() {
            return Err(self.too_large());
        }
        let room = self.spool.has_room_now();
        if !room.map_err(|error| Refusal::of_spool(&error))? {
            return Err(Refusal::disk_full());
        }
        let mut share = Share {
            memory: None,
            bytes: 0,
            arriving: Arc::clone(&self.arriving),
        };
        self.count(&mut share, announced)?;
        let mut taken = Taken {
            receiver: self,
            hash: Context::new(&SHA256),
            bytes: 0,
            buffer: Vec::new(),
            share,
            file: None,
            write_bytes: 0,
            checked: 0,
        };
        let begun = Instant::now();
        loop {
            let piece = timeout(self.limits.idle, pieces.next()).await;
            let piece = piece.map_err(|_| Refusal::body_timeout(self.limits.idle))?;
            let Some(piece) = piece else {
                return taken.end().await;
            };
            let piece = piece.map_err(|error| Refusal::body_broken(&error.to_string()))?;
            taken.take(&piece).await?;
            let late = begun.elapsed().saturating_sub(self.limits.grace).as_secs();
            if taken.bytes < late.saturating_mul(self.limits.slowest) {
                return Err(Refusal::body_too_slow(self.limits.slowest));
            }
        }
    }

    /// Bytes that a body may have. One that the empty queue could not take is too large.
    fn most_bytes(&self) -> u64 {
        self.limits.bytes.min(self.store.limits().bytes)
    }

    fn too_large(&self) -> Refusal {
        Refusal::body_too_large(self.most_bytes())
    }

    /// Counts a body with `bytes` in all: a queue that could not take it refuses it before it is received.
    fn count(&self, share: &mut Share, bytes: u64) -> Result<(), Refusal> {
        let more = bytes.saturating_sub(share.bytes);
        let arriving = self.arriving.fetch_add(more, Ordering::Relaxed) + more;
        share.bytes += more;
        let (held, limits) = (self.store.held(), self.store.limits());
        if held.jobs >= limits.jobs || held.bytes.saturating_add(arriving) > limits.bytes {
            return Err(Refusal::queue_full());
        }
        Ok(())
    }
}

/// A body so far.
struct Taken<'r> {
    receiver: &'r Receiver,
    hash: Context,
    bytes: u64,
    /// The bytes that are not in the file yet.
    buffer: Vec<u8>,
    share: Share,
    file: Option<SpoolFile>,
    /// Bytes that are written at a time. 0: as they come, because there is no memory for a buffer.
    write_bytes: usize,
    /// The bytes up to which the disk has room.
    checked: u64,
}

impl Taken<'_> {
    async fn take(&mut self, data: &[u8]) -> Result<(), Refusal> {
        self.bytes += data.len() as u64;
        if self.bytes > self.receiver.most_bytes() {
            return Err(self.receiver.too_large());
        }
        self.receiver.count(&mut self.share, self.bytes)?;
        self.hash.update(data);
        if self.file.is_none() && !self.fits_in_memory(data.len()) {
            self.begin_file().await?;
        }
        for piece in data.chunks(WRITE_BYTES) {
            self.buffer.extend_from_slice(piece);
            if self.file.is_some() && self.buffer.len() >= self.write_bytes {
                self.write(false).await?;
            }
        }
        Ok(())
    }

    /// Whether the buffer may have this many bytes more. Takes them from the memory of all bodies.
    fn fits_in_memory(&mut self, more: usize) -> bool {
        self.buffer.len() + more <= self.receiver.limits.inline && self.take_memory(more)
    }

    fn take_memory(&mut self, more: usize) -> bool {
        let Ok(wanted) = u32::try_from(more) else {
            return false;
        };
        let memory = Arc::clone(&self.receiver.memory);
        let Ok(permits) = memory.try_acquire_many_owned(wanted) else {
            return false;
        };
        match &mut self.share.memory {
            Some(held) => held.merge(permits),
            none => *none = Some(permits),
        }
        true
    }

    async fn begin_file(&mut self) -> Result<(), Refusal> {
        self.ask_for_room().await?;
        if self.take_memory(WRITE_BYTES.saturating_sub(self.buffer.len())) {
            self.write_bytes = WRITE_BYTES;
        }
        let spool = self.receiver.spool.clone();
        let begun = spawn_blocking(move || spool.begin()).await;
        let begun = begun.map_err(|_| Refusal::spool_failed("the writer panicked"))?;
        self.file = Some(begun.map_err(|error| Refusal::of_spool(&error))?);
        Ok(())
    }

    /// Refuses a body for which the disk has no room.
    async fn ask_for_room(&mut self) -> Result<(), Refusal> {
        if self.bytes < self.checked {
            return Ok(());
        }
        let spool = self.receiver.spool.clone();
        let asked = spawn_blocking(move || spool.has_room(ROOM_BYTES)).await;
        let has_room = asked.map_err(|_| Refusal::spool_failed("the look at the disk panicked"))?;
        if !has_room.map_err(|error| Refusal::of_spool(&error))? {
            return Err(Refusal::disk_full());
        }
        self.checked = self.bytes + ROOM_BYTES;
        Ok(())
    }

    /// Writes the buffer into the file; with `ends` it is on the disk afterwards.
    async fn write(&mut self, ends: bool) -> Result<(), Refusal> {
        self.ask_for_room().await?;
        let Some(mut file) = self.file.take() else {
            return Err(Refusal::spool_failed("no file"));
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let keeps = self.write_bytes > 0;
        let written = spawn_blocking(move || {
            let written = file.write(&buffer);
            let synced = match ends {
                true => written.and_then(|()| file.sync()),
                false => written,
            };
            buffer.clear();
            if !keeps {
                buffer = Vec::new();
            }
            (synced, file, buffer)
        });
        let written = written.await;
        let (written, file, buffer) =
            written.map_err(|_| Refusal::spool_failed("the writer panicked"))?;
        (self.file, self.buffer) = (Some(file), buffer);
        written.map_err(|error| Refusal::of_spool(&error))
    }

    async fn end(mut self) -> Result<Received, Refusal> {
        if self.file.is_some() {
            self.write(true).await?;
            self.share.memory = None;
        }
        let sha256 = self.hash.clone().finish();
        let mut bytes = [0; 32];
        bytes.copy_from_slice(sha256.as_ref());
        Ok(Received {
            bytes: self.bytes,
            sha256: bytes,
            content: match self.file {
                Some(file) => Content::Spooled(file),
                None => Content::Inline(self.buffer),
            },
            share: self.share,
        })
    }
}
