//! The pages of a column chunk, read one at a time and checked before anything is allocated for
//! them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::buf::Reader as BytesReader;
use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};

use super::indices::{self, Levels};
use super::thrift::{self, PageHeader, Unreadable};
use crate::ReadAt;
use crate::read_at::read_exact;

/// Read ahead for the headers of pages, for each column that is read.
const AHEAD_BYTES: u64 = 16 << 10;
/// The same for each column of a wide file.
const WIDE_AHEAD_BYTES: u64 = 1 << 10;
/// A page header has a hundred bytes and, in old files, the smallest and the largest value.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// Values of one page of a list: their levels take four bytes each in memory.
const MAX_PAGE_LIST_VALUES: i64 = 1 << 26;

/// With more columns none keeps its decompressor, of 100 KiB, from one page to the next.
const MAX_DECOMPRESSORS: usize = 64;

/// The bytes that one step of a reader may load. All columns of the step share it.
///
/// The first page that a column loads in a step is free: without it the step cannot give a row. Every
/// further page of the column counts. A step over rows of very unequal sizes therefore fails early, and
/// the reader repeats it with fewer rows.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    step: AtomicU64,
    left: AtomicI64,
    exceeded: AtomicBool,
}

impl Budget {
    /// Begins a step that may load `bytes` beyond each column's first page.
    pub(crate) fn begin(&self, bytes: u64) {
        self.step.fetch_add(1, Ordering::Relaxed);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.left.store(bytes, Ordering::Relaxed);
        self.exceeded.store(false, Ordering::Relaxed);
    }

    /// True if the step failed because it wanted more.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: i64, last_step: &mut u64) -> Result<()> {
        let step = self.step.load(Ordering::Relaxed);
        if *last_step != step {
            *last_step = step;
            return Ok(());
        }
        if self.left.fetch_sub(bytes, Ordering::Relaxed) < bytes {
            self.exceeded.store(true, Ordering::Relaxed);
            return Err(ParquetError::General("more pages than fit".into()));
        }
        Ok(())
    }
}

/// The row groups of one reader, one after the other.
pub(crate) struct Groups<R> {
    pub source: Arc<R>,
    pub metadata: Arc<ParquetMetaData>,
    pub range: Range<usize>,
    pub budget: Arc<Budget>,
    /// A larger page is refused.
    pub max_page_bytes: u64,
}

impl<R> Clone for Groups<R> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            metadata: self.metadata.clone(),
            range: self.range.clone(),
            budget: self.budget.clone(),
            max_page_bytes: self.max_page_bytes,
        }
    }
}

impl<R: ReadAt> Groups<R> {
    /// The bytes that a step holds of these columns of one row group at least: the dictionary and one page of each
    /// column, while the others are decoded. 0 for a few columns, whose pages [`Limits`](crate::Limits) bound.
    pub(crate) fn held_bytes(&self, group: usize, leaves: &[usize]) -> Result<u64> {
        if leaves.len() <= MAX_DECOMPRESSORS {
            return Ok(0);
        }
        let group = self.metadata.row_group(group);
        let held = |leaf: &usize| {
            Pages::open(self, group.column(*leaf), group.num_rows())?.first_pages_bytes()
        };
        let pages: u64 = leaves.iter().map(held).sum::<Result<u64>>()?;
        Ok(pages + leaves.len() as u64 * DECODER_BYTES)
    }
}

impl<R: ReadAt> RowGroups for Groups<R> {
    fn num_rows(&self) -> usize {
        let rows = self.row_groups().map(RowGroupMetaData::num_rows);
        usize::try_from(rows.sum::<i64>()).unwrap_or(usize::MAX)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks {
            groups: self.clone(),
            column,
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups()[self.range.clone()].iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of one column, one for each row group.
struct Chunks<R> {
    /// Those that are still to be read.
    groups: Groups<R>,
    column: usize,
}

impl<R: ReadAt> Iterator for Chunks<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.groups.range.next()?;
        let group = self.groups.metadata.row_group(group);
        let pages = Pages::open(&self.groups, group.column(self.column), group.num_rows());
        Some(pages.map(|pages| Box::new(pages) as Box<dyn PageReader>))
    }
}

impl<R: ReadAt> PageIterator for Chunks<R> {}

/// The pages of one chunk.
struct Pages<R: ReadAt> {
    /// Absent between the pages of a wide file, see [`MAX_DECOMPRESSORS`].
    inner: Option<SerializedPageReader<ChunkBytes<R>>>,
    chunk: ColumnChunkMetaData,
    rows: usize,
    is_wide: bool,
    bytes: Arc<ChunkBytes<R>>,
    budget: Arc<Budget>,
    max_page_bytes: u64,
    is_list: bool,
    /// Where the next header begins.
    offset: u64,
    /// The next header, once it is checked.
    next: Option<PageHeader>,
    /// Values that the chunk still has, by its metadata.
    values_left: i64,
    /// The step in which the last page was loaded.
    step: u64,
    /// Of a column of values of one length, whose indices the decoder does not check.
    fixed: Option<Fixed>,
}

/// The facts that check indices into a dictionary.
struct Fixed {
    column: String,
    levels: Levels,
    /// Of the dictionary that came.
    entries: Option<u32>,
}

impl Fixed {
    fn of(chunk: &ColumnChunkMetaData) -> Option<Self> {
        let column = chunk.column_descr();
        (column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY).then(|| Self {
            column: column.path().string(),
            levels: Levels {
                max_definition: column.max_def_level(),
                max_repetition: column.max_rep_level(),
            },
            entries: None,
        })
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        if let Page::DictionaryPage { num_values, .. } = page {
            self.entries = Some(*num_values);
        }
        match indices::refusal(page, self.levels, self.entries) {
            None => Ok(()),
            Some(what) => {
                let text = format!("column {:?}: {what}", self.column);
                Err(ParquetError::General(text))
            }
        }
    }
}

impl<R: ReadAt> Pages<R> {
    fn open(groups: &Groups<R>, chunk: &ColumnChunkMetaData, rows: i64) -> Result<Self> {
        // Both are checked to be inside the file.
        let (start, len) = chunk.byte_range();
        let columns = groups.metadata.file_metadata().schema_descr().num_columns();
        let is_wide = columns > MAX_DECOMPRESSORS;
        let bytes = Arc::new(ChunkBytes {
            source: groups.source.clone(),
            start,
            end: start + len,
            ahead: if is_wide {
                WIDE_AHEAD_BYTES
            } else {
                AHEAD_BYTES
            },
            window: Mutex::default(),
        });
        let rows = usize::try_from(rows)?;
        Ok(Self {
            inner: None,
            chunk: chunk.clone(),
            rows,
            is_wide,
            bytes,
            budget: groups.budget.clone(),
            max_page_bytes: groups.max_page_bytes,
            is_list: chunk.column_descr().max_rep_level() > 0,
            offset: start,
            next: None,
            values_left: chunk.num_values(),
            step: 0,
            fixed: Fixed::of(chunk),
        })
    }

    /// The reader of the library, at the next page.
    fn inner(&mut self) -> Result<&mut SerializedPageReader<ChunkBytes<R>>> {
        match &mut self.inner {
            Some(inner) => Ok(inner),
            none => {
                let begun;
                let chunk = match self.offset == self.bytes.start {
                    true => &self.chunk,
                    false => {
                        // The rest of the chunk is a chunk too; its dictionary was read already.
                        let place = i64::try_from(self.offset)?;
                        let left = i64::try_from(self.bytes.end - self.offset)?;
                        let rest = self.chunk.clone().into_builder();
                        begun = rest
                            .set_dictionary_page_offset(None)
                            .set_data_page_offset(place)
                            .set_total_compressed_size(left)
                            .build()?;
                        &begun
                    }
                };
                let inner = SerializedPageReader::new(self.bytes.clone(), chunk, self.rows, None)?;
                Ok(none.insert(inner))
            }
        }
    }

    /// Checks the next header; `None` at the end of the chunk.
    fn look(&mut self) -> Result<Option<PageHeader>> {
        if self.next.is_some() || self.offset >= self.bytes.end {
            return Ok(self.next);
        }
        let header = self.bytes.header(self.offset)?;
        let wrong = |what: &str| {
            let at = self.offset;
            Err(ParquetError::General(format!("page at byte {at}: {what}")))
        };
        if !matches!(header.kind, 0 | 2 | 3) {
            return wrong("its kind is unknown");
        }
        let end = (self.offset + header.header_bytes as u64)
            .checked_add_signed(header.stored_bytes)
            .filter(|end| header.stored_bytes >= 0 && *end <= self.bytes.end);
        if end.is_none() || header.plain_bytes < 0 || header.values < 0 {
            return wrong("its sizes go beyond its column");
        }
        let plain_bytes = header.plain_bytes.unsigned_abs();
        if plain_bytes > self.max_page_bytes
            || header.stored_bytes.unsigned_abs() > self.max_page_bytes
        {
            let text = format!(
                "{TOO_LARGE} of {plain_bytes} bytes, the limit is {}",
                self.max_page_bytes
            );
            return wrong(&text);
        }
        if header.kind == 2 {
            if header.values > header.plain_bytes {
                return wrong("its dictionary has more values than bytes");
            }
        } else if header.values > self.values_left {
            return wrong("it has more values than its column");
        } else if self.is_list && header.values > MAX_PAGE_LIST_VALUES {
            return wrong(&format!("{TOO_LARGE} of {} values in lists", header.values));
        }
        self.next = Some(header);
        Ok(self.next)
    }

    /// The dictionary and the first page in memory.
    fn first_pages_bytes(&mut self) -> Result<u64> {
        let Some(first) = self.look()? else {
            return Ok(0);
        };
        let is_text = self.chunk.column_type() == Physical::BYTE_ARRAY;
        let bytes = |header: &PageHeader| header.plain_bytes.unsigned_abs();
        if first.kind != 2 {
            return Ok(bytes(&first) + first.stored_bytes.unsigned_abs());
        }
        let views = match is_text {
            true => first.values.unsigned_abs() * VIEW_BYTES,
            false => 0,
        };
        self.passed(first);
        let page = self.look()?;
        let page = page.map_or(0, |page| bytes(&page) + page.stored_bytes.unsigned_abs());
        Ok(bytes(&first) + views + page)
    }

    fn passed(&mut self, header: PageHeader) {
        self.next = None;
        if self.is_wide {
            self.inner = None;
        }
        self.offset += header.header_bytes as u64 + header.stored_bytes.unsigned_abs();
        if header.kind != 2 {
            self.values_left -= header.values;
        }
    }
}

/// Memory that a column takes while it is decoded, besides its pages.
const DECODER_BYTES: u64 = 4 << 10;

/// A value of bytes in a dictionary takes this many bytes besides its page.
const VIEW_BYTES: u64 = 16;

/// The words for a page above its limit, by which `malformed` knows the error.
pub(crate) const TOO_LARGE: &str = "a page";

impl<R: ReadAt> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(header) = self.look()? else {
            if self.values_left > 0 {
                let text = format!(
                    "{} values are missing at the end of a column",
                    self.values_left
                );
                return Err(ParquetError::General(text));
            }
            return Ok(None);
        };
        // A dictionary comes with the first page of its column.
        if header.kind != 2 {
            self.budget.take(header.plain_bytes, &mut self.step)?;
        }
        let page = self.inner()?.get_next_page()?;
        self.passed(header);
        if let (Some(fixed), Some(page)) = (&mut self.fixed, &page) {
            fixed.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        match self.look()? {
            None => Ok(None),
            Some(_) => self.inner()?.peek_next_page(),
        }
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if let Some(header) = self.look()? {
            self.inner()?.skip_next_page()?;
            self.passed(header);
        }
        Ok(())
    }

    fn supports_deferred_dictionary(&self) -> bool {
        // A page is checked with its dictionary.
        let inner = self.inner.as_ref();
        self.fixed.is_none()
            && !self.is_wide
            && inner.is_none_or(PageReader::supports_deferred_dictionary)
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        match &mut self.inner {
            Some(inner) if !self.is_wide => inner.take_deferred_dictionary(),
            _ => Ok(None),
        }
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.look()?;
        self.inner()?.at_record_boundary()
    }
}

impl<R: ReadAt> Iterator for Pages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// The bytes of one chunk, with what was read of them last.
struct ChunkBytes<R> {
    source: Arc<R>,
    start: u64,
    end: u64,
    /// Read beyond what is asked for.
    ahead: u64,
    /// Where it begins, and the bytes from there on.
    window: Mutex<(u64, Bytes)>,
}

impl<R: ReadAt> ChunkBytes<R> {
    /// At least `len` bytes from `offset` (fewer at the end of the chunk).
    fn from(&self, offset: u64, len: u64) -> Result<Bytes> {
        let len = len.min(self.end.saturating_sub(offset));
        // Nobody panics while holding it.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, bytes) = &*window;
        let covered = offset >= *at && offset + len <= at + bytes.len() as u64;
        if !covered {
            let ahead = (offset + len + self.ahead).min(self.end);
            let room = usize::try_from(ahead.saturating_sub(offset))?;
            *window = (offset, read_exact(&*self.source, offset, room)?.into());
        }
        let (at, bytes) = &*window;
        // Within the window.
        Ok(bytes.slice((offset - at) as usize..))
    }

    /// The header at `offset`.
    fn header(&self, offset: u64) -> Result<PageHeader> {
        let mut len = 256;
        loop {
            let bytes = self.from(offset, len)?;
            match thrift::page_header(&bytes) {
                Ok(header) => return Ok(header),
                Err(Unreadable::Short) if len < MAX_HEADER_BYTES && offset + len < self.end => {
                    len = (len * 16).min(MAX_HEADER_BYTES);
                }
                Err(_) => {
                    let text = format!("page at byte {offset}: its header cannot be read");
                    return Err(ParquetError::General(text));
                }
            }
        }
    }
}

impl<R: ReadAt> Length for ChunkBytes<R> {
    fn len(&self) -> u64 {
        self.source.size()
    }
}

impl<R: ReadAt> ChunkReader for ChunkBytes<R> {
    type T = BytesReader<Bytes>;

    /// Only headers are read by it, which [`Self::header`] has in the window.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start, 0)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let inside = start >= self.start
            && start
                .checked_add(length as u64)
                .is_some_and(|end| end <= self.end);
        if !inside {
            return Err(ParquetError::EOF("a page beyond its column".into()));
        }
        Ok(self.from(start, length as u64)?.slice(..length))
    }
}
