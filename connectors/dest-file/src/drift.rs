//! A stream whose columns differ from the columns of the directory that it adds files to.
//!
//! The newest manifest has the columns of all files that count. Nothing changes a committed file: a new column is NULL in
//! the rows of older files, and readers widen the columns of older files.

use rapidbyte_columnar as columnar;
use rapidbyte_formats::Format;
use rapidbyte_manifest::Column;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{parse_field, type_name};
use rapidbyte_sdk::{DroppedColumn, NewColumn, TypeChange, WARNING_NOTE};

use crate::settings::{FileFormat, Settings};

/// The differences between a stream and the files, as the policies of the target decide on them.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// The columns that the files lack.
    pub new: Vec<String>,
    /// The places of the fields whose values are left out.
    pub ignored: Vec<usize>,
    /// The fields that the files cannot have.
    pub refused: Vec<Refusal>,
    /// The columns of text files, which have no types.
    texts: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Refusal {
    pub column: String,
    pub note: String,
    /// The type that the files have.
    pub stored_type: Option<String>,
}

/// Compares the columns of a stream with those that the files have. Errors: `column_refused`, `column_dropped`.
pub(crate) fn compare(
    settings: &Settings,
    target: &Target,
    schema: &Schema,
    held: &[Column],
) -> Result<Drift> {
    let mut drift = Drift::default();
    if held.is_empty() {
        return Ok(drift);
    }
    let place = settings.layout.pattern(target)?;
    refuse_strangers(settings, &place, schema, held)?;
    let set = settings.layout.set.as_ref();
    let partition_by = set.map_or(&[][..], |set| set.partition_by(&target.stream));
    let has_types = matches!(settings.format, FileFormat::Columns(..));
    for (at, field) in schema.fields().iter().enumerate() {
        let is_partition = partition_by.contains(field.name());
        match held.iter().find(|column| column.name == *field.name()) {
            None => drift.lacking((at, field), is_partition, &place, target),
            // A partition is the name of a directory.
            Some(_) if is_partition => {}
            Some(column) if has_types => drift.other_type(field, column, &place, target),
            Some(_) => drift.texts.push(field.name().clone()),
        }
    }
    drift.refuse_dropped(held, schema, &place, target)?;
    let names = |places: &[usize]| {
        let names = places.iter().map(|at| schema.field(*at).name().as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    if !drift.ignored.is_empty() {
        drift.notes.push(format!(
            "{WARNING_NOTE}the files of {place} lack columns of the stream, and their values are left out, because \
             schema_changes.new_column is ignore: {}",
            names(&drift.ignored)
        ));
    }
    if !drift.new.is_empty() {
        let new = drift.new.join(", ");
        drift
            .notes
            .push(format!("older files lack new columns: {new}"));
    }
    Ok(drift)
}

/// Refuses columns that no reader can combine with the columns of the files: other names, or another order in files
/// without a header. Errors: `column_refused`.
fn refuse_strangers(
    settings: &Settings,
    place: &str,
    schema: &Schema,
    held: &[Column],
) -> Result<()> {
    let names = |columns: &[Column]| -> Vec<String> {
        columns.iter().map(|column| column.name.clone()).collect()
    };
    let (held, new) = (names(held), names(&united(&[], schema, &[])));
    let is_by_place = match &settings.format {
        FileFormat::Text(Format::Csv(dialect), _) => !dialect.header,
        _ => false,
    };
    let text = match new.iter().any(|name| held.contains(name)) {
        true if !is_by_place || new == held => return Ok(()),
        true => format!(
            "the files of {place} have no header, so their columns are told by their places: {}; the stream has {}",
            held.join(", "),
            new.join(", ")
        ),
        false => format!(
            "the stream has none of the columns of the files of {place}: {}",
            held.join(", ")
        ),
    };
    Err(Error::schema("column_refused", text).hint("write to a new directory"))
}

impl Drift {
    /// Decides on a field that the files lack.
    fn lacking(
        &mut self,
        (at, field): (usize, &Field),
        is_partition: bool,
        place: &str,
        target: &Target,
    ) {
        let name = field.name();
        let lacks = format!("the files of {place} have no column {name}");
        match target.schema_changes.new_column {
            NewColumn::Add => self.new.push(name.clone()),
            NewColumn::Ignore if is_partition => {
                self.refuse(name, format!("{lacks}, and partition_by needs it"), None);
            }
            NewColumn::Ignore => self.ignored.push(at),
            NewColumn::Fail => {
                let why = format!("{lacks}, and schema_changes.new_column is fail");
                self.refuse(name, why, None);
            }
        }
    }

    /// Decides on a field whose type may be another one than in the files.
    fn other_type(&mut self, field: &Field, column: &Column, place: &str, target: &Target) {
        let (name, ty) = (field.name(), type_name(field));
        if ty == column.ty {
            return;
        }
        let stored = Some(column.ty.clone());
        let differs = format!(
            "the files of {place} have the column {name} as {}, and the stream has {ty}",
            column.ty
        );
        match wider(column, field) {
            None => {
                let why = format!(
                    "{differs}: no type holds the values of both; write to a new directory"
                );
                self.refuse(name, why, stored);
            }
            Some(_) if target.schema_changes.type_change == TypeChange::Fail => {
                let why = format!("{differs}, and schema_changes.type_change is fail");
                self.refuse(name, why, stored);
            }
            Some(wider) => self.notes.push(format!(
                "{name} is {} in older files and {ty} in new ones; source-file reads it as {}",
                column.ty, wider.ty
            )),
        }
    }

    /// Refuses a stream that lacks columns of the files, if the policy says so. Errors: `column_dropped`.
    fn refuse_dropped(
        &mut self,
        held: &[Column],
        schema: &Schema,
        place: &str,
        target: &Target,
    ) -> Result<()> {
        let lacks = |column: &&Column| schema.field_with_name(&column.name).is_err();
        let lacking = held.iter().filter(lacks).map(|column| column.name.as_str());
        let lacking: Vec<&str> = lacking.collect();
        let Some(first) = lacking.first() else {
            return Ok(());
        };
        if target.schema_changes.dropped_column == DroppedColumn::Fail {
            let text = format!(
                "the files of {place} have the column {first}, the stream does not, and schema_changes.dropped_column is \
                 fail"
            );
            return Err(Error::schema("column_dropped", text)
                .hint("set dropped_column: keep, and the rows of new files lack it; or write to a new directory")
                .in_column(*first));
        }
        let lacking = lacking.join(", ");
        let note = format!("new files lack columns that older files have: {lacking}");
        self.notes.push(note);
        Ok(())
    }

    /// Whether a column that the files have takes values of every type.
    pub(crate) fn has_any_type(&self, column: &str) -> bool {
        self.texts.iter().any(|text| text == column)
    }

    fn refuse(&mut self, column: &str, note: String, stored_type: Option<String>) {
        self.refused.push(Refusal {
            column: column.to_owned(),
            note,
            stored_type,
        });
    }

    /// The target without the columns that are left out, and the places of the others. `None` if nothing is left out.
    pub(crate) fn narrowed(&self, target: &Target) -> Result<Option<(Target, Vec<usize>)>> {
        if self.ignored.is_empty() {
            return Ok(None);
        }
        let schema = target.arrow_schema()?;
        let places = 0..schema.fields().len();
        let kept: Vec<usize> = places.filter(|at| !self.ignored.contains(at)).collect();
        let narrow = Target {
            schema: rapidbyte_sdk::ipc::encode_schema(&schema.project(&kept)?)?,
            ..target.clone()
        };
        Ok(Some((narrow, kept)))
    }
}

/// The column that holds the values of both.
fn wider(column: &Column, field: &Field) -> Option<Column> {
    let named = |ty: &str| parse_field(field.name(), ty, true).ok();
    let wider = columnar::merge(&named(&column.ty)?, &named(&type_name(field))?)?;
    Some(Column {
        ty: type_name(&wider),
        ..column.clone()
    })
}

/// The columns of the files before and of new files with this schema.
pub(crate) fn united(before: &[Column], schema: &Schema, partition_by: &[String]) -> Vec<Column> {
    let mut columns = before.to_vec();
    for field in schema.fields() {
        let new = Column {
            name: field.name().clone(),
            // The name of a directory is a text.
            ty: match partition_by.contains(field.name()) {
                true => "string".into(),
                false => type_name(field),
            },
        };
        match columns.iter_mut().find(|column| column.name == new.name) {
            Some(column) if column.ty == new.ty => {}
            // In text, the newest type is as good as any.
            Some(column) => *column = wider(column, field).unwrap_or(new),
            None => columns.push(new),
        }
    }
    columns
}
