//! A body on its way in: hashed while it comes, and kept in memory as long as it is small.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use ring::digest::{Context, SHA256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::spool::{Spool, SpoolFile};

/// The limits of bodies.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Bytes of one body.
    pub bytes: u64,
    /// Bytes of a body that stays in memory, and then in the store of jobs. Larger ones go to the spool.
    pub inline: usize,
    /// Bytes of all bodies in memory. A body that finds no room there goes to the spool.
    pub memory: usize,
    /// The longest wait for the next bytes of a client.
    pub idle: Duration,
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
    memory: Arc<Semaphore>,
}

/// A body that was received.
pub struct Received {
    /// Its bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// Its bytes, or their file.
    pub content: Content,
    /// Its share of the memory of all bodies, if it is there: to be held as long as the body.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// The place of a body.
pub enum Content {
    /// In memory.
    Inline(Vec<u8>),
    /// In the spool, synced.
    Spooled(SpoolFile),
}

impl Receiver {
    /// Bodies that are not small go to `spool`.
    pub fn new(limits: BodyLimits, spool: Spool) -> Self {
        Self {
            limits,
            spool,
            memory: Arc::new(Semaphore::new(limits.memory.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Takes a whole body. `announced` is its size, if the client has told it.
    ///
    /// # Errors
    /// `body_too_large`, `body_timeout`, `body_broken`, `disk_full` and `spool_failed`.
    pub async fn receive(
        &self,
        mut body: Body,
        announced: Option<u64>,
    ) -> Result<Received, Refusal> {
        if announced.is_some_and(|bytes| bytes > self.limits.bytes) {
            return Err(self.too_large());
        }
        let mut taken = Taken {
            receiver: self,
            hash: Context::new(&SHA256),
            bytes: 0,
            buffer: Vec::new(),
            permits: None,
            file: None,
            checked: 0,
        };
        loop {
            let frame = timeout(self.limits.idle, body.frame()).await;
            let frame = frame.map_err(|_| Refusal::body_timeout(self.limits.idle))?;
            let Some(frame) = frame else {
                return taken.end().await;
            };
            let frame = frame.map_err(|error| Refusal::body_broken(&error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                taken.take(&data).await?;
            }
        }
    }

    fn too_large(&self) -> Refusal {
        Refusal::body_too_large(self.limits.bytes)
    }
}

/// A body so far.
struct Taken<'r> {
    receiver: &'r Receiver,
    hash: Context,
    bytes: u64,
    /// The bytes that are not in the file yet.
    buffer: Vec<u8>,
    /// For the bytes of the buffer, while there is no file.
    permits: Option<OwnedSemaphorePermit>,
    file: Option<SpoolFile>,
    /// The bytes up to which the disk has room.
    checked: u64,
}

impl Taken<'_> {
    async fn take(&mut self, data: &[u8]) -> Result<(), Refusal> {
        self.bytes += data.len() as u64;
        if self.bytes > self.receiver.limits.bytes {
            return Err(self.receiver.too_large());
        }
        self.hash.update(data);
        if self.file.is_none() && !self.fits_in_memory(data.len()) {
            let spool = self.receiver.spool.clone();
            self.ask_for_room().await?;
            let begun = spawn_blocking(move || spool.begin()).await;
            let begun = begun.map_err(|_| Refusal::spool_failed("the writer panicked"))?;
            self.file = Some(begun.map_err(|error| Refusal::of_spool(&error))?);
        }
        for piece in data.chunks(WRITE_BYTES) {
            self.buffer.extend_from_slice(piece);
            if self.file.is_some() && self.buffer.len() >= WRITE_BYTES {
                self.write(false).await?;
            }
        }
        Ok(())
    }

    /// Whether the buffer may have this many bytes more. Takes them from the memory of all bodies.
    fn fits_in_memory(&mut self, more: usize) -> bool {
        let Receiver { limits, memory, .. } = self.receiver;
        if self.buffer.len() + more > limits.inline {
            return false;
        }
        let Ok(wanted) = u32::try_from(more) else {
            return false;
        };
        let Ok(permits) = Arc::clone(memory).try_acquire_many_owned(wanted) else {
            return false;
        };
        match &mut self.permits {
            Some(held) => held.merge(permits),
            none => *none = Some(permits),
        }
        true
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
        let written = spawn_blocking(move || {
            let written = file.write(&buffer);
            let synced = match ends {
                true => written.and_then(|()| file.sync()),
                false => written,
            };
            buffer.clear();
            (synced, file, buffer)
        });
        let written = written.await;
        let (written, file, buffer) =
            written.map_err(|_| Refusal::spool_failed("the writer panicked"))?;
        self.permits = None;
        (self.file, self.buffer) = (Some(file), buffer);
        written.map_err(|error| Refusal::of_spool(&error))
    }

    async fn end(mut self) -> Result<Received, Refusal> {
        if self.file.is_some() {
            self.write(true).await?;
        }
        let sha256 = self.hash.clone().finish();
        let mut bytes = [0; 32];
        bytes.copy_from_slice(sha256.as_ref());
        Ok(Received {
            bytes: self.bytes,
            sha256: bytes,
            memory: self.permits,
            content: match self.file {
                Some(file) => Content::Spooled(file),
                None => Content::Inline(self.buffer),
            },
        })
    }
}
