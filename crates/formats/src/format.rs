//! One door to both formats, for programs that let their configuration choose.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{FormatError, Limits, csv, jsonl};

/// How rows stand in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values, or another [`csv::Dialect`].
    Csv(csv::Dialect),
    /// One JSON object a line.
    Jsonl,
}

/// What an operator said about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Its ending tells the format if nothing else does: `.csv`, `.tsv`, `.jsonl`, `.ndjson`.
    pub path: &'a str,
    /// `csv` or `jsonl`.
    pub format: Option<&'a str>,
    /// One character, `\t` or `tab`. A comma if absent, a tab for `.tsv`.
    pub delimiter: Option<&'a str>,
    /// One character. A double quote if absent.
    pub quote: Option<&'a str>,
    /// True if absent.
    pub header: Option<bool>,
    /// The empty text if absent.
    pub null_text: Option<Vec<String>>,
}

impl Format {
    /// Settles the format. The error's `column` is the key to change.
    ///
    /// Errors: `unknown_format`, `unused_option` (an option of CSV beside JSON Lines),
    /// `bad_dialect`.
    pub fn choose(choice: Choice<'_>) -> Result<Self, FormatError> {
        let ending = choice
            .path
            .rsplit('/')
            .next()
            .and_then(|name| name.rsplit_once('.'))
            .map(|(_, ending)| ending.to_ascii_lowercase());
        let ending = ending.as_deref().unwrap_or_default();
        let format = match (choice.format, ending) {
            (Some(format), _) => format,
            (None, "csv" | "tsv") => "csv",
            (None, "jsonl" | "ndjson") => "jsonl",
            (None, _) => {
                let text = format!("the ending of {:?} does not tell its format", choice.path);
                return Err(FormatError::new("unknown_format", text)
                    .hint("set format: csv or format: jsonl")
                    .column("format"));
            }
        };
        match format {
            "csv" => choice.dialect(ending).map(Self::Csv),
            "jsonl" => choice.without_options(),
            other => {
                let text = format!("{other:?} is no format: csv and jsonl are");
                Err(FormatError::new("unknown_format", text).column("format"))
            }
        }
    }

    /// A decoder of files with the columns of `schema`; `wanted` as in [`csv::Decoder::new`].
    pub fn decoder(
        &self,
        schema: SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Decoder, FormatError> {
        Ok(match self {
            Self::Csv(dialect) => Decoder::Csv(Box::new(csv::Decoder::new(
                schema,
                wanted,
                dialect.clone(),
                limits,
            )?)),
            Self::Jsonl => Decoder::Jsonl(Box::new(jsonl::Decoder::new(schema, wanted, limits)?)),
        })
    }

    /// Looks at the beginnings of files: at most `max_rows` rows.
    pub fn sampler(&self, max_rows: u64, max_record_bytes: usize) -> Result<Sampler, FormatError> {
        Ok(match self {
            Self::Csv(dialect) => Sampler::Csv(Box::new(csv::Sampler::new(
                dialect.clone(),
                max_rows,
                max_record_bytes,
            )?)),
            Self::Jsonl => {
                Sampler::Jsonl(Box::new(jsonl::Sampler::new(max_rows, max_record_bytes)))
            }
        })
    }

    /// An encoder of batches of `schema`.
    pub fn encoder(&self, schema: SchemaRef) -> Result<Encoder, FormatError> {
        Ok(match self {
            Self::Csv(dialect) => {
                Encoder::Csv(Box::new(csv::Encoder::new(schema, dialect.clone())?))
            }
            Self::Jsonl => Encoder::Jsonl(Box::new(jsonl::Encoder::new(schema)?)),
        })
    }
}

impl Choice<'_> {
    fn dialect(self, ending: &str) -> Result<csv::Dialect, FormatError> {
        let plain = csv::Dialect::default();
        let character = |key: &str, text: Option<&str>, default: u8| match text {
            None => Ok(default),
            Some("\\t" | "tab") => Ok(b'\t'),
            Some(text) => match text.as_bytes() {
                [byte] => Ok(*byte),
                _ => {
                    let text = format!("{text:?} is not one ASCII character");
                    Err(FormatError::new("bad_dialect", text).column(key))
                }
            },
        };
        let comma = if ending == "tsv" {
            b'\t'
        } else {
            plain.delimiter
        };
        let dialect = csv::Dialect {
            delimiter: character("delimiter", self.delimiter, comma)?,
            quote: character("quote", self.quote, plain.quote)?,
            header: self.header.unwrap_or(plain.header),
            null_text: self.null_text.unwrap_or(plain.null_text),
        };
        dialect.validate()?;
        Ok(dialect)
    }

    fn without_options(self) -> Result<Format, FormatError> {
        let options = [
            ("delimiter", self.delimiter.is_some()),
            ("quote", self.quote.is_some()),
            ("header", self.header.is_some()),
            ("null_text", self.null_text.is_some()),
        ];
        match options.iter().find(|(_, given)| *given) {
            None => Ok(Format::Jsonl),
            Some((key, _)) => {
                let text = format!("JSON Lines has no {key}");
                Err(FormatError::new("unused_option", text)
                    .hint("leave it out, or set format: csv")
                    .column(key))
            }
        }
    }
}

/// A decoder of either format.
pub enum Decoder {
    /// Of CSV.
    Csv(Box<csv::Decoder>),
    /// Of JSON Lines.
    Jsonl(Box<jsonl::Decoder>),
}

/// A sampler of either format.
pub enum Sampler {
    /// Of CSV.
    Csv(Box<csv::Sampler>),
    /// Of JSON Lines.
    Jsonl(Box<jsonl::Sampler>),
}

/// An encoder of either format.
pub enum Encoder {
    /// Of CSV.
    Csv(Box<csv::Encoder>),
    /// Of JSON Lines.
    Jsonl(Box<jsonl::Encoder>),
}

macro_rules! either {
    ($self:ident, $name:ident => $call:expr) => {
        match $self {
            Self::Csv($name) => $call,
            Self::Jsonl($name) => $call,
        }
    };
}

impl Decoder {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        either!(self, decoder => decoder.schema())
    }

    /// Begins a file.
    pub fn begin_file(&mut self) {
        either!(self, decoder => decoder.begin_file());
    }

    /// Takes bytes until the batch is full; gives how many were taken.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        either!(self, decoder => decoder.push(bytes))
    }

    /// Ends the file.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        either!(self, decoder => decoder.end_of_file())
    }

    /// True once the batch has the bytes or rows of [`Limits`].
    pub fn is_full(&self) -> bool {
        either!(self, decoder => decoder.is_full())
    }

    /// Bytes of the batch's columns so far.
    pub fn bytes(&self) -> usize {
        either!(self, decoder => decoder.bytes())
    }

    /// The rows so far, `None` if there are none.
    pub fn take_batch(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        either!(self, decoder => decoder.take_batch())
    }
}

impl Sampler {
    /// Begins a file.
    pub fn begin_file(&mut self) {
        either!(self, sampler => sampler.begin_file());
    }

    /// Looks at the next bytes of the file, until there are enough rows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        either!(self, sampler => sampler.push(bytes))
    }

    /// True once there are enough rows.
    pub fn is_done(&self) -> bool {
        either!(self, sampler => sampler.is_done())
    }

    /// The file ends here.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        either!(self, sampler => sampler.end_of_file())
    }

    /// No more of the file is looked at.
    pub fn end_of_sample(&mut self) {
        either!(self, sampler => sampler.end_of_sample());
    }

    /// The guess.
    pub fn finish(self) -> Result<csv::Inferred, FormatError> {
        either!(self, sampler => sampler.finish())
    }
}

impl Encoder {
    /// Appends what stands before the first row.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        if let Self::Csv(encoder) = self {
            encoder.write_header(out);
        }
    }

    /// Appends rows from row `from` on; see [`csv::Encoder::encode`].
    pub fn encode(
        &self,
        batch: &RecordBatch,
        from: usize,
        out: &mut Vec<u8>,
        until_bytes: usize,
    ) -> Result<usize, FormatError> {
        either!(self, encoder => encoder.encode(batch, from, out, until_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        path: &str,
        format: Option<&str>,
        delimiter: Option<&str>,
    ) -> Result<Format, FormatError> {
        Format::choose(Choice {
            path,
            format,
            delimiter,
            ..Choice::default()
        })
    }

    #[test]
    fn the_ending_tells_the_format_unless_it_is_said() {
        let csv = |delimiter| {
            Format::Csv(csv::Dialect {
                delimiter,
                ..csv::Dialect::default()
            })
        };
        assert_eq!(choose("a/b.CSV", None, None), Ok(csv(b',')));
        assert_eq!(choose("*.tsv", None, None), Ok(csv(b'\t')));
        assert_eq!(choose("x.tsv", None, Some(";")), Ok(csv(b';')));
        assert_eq!(choose("x.txt", Some("csv"), Some("\\t")), Ok(csv(b'\t')));
        assert_eq!(choose("x.ndjson", None, None), Ok(Format::Jsonl));
        for (path, format, delimiter, code, key) in [
            ("a.csv/b", None, None, "unknown_format", "format"),
            ("a.csv", Some("xml"), None, "unknown_format", "format"),
            ("a.csv", None, Some("ab"), "bad_dialect", "delimiter"),
            ("a.jsonl", None, Some(","), "unused_option", "delimiter"),
        ] {
            let error = choose(path, format, delimiter).unwrap_err();
            assert_eq!((error.code, error.column.as_deref()), (code, Some(key)));
        }
    }
}
