//! The plan of a stream: its index, and the field that each column becomes.

use arrow_schema::{FieldRef, TimeUnit};
use rapidbyte_document_store::IdOf;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::is_json;
use rapidbyte_sdk::{DroppedColumn, NewColumn, WARNING_NOTE};
use serde_json::{Map, Value};

use crate::config::{Refresh, Settings, Strings};
use crate::index::Found;
use crate::layout::{ID, MARK};
use crate::mapping::{self, Limits, Match};

/// Where the rows of a load go.
#[derive(Debug)]
pub(crate) enum Place {
    /// Into an index that does not exist yet.
    New,
    /// Into an index that exists.
    There(Found),
    /// Into an index of their own, which takes the place of this one.
    Filled(Option<Found>),
}

impl Place {
    /// `begins`: the rows are the first of the stream, and no replay.
    pub fn of(target: &Target, name: &str, found: Option<Found>, begins: bool) -> Self {
        let is_replace = target.write_mode == WriteMode::Replace && begins;
        match found {
            None if is_replace => Self::Filled(None),
            None => Self::New,
            Some(found) if is_replace && found.is_filled(name) => Self::Filled(Some(found)),
            Some(found) => Self::There(found),
        }
    }
}

/// What becomes of the columns.
pub(crate) struct Decided {
    /// In the order of the schema.
    pub columns: Vec<ColumnPlan>,
    /// The fields that the index gets.
    pub properties: Map<String, Value>,
    /// Columns that an index gets which exists and does not have them.
    pub added: Vec<String>,
    /// The places of columns that the documents do not get.
    pub ignored: Vec<usize>,
    pub notes: Vec<String>,
}

impl Decided {
    /// Errors: `column_refused`.
    pub fn ensure_accepted(&self) -> Result<()> {
        let refused = self
            .columns
            .iter()
            .find(|column| column.fit == Fit::Refused);
        match refused {
            None => Ok(()),
            Some(column) => {
                let note = column.note.clone().unwrap_or_default();
                Err(Error::schema("column_refused", note)
                    .hint("run again")
                    .in_column(&column.column))
            }
        }
    }
}

/// Decides on every column. Errors: `schema_changes_unsupported`, `column_dropped`, `too_many_fields`.
pub(crate) fn decide(
    target: &Target,
    schema: &Schema,
    settings: &Settings,
    id_of: &IdOf,
    place: &Place,
) -> Result<Decided> {
    let held = match place {
        Place::There(found) => Some(fields_of(found)),
        Place::New | Place::Filled(_) => None,
    };
    refuse_policies(target, place)?;
    let mut decided = Decided {
        columns: Vec::new(),
        properties: Map::new(),
        added: Vec::new(),
        ignored: Vec::new(),
        notes: Vec::new(),
    };
    for (at, field) in schema.fields().iter().enumerate() {
        let column = match *id_of == IdOf::Column(at) {
            true => planned(
                field,
                "_id",
                Fit::Exact,
                Some("the _id of a document is a string"),
            ),
            false => decided.column(target, settings, (at, field), held.as_ref()),
        };
        decided.columns.push(column);
    }
    if let (Some(held), Place::There(found)) = (&held, place) {
        decided.dropped(target, schema, held, &found.name)?;
    }
    if !decided.ignored.is_empty() {
        let names = decided
            .ignored
            .iter()
            .map(|at| schema.field(*at).name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        decided.notes.push(format!(
            "{WARNING_NOTE}the index lacks columns of the stream, and their values are left out, because \
             schema_changes.new_column is ignore: {names}"
        ));
    }
    let mut all = held.unwrap_or_default();
    for (name, property) in &decided.properties {
        merge(&mut all, name, property);
    }
    all.insert(MARK.into(), mapping::mark());
    let found = match place {
        Place::There(found) => Some(found),
        Place::New | Place::Filled(_) => None,
    };
    Limits::of(found)
        .check(&all)
        .map_err(|error| error.in_stream(&target.stream))?;
    Ok(decided)
}

/// Adds a field, or the fields of an object.
fn merge(all: &mut Map<String, Value>, name: &str, property: &Value) {
    let inner = property["properties"].as_object();
    let held = all
        .get_mut(name)
        .and_then(|held| held["properties"].as_object_mut());
    match (inner, held) {
        (Some(inner), Some(held)) => {
            for (name, property) in inner {
                merge(held, name, property);
            }
        }
        _ => {
            all.insert(name.to_owned(), property.clone());
        }
    }
}

fn fields_of(found: &Found) -> Map<String, Value> {
    let properties = found.mappings["properties"].as_object();
    properties.cloned().unwrap_or_default()
}

/// Refuses a policy without effect: its author relies on it. Errors: `schema_changes_unsupported`.
fn refuse_policies(target: &Target, place: &Place) -> Result<()> {
    let policy = &target.schema_changes;
    let (text, hint) = match (policy.new_column, policy.dropped_column) {
        (_, DroppedColumn::Drop) => (
            "a field of an index cannot be dropped",
            "set dropped_column to keep or fail",
        ),
        (NewColumn::Add, DroppedColumn::Keep) => return Ok(()),
        _ if !matches!(place, Place::Filled(_)) => return Ok(()),
        _ => (
            "an index that is replaced has the fields of its stream, so no policy compares them",
            "remove schema_changes, or give its keys new_column and dropped_column their defaults, add and keep",
        ),
    };
    Err(Error::config("schema_changes_unsupported", text)
        .hint(hint)
        .at("schema_changes")
        .in_stream(&target.stream))
}

fn planned(field: &Field, ty: &str, fit: Fit, note: Option<&str>) -> ColumnPlan {
    ColumnPlan {
        column: field.name().clone(),
        target_type: ty.to_owned(),
        fit,
        note: note.map(str::to_owned),
        stored_type: None,
    }
}

fn refused(field: &Field, why: &str) -> ColumnPlan {
    planned(field, "", Fit::Refused, Some(why))
}

impl Decided {
    /// Decides on a column that becomes a field.
    fn column(
        &mut self,
        target: &Target,
        settings: &Settings,
        (at, field): (usize, &FieldRef),
        held: Option<&Map<String, Value>>,
    ) -> ColumnPlan {
        let name = field.name();
        let wanted = match mapping::property(field, settings) {
            Ok(wanted) => wanted,
            Err(error) => {
                let hint = error.hint.map(|hint| format!(": {hint}"));
                return refused(field, &(error.message + &hint.unwrap_or_default()));
            }
        };
        let ty = shown(&wanted, settings);
        let (fit, note) = fit(field, settings);
        let Some(held) = held else {
            self.properties.insert(name.clone(), wanted);
            return planned(field, &ty, fit, note);
        };
        let (lacking, whole) = match held.get(name) {
            Some(found) => match mapping::compare(&wanted, found) {
                Match::Takes(other, more) => {
                    let ty = shown(found, settings);
                    let fit = if other == Fit::Exact { fit } else { other };
                    let notes: Vec<&str> = note.into_iter().chain(more.as_deref()).collect();
                    let note = (!notes.is_empty()).then(|| notes.join("; "));
                    return planned(field, &ty, fit, note.as_deref());
                }
                Match::Differs(why) => {
                    return refused(
                        field,
                        &format!("{why}: the type of a field cannot change; write to a new index"),
                    );
                }
                Match::Lacks(more) => (more, false),
            },
            None => (wanted, true),
        };
        let lacks = match whole {
            true => format!("the index does not have the field {name}"),
            false => {
                format!("the field {name} of the index does not have every field of the column")
            }
        };
        match target.schema_changes.new_column {
            NewColumn::Add => {
                self.properties.insert(name.clone(), lacking);
                if whole {
                    self.added.push(name.clone());
                }
                planned(field, &ty, fit, note)
            }
            NewColumn::Ignore if whole => {
                self.ignored.push(at);
                planned(field, "", Fit::Ignored, Some(&lacks))
            }
            NewColumn::Ignore => refused(
                field,
                &format!(
                    "{lacks}, and schema_changes.new_column is ignore, which leaves out whole columns"
                ),
            ),
            NewColumn::Fail => refused(
                field,
                &format!("{lacks}, and schema_changes.new_column is fail"),
            ),
        }
    }

    /// Fields that the stream does not have. Errors: `column_dropped`.
    fn dropped(
        &mut self,
        target: &Target,
        schema: &Schema,
        held: &Map<String, Value>,
        index: &str,
    ) -> Result<()> {
        let lacks = |name: &&String| *name != MARK && schema.index_of(name).is_err();
        let lacking: Vec<&str> = held.keys().filter(lacks).map(String::as_str).collect();
        let Some(first) = lacking.first() else {
            return Ok(());
        };
        if target.schema_changes.dropped_column == DroppedColumn::Fail {
            let text = format!(
                "the index {index} has the field {first}, the stream does not, and schema_changes.dropped_column is fail"
            );
            return Err(Error::schema("column_dropped", text)
                .hint(
                    "set dropped_column: keep, and new documents lack it; or write to a new index",
                )
                .in_column(*first));
        }
        self.notes.push(format!(
            "new documents lack fields that the index has: {}",
            lacking.join(", ")
        ));
        Ok(())
    }
}

/// The type of a field for people.
fn shown(property: &Value, settings: &Settings) -> String {
    let ty = property["type"].as_str().unwrap_or("object");
    if property["enabled"] == false {
        return format!("{ty}, not indexed");
    }
    let has_keyword = property["fields"]["keyword"].is_object();
    match ty == "text" && has_keyword && settings.strings == Strings::Both {
        true => "text, keyword".to_owned(),
        false => ty.to_owned(),
    }
}

/// How the values of a column fit the field that Rapidbyte makes.
fn fit(field: &Field, settings: &Settings) -> (Fit, Option<&'static str>) {
    use DataType::*;
    match field.data_type() {
        Float16 | Float32 | Float64 => {
            (Fit::Checked, Some("a value that is not finite is refused"))
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            (Fit::Exact, Some("written as strings"))
        }
        Date32 | Date64 | Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _) => {
            (Fit::Checked, Some("the server refuses years beyond 9999"))
        }
        Timestamp(..) => (
            Fit::Checked,
            Some(
                "the server refuses years beyond 9999; searches compare milliseconds, _source keeps all digits",
            ),
        ),
        _ if is_json(field) && !settings.documents.text_json => (
            Fit::Checked,
            Some("a document that would come back changed is refused"),
        ),
        List(_) | LargeList(_) | FixedSizeList(..) | Struct(_) | Map(..) => (Fit::Checked, None),
        _ => (Fit::Exact, None),
    }
}

/// The notes of a plan.
pub(crate) fn notes(
    target: &Target,
    settings: &Settings,
    id_of: &IdOf,
    place: &Place,
) -> Vec<String> {
    let mut notes = vec![match id_of {
        IdOf::Column(_) => format!("the column {ID} is the _id of each document"),
        IdOf::Keys(_) => format!("the _id is the text of {}", target.primary_key.join(" | ")),
        IdOf::Made => format!(
            "the connector makes the _id of each document, which has it in the field {MARK}, too"
        ),
    }];
    match (target.write_mode, place) {
        (WriteMode::Replace, Place::Filled(_)) => notes.push(
            "the rows fill an index of their own, and the commit makes the target an alias of it".to_owned(),
        ),
        (WriteMode::Replace, _) => {
            notes.push(
                "the index was not made by a replace, so it stays: its rows are visible before the commit, which deletes \
                 the documents that were there before one by one"
                    .to_owned(),
            );
            if *id_of != IdOf::Made {
                notes.push(format!("the field {MARK} of each document says which run wrote it"));
            }
        }
        (WriteMode::Upsert, _) => notes.push(
            "each row replaces the whole document with its _id, and is visible before the commit".to_owned(),
        ),
        (WriteMode::Append, _) => notes.push(
            "rows are visible before the commit; rows of an attempt that fails are deleted when the next run begins"
                .to_owned(),
        ),
    }
    if settings.refresh == Refresh::Interval {
        notes.push("searches find rows when the index refreshes itself".to_owned());
    }
    notes.push(format!(
        "the cursor is kept in {}",
        settings.checkpoint_index
    ));
    notes
}
