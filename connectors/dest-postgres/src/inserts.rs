//! The statement of an INSERT, which takes many rows as one parameter, and where some columns are cast from text.

use std::ops::Range;

use rapidbyte_pg::cast::{Read, Texts};
use rapidbyte_pg::ident::{qualified, quote_ident};
use rapidbyte_pg::insert::{self, BoundRows, Parameter};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, PgType, cast, ddl, fit};
use rapidbyte_pg_client::{Client, Format, Param, Row, Statement};
use rapidbyte_sdk::prelude::*;

use crate::config::Name;
use crate::convert;
use crate::look::{columns_of, local_settings};
use crate::refusal::{self, Casts, SAVEPOINT, Trial, counted};

/// Of one INSERT; the server holds its parameter in memory, and so do we.
pub(crate) const INSERT_BYTES: usize = 4 << 20;
/// The temporary table whose row type the rows of an INSERT have.
const STAGED: &str = "rapidbyte_rows";

/// The rows, and the number of the row before their first one.
pub(crate) fn parameters<'a>(rows: &'a [u8], first: &'a [u8]) -> [Param<'a>; 2] {
    [rows, first].map(|value| Param {
        type_oid: 0,
        format: Format::Binary,
        value: Some(value),
    })
}

/// The statement of an INSERT and its parameter. `row_type` is the row type of the table; without it the rows have one
/// of their own.
pub(crate) fn prepare(
    client: &mut Client,
    name: &Name,
    schema: &Schema,
    columns: &[Column],
    row_type: Option<&PgType>,
) -> Result<(Parameter, Statement)> {
    let (sql, parameter) = match row_type {
        Some(row_type) => {
            let sql = insert::statement(&name.schema, &name.table, columns);
            let parameter = Parameter::new(schema, columns, row_type);
            (sql, parameter.map_err(convert)?)
        }
        None => {
            let staged = Staged::make(client, schema, columns)?;
            (staged.statement(name, columns), staged.parameter)
        }
    };
    let statement = client.prepare(&sql, &[])?;
    Ok((parameter, statement))
}

/// A temporary table for its row type alone, in which the columns that are cast are text.
struct Staged {
    /// The row type.
    ty: String,
    /// For each column that is cast, where its texts are from.
    casts: Vec<Option<Texts>>,
    parameter: Parameter,
}

impl Staged {
    fn make(client: &mut Client, schema: &Schema, columns: &[Column]) -> Result<Self> {
        let (row_columns, casts) = staged_columns(schema, columns)?;
        let table = ddl::create_table("pg_temp", STAGED, &row_columns, &[]).map_err(convert)?;
        let table = table.replacen("CREATE TABLE", "CREATE TEMPORARY TABLE IF NOT EXISTS", 1);
        client.simple_query(&format!("{table} ON COMMIT DROP"))?;
        let schema_name = client.simple_query(
            "SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = pg_catalog.pg_my_temp_schema()",
        )?;
        let schema_name = schema_name
            .first()
            .map(rapidbyte_pg_client::Rows::single)
            .transpose()?
            .unwrap_or_default()
            .to_owned();
        let staging = Name {
            schema: schema_name,
            table: STAGED.into(),
        };
        let staged = columns_of(client, &staging)?;
        // The row's own types, with this server's numbers.
        let own = |column: &Column| staged.columns.iter().find(|own| own.name == column.name);
        let targets: Vec<Column> = row_columns.iter().filter_map(own).cloned().collect();
        let parameter = Parameter::new(schema, &targets, &staged.row_type()).map_err(convert)?;
        Ok(Self {
            ty: qualified(&staging.schema, STAGED),
            casts,
            parameter,
        })
    }

    /// The rows of `$1`, behind FROM; `$2` is the number of the row before them.
    fn rows(&self) -> String {
        let columns = 0..self.casts.len();
        let aliases: String = columns.map(|place| format!("c{place}, ")).collect();
        // The numbers of the rows are for the error; `$2` is used where no column is cast, too.
        format!(
            "unnest($1::{}[]) WITH ORDINALITY AS u({aliases}n) WHERE $2::int8 IS NOT NULL",
            self.ty
        )
    }

    fn statement(&self, name: &Name, columns: &[Column]) -> String {
        let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
        let reads: Vec<Option<Read>> = (columns.iter().zip(&self.casts).enumerate())
            .map(|(place, (column, texts))| Some(read(place, column, (*texts)?)))
            .collect();
        let given: Vec<_> = (reads.iter().enumerate())
            .map(|(place, read)| match read {
                Some(read) => read.expression.clone(),
                None => format!("u.c{place}"),
            })
            .collect();
        let always = |column: &Column| column.generated == Generated::IdentityAlways;
        let overriding = if columns.iter().any(always) {
            " OVERRIDING SYSTEM VALUE"
        } else {
            ""
        };
        format!(
            "INSERT INTO {name} ({}){overriding} SELECT {} FROM {}",
            names.join(", "),
            given.join(", "),
            cast::source("u", &self.rows(), reads.iter().flatten())
        )
    }
}

/// The columns of the staged rows, and where the texts of those that are cast are from.
fn staged_columns(
    schema: &Schema,
    columns: &[Column],
) -> Result<(Vec<Column>, Vec<Option<Texts>>)> {
    let mut rows = Vec::with_capacity(columns.len());
    let mut casts = Vec::with_capacity(columns.len());
    for (field, column) in schema.fields().iter().zip(columns) {
        let is_cast = matches!(fit(field, column).map_err(convert)?, PgFit::Cast(_));
        rows.push(match is_cast {
            true => column.as_text(),
            false => Column {
                not_null: false,
                ..column.clone()
            },
        });
        casts.push(is_cast.then(|| Texts::of(field)));
    }
    Ok((rows, casts))
}

/// Reads the text of a column.
fn read(place: usize, column: &Column, texts: Texts) -> Read {
    cast::read("u", "u.n + $2::int8", place, column, texts)
}

/// The error of an INSERT with the row of the batch that it is about; nothing where the server reads every text of
/// the batch. The transaction is lost; the rows are cast again in a new one, which stays open.
pub(crate) fn located(
    client: &mut Client,
    casts: Casts<'_>,
    error: &Error,
    batch: &RecordBatch,
    insert_rows: usize,
) -> Result<Option<Error>> {
    client.execute(&format!("ROLLBACK; BEGIN; {}", local_settings()))?;
    found(client, casts, error, batch, insert_rows)
}

/// The same in a transaction that is not lost, which the search leaves behind a savepoint.
pub(crate) fn found(
    client: &mut Client,
    casts: Casts<'_>,
    error: &Error,
    batch: &RecordBatch,
    insert_rows: usize,
) -> Result<Option<Error>> {
    let mut staged = Staged::make(client, &batch.schema(), casts.targets)?;
    client.execute(&format!("SAVEPOINT {SAVEPOINT}"))?;
    let rows_of = staged.rows();
    let rows = staged.parameter.bind(batch).map_err(convert)?;
    let mut trial = Rows {
        client,
        casts,
        rows_of,
        rows,
        buffer: Vec::new(),
    };
    // In pieces as large as an INSERT, which the server holds in memory.
    let mut row = 0;
    while row < batch.num_rows() {
        let end = trial.encode(row..row.saturating_add(insert_rows))?;
        if trial
            .cast(row as u64..end as u64, 0..casts.places.len())?
            .is_some()
        {
            let piece = row as u64..end as u64;
            return Ok(Some(casts.located(error.clone(), &mut trial, piece)));
        }
        row = end;
    }
    Ok(None)
}

/// The rows of a batch, which are sent again.
struct Rows<'a> {
    client: &'a mut Client,
    casts: Casts<'a>,
    rows_of: String,
    rows: BoundRows<'a>,
    buffer: Vec<u8>,
}

impl Rows<'_> {
    /// Gives the row after the last one that the buffer has.
    fn encode(&mut self, rows: Range<usize>) -> Result<usize> {
        self.buffer.clear();
        let encoded = self.rows.encode(rows, INSERT_BYTES, &mut self.buffer);
        encoded.map_err(convert)
    }

    fn ask(&mut self, rows: Range<u64>, sql: &str) -> Result<Vec<Row>> {
        let begin = rows.start as usize;
        self.encode(begin..rows.end as usize)?;
        let before = (self.casts.first_row - 1 + rows.start).to_be_bytes();
        let params = parameters(&self.buffer, &before);
        Ok(self.client.query(sql, &params, Format::Text)?.rows)
    }
}

impl Trial for Rows<'_> {
    fn cast(&mut self, rows: Range<u64>, casts: Range<usize>) -> Result<Option<Error>> {
        let Casts {
            targets, places, ..
        } = self.casts;
        let some = places.get(casts).unwrap_or_default();
        let reads: Vec<Read> = some
            .iter()
            // The error of any other refusal names its row, and needs no search.
            .filter_map(|place| Some(read(*place, targets.get(*place)?, Texts::Plain)))
            .collect();
        let sql = counted("u", &self.rows_of, &reads);
        let asked = self.ask(rows, &sql);
        refusal::refused(self.client, asked.map(drop))
    }

    fn text(&mut self, row: u64, cast: usize) -> Result<Option<String>> {
        let place = self.casts.places.get(cast).copied().unwrap_or_default();
        let sql = format!(
            "SELECT {} FROM {}",
            refusal::shown("u", place),
            self.rows_of
        );
        let rows = self.ask(row..row + 1, &sql)?;
        let text = rows.first().map(|row| row.text(0)).transpose()?;
        Ok(text.flatten().map(str::to_owned))
    }
}
