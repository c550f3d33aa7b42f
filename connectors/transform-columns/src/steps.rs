//! Steps. Each step changes first the columns that it gets, and later the batches.

mod hide;
mod nested;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_select::filter::filter_record_batch;
use rapidbyte_sdk::prelude::*;
use serde_json::{Map, Value};

use crate::columns;
use crate::config::Step;
use crate::expression::{self, Kind, Misfit, Rows, Typed};

/// All steps for one stream.
pub struct Program {
    steps: Vec<Compiled>,
    columns: Columns,
    /// For `plan`.
    note: Option<String>,
}

/// The columns between two steps.
struct Columns {
    schema: SchemaRef,
    /// Empty for a computed column.
    source_types: Vec<String>,
    primary_key: Vec<String>,
}

/// One step that knows its columns.
struct Compiled {
    run: Box<Run>,
    schema: SchemaRef,
}

type Run = dyn Fn(&RecordBatch, &SchemaRef) -> Result<Moved, Fault>;

/// The result of a step for a batch.
struct Moved {
    batch: RecordBatch,
    /// The row before the step of each row after it; `None`: they are the same.
    rows: Option<UInt32Array>,
}

/// A value that a step cannot take.
pub struct Fault {
    pub step: usize,
    /// The row of the batch.
    pub row: usize,
    /// Empty if it is not about one column.
    pub column: String,
    pub reason: String,
    /// The step can continue without this row. False for a fault of this crate.
    pub is_of_row: bool,
}

impl Fault {
    fn of(misfit: Misfit, column: &str) -> Self {
        Self {
            step: 0,
            row: misfit.row,
            column: column.to_owned(),
            reason: misfit.reason,
            is_of_row: true,
        }
    }

    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self {
            step: 0,
            row: 0,
            column: String::new(),
            reason: error.to_string(),
            is_of_row: false,
        }
    }

    /// `before` rows of the stream came in earlier batches.
    pub fn into_error(self, stream: &str, before: u64) -> Error {
        let row = before + self.row as u64 + 1;
        let error = Error::data(
            "transform_failed",
            format!("row {row} of the stream: {}", self.reason),
        )
        .in_stream(stream)
        .at(format!("config.steps[{}]", self.step))
        .hint("the row is counted as it leaves the source: leave it out with a filter before this step, or change the step");
        match self.column.is_empty() {
            true => error,
            false => error.in_column(self.column),
        }
    }
}

impl Program {
    /// # Errors
    /// A step that does not fit the columns, with its place.
    pub fn new(steps: &[Step], input: &Relation) -> Result<Self> {
        let mut columns = Columns {
            schema: Arc::new(input.arrow_schema()?),
            source_types: input.source_types.clone(),
            primary_key: input.primary_key.clone(),
        };
        let mut compiled = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let step = compile(step, &mut columns).map_err(|problem| {
                Error::config("wrong_step", problem.reason)
                    .at(format!("config.steps[{index}].{}", problem.key))
                    .in_stream(&input.stream)
            })?;
            compiled.push(step);
        }
        if columns.schema.fields().is_empty() {
            let error = Error::config("no_columns", "no column is left").in_stream(&input.stream);
            return Err(error.at("config.steps"));
        }
        let had_key = input.primary_key.join(", ");
        let has_lost_it = columns.primary_key.is_empty() && !had_key.is_empty();
        let note = has_lost_it.then(|| {
            format!(
                "the primary key of the source ({had_key}) is not known behind the steps, because they change or drop it"
            )
        });
        Ok(Self {
            steps: compiled,
            columns,
            note,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    pub fn source_types(&self) -> &[String] {
        &self.columns.source_types
    }

    pub fn primary_key(&self) -> &[String] {
        &self.columns.primary_key
    }

    pub fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    pub fn run(&self, batch: RecordBatch) -> Result<RecordBatch, Fault> {
        let mut batch = batch;
        let mut origins: Vec<UInt32Array> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let moved = (step.run)(&batch, &step.schema).map_err(|fault| {
                let row = origins.iter().rev().fold(fault.row, |row, rows| {
                    rows.values().get(row).map_or(row, |row| *row as usize)
                });
                Fault {
                    step: index,
                    row,
                    ..fault
                }
            })?;
            batch = moved.batch;
            origins.extend(moved.rows);
            if batch.num_rows() == 0 {
                return Ok(RecordBatch::new_empty(Arc::clone(self.schema())));
            }
        }
        Ok(batch)
    }
}

/// A step that does not fit.
struct Problem {
    /// Below the step, such as `set.total`.
    key: String,
    reason: String,
}

fn problem(key: impl Into<String>, reason: impl Into<String>) -> Problem {
    Problem {
        key: key.into(),
        reason: reason.into(),
    }
}

impl Columns {
    fn find(&self, name: &str) -> Result<usize, String> {
        let found = self.schema.fields().find(name);
        found
            .map(|(index, _)| index)
            .ok_or_else(|| columns::unknown(name, &self.schema))
    }

    fn fields(&self) -> Vec<Arc<Field>> {
        self.schema.fields().iter().cloned().collect()
    }

    /// Exchanges the fields. Forgets the primary key if one of its columns is gone.
    fn set_fields(&mut self, fields: Vec<Arc<Field>>) {
        let metadata = self.schema.metadata().clone();
        self.schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let is_there = |name: &String| self.schema.fields().find(name).is_some();
        if !self.primary_key.iter().all(is_there) {
            self.primary_key.clear();
        }
    }

    /// A computed column identifies no row until `primary_key` says so.
    fn computed(&mut self, name: &str) {
        if self.primary_key.iter().any(|column| column == name) {
            self.primary_key.clear();
        }
    }
}

/// Refuses two columns of one name.
fn refuse_twins(fields: &[Arc<Field>], step: &str) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    match fields.iter().find(|field| !seen.insert(field.name())) {
        Some(twice) => {
            let reason = format!("two columns would be named {}", twice.name());
            Err(problem(step, reason))
        }
        None => Ok(()),
    }
}

/// Refuses a name that is not one of the columns.
fn all_known(columns: &Columns, names: &Map<String, Value>, step: &str) -> Result<(), Problem> {
    names.keys().try_for_each(|name| {
        let found = columns.find(name).map(drop);
        found.map_err(|reason| problem(format!("{step}.{name}"), reason))
    })
}

/// The positions of columns that a step names once each.
fn positions(columns: &Columns, names: &[String], step: &str) -> Result<Vec<usize>, Problem> {
    if names.is_empty() {
        return Err(problem(step, "there is no column"));
    }
    let mut seen = HashSet::new();
    let found = names.iter().map(|name| match seen.insert(name) {
        true => columns.find(name).map_err(|reason| problem(step, reason)),
        false => Err(problem(step, format!("the column {name} is there twice"))),
    });
    found.collect()
}

fn compile(step: &Step, columns: &mut Columns) -> Result<Compiled, Problem> {
    let run = match step {
        Step::Rename(names) => rename(names, columns)?,
        Step::Drop(names) => drop_columns(names, columns)?,
        Step::Cast(types) => {
            let schema = Arc::clone(&columns.schema);
            let cast = |name: &str, value: &Value| {
                let kind = Kind::named(text(value)?)?;
                expression::parse(&format!("CAST({} AS {})", quoted(name), kind), &schema)
            };
            all_known(columns, types, "cast")?;
            set("cast", types, columns, cast)?
        }
        Step::Set(expressions) => {
            let schema = Arc::clone(&columns.schema);
            let typed = |_: &str, value: &Value| match value {
                Value::String(text) => expression::parse(text, &schema),
                other => expression::literal(other),
            };
            set("set", expressions, columns, typed)?
        }
        Step::Default(values) => {
            let schema = Arc::clone(&columns.schema);
            let typed = |name: &str, value: &Value| {
                let column = expression::parse(&quoted(name), &schema)?;
                expression::with_default(column, value)
            };
            all_known(columns, values, "default")?;
            set("default", values, columns, typed)?
        }
        Step::Filter(condition) => filter(condition, columns)?,
        Step::Hash(hash) => hide::hash(hash, columns)?,
        Step::Mask(mask) => hide::mask(mask, columns)?,
        Step::Flatten(names) => nested::flatten(names, columns)?,
        Step::Explode(name) => nested::explode(name, columns)?,
        Step::Trim(names) => call("trim", names, columns)?,
        Step::Lower(names) => call("lower", names, columns)?,
        Step::Upper(names) => call("upper", names, columns)?,
    };
    Ok(Compiled {
        run,
        schema: Arc::clone(&columns.schema),
    })
}

fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("{value} is not a text"))
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A step that leaves the rows as they are.
fn batch_of(columns: Vec<ArrayRef>, schema: &SchemaRef) -> Result<Moved, Fault> {
    let batch = RecordBatch::try_new(Arc::clone(schema), columns).map_err(Fault::internal)?;
    Ok(Moved { batch, rows: None })
}

fn rename(names: &Map<String, Value>, columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let mut fields = columns.fields();
    let mut key = columns.primary_key.clone();
    for (old, new) in names {
        let at = format!("rename.{old}");
        let index = columns.find(old).map_err(|reason| problem(&at, reason))?;
        let new = text(new).map_err(|reason| problem(&at, reason))?;
        if new.trim().is_empty() {
            return Err(problem(at, "the new name is empty"));
        }
        fields[index] = Arc::new(fields[index].as_ref().clone().with_name(new));
        let of_key = columns.primary_key.iter().position(|column| column == old);
        if let Some(position) = of_key {
            key[position] = new.to_owned();
        }
    }
    refuse_twins(&fields, "rename")?;
    columns.primary_key = key;
    columns.set_fields(fields);
    Ok(Box::new(|batch, schema| {
        batch_of(batch.columns().to_vec(), schema)
    }))
}

fn drop_columns(names: &[String], columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let dropped = positions(columns, names, "drop")?;
    let kept: Vec<usize> = (0..columns.schema.fields().len())
        .filter(|index| !dropped.contains(index))
        .collect();
    let fields = columns.fields();
    columns.source_types = kept
        .iter()
        .map(|index| columns.source_types[*index].clone())
        .collect();
    columns.set_fields(
        kept.iter()
            .map(|index| Arc::clone(&fields[*index]))
            .collect(),
    );
    Ok(Box::new(move |batch, schema| {
        batch_of(
            kept.iter()
                .map(|index| Arc::clone(batch.column(*index)))
                .collect(),
            schema,
        )
    }))
}

/// Columns that are computed: those that exist stay in their places, new ones follow.
fn set(
    step: &str,
    expressions: &Map<String, Value>,
    columns: &mut Columns,
    typed: impl Fn(&str, &Value) -> Result<Typed, String>,
) -> Result<Box<Run>, Problem> {
    if expressions.is_empty() {
        return Err(problem(step, "there is no column"));
    }
    let mut fields = columns.fields();
    let mut computed: HashMap<usize, (String, Typed)> = HashMap::new();
    for (name, value) in expressions {
        let at = || format!("{step}.{name}");
        if name.trim().is_empty() {
            return Err(problem(at(), "the name of a column is empty"));
        }
        let typed = typed(name, value).map_err(|reason| problem(at(), reason))?;
        let field = Field::new(name, typed.kind.data_type(), typed.is_nullable);
        let index = match columns.find(name) {
            Ok(index) => {
                fields[index] = Arc::new(field);
                columns.source_types[index].clear();
                index
            }
            Err(_) => {
                fields.push(Arc::new(field));
                columns.source_types.push(String::new());
                fields.len() - 1
            }
        };
        columns.computed(name);
        computed.insert(index, (name.clone(), typed));
    }
    columns.set_fields(fields);
    Ok(Box::new(move |batch, schema| {
        let all = (0..schema.fields().len()).map(|index| match computed.get(&index) {
            Some((name, typed)) => computed_column(typed, batch, name),
            None => Ok(Arc::clone(batch.column(index))),
        });
        batch_of(all.collect::<Result<Vec<_>, _>>()?, schema)
    }))
}

/// The column that an expression gives; `name` is for the error.
fn computed_column(typed: &Typed, batch: &RecordBatch, name: &str) -> Result<ArrayRef, Fault> {
    let rows = Rows {
        batch,
        wanted: None,
    };
    let cells = expression::cells(typed, rows);
    let column = cells.and_then(|cells| cells.into_column(typed.kind, batch.num_rows()));
    column.map_err(|misfit| Fault::of(misfit, name))
}

/// Text columns by a function of one text.
fn call(function: &str, names: &[String], columns: &mut Columns) -> Result<Box<Run>, Problem> {
    positions(columns, names, function)?;
    let schema = Arc::clone(&columns.schema);
    let all = names
        .iter()
        .map(|name| (name.clone(), Value::Null))
        .collect();
    set(function, &all, columns, |name, _| {
        expression::parse(&format!("{function}({})", as_text(name, &schema)), &schema)
    })
}

/// A text column as an expression; one with rules of its own, such as `char(n)`, by its text.
fn as_text(name: &str, schema: &Schema) -> String {
    let column = schema.field_with_name(name).ok();
    let is_text =
        |field: &&Field| matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
    match column.filter(is_text).and_then(Kind::of) {
        None if column.is_some_and(|field| is_text(&field)) => {
            format!("CAST({} AS text)", quoted(name))
        }
        _ => quoted(name),
    }
}

fn filter(condition: &str, columns: &Columns) -> Result<Box<Run>, Problem> {
    let typed = expression::parse(condition, &columns.schema)
        .and_then(expression::boolean)
        .map_err(|reason| problem("filter", reason))?;
    Ok(Box::new(move |batch, _| {
        let rows = Rows {
            batch,
            wanted: None,
        };
        let cells = expression::cells(&typed, rows).map_err(|misfit| Fault::of(misfit, ""))?;
        let stays = cells.bools();
        let stays: BooleanArray = (0..batch.num_rows())
            .map(|row| Some(stays(row) == Some(true)))
            .collect();
        if stays.true_count() == batch.num_rows() {
            let batch = batch.clone();
            return Ok(Moved { batch, rows: None });
        }
        let kept = stays.values().set_indices().map(|row| row as u32);
        Ok(Moved {
            rows: Some(kept.collect::<Vec<_>>().into()),
            batch: filter_record_batch(batch, &stays).map_err(Fault::internal)?,
        })
    }))
}
