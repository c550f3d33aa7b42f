//! The files of a stream until its last commit.

use rapidbyte_formats::Picked;
use rapidbyte_sdk::log::failpoint;

use rapidbyte_sdk::prelude::*;

use crate::chain::Lease;
use crate::config::Split;
use crate::plan::no_cursor;
use crate::rejects::Keeper;
use crate::set::FileSet;
use crate::sink::Synced;
use crate::write::OneFile;

/// The files of a stream until its last commit.
pub(crate) struct Unfinished {
    files: Shape,
    location: String,
    /// Of the stream.
    rows: u64,
    /// Rows and bytes of the parts so far.
    flushed: (u64, u64),
    /// Bytes of the commits so far.
    committed: u64,
}

/// One file, a directory that is replaced, or a directory that grows.
pub(crate) enum Shape {
    One(Box<OneFile>),
    Set(Box<FileSet>),
    Chain {
        set: Box<FileSet>,
        lease: Box<Lease>,
        /// Keeps the rejects, if the operator allows some.
        keeper: Option<Box<Keeper>>,
        /// The first commit takes the place of the older ones.
        replaces: bool,
    },
}

impl Unfinished {
    pub(crate) fn new(files: Shape, location: String) -> Self {
        Self {
            files,
            location,
            rows: 0,
            flushed: (0, 0),
            committed: 0,
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Shape::Chain {
            set,
            keeper: Some(keeper),
            ..
        } = &mut self.files
        {
            for rows in keeper.sort(batch)? {
                set.write(&rows, self.rows)?;
                self.rows += rows.num_rows() as u64;
            }
            return Ok(());
        }
        // Counted from the stream's first row.
        let before = self.rows;
        match &mut self.files {
            Shape::One(file) => file
                .write(Picked::all(batch), 0, Split::default())
                .map(|_| ())
                .map_err(|refused| refused.told(before))?,
            Shape::Set(set) | Shape::Chain { set, .. } => set.write(batch, before)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Keeps the rejects of a stream, for a directory that grows.
    pub(crate) fn keeper(&mut self) -> Option<&mut Keeper> {
        match &mut self.files {
            Shape::Chain { keeper, .. } => keeper.as_deref_mut(),
            Shape::One(_) | Shape::Set(_) => None,
        }
    }

    pub(crate) fn flush(&mut self) -> Result<Part> {
        let written = match &mut self.files {
            Shape::One(file) => {
                file.push()?;
                file.bytes()
            }
            Shape::Set(set) | Shape::Chain { set, .. } => set.bytes(),
        };
        let (rows, bytes) = self.flushed;
        self.flushed = (self.rows, written);
        Ok(Part {
            data: Vec::new(),
            rows: self.rows - rows,
            bytes: written - bytes,
        })
    }

    /// Why it went wrong, when a newer run is the reason.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.files {
            Shape::Chain { lease, .. } => lease.explain(error),
            _ => error,
        }
    }

    /// Makes everything since the last commit visible. Returns the files for the next commit: none
    /// after the last commit. A file or directory that is replaced has only one commit.
    pub(crate) fn commit(mut self, commit: &Commit<'_>) -> Result<(Receipt, Option<Self>)> {
        let rows = commit.rows();
        let receipt = |bytes, location| Receipt {
            rows,
            bytes,
            location,
            deleted: 0,
        };
        let Shape::Chain {
            set,
            lease,
            keeper,
            replaces,
        } = &mut self.files
        else {
            let location = self.location.clone();
            return Ok((receipt(self.replace(commit)?, location), None));
        };
        let is_empty = *replaces || (lease.is_first() && commit.complete);
        let files = set.finish(is_empty).map_err(|error| lease.explain(error))?;
        let rejects = keeper
            .as_mut()
            .map_or(Ok(Vec::new()), |keeper| keeper.finish());
        let rejects = rejects.map_err(|error| lease.explain(error))?;
        failpoint("dest-file.data_synced")?;
        let committed = lease.commit(commit, (files, rejects), *replaces);
        committed.map_err(|error| lease.explain(error))?;
        set.go_on(lease.next());
        if let Some(keeper) = keeper {
            keeper.go_on(lease.next());
        }
        *replaces = false;
        let bytes = set.bytes();
        self.flushed = (self.rows, bytes);
        let receipt = receipt(bytes - self.committed, self.location.clone());
        self.committed = bytes;
        Ok((receipt, (!commit.complete).then_some(self)))
    }

    /// Puts the file or the folder in the place of an older one. Gives its bytes.
    fn replace(self, commit: &Commit<'_>) -> Result<u64> {
        if commit.cursor.is_some() || !commit.complete {
            return Err(no_cursor(&self.location));
        }
        failpoint("dest-file.replacing")?;
        let bytes = match self.files {
            Shape::One(file) => file.commit(Synced::Alone)?.bytes,
            Shape::Set(set) => set.commit()?,
            Shape::Chain { .. } => {
                return Err(Error::internal("a directory that grows is replaced"));
            }
        };
        failpoint("dest-file.replaced")?;
        Ok(bytes)
    }
}
