//! How a stream resumes, and which columns tell its rows apart.

use arrow_schema::Schema;
use rapidbyte_runtime::{
    Increment, LateRows, Plan as Placed, Progress, Spec, Stream, Target, WriteMode,
};

use super::choose::unknown_column;
use super::open::Stage;
use crate::document::{self, Document};
use crate::failure::{Class, Failure, LOST_ROWS, LOST_ROWS_HINT};
use crate::meant::did_you_mean;

/// How a stream of this source resumes; none unless it is incremental. `all` are its columns.
pub(super) fn increment(
    document: &Document,
    source: &Spec,
    entry: usize,
    (stream, all): (&Stream, &Schema),
) -> Result<Option<Increment>, Failure> {
    let asked = &document.source.streams[entry];
    if asked.sync_mode != document::SyncMode::Incremental {
        return Ok(None);
    }
    for column in &asked.cursor_field {
        if all.index_of(column).is_err() {
            let mut failure = unknown_column(document, source, entry, (stream, all), column);
            failure.locate(document, &format!("source.streams[{entry}].cursor_field"));
            return Err(failure);
        }
    }
    Ok(Some(asked_increment(document, entry)))
}

/// How the pipeline asks for the rows of an incremental stream.
pub(crate) fn asked_increment(document: &Document, entry: usize) -> Increment {
    let asked = &document.source.streams[entry];
    Increment {
        cursor_fields: asked.cursor_field.clone(),
        initial: asked.cursor_initial.clone(),
        late_rows: match asked.change_detection {
            document::ChangeDetection::Cursor => LateRows::Lag(asked.lag.clone()),
            document::ChangeDetection::Xmin => LateRows::Exact,
        },
        allow_duplicates: match document.write_mode_of(asked) {
            document::WriteMode::Upsert => true,
            document::WriteMode::Append => asked.is_read_again(),
            document::WriteMode::Replace => false,
        },
    }
}

/// Sets the columns that tell rows apart where rows may come again. For `upsert`: the key, and the column that
/// marks a deleted row. For `append` with a lag: the key and the cursor. `target` comes with the source's own key.
/// `read` and `renamed` are the columns that move, under their names in the source and after `rename`. `schema` has
/// the columns behind the transforms.
pub(super) fn identify(
    document: &Document,
    entry: usize,
    (read, renamed): (&Schema, &Schema),
    schema: &Schema,
    target: &mut Target,
) -> Result<(), Failure> {
    let asked = &document.source.streams[entry];
    let appends = target.write_mode == WriteMode::Append;
    match target.write_mode {
        WriteMode::Upsert => {}
        // A lag needs a key that the pipeline names: the key promises that a row never changes without its cursor.
        WriteMode::Append if asked.is_read_again() => target.primary_key.clear(),
        _ => return Ok(()),
    }
    let destination = &document.destination;
    let of_stream = !asked.primary_key.is_empty();
    let key = match of_stream {
        true => &asked.primary_key,
        false => &destination.primary_key,
    };
    if !key.is_empty() {
        target.primary_key.clone_from(key);
    }
    if target.primary_key.is_empty() {
        return Err(keyless(document, entry, appends).in_stream(&target.stream));
    }
    if appends {
        target.dedup_fields = dedup_fields(document, entry, read, renamed)
            .map_err(|failure| failure.in_stream(&target.stream))?;
    }
    let deleted = asked.deleted_field.as_ref();
    let of_deleted = deleted.is_some();
    let deleted = deleted.or(destination.deleted_field.as_ref());
    let named = [
        ("cursor_field", true, target.dedup_fields.as_slice()),
        ("primary_key", of_stream, target.primary_key.as_slice()),
        (
            "deleted_field",
            of_deleted,
            deleted.map(std::slice::from_ref).unwrap_or_default(),
        ),
    ];
    for (name, of_stream, columns) in named {
        let missing = columns
            .iter()
            .find(|column| schema.index_of(column).is_err());
        if let Some(column) = missing {
            let key = match of_stream {
                true => format!("source.streams[{entry}].{name}"),
                false => format!("destination.{name}"),
            };
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let hint = match did_you_mean(column, names) {
                Some(near) => near,
                None => {
                    "use the column names of the destination, after rename and transforms".into()
                }
            };
            return Err(unmoved(document, &key, column)
                .in_stream(&target.stream)
                .hint(hint));
        }
    }
    target.deleted_field = deleted.cloned();
    Ok(())
}

/// Refuses an append with a lag whose transforms compute the cursor: the destination recognizes a changed row by its
/// cursor. A computed column does not carry a type of the source any more.
pub(super) fn refuse_computed(
    document: &Document,
    entry: usize,
    target: &Target,
    before: (&Schema, &[String]),
    after: (&Schema, &[String]),
) -> Result<(), Failure> {
    let has_type = |(schema, types): (&Schema, &[String]), column: &str| {
        let index = schema.index_of(column).ok();
        index
            .and_then(|index| types.get(index))
            .is_some_and(|name| !name.is_empty())
    };
    let is_computed = |column: &&String| has_type(before, column) && !has_type(after, column);
    let Some(column) = target.dedup_fields.iter().find(is_computed) else {
        return Ok(());
    };
    let key = format!("source.streams[{entry}].transforms");
    let text = format!(
        "a transform computes {column:?}, and append with a lag recognizes a changed row by its cursor"
    );
    Err(Failure::at_key(document, &key, "cursor_computed", text)
        .in_stream(&target.stream)
        .hint("compute a column of another name, and leave the cursor as it is"))
}

fn unmoved(document: &Document, key: &str, column: &str) -> Failure {
    let text = format!("no column {column:?} is moved");
    let mut failure = Failure::new(Class::Config, "unknown_column", text);
    failure.locate(document, key);
    failure
}

/// The failure of a stream without a key.
fn keyless(document: &Document, entry: usize, appends: bool) -> Failure {
    if appends {
        let key = format!("source.streams[{entry}].lag");
        let text = "a lag reads rows again, and without a key the destination would append them \
             twice";
        return Failure::at_key(document, &key, "no_primary_key", text).hint(
            "name the columns that identify a row: primary_key: [id]; or use write_mode: upsert, \
                 or change_detection: xmin, which needs no lag",
        );
    }
    let text = "write_mode: upsert needs the columns that identify a row, and the source has no \
         key whose columns are all moved";
    Failure::at_key(document, "destination.primary_key", "no_primary_key", text)
        .hint("name the columns: primary_key: [id]")
}

/// The cursor's columns under their names in the destination.
fn dedup_fields(
    document: &Document,
    entry: usize,
    read: &Schema,
    schema: &Schema,
) -> Result<Vec<String>, Failure> {
    let asked = &document.source.streams[entry];
    let moved = |column: &String| match read.index_of(column) {
        Ok(index) => Ok(schema.field(index).name().clone()),
        Err(_) => {
            let key = format!("source.streams[{entry}].columns");
            Err(unmoved(document, &key, column)
                .hint("add it: append with a lag recognizes a row by its key and its cursor"))
        }
    };
    asked.cursor_field.iter().map(moved).collect()
}

/// Refuses a lag where the destination appends rows and cannot drop rows that it already has.
pub(super) fn refuse_repeats(document: &Document, destination: &Stage) -> Result<(), Failure> {
    if destination.spec.deduplicates_appends {
        return Ok(());
    }
    let repeats = |stream: &document::Stream| {
        document.write_mode_of(stream) == document::WriteMode::Append && stream.is_read_again()
    };
    let Some(index) = document.source.streams.iter().position(repeats) else {
        return Ok(());
    };
    let name = destination.connector.name();
    let text = format!("{name} cannot drop rows that it already has, and a lag reads them again");
    let key = format!("source.streams[{index}].lag");
    Err(
        Failure::at_key(document, &key, "unsupported_lag", text).hint(
            "remove lag, which misses rows that are committed late; or use change_detection: \
                 xmin, or another destination",
        ),
    )
}

/// Refuses a stream that resumes and whose rows before the cursor are gone, perhaps with their table. `place` plans the
/// target again.
pub(super) fn refuse_lost(
    found: Option<&Progress>,
    target: &Target,
    placed: &mut Placed,
    place: impl FnOnce(&Target) -> Result<Placed, Failure>,
) -> Result<(), Failure> {
    let Some(found) = found.filter(|found| found.cursor.is_some()) else {
        return Ok(());
    };
    if let Some(why) = &found.lost_rows {
        return Err(lost_rows(why, &target.stream));
    }
    if !placed.is_new {
        return Ok(());
    }
    // An active run may have created the target since the plan.
    *placed = place(target)?;
    if !placed.is_new {
        return Ok(());
    }
    let text = format!(
        "{} does not exist any more, so the stream cannot resume after the rows that it had",
        placed.location
    );
    Err(Failure::new(Class::Contract, "target_missing", text)
        .in_stream(&target.stream)
        .hint("read this stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM`"))
}

/// Rows before the cursor are not in the target any more.
pub(crate) fn lost_rows(why: &str, stream: &str) -> Failure {
    let text = format!("{why}, and the stream would resume behind the rows that it held");
    Failure::new(Class::Contract, LOST_ROWS, text)
        .in_stream(stream)
        .hint(LOST_ROWS_HINT)
}
