//! The part of a pipeline that a run moves: `--select`, `--exclude` and `--limit`.
//!
//! A choice only narrows what the pipeline file names; it never adds to it.

use crate::document::{Document, Stream, SyncMode, WriteMode, covers_stream};
use crate::failure::{Class, Failure};
use crate::meant::did_you_mean;
use crate::plan::write_mode_key;
use rapidbyte_wire::pattern;

/// A choice among the streams and columns of a pipeline, and of how many rows.
///
/// A pattern is the name of a stream, or of a stream and a column with a dot between them; `*`
/// stands for any characters, `?` for any one. Names of streams have dots themselves, so a pattern
/// that covers a stream as a whole means that stream, and only another one means columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// The patterns to move; empty: everything.
    pub select: Vec<String>,
    /// The patterns to leave out; they override `select`.
    pub exclude: Vec<String>,
    /// Rows of each stream at most.
    pub limit: Option<u64>,
    /// The limited rows may replace all that a target has.
    pub limit_replaces: bool,
    /// Incremental streams begin again with their first row; what was appended is replaced.
    pub full_refresh: bool,
}

/// A stream that the pipeline moves, with its columns in order.
pub(crate) struct Candidate {
    pub name: String,
    pub columns: Vec<String>,
}

/// A match of a pattern: a stream by its position, and one of its columns, or none for the whole stream.
type Covered = (usize, Option<usize>);

impl Narrowing {
    /// Refuses a limit that would empty a target of most of its rows, unless that is wanted.
    pub(crate) fn check(&self, document: &Document) -> Result<(), Failure> {
        let incremental = document
            .source
            .streams
            .iter()
            .position(|stream| stream.sync_mode == SyncMode::Incremental);
        if let (Some(index), Some(_)) = (incremental, self.limit) {
            let key = format!("source.streams[{index}]");
            let text = "with --limit, the next run would skip the rows behind the limit";
            return Err(
                Failure::at_key(document, &key, "limit_incremental", text).hint(
                    "remove --limit; use checkpoint: { every_rows } for smaller commits, or \
                         where: for fewer rows",
                ),
            );
        }
        let replaces = |stream: &Stream| {
            document.write_mode_of(stream) == WriteMode::Replace && self.may_move(stream)
        };
        let replaced = document.source.streams.iter().position(replaces);
        match (self.limit, replaced) {
            (Some(rows), Some(index)) if !self.limit_replaces => {
                let text = format!(
                    "with write_mode: replace, {} would replace all rows of a target",
                    rapidbyte_wire::counted(rows, "row")
                );
                let key = write_mode_key(document, index);
                Err(
                    Failure::at_key(document, &key, "limit_replaces", text).hint(
                        "remove --limit, or add --limit-replaces if the target may hold only these \
                         rows, for example because it is new",
                    ),
                )
            }
            _ => Ok(()),
        }
    }

    /// False for a stream that the choice leaves out. The streams of a wildcard are not known yet.
    fn may_move(&self, stream: &Stream) -> bool {
        let covers = |pattern: &String| covers_stream(pattern, &stream.name);
        let covers_column = |pattern: &String| {
            let stream_part = pattern.rsplit_once('.').map(|(stream, _)| stream);
            stream_part.is_some_and(|part| covers_stream(part, &stream.name))
        };
        let is_selected = self.select.is_empty()
            || self
                .select
                .iter()
                .any(|one| covers(one) || covers_column(one));
        stream.is_pattern() || is_selected && !self.exclude.iter().any(covers)
    }

    /// For each stream what is kept of it: nothing, or its columns in order.
    ///
    /// # Errors
    /// A name that covers nothing, and a choice that leaves nothing.
    pub(crate) fn kept(&self, streams: &[Candidate]) -> Result<Vec<Option<Vec<String>>>, Failure> {
        let everything = self.select.is_empty();
        let mut whole = vec![everything; streams.len()];
        let mut columns: Vec<Vec<bool>> = streams
            .iter()
            .map(|stream| vec![everything; stream.columns.len()])
            .collect();
        for (patterns, keep) in [(&self.select, true), (&self.exclude, false)] {
            for pattern in patterns {
                for (stream, column) in covered(pattern, streams, keep)? {
                    match column {
                        Some(column) => columns[stream][column] = keep,
                        None => {
                            whole[stream] = keep;
                            columns[stream].fill(keep);
                        }
                    }
                }
            }
        }
        let kept: Vec<Option<Vec<String>>> = streams
            .iter()
            .enumerate()
            .map(|(at, stream)| {
                let names = stream.columns.iter().zip(&columns[at]);
                let names: Vec<String> = names
                    .filter(|(_, keep)| **keep)
                    .map(|(name, _)| name.clone())
                    .collect();
                // A stream without columns is kept when it was chosen itself.
                let is_kept = !names.is_empty() || (whole[at] && stream.columns.is_empty());
                is_kept.then_some(names)
            })
            .collect();
        if kept.iter().all(Option::is_none) && !streams.is_empty() {
            let text = "--select and --exclude leave nothing to move";
            return Err(Failure::new(Class::Config, "nothing_selected", text)
                .hint("remove one of them; --exclude overrides --select"));
        }
        Ok(kept)
    }
}

/// The streams that a pattern covers as a whole; if there are none, the columns.
fn covered(pattern: &str, streams: &[Candidate], select: bool) -> Result<Vec<Covered>, Failure> {
    let whole: Vec<Covered> = streams
        .iter()
        .enumerate()
        .filter(|(_, stream)| covers_stream(pattern, &stream.name))
        .map(|(at, _)| (at, None))
        .collect();
    if !whole.is_empty() {
        return Ok(whole);
    }
    // From the right: names of streams have dots more often than names of columns.
    for (dot, _) in pattern.rmatch_indices('.') {
        let (of, wanted) = (&pattern[..dot], &pattern[dot + 1..]);
        let mut found = Vec::new();
        for (at, stream) in streams.iter().enumerate() {
            if covers_stream(of, &stream.name) {
                let columns = stream.columns.iter().enumerate();
                let matching = columns.filter(|(_, column)| pattern::covers(wanted, column));
                found.extend(matching.map(|(column, _)| (at, Some(column))));
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(unknown(pattern, streams, select))
}

fn unknown(pattern: &str, streams: &[Candidate], select: bool) -> Failure {
    let flag = if select { "--select" } else { "--exclude" };
    let text = format!("{flag} {pattern:?} matches nothing that the pipeline moves");
    let names = streams.iter().map(|stream| stream.name.clone());
    let columns = streams.iter().flat_map(|s| {
        s.columns
            .iter()
            .map(|column| format!("{}.{column}", s.name))
    });
    let names: Vec<String> = names.chain(columns).collect();
    let hint = match did_you_mean(pattern, names.iter().map(String::as_str)) {
        Some(near) => near,
        None => "run `rapidbyte plan` to list its streams and columns".into(),
    };
    Failure::new(Class::Config, "unknown_selection", text).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> Vec<Candidate> {
        [
            ("public.orders", &["id", "total", "a.b"][..]),
            ("public.customers", &["id", "email"]),
            ("audit.log", &["id"]),
            ("public.empty", &[]),
        ]
        .into_iter()
        .map(|(name, columns)| Candidate {
            name: name.into(),
            columns: columns.iter().map(|column| (*column).into()).collect(),
        })
        .collect()
    }

    /// Kept columns as `stream: a b`, in one text.
    fn kept(select: &[&str], exclude: &[&str]) -> Result<String, String> {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let narrowing = Narrowing {
            select: texts(select),
            exclude: texts(exclude),
            ..Narrowing::default()
        };
        let streams = streams();
        let kept = narrowing
            .kept(&streams)
            .map_err(|failure| failure.to_string())?;
        let lines = streams.iter().zip(kept);
        let lines = lines.filter_map(|(s, kept)| Some(format!("{}: {}", s.name, kept?.join(" "))));
        Ok(lines.collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn a_choice_narrows_by_streams_and_columns() {
        let all = "public.orders: id total a.b; public.customers: id email; audit.log: id; \
                   public.empty: ";
        for (select, exclude, expected) in [
            (&[][..], &[][..], all),
            (&["*"], &[], all),
            (&["public.orders"], &[], "public.orders: id total a.b"),
            (&["public.empty"], &[], "public.empty: "),
            (
                &["public.orders.total", "public.orders.id"],
                &[],
                "public.orders: id total",
            ),
            (&["public.orders.a.b"], &[], "public.orders: a.b"),
            (
                &["*.id"],
                &[],
                "public.orders: id; public.customers: id; audit.log: id",
            ),
            (&["public.?u*"], &[], "public.customers: id email"),
            (&["audit.*"], &[], "audit.log: id"),
            (&[], &["public.*"], "audit.log: id"),
            (
                &[],
                &["*.id", "public.empty"],
                "public.orders: total a.b; public.customers: email",
            ),
            (&["public.customers"], &["*.email"], "public.customers: id"),
            (
                &["public.customers.id", "audit.log"],
                &["audit.log"],
                "public.customers: id",
            ),
        ] {
            assert_eq!(
                kept(select, exclude).as_deref(),
                Ok(expected),
                "{select:?} {exclude:?}"
            );
        }
    }

    #[test]
    fn unknown_names_and_empty_choices_are_refused() {
        let refused = |select: &[&str], exclude: &[&str]| kept(select, exclude).unwrap_err();
        let text = refused(&["public.order"], &[]);
        assert!(
            text.contains("unknown_selection") && text.contains("\"public.orders\""),
            "{text}"
        );
        let text = refused(&[], &["public.customers.emial"]);
        assert!(
            text.contains("--exclude") && text.contains("customers.email"),
            "{text}"
        );
        for name in ["customers", "Public.CUSTOMERS"] {
            let text = refused(&[name], &[]);
            assert!(
                text.contains("did you mean \"public.customers\"?"),
                "{text}"
            );
        }
        assert!(refused(&["zzzzzzzzzzzz*"], &[]).contains("rapidbyte plan"));
        let text = refused(&["audit.log"], &["*.id"]);
        assert!(text.contains("nothing_selected"), "{text}");
    }
}
