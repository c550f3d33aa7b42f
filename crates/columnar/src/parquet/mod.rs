//! Parquet: the footer, the types, pages, batches.
//!
//! Decoding is the crate `parquet`; what is done here is to check every size before that crate
//! allocates for it, to read no more than a page at a time, and to give each type its exact form.

mod footer;
mod indices;
mod page;
mod read;
mod schema;
mod thrift;
pub(crate) mod write;

pub(crate) use footer::ParquetFile;
pub(crate) use read::ParquetReader;

use parquet::errors::ParquetError;

use crate::ColumnarError;

/// The first and last four bytes of a file.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Calls the decoder. Some damaged pages (the keys and values of a map that differ in number) make it
/// panic instead of giving an error. Natively that
/// becomes an error here; in a component a panic ends the component, and the host says so.
fn guarded<T>(decode: impl FnOnce() -> T) -> Result<T, ColumnarError> {
    // After an error nothing of the reader is used any more.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).map_err(|_| {
        ColumnarError::new("parquet_malformed", "a page that cannot be decoded")
            .hint("copy the file again: it is damaged or incomplete")
    })
}

/// The fault that the `parquet` crate found in a file.
fn malformed(error: &ParquetError) -> ColumnarError {
    let text = match error {
        ParquetError::General(text) | ParquetError::EOF(text) | ParquetError::ArrowError(text) => {
            text.clone()
        }
        ParquetError::External(error) => error.to_string(),
        ParquetError::NYI(text) => {
            let text = format!("not supported by this version: {text}");
            return ColumnarError::new("unsupported_type", text);
        }
        other => other.to_string(),
    };
    if text.contains(page::TOO_LARGE) && text.contains("the limit is") {
        let of = format!("{} of ", page::TOO_LARGE);
        let bytes = text
            .split_once(&of)
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let settings = match bytes {
            Some(bytes) => crate::settings_for(bytes),
            None => "raise resources.max_record_bytes and resources.memory".to_owned(),
        };
        return ColumnarError::new("page_too_large", text).hint(format!(
            "a page is read whole: {settings}, or have the file written with smaller pages"
        ));
    }
    ColumnarError::new("parquet_malformed", text)
        .hint("copy the file again: it is damaged or incomplete")
}
