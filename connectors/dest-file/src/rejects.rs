//! Records that do not get into the files of a directory that grows: JSON Lines beside its manifests, a file for each
//! commit with rejects. The manifest of the commit names the file, so the rejects become visible with the rows.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_columnar::FileWriter;
use rapidbyte_formats::{Picked, Texts, object};
use rapidbyte_manifest::{self as manifest, FOLDER, File, REJECTS};
use rapidbyte_pg::behind::Columns;
use rapidbyte_sdk::files;
use rapidbyte_sdk::pieces::Pieces;
use rapidbyte_sdk::prelude::*;

use crate::chain::{Lease, Place};
use crate::convert;
use crate::id;
use crate::kept;
use crate::partition::Partitions;
use crate::settings::{FileFormat, Settings};
use crate::sink::{Sink, Synced};

/// Rejects are written when they have this many bytes.
const BUFFER_BYTES: usize = 1 << 16;

/// The name that `rejects.to` gives the files. Errors: `invalid_name`.
fn name(to: &str) -> Result<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !to.is_empty() && to.len() <= 64 && to.chars().all(is_plain) {
        true => Ok(to),
        false => {
            let text = format!("{to:?} cannot name files of rejects");
            Err(Error::config("invalid_name", text)
                .hint("use letters, digits, \"-\" and \"_\", such as rejects")
                .at("rejects.to"))
        }
    }
}

/// Refuses rejects where one step cannot commit them together with the rows. `grows`: the directory has manifests.
pub(crate) fn refuse(target: &Target, grows: bool) -> Result<()> {
    let Some(rejects) = &target.rejects else {
        return Ok(());
    };
    name(&rejects.to)?;
    match grows {
        true => Ok(()),
        false => Err(without_manifests().in_stream(&target.stream)),
    }
}

/// The error for rejects of files that have no manifests.
pub(crate) fn without_manifests() -> Error {
    let text = "a file or a directory that is replaced as a whole cannot keep rejects: only a manifest commits them \
                together with the rows";
    Error::config("rejects_need_manifests", text)
        .hint(
            "put {part} into the file's name and set write_mode: append, or remove rejects: then the first record that \
             fails stops its stream",
        )
        .at("rejects")
}

/// The note of a plan.
pub(crate) fn note(to: &str) -> String {
    format!(
        "rejects are kept in {FOLDER}/{to}.*{REJECTS}; each batch is encoded twice to find them"
    )
}

/// Keeps the rejects of a stream.
pub(crate) struct Keeper {
    settings: Rc<Settings>,
    partitions: Option<Partitions>,
    place: Rc<Place>,
    to: String,
    run: Run,
    epoch: u64,
    /// Of the next manifest.
    number: u64,
    /// The rows that came, and the rejects of the load.
    seen: u64,
    rejects: u64,
    max_rows: Option<u64>,
    columns: Columns,
    /// The places of the rejects that are replayed, for records that fail again.
    first: VecDeque<id::Place>,
    /// The refused rows that the host does not know yet.
    refused: Refused,
    pieces: Pieces,
    /// The file of the next commit.
    open: Option<(Sink, File)>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Keeper {
    /// None if the target keeps none. `partition_by` are the columns that become directories.
    pub(crate) fn new(
        settings: &Rc<Settings>,
        target: &Target,
        partition_by: &[String],
        lease: &Lease,
    ) -> Result<Option<Self>> {
        let Some(rejects) = &target.rejects else {
            return Ok(None);
        };
        let partitions = match partition_by {
            [] => None,
            columns => {
                Some(Partitions::new(columns, &target.arrow_schema()?, "config.partition_by")?.0)
            }
        };
        Ok(Some(Self {
            settings: settings.clone(),
            partitions,
            place: lease.place.clone(),
            to: name(&rejects.to)?.to_owned(),
            run: lease.run().clone(),
            epoch: lease.progress().epoch,
            number: lease.next(),
            seen: 0,
            rejects: 0,
            max_rows: rejects.max_rows,
            columns: kept::columns(target)?,
            first: lease.claim.first.clone(),
            refused: Refused::default(),
            pieces: Pieces::default(),
            open: None,
            buffer: Vec::new(),
            scratch: Vec::new(),
        }))
    }

    /// Keeps the rows of a batch that the files cannot hold, and returns the others in pieces. Stops early with more
    /// rejects than are allowed: the host fails the stream then.
    pub(crate) fn sort(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let before = self.seen;
        self.seen += batch.num_rows() as u64;
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut good = Vec::new();
        pieces.begin(batch.num_rows());
        while let Some(piece) = pieces.take() {
            if self.max_rows.is_some_and(|most| self.rejects > most) {
                break;
            }
            let rows = batch.slice(piece.start, piece.len());
            let Err(error) = self.check(&rows) else {
                pieces.passed(&piece);
                good.push(rows);
                continue;
            };
            if !matches!(error.kind, ErrorKind::Data) {
                return Err(error);
            }
            if pieces.failed(&piece, None) {
                let (data, is_cut) = object(batch, piece.start);
                let number = before + piece.start as u64 + 1;
                let reject = Reject {
                    data,
                    is_cut,
                    location: Some(format!("row {number}")),
                    column: error.column,
                    code: error.code,
                    message: without_place(&error.message).to_owned(),
                    read_with: None,
                };
                self.refused.add(&reject);
                self.keep(RejectOrigin::Destination, &reject)?;
            }
        }
        self.pieces = pieces;
        Ok(good)
    }

    /// Whether files can hold all of these rows. Nothing is written.
    fn check(&mut self, rows: &RecordBatch) -> Result<()> {
        let rest = match &self.partitions {
            None => None,
            Some(partitions) => {
                partitions.group(rows, 0)?;
                Some(partitions.without_columns(rows)?)
            }
        };
        let rows = rest.as_ref().unwrap_or(rows);
        match &self.settings.format {
            FileFormat::Text(format, _) => {
                let encoder = format.encoder(rows.schema()).map_err(convert)?;
                let mut at = 0;
                while at < rows.num_rows() {
                    self.scratch.clear();
                    let encoded =
                        encoder.encode(Picked::all(rows), at, &mut self.scratch, BUFFER_BYTES);
                    at = encoded.map_err(convert)?;
                }
                self.scratch.shrink_to(2 * BUFFER_BYTES);
                Ok(())
            }
            FileFormat::Columns(kind, options) => {
                let refused = |error| crate::columns::refused(&error);
                let writer = FileWriter::new(*kind, rows.schema(), options, io::sink());
                let mut writer = writer.map_err(refused)?;
                writer.write(rows).map_err(refused)?;
                writer.finish().map(drop).map_err(refused)
            }
        }
    }

    /// The rows that were refused since the last call.
    pub(crate) fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }

    /// Writes a reject into the file of the next commit.
    pub(crate) fn keep(&mut self, origin: RejectOrigin, reject: &Reject) -> Result<()> {
        self.rejects += 1;
        if self.open.is_none() {
            let part = manifest::part(self.epoch, self.number, 0);
            let name = format!("{}.{part}{REJECTS}", self.to);
            let output = files::create(&self.place.pending(&name))?;
            let file = File {
                path: format!("{FOLDER}/{name}"),
                size: 0,
                sha256: String::new(),
                rows: 0,
            };
            self.open = Some((Sink::hashed(output), file));
        }
        let line = self.line(origin, reject)?;
        self.buffer.extend_from_slice(line.to_string().as_bytes());
        self.buffer.push(b'\n');
        if let Some((_, file)) = &mut self.open {
            file.rows += 1;
        }
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.push(),
            false => Ok(()),
        }
    }

    fn line(&mut self, origin: RejectOrigin, reject: &Reject) -> Result<serde_json::Value> {
        // A record that was divided into several may fail more than once.
        let first = match self.first.len() {
            0 | 1 => self.first.front().copied(),
            _ => self.first.pop_front(),
        };
        let read_with = reject.read_with.as_deref();
        let read_with = read_with.or_else(|| self.columns.of_origin(origin.name()));
        let record = std::str::from_utf8(&reject.data).ok();
        let hex = || {
            let digits = reject.data.iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        };
        let mut line = serde_json::json!({
            "time": now()?,
            "pipeline": self.run.pipeline,
            "run_id": self.run.id,
            "stream": self.place.stream,
            "origin": origin.name(),
            "location": reject.location,
            "column": reject.column,
            "code": reject.code,
            "message": reject.message,
            "is_cut": reject.is_cut,
        });
        match record {
            Some(record) => line["record"] = record.into(),
            None => line["record_hex"] = hex().into(),
        }
        if let Some(read_with) = read_with {
            line["read_with"] = read_with.into();
        }
        if let Some(first) = first {
            line["first"] = first.to_string().into();
        }
        Ok(line)
    }

    fn push(&mut self) -> Result<()> {
        if let Some((sink, _)) = &mut self.open {
            sink.write(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Ends the file of this commit, on the disk, for its manifest. `next` is the number of the manifest after it.
    pub(crate) fn finish(&mut self) -> Result<Vec<File>> {
        self.push()?;
        let Some((sink, file)) = self.open.take() else {
            return Ok(Vec::new());
        };
        let written = sink.commit(Synced::Alone, file.rows)?;
        Ok(vec![File {
            size: written.bytes,
            sha256: written.sha256,
            ..file
        }])
    }

    /// Begins the file of the manifest after a commit.
    pub(crate) fn go_on(&mut self, next: u64) {
        self.number = next;
    }
}

/// A message without its place, which has a key of its own.
fn without_place(message: &str) -> &str {
    let Some(rest) = message.strip_prefix("row ") else {
        return message;
    };
    rest.trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start_matches(" or after")
        .trim_start_matches([':', ',', ' '])
}

/// The time as JSON Lines have it.
fn now() -> Result<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = seconds.map_or(0, |time| time.as_secs().try_into().unwrap_or(i64::MAX));
    let times: ArrayRef =
        std::sync::Arc::new(TimestampSecondArray::from(vec![seconds]).with_timezone("UTC"));
    let field = Field::new("time", times.data_type().clone(), false).into();
    let mut text = Vec::new();
    let texts = Texts::new(&field, &times).map_err(convert)?;
    texts.write(0, &mut text).map_err(convert)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
