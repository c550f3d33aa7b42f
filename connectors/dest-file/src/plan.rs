//! The plan of a run: where it would write, and the form of each column.

use std::sync::Arc;

use rapidbyte_columnar as columnar;
use rapidbyte_columnar::Kind;
use rapidbyte_formats::{Compression, Format};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DroppedColumn, NewColumn, files, types};

use crate::chain::{Lease, Place};
use crate::convert;
use crate::drift;
use crate::kept;
use crate::partition::Partitions;
use crate::rejects;
use crate::settings::{FileFormat, Settings};

pub(crate) fn plan(settings: &Settings, target: &Target) -> Result<Plan> {
    let grows = grows(settings, target)?;
    refuse_policies(target, grows && target.write_mode == WriteMode::Append)?;
    refuse_existing(settings, target)?;
    rejects::refuse(target, grows)?;
    let schema = target.arrow_schema()?;
    let mut newest = None;
    if let Some(place) = Place::of(settings, target)? {
        newest = place.newest()?;
        if let Some(newest) = &newest {
            place.refuse_other_form(&newest.manifest)?;
        }
    }
    let newest = newest.filter(|_| target.write_mode == WriteMode::Append);
    let held = newest
        .as_ref()
        .map_or(&[][..], |newest| &newest.manifest.columns);
    let drift = drift::compare(settings, target, &schema, held)
        .map_err(|error| error.in_stream(&target.stream))?;
    let partition_by = match &settings.layout.set {
        Some(set) => {
            let columns = set.partition_by(&target.stream);
            if !columns.is_empty() {
                Partitions::new(columns, &schema, &set.partition_key(&target.stream))
                    .map_err(|error| error.in_stream(&target.stream))?;
            }
            columns
        }
        None => &[],
    };
    let column = |(at, field): (usize, &Arc<Field>)| {
        let mut column = match partition_by.contains(field.name()) {
            true => ColumnPlan {
                column: field.name().clone(),
                target_type: "folder name".into(),
                fit: Fit::Exact,
                note: Some("not in the rows".into()),
                stored_type: None,
            },
            false => column(&settings.format, field),
        };
        if drift.has_any_type(field.name()) {
            column.stored_type = Some("any".into());
        }
        if drift.ignored.contains(&at) {
            (column.fit, column.note) = (Fit::Ignored, None);
        }
        if let Some(refusal) = drift.refused.iter().find(|one| one.column == *field.name()) {
            column.fit = Fit::Refused;
            column.note = Some(refusal.note.clone());
            column.stored_type.clone_from(&refusal.stored_type);
        }
        column
    };
    let columns = schema.fields().iter().enumerate().map(column).collect();
    refuse_no_columns(&settings.format, &schema)
        .map_err(|error| error.in_stream(&target.stream))?;
    let mut notes = notes(settings, target)?;
    notes.extend(drift.notes);
    Ok(Plan {
        location: settings.layout.pattern(target)?,
        columns,
        statements: Vec::new(),
        notes,
        // A directory that grows holds the cursor, so both are lost together.
        is_new: target.write_mode == WriteMode::Append
            && newest
                .as_ref()
                .is_none_or(|newest| newest.manifest.seq == 0),
        new_columns: match held.is_empty() {
            true => schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect(),
            false => drift.new,
        },
    })
}

/// The target without the columns that the policies of the target leave out, and the places of the others. `None` if all
/// columns go to the files. Errors: `column_refused`, `column_dropped`, for files that another run has added since the
/// plan.
pub(crate) fn narrowed(
    settings: &Settings,
    target: &Target,
    lease: &Lease,
) -> Result<Option<(Target, Vec<usize>)>> {
    if target.write_mode != WriteMode::Append {
        return Ok(None);
    }
    let schema = target.arrow_schema()?;
    let drift = drift::compare(settings, target, &schema, lease.columns())?;
    match drift.refused.first() {
        Some(refusal) if kept::is_replay(target) => {
            let text = format!(
                "the columns have changed since the last run, which a replay does not follow: {}",
                refusal.note
            );
            Err(Error::config("replay_not_possible", text)
                .hint("run the pipeline first, and then replay")
                .in_column(&refusal.column))
        }
        Some(refusal) => Err(Error::schema("column_refused", &refusal.note)
            .hint("run again")
            .in_column(&refusal.column)),
        None => drift.narrowed(target),
    }
}

/// Refuses a policy without effect: its author relies on it.
fn refuse_policies(target: &Target, grows: bool) -> Result<()> {
    let SchemaChanges {
        new_column,
        dropped_column,
        ..
    } = target.schema_changes;
    let (text, hint) = match (new_column, dropped_column) {
        (NewColumn::Add, DroppedColumn::Keep) => return Ok(()),
        (_, DroppedColumn::Keep | DroppedColumn::Fail) if grows => return Ok(()),
        (_, DroppedColumn::Drop) => (
            "a committed file keeps its columns",
            "set dropped_column to keep or fail",
        ),
        _ => (
            "a file that is replaced has the columns that its stream has, so no policy compares them",
            "remove schema_changes, or give its keys new_column and dropped_column their defaults, add and keep",
        ),
    };
    Err(Error::config("schema_changes_unsupported", text)
        .hint(hint)
        .at("schema_changes")
        .in_stream(&target.stream))
}

fn notes(settings: &Settings, target: &Target) -> Result<Vec<String>> {
    let what = match settings.layout.set {
        None => "file",
        Some(_) => "directory of files",
    };
    let mut notes = vec![match target.write_mode {
        WriteMode::Append if settings.layout.set.is_some() => {
            "adds files; the manifests in _manifest/ list the committed ones".into()
        }
        WriteMode::Replace if grows(settings, target)? => {
            "one manifest replaces all older files at the end; readers that use a pattern may \
                 briefly see old and new files"
                .into()
        }
        WriteMode::Append => format!("a new {what}; a later run needs write_mode: replace"),
        _ => format!("a new {what} replaces the old one in one step, at the end"),
    }];
    notes.push(
        "only the lock in the pipeline's directory detects another run of the pipeline: start \
             runs from one directory of one machine"
            .into(),
    );
    if let Some(rejects) = &target.rejects {
        notes.push(rejects::note(&rejects.to));
    }
    if let Some(set) = &settings.layout.set {
        let rows = set
            .split
            .rows
            .map(|rows| rapidbyte_sdk::counted(rows, "row"));
        let bytes = set.split.bytes.map(|size| format!("{} bytes", size.0));
        let limits: Vec<_> = rows.into_iter().chain(bytes).collect();
        if !limits.is_empty() {
            notes.push(format!("a file ends at {}", limits.join(" or ")));
        }
        if !set.partition_by(&target.stream).is_empty() {
            notes.push(format!(
                "the directory {} stands for NULL",
                rapidbyte_sdk::hive::NULL
            ));
        }
    }
    let format = match &settings.format {
        FileFormat::Text(format, compression) => {
            if *compression != Compression::None {
                notes.push(format!("compressed: {}", compression.name()));
            }
            format
        }
        FileFormat::Columns(kind, options) => {
            let compression = options.compression_for(*kind).name();
            notes.push(format!("{kind:?}, compressed: {compression}"));
            return Ok(notes);
        }
    };
    if let Format::Csv(dialect) = format {
        let null = dialect.null_text.first().map(String::as_str);
        notes.push(match null {
            Some("") | None => "an empty field is NULL, \"\" is an empty string".to_owned(),
            Some(text) => format!("{text} is NULL; the same value as a string is in quotes"),
        });
    }
    Ok(notes)
}

/// True if the stream's directory gets more files and keeps manifests. A run replaces a directory
/// without manifests, or a single file, as a whole. Errors: `folder_not_appendable`.
pub(crate) fn grows(settings: &Settings, target: &Target) -> Result<bool> {
    let Some(place) = Place::of(settings, target)? else {
        return Ok(false);
    };
    match target.write_mode {
        WriteMode::Append => Ok(true),
        WriteMode::Replace if place.has_manifests()? => Ok(true),
        // A new directory starts to grow.
        WriteMode::Replace if target.is_incremental => place.refuse_unknown_files().map(|()| true),
        WriteMode::Replace | WriteMode::Upsert => Ok(false),
    }
}

/// Refuses targets that the write mode cannot change: a committed file never changes, and a
/// directory that grows has manifests from its first file on.
pub(crate) fn refuse_existing(settings: &Settings, target: &Target) -> Result<()> {
    let path = settings.layout.pattern(target)?;
    let refused = |code: &str, text: String| {
        Err(Error::config(code, text)
            .hint("write_mode: replace")
            .in_stream(&target.stream)
            .at("config.path"))
    };
    let keeps_manifests = Place::of(settings, target)?.is_some();
    let lacks_part = target.write_mode == WriteMode::Append && settings.layout.set.is_some();
    if target.is_incremental && !keeps_manifests && !lacks_part {
        return Err(no_cursor(&path).in_stream(&target.stream));
    }
    match target.write_mode {
        WriteMode::Replace => Ok(()),
        WriteMode::Upsert => refused(
            "write_mode_not_supported",
            "single rows of a file cannot be changed".into(),
        ),
        WriteMode::Append if settings.layout.set.is_some() => {
            let place = Place::of(settings, target)?;
            let Some(place) = place else {
                let text = "{part} is missing: added files need different names";
                return Err(Error::config("missing_part", text)
                    .hint("write a path such as orders/part-{part}.csv")
                    .in_stream(&target.stream)
                    .at("config.path"));
            };
            match place.has_manifests()? {
                true => Ok(()),
                false => place
                    .refuse_unknown_files()
                    .map_err(|error| error.in_stream(&target.stream)),
            }
        }
        WriteMode::Append => match files::find(&path) {
            Ok(found) if found.is_empty() => Ok(()),
            Ok(_) => refused(
                "file_exists",
                format!("{path} already exists, and Rapidbyte never appends to a committed file"),
            ),
            Err(error) => Err(error.in_stream(&target.stream)),
        },
    }
}

/// Refuses types that the format cannot hold.
pub(crate) fn refuse_types(format: &FileFormat, schema: &SchemaRef) -> Result<()> {
    refuse_no_columns(format, schema)?;
    match format {
        FileFormat::Text(format, _) => format.encoder(schema.clone()).map(|_| ()).map_err(convert),
        FileFormat::Columns(kind, _) => {
            let forms = schema.fields().iter();
            let refused = forms
                .map(|field| (field, columnar::form(*kind, field)))
                .find(|(_, form)| form.fit == columnar::Fit::Refused);
            match refused {
                None => Ok(()),
                Some((field, form)) => {
                    let reason = form.note.unwrap_or_default();
                    let text = format!("column {:?}: {reason}", field.name());
                    Err(Error::config("unsupported_type", text).in_column(field.name()))
                }
            }
        }
    }
}

fn refuse_no_columns(format: &FileFormat, schema: &SchemaRef) -> Result<()> {
    let name = match format {
        FileFormat::Text(Format::Csv(_), _) => "CSV",
        FileFormat::Columns(Kind::Parquet, _) => "Parquet",
        _ => return Ok(()),
    };
    if !schema.fields().is_empty() {
        return Ok(());
    }
    let text = format!("{name} cannot hold rows without columns");
    Err(Error::config("no_columns", text).hint("write JSON Lines"))
}

/// A file or directory that is replaced as a whole cannot store a cursor.
pub(crate) fn no_cursor(location: &str) -> Error {
    let text = format!("{location} cannot store a cursor");
    Error::config("cursor_needs_folder", text)
        .hint(
            "put {part} into the file's name, such as out/{stream}/part-{part}.jsonl: the \
                 directory of files stores the cursor",
        )
        .at("config.path")
}

/// The form of one column, or why it has none.
fn column(format: &FileFormat, field: &Arc<Field>) -> ColumnPlan {
    let format = match format {
        FileFormat::Text(format, _) => format,
        FileFormat::Columns(kind, _) => return column_of_columns(*kind, field),
    };
    let foreign =
        types::extension_name(field).filter(|_| !types::is_uuid(field) && !types::is_json(field));
    let refusal = match foreign {
        Some(name) => Some(format!(
            "values of the extension type {name} have no text form"
        )),
        None => {
            let alone = Arc::new(Schema::new(vec![field.clone()]));
            format.encoder(alone).err().map(|error| error.message)
        }
    };
    let (target_type, note) = form(format, field);
    ColumnPlan {
        column: field.name().clone(),
        target_type: target_type.into(),
        fit: match refusal {
            Some(_) => Fit::Refused,
            None if refuses_values(format, field) => Fit::Checked,
            None => Fit::Exact,
        },
        note: refusal.or_else(|| note.map(str::to_owned)),
        stored_type: None,
    }
}

fn column_of_columns(kind: Kind, field: &Field) -> ColumnPlan {
    let form = columnar::form(kind, field);
    ColumnPlan {
        column: field.name().clone(),
        target_type: form.type_name,
        fit: match form.fit {
            columnar::Fit::Exact => Fit::Exact,
            columnar::Fit::Widened => Fit::Widened,
            columnar::Fit::Refused => Fit::Refused,
        },
        note: form.note,
        stored_type: None,
    }
}

/// True if the format refuses some values of a column: NaN, or JSON that does not fit into a line.
fn refuses_values(format: &Format, field: &Field) -> bool {
    let is_csv = matches!(format, Format::Csv(_));
    match field.data_type() {
        // CSV holds them as text.
        data_type if is_csv && !data_type.is_nested() => false,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) | DataType::LargeList(item) => refuses_values(&Format::Jsonl, item),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| refuses_values(&Format::Jsonl, field)),
        // Keys that come twice.
        DataType::Map(..) => true,
        _ => types::is_json(field),
    }
}

/// The form of a type's values in a file, and a note about it.
fn form(format: &Format, field: &Field) -> (&'static str, Option<&'static str>) {
    let data_type = field.data_type();
    let finite = "NaN and infinity are refused: JSON does not have them";
    let document = "the document null, and documents with line breaks or surrounding white space, are \
             refused";
    let csv = matches!(format, Format::Csv(_));
    if types::is_json(field) {
        return if csv {
            ("json text", None)
        } else {
            ("any value", Some(document))
        };
    }
    let (name, note) = match data_type {
        DataType::Boolean => ("boolean", None),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ("number", Some(finite)),
        data_type if data_type.is_numeric() => ("number", None),
        DataType::List(_) | DataType::LargeList(_) => ("array", None),
        DataType::Struct(_) | DataType::Map(..) => ("object", None),
        DataType::Binary | DataType::LargeBinary => ("string", Some("\\x and hexadecimal digits")),
        DataType::FixedSizeBinary(_) if !types::is_uuid(field) => {
            ("string", Some("\\x and hexadecimal digits"))
        }
        DataType::Timestamp(_, Some(_)) => ("string", Some("RFC 3339 in UTC")),
        DataType::Duration(_) | DataType::Interval(_) => ("string", Some("ISO 8601 duration")),
        DataType::Null => ("null", None),
        _ => ("string", None),
    };
    match (csv, name) {
        (false, _) => (name, note),
        (true, "array" | "object") => ("json text", None),
        (true, "number") => ("text", None),
        (true, _) => ("text", note),
    }
}
