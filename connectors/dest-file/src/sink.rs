//! Where the bytes of a file go.

use rapidbyte_manifest::Hash;
use rapidbyte_sdk::files::Output;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

/// Written at once: calls are cheap above 64 KiB.
pub(crate) const BUFFER_BYTES: usize = 1 << 19;

/// When a file is synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// With its own commit.
    Alone,
    /// With the commit of its folder, which syncs all its files together.
    WithFolder,
}

/// Where the bytes of a file go, which are hashed on the way if its manifest is to name them.
pub(crate) struct Sink {
    output: Output,
    hash: Option<Hash>,
}

impl Sink {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, hash: None }
    }

    pub(crate) fn hashed(output: Output) -> Self {
        Self {
            output,
            hash: Some(Hash::default()),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.output.write(bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    /// Gives a file its name: the final one, or its place in a folder that is not visible yet.
    pub(crate) fn commit(self, synced: Synced, rows: u64) -> Result<Written> {
        let _phase = phase::enter(Kind::Commit);
        if synced == Synced::Alone {
            self.output.sync()?;
        }
        let written = Written {
            bytes: self.output.bytes(),
            rows,
            sha256: self.hash.map(Hash::finish).unwrap_or_default(),
        };
        self.output.commit()?;
        Ok(written)
    }
}

/// The facts about a complete file.
pub(crate) struct Written {
    pub bytes: u64,
    pub rows: u64,
    /// Empty unless it was asked for.
    pub sha256: String,
}
