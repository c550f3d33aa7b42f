//! The rows of one transaction on their way to the server: by COPY or by INSERT.

use std::sync::Arc;

use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg::ident::{qualified, quote_ident};
use rapidbyte_pg::insert::{self, Parameter};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, cast, ddl, fit};
use rapidbyte_pg_client::{
    COPY_HEADER_BYTES, Client, CopyAsked, CopyIn, Format, Param, Pipeline, Statement,
    TransactionStatus,
};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::{Decision, Method};
use crate::load::Place;
use crate::lock;
use crate::look::{Wanted, Within, look};
use crate::swap::Swap;
use crate::transaction::OWN_PATH;
use crate::upsert::Stage;

/// Of one INSERT; the server holds its parameter in memory, and so do we.
const INSERT_BYTES: usize = 4 << 20;
/// A buffer above this is sent in pieces and given back: one huge row must not keep its room.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Columns that are named in an error; more only make it long.
const MAX_NAMED: usize = 20;
/// The temporary table whose row type the rows of an INSERT have.
const STAGED: &str = "rapidbyte_rows";

/// Takes the rows of one transaction. Dropped, the server forgets them with the connection.
pub(crate) struct Sink {
    name: Name,
    wire: Wire,
    method: Rows,
    /// For COPY: the statement.
    copy: String,
    /// For upsert and rows that may come again: where the rows go first.
    stage: Option<(Stage, SchemaRef)>,
    /// For replace by a new table, which the rows go to.
    swap: Option<Swap>,
    targets: Vec<Column>,
    /// Which of the targets the server reads from text.
    cast: Vec<usize>,
    /// The INSERT takes the number of the row before its first one.
    numbers_rows: bool,
    copy_flush_bytes: usize,
    insert_rows: usize,
    /// Room for a message's header, then what is encoded and not sent.
    buffer: Vec<u8>,
    /// Rows of the stream in earlier transactions.
    before: u64,
    rows: u64,
    bytes: u64,
    /// Rows that the server has confirmed.
    confirmed: u64,
    /// Rows and bytes of the parts so far.
    flushed: (u64, u64),
}

/// How rows become bytes.
enum Rows {
    Copy(Encoder),
    Insert(Parameter, Statement),
}

/// What the connection does.
enum Wire {
    Idle(Client),
    /// A COPY was asked for.
    Asked(CopyAsked<Client>),
    Copying(CopyIn<Client>, u64),
    /// INSERTs of so many rows are on their way.
    Inserting(Pipeline<Client>, u64),
    /// It failed and was given up.
    Lost,
}

impl Sink {
    /// In the transaction that is open, whose table is there; `before` rows of the stream have been
    /// committed.
    pub(crate) fn new(
        mut client: Client,
        place: &Place<'_>,
        decided: Decision,
        before: u64,
    ) -> Result<Self> {
        let Place {
            settings,
            target,
            name,
            schema,
            ..
        } = *place;
        let columns = &decided.targets;
        let filled = decided.swap.as_ref().map_or(name, Swap::new_table);
        let mut copy = copy_statement(filled, columns, decided.is_frozen);
        let mut stage = None;
        let method = match decided.method {
            Method::Copy if let Some(merge) = decided.merge => {
                let made = Stage::new(merge, schema, columns, before)?;
                made.make(&mut client)?;
                copy = made.copy_statement();
                let schema = numbered(schema);
                let encoder = Encoder::new(&schema, &made.columns()).map_err(convert)?;
                stage = Some((made, schema));
                Rows::Copy(encoder.counting_from(before))
            }
            Method::Copy => {
                let encoder = Encoder::new(schema, columns).map_err(convert)?;
                Rows::Copy(encoder.counting_from(before))
            }
            Method::Insert { staged } => {
                let (parameter, statement) = prepare(&mut client, name, schema, columns, staged)?;
                Rows::Insert(parameter.counting_from(before), statement)
            }
        };
        // A COPY of no rows would run the table's triggers for statements for nothing.
        let is_harmless = stage.is_some() || !target.keeps_cursor && !decided.runs_triggers;
        // As the operator wrote it, the limit is for the server's work, not for waiting for the source.
        let is_limited = settings.server.sets("statement_timeout");
        let wire = match &method {
            // The server gets ready while the first rows are on their way.
            Rows::Copy(_) if is_harmless && !is_limited => {
                Wire::Asked(client.into_copy_in(&[OWN_PATH], &copy)?)
            }
            Rows::Copy(_) => Wire::Idle(client),
            Rows::Insert(..) => {
                client.execute(OWN_PATH)?;
                Wire::Idle(client)
            }
        };
        Ok(Self {
            copy,
            stage,
            swap: decided.swap,
            numbers_rows: decided.method == Method::Insert { staged: true },
            cast: decided.cast,
            targets: decided.targets,
            name: name.clone(),
            wire,
            method,
            copy_flush_bytes: settings.copy_flush_bytes,
            insert_rows: settings.insert_rows,
            buffer: vec![0; COPY_HEADER_BYTES],
            before,
            rows: 0,
            bytes: 0,
            confirmed: 0,
            flushed: (0, 0),
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match (&self.method, &self.stage) {
            (Rows::Copy(_), Some((stage, schema))) => {
                stage.refuse_null_keys(batch, self.before + self.rows + 1)?;
                let batch = with_numbers(batch, schema, self.rows)?;
                self.copy(&batch)?;
            }
            (Rows::Copy(_), None) => self.copy(batch)?,
            (Rows::Insert(..), _) => self.insert(batch)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn copy(&mut self, batch: &RecordBatch) -> Result<()> {
        let Rows::Copy(encoder) = &mut self.method else {
            return Ok(());
        };
        begin_copy(&mut self.wire, &self.copy, encoder, &mut self.buffer)?;
        let Wire::Copying(copy, sent) = &mut self.wire else {
            return Err(lost());
        };
        let full_bytes = self.copy_flush_bytes + COPY_HEADER_BYTES;
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            encoder.bind(batch).map_err(convert)?
        };
        let mut row = 0;
        while row < rows.len() {
            {
                let _phase = phase::enter(Kind::Encode);
                row = rows
                    .encode(row, full_bytes, &mut self.buffer)
                    .map_err(convert)?;
            }
            if self.buffer.len() >= full_bytes {
                self.bytes += send(copy, &mut self.buffer)?;
            }
        }
        *sent += rows.len() as u64;
        Ok(())
    }

    fn insert(&mut self, batch: &RecordBatch) -> Result<()> {
        self.wire = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Idle(client) => Wire::Inserting(client.into_pipeline()?, 0),
            other => other,
        };
        let (Rows::Insert(parameter, statement), Wire::Inserting(pipeline, sent)) =
            (&mut self.method, &mut self.wire)
        else {
            return Err(lost());
        };
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            parameter.bind(batch).map_err(convert)?
        };
        let _phase = phase::enter(Kind::Flush);
        let mut row = 0;
        while row < rows.len() {
            self.buffer.clear();
            let first = (self.before + self.rows + row as u64).to_be_bytes();
            {
                let _phase = phase::enter(Kind::Encode);
                let some = row..row.saturating_add(self.insert_rows);
                row = rows
                    .encode(some, INSERT_BYTES, &mut self.buffer)
                    .map_err(convert)?;
            }
            self.bytes += self.buffer.len() as u64;
            let params = [
                Param {
                    type_oid: 0,
                    format: Format::Binary,
                    value: Some(&self.buffer),
                },
                Param {
                    type_oid: 0,
                    format: Format::Binary,
                    value: Some(&first),
                },
            ];
            // Only a statement that casts wants the number of the first row.
            let params = &params[..1 + usize::from(self.numbers_rows)];
            if let Err(error) = pipeline.execute(statement, params) {
                // The session can be closed in order then; why is known.
                let _ = self.end_insert();
                return Err(unread(error, &self.targets, &self.cast));
            }
        }
        *sent += rows.len() as u64;
        self.buffer.shrink_to(MAX_KEPT_BYTES);
        Ok(())
    }

    /// Waits for the answers to the INSERTs.
    fn end_insert(&mut self) -> Result<()> {
        let (mut pipeline, sent) = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Inserting(pipeline, sent) => (pipeline, sent),
            other => {
                self.wire = other;
                return Ok(());
            }
        };
        let touched = pipeline.finish();
        self.wire = Wire::Idle(pipeline.into_client());
        let touched = touched.map_err(|error| unread(error, &self.targets, &self.cast))?;
        self.confirmed += touched;
        ensure_all(&self.name, sent, touched)
    }

    /// Ends the COPY, or the INSERTs: every row is in the transaction then.
    pub(crate) fn flush(&mut self) -> Result<Part> {
        let _phase = phase::enter(Kind::Flush);
        self.end_copy()?;
        self.end_insert()?;
        if self.confirmed != self.rows {
            return Err(Error::internal(format!(
                "{} rows were written, the server has {}",
                self.rows, self.confirmed
            )));
        }
        let (rows, bytes) = self.flushed;
        self.flushed = (self.rows, self.bytes);
        Ok(Part {
            data: Vec::new(),
            rows: self.rows - rows,
            bytes: self.bytes - bytes,
        })
    }

    fn end_copy(&mut self) -> Result<()> {
        if let (Rows::Copy(encoder), Wire::Asked(_)) = (&self.method, &self.wire) {
            begin_copy(&mut self.wire, &self.copy, encoder, &mut self.buffer)?;
        }
        let (mut copy, sent) = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Copying(copy, sent) => (copy, sent),
            other => {
                self.wire = other;
                return Ok(());
            }
        };
        if let Rows::Copy(encoder) = &self.method {
            encoder.trailer(&mut self.buffer);
        }
        self.bytes += send(&mut copy, &mut self.buffer)?;
        let taken = copy.finish()?;
        self.wire = Wire::Idle(copy.into_client());
        self.confirmed += taken;
        ensure_all(&self.name, sent, taken)
    }

    /// Brings what is staged into the table, and gives the client back for the commit of so many
    /// rows, and the bytes that were sent. The transaction is open.
    pub(crate) fn finish(mut self, rows: u64, settings: &Settings) -> Result<(Client, u64)> {
        if (self.rows, self.flushed.0) != (rows, rows) {
            return Err(Error::internal(format!(
                "a commit of {rows} rows, {} were written and {} flushed",
                self.rows, self.flushed.0
            )));
        }
        if let Wire::Asked(_) = self.wire {
            // Nothing came, and nothing had to be flushed.
            self.end_copy()?;
        }
        let Wire::Idle(mut client) = self.wire else {
            return Err(lost());
        };
        if client.transaction_status() != TransactionStatus::Open {
            return Err(Error::internal("a commit without an open transaction"));
        }
        if let Rows::Insert(_, statement) = self.method {
            // Behind a pooler the next session would find its name taken.
            client.forget(statement)?;
        }
        if let Some((stage, _)) = self.stage.filter(|_| rows > 0) {
            let merged = stage.merge(&mut client, settings, &self.name, rows);
            merged.map_err(|error| {
                let error = unread(error, &self.targets, &self.cast);
                if client.is_usable() && client.execute("ROLLBACK").is_ok() {
                    return lock::timed_out(&mut client, error, &self.name.sql());
                }
                error
            })?;
        }
        if let Some(swap) = self.swap {
            swap.finish(&mut client, settings, rows)?;
        }
        Ok((client, self.bytes))
    }

    /// Rolls back, and gives the client back if it can be used again.
    pub(crate) fn give_up(self) -> Option<Client> {
        let mut client = match self.wire {
            Wire::Idle(client) => client,
            Wire::Copying(copy, _) => give_up_copy(copy)?,
            // What was asked may wait for a lock: the connection is closed, and the server notices it.
            Wire::Asked(_) | Wire::Inserting(..) | Wire::Lost => return None,
        };
        if !client.is_usable() || client.execute("ROLLBACK").is_err() {
            return None;
        }
        if let Rows::Insert(_, statement) = self.method {
            client.forget(statement).ok()?;
        }
        Some(client)
    }
}

/// The stream's schema with the row's number behind it.
fn numbered(schema: &Schema) -> SchemaRef {
    let number = Arc::new(Field::new("n", DataType::Int64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([number]).collect();
    Arc::new(Schema::new(fields))
}

/// The batch with the numbers of its rows, from `first` on.
fn with_numbers(batch: &RecordBatch, schema: &SchemaRef, first: u64) -> Result<RecordBatch> {
    let first = first as i64;
    let numbers = Int64Array::from_iter_values(first..first + batch.num_rows() as i64);
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(numbers));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn copy_statement(name: &Name, columns: &[Column], is_frozen: bool) -> String {
    let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
    // A list of no columns is no syntax, and means the same for a table that has none.
    let list = match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    let frozen = if is_frozen { ", FREEZE" } else { "" };
    format!("COPY {name}{list} FROM STDIN (FORMAT binary{frozen})")
}

/// Begins a COPY where none is under way.
fn begin_copy(
    wire: &mut Wire,
    statement: &str,
    encoder: &Encoder,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let _phase = phase::enter(Kind::Query);
    let asked = match std::mem::replace(wire, Wire::Lost) {
        Wire::Idle(client) => client.into_copy_in(&[OWN_PATH], statement)?,
        Wire::Asked(asked) => asked,
        other => {
            *wire = other;
            return Ok(());
        }
    };
    *wire = Wire::Copying(asked.ready()?, 0);
    buffer.truncate(COPY_HEADER_BYTES);
    encoder.header(buffer);
    Ok(())
}

/// Gives the client back; failing, the connection is closed, and the server rolls back by itself.
fn give_up_copy(mut copy: CopyIn<Client>) -> Option<Client> {
    copy.fail("the load was given up").ok()?;
    Some(copy.into_client())
}

/// Sends what is behind the header's room and gives its bytes.
fn send(copy: &mut CopyIn<Client>, buffer: &mut Vec<u8>) -> Result<u64> {
    let _phase = phase::enter(Kind::Flush);
    let bytes = buffer.len() - COPY_HEADER_BYTES;
    if bytes > MAX_KEPT_BYTES {
        copy.send(&buffer[COPY_HEADER_BYTES..])?;
    } else {
        copy.send_framed(buffer)?;
    }
    buffer.truncate(COPY_HEADER_BYTES);
    buffer.shrink_to(MAX_KEPT_BYTES);
    Ok(bytes as u64)
}

/// The statement of an INSERT and its parameter.
fn prepare(
    client: &mut Client,
    name: &Name,
    schema: &Schema,
    columns: &[Column],
    staged: bool,
) -> Result<(Parameter, Statement)> {
    let (sql, row_columns, relation) = if staged {
        let (row_columns, casts) = staged_columns(schema, columns)?;
        let table = ddl::create_table("pg_temp", STAGED, &row_columns, &[]).map_err(convert)?;
        let table = table.replacen("CREATE TABLE", "CREATE TEMPORARY TABLE", 1);
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
        let sql = cast_statement(name, &schema_name, columns, &casts);
        let staging = Name {
            schema: schema_name,
            table: STAGED.into(),
        };
        let found = look(client, Within::Open, &staging, &[], Wanted::Table, None)?;
        (sql, row_columns, found.relation)
    } else {
        let sql = insert::statement(&name.schema, &name.table, columns);
        (
            sql,
            columns.to_vec(),
            look(client, Within::Open, name, &[], Wanted::Table, None)?.relation,
        )
    };
    let Some(relation) = relation else {
        return Err(Error::internal(
            "the table whose rows are written is not there",
        ));
    };
    // The row's own types, with this server's numbers.
    let targets: Vec<Column> = row_columns
        .iter()
        .filter_map(|wanted| relation.columns.iter().find(|c| c.name == wanted.name))
        .cloned()
        .collect();
    let parameter = Parameter::new(schema, &targets, &relation.row_type()).map_err(convert)?;
    let statement = client.prepare(&sql, &[])?;
    Ok((parameter, statement))
}

/// The columns of the staged rows, and which are cast from text.
fn staged_columns(schema: &Schema, columns: &[Column]) -> Result<(Vec<Column>, Vec<bool>)> {
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
        casts.push(is_cast);
    }
    Ok((rows, casts))
}

fn cast_statement(name: &Name, temp_schema: &str, columns: &[Column], casts: &[bool]) -> String {
    let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
    let given: Vec<_> = columns
        .iter()
        .zip(casts)
        .enumerate()
        .map(|(place, (column, is_cast))| {
            let given = format!("u.c{place}");
            match is_cast {
                true => cast::expression(&given, "u.n + $2::int8", place, column),
                false => given,
            }
        })
        .collect();
    let always = |column: &Column| column.generated == Generated::IdentityAlways;
    let overriding = if columns.iter().any(always) {
        " OVERRIDING SYSTEM VALUE"
    } else {
        ""
    };
    // The numbers of the rows are for the error; `$2` is used where no column is cast, too.
    let aliases: String = (0..columns.len())
        .map(|place| format!("c{place}, "))
        .collect();
    format!(
        "INSERT INTO {name} ({}){overriding} SELECT {} FROM unnest($1::{}[]) WITH ORDINALITY AS u({aliases}n) \
         WHERE $2::int8 IS NOT NULL",
        names.join(", "),
        given.join(", "),
        qualified(temp_schema, STAGED)
    )
}

/// Names the columns that a text may not have gone into: the server does not.
fn one_of(error: Error, targets: &[Column], cast: &[usize]) -> Error {
    let is_of_a_value = error.code.starts_with("pg_22") && error.column.is_none();
    let columns: Vec<&Column> = cast.iter().filter_map(|at| targets.get(*at)).collect();
    match columns.as_slice() {
        [column] if is_of_a_value => error.in_column(&column.name),
        [_, ..] if is_of_a_value => {
            let names = columns.iter().take(MAX_NAMED).map(|c| quote_ident(&c.name));
            let names: Vec<_> = names.collect();
            let more = if columns.len() > MAX_NAMED {
                ", …"
            } else {
                ""
            };
            error.hint(format!(
                "one of the columns that the server reads from text: {}{more}",
                names.join(", ")
            ))
        }
        _ => error,
    }
}

/// Says which column a text does not go into as it is.
fn unread(error: Error, targets: &[Column], cast: &[usize]) -> Error {
    let refused = cast::refusal(&error.message);
    let Some((column, refused)) =
        refused.and_then(|refused| Some((targets.get(refused.place)?, refused)))
    else {
        return one_of(error, targets, cast);
    };
    let (name, ty) = (&column.name, &column.type_text);
    let said = format!(
        "row {}, column {name:?}: {ty} does not hold the text {:?} as it is",
        refused.row, refused.text
    );
    let hint = match cast::is_astronomical(refused.text, column) {
        true => {
            "the server does not read a year that has a sign or is zero: declare the column as a date or a \
             timestamp in the source's schema, which reads it, or convert the text in the source"
        }
        false => {
            "the server would cut, round or reinterpret it: give the target's column another type (text holds \
             it), or convert the text in the source"
        }
    };
    Error::data("value_does_not_fit", said)
        .hint(hint)
        .in_column(name)
}

/// A row that the server did not keep is lost; that may not go unsaid.
pub(crate) fn ensure_all(name: &Name, sent: u64, taken: u64) -> Result<()> {
    if sent == taken {
        return Ok(());
    }
    let text = format!("{sent} rows were sent to {name}, and the server kept {taken}");
    Err(Error::data("rows_not_kept", text)
        .hint("a trigger or rule of the table drops or redirects rows: change it, or write to another table"))
}

pub(crate) fn lost() -> Error {
    Error::internal("the load has failed and is given up")
}
