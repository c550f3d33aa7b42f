//! One stream on its way into its table: a transaction on a connection of its own.

use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg::ident::{qualified, quote_ident};
use rapidbyte_pg::insert::{self, Parameter};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, cast, ddl, fit};
use rapidbyte_pg_client::{
    COPY_HEADER_BYTES, Client, CopyIn, Format, Param, Settings as Server, Statement,
    TransactionStatus,
};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::{Decision, Method, decide, lock_prelude, new_columns};
use crate::lock;
use crate::look::{local_settings, look, look_around};
use crate::settle::Pending;

/// Of one INSERT; the server holds its parameter in memory, and so do we.
const INSERT_BYTES: usize = 4 << 20;
/// A buffer above this is sent in pieces and given back: one huge row must not keep its room.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Columns that are named in an error; more only make it long.
const MAX_NAMED: usize = 20;
/// The temporary table whose row type the rows of an INSERT have.
const STAGED: &str = "rapidbyte_rows";

/// Whatever the role's default: after a lock that had to be waited for, what others have committed
/// must be seen.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Limits of a role or database that are meant for people: a load takes as long as it takes, and
/// between two batches waits for the source. The version that brought each.
const TIMEOUTS: [(&str, u32); 3] = [
    ("statement_timeout", 0),
    ("idle_in_transaction_session_timeout", 0),
    ("transaction_timeout", 170_000),
];
/// The server looks now and then whether we are still there, also while it waits for a lock, so that
/// a run that was stopped holds up nobody (PostgreSQL 14 and later, not on every system).
const NOTICED: &str = "SELECT pg_catalog.set_config('client_connection_check_interval', '1000', true) \
    WHERE pg_catalog.current_setting('client_connection_check_interval', true) IS NOT NULL \
      AND pg_catalog.version() ~ 'linux'";
/// Foreign keys that allow it are checked when the new rows are there.
const DEFERRED: &str = "SET CONSTRAINTS ALL DEFERRED";

/// A load that is not committed. Dropped, the server forgets it with the connection.
pub(crate) struct Load {
    name: Name,
    server: Server,
    wire: Wire,
    method: Rows,
    /// For COPY: the statement.
    copy: String,
    targets: Vec<Column>,
    /// Which of the targets the server reads from text.
    cast: Vec<usize>,
    copy_flush_bytes: usize,
    insert_rows: usize,
    /// Room for a message's header, then what is encoded and not sent.
    buffer: Vec<u8>,
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
    Copying(CopyIn<Client>, u64),
    /// It failed and was given up.
    Lost,
}

impl Load {
    /// Prepares the table in a transaction and is ready for rows. Nothing is visible before
    /// [`Load::commit`], apart from schemas and types that were missing.
    pub(crate) fn begin(
        mut client: Client,
        settings: &Settings,
        target: &Target,
        name: Name,
    ) -> Result<Self> {
        let schema = target.arrow_schema()?;
        let decided = decide_now(&mut client, settings, target, &name, &schema, false)?;
        decided.ensure_loadable(&name)?;
        if !decided.prelude.is_empty() {
            make_prelude(&mut client, settings, target, &name, &schema)?;
        }
        client.simple_query(&begin(&client, &settings.server))?;
        if let Some((table, comments)) = decided.create.split_first() {
            lock::make(&mut client, &name, table).map_err(|e| made_meanwhile(&name, e))?;
            for comment in comments {
                client.simple_query(comment)?;
            }
        }
        if let Some(lock) = &decided.lock {
            lock::take(&mut client, &name, lock)?;
        }
        if let Some(clear) = &decided.clear {
            client
                .simple_query(&format!("{DEFERRED}; {clear}"))
                .map_err(still_referenced)?;
            ensure_empty(&mut client, &name)?;
        }
        // Again, now that the table is there and held: with the server's own numbers of its types.
        let decided = decide_now(&mut client, settings, target, &name, &schema, true)?;
        decided.ensure_loadable(&name)?;
        let columns = &decided.targets;
        let method = match decided.method {
            Method::Copy => Rows::Copy(Encoder::new(&schema, columns).map_err(convert)?),
            Method::Insert { staged } => prepare(&mut client, &name, &schema, columns, staged)?,
        };
        // Triggers, rules and defaults may count on the user's own path.
        client.simple_query("SET LOCAL search_path TO DEFAULT")?;
        Ok(Self {
            copy: copy_statement(&name, columns),
            cast: decided.cast,
            targets: decided.targets,
            name,
            server: settings.server.clone(),
            wire: Wire::Idle(client),
            method,
            copy_flush_bytes: settings.copy_flush_bytes,
            insert_rows: settings.insert_rows,
            buffer: vec![0; COPY_HEADER_BYTES],
            rows: 0,
            bytes: 0,
            confirmed: 0,
            flushed: (0, 0),
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        match self.method {
            Rows::Copy(_) => self.copy(batch)?,
            Rows::Insert(..) => self.insert(batch)?,
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
        let (Rows::Insert(parameter, statement), Wire::Idle(client)) =
            (&mut self.method, &mut self.wire)
        else {
            return Err(lost());
        };
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            parameter.bind(batch).map_err(convert)?
        };
        let _phase = phase::enter(Kind::Flush);
        let mut pipeline = client.pipeline()?;
        let mut row = 0;
        while row < rows.len() {
            self.buffer.clear();
            {
                let _phase = phase::enter(Kind::Encode);
                let some = row..row.saturating_add(self.insert_rows);
                row = rows
                    .encode(some, INSERT_BYTES, &mut self.buffer)
                    .map_err(convert)?;
            }
            self.bytes += self.buffer.len() as u64;
            let params = [Param {
                type_oid: 0,
                format: Format::Binary,
                value: Some(&self.buffer),
            }];
            if pipeline.execute(statement, &params).is_err() {
                break;
            }
        }
        // Says the error of an execution, too.
        let touched = pipeline
            .finish()
            .map_err(|error| unread(error, &self.targets, &self.cast))?;
        self.buffer.shrink_to(MAX_KEPT_BYTES);
        self.confirmed += touched;
        ensure_all(&self.name, rows.len() as u64, touched)
    }

    /// Ends the COPY: every row is in the transaction then.
    pub(crate) fn flush(&mut self) -> Result<Part> {
        let _phase = phase::enter(Kind::Flush);
        self.end_copy()?;
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

    /// Makes the rows of the parts visible. Gives the client back.
    pub(crate) fn commit(mut self, rows: u64) -> Result<(Client, Receipt)> {
        if (self.rows, self.flushed.0) != (rows, rows) {
            return Err(Error::internal(format!(
                "a commit of {rows} rows, {} were written and {} flushed",
                self.rows, self.flushed.0
            )));
        }
        let _phase = phase::enter(Kind::Commit);
        let Wire::Idle(mut client) = std::mem::replace(&mut self.wire, Wire::Lost) else {
            return Err(lost());
        };
        if client.transaction_status() != TransactionStatus::Open {
            return Err(Error::internal("a commit without an open transaction"));
        }
        if let Rows::Insert(_, statement) = self.method {
            // Behind a pooler the next session would find its name taken.
            client.forget(statement)?;
        }
        let pending = Pending::of(&mut client)?;
        if let Err(error) = client.execute("COMMIT") {
            // Only once the connection has gone it is a question what became of it.
            if client.is_usable() {
                return Err(error);
            }
            client = pending.settle(&self.server, error)?;
        }
        let receipt = Receipt {
            rows,
            bytes: self.bytes,
            location: self.name.sql(),
        };
        Ok((client, receipt))
    }

    /// Rolls back, and gives the client back if it can be used again.
    pub(crate) fn give_up(self) -> Option<Client> {
        let mut client = match self.wire {
            Wire::Idle(client) => client,
            Wire::Copying(mut copy, _) => {
                // Failing, the connection is closed, and the server rolls back by itself.
                copy.fail("the load was given up").ok()?;
                copy.into_client()
            }
            Wire::Lost => return None,
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

/// Reads the catalog and decides; `inside` the transaction that is open, or in one of its own.
pub(crate) fn decide_now(
    client: &mut Client,
    settings: &Settings,
    target: &Target,
    name: &Name,
    schema: &Schema,
    inside: bool,
) -> Result<Decision> {
    let new = new_columns(schema)?;
    let columns: Vec<Column> = new.iter().flatten().cloned().collect();
    let found = match inside {
        true => look(client, name, &columns),
        false => look_around(client, name, &columns),
    };
    let found = found.map_err(|error| error.in_stream(&target.stream))?;
    decide(settings, target, name, schema, new, &found)
}

/// Makes schemas and types, one stream at a time: of two that need the same, the second finds it.
fn make_prelude(
    client: &mut Client,
    settings: &Settings,
    target: &Target,
    name: &Name,
    schema: &Schema,
) -> Result<()> {
    client.simple_query(&format!(
        "{BEGIN}; {}; {}",
        local_settings(),
        lock_prelude()
    ))?;
    let decided = decide_now(client, settings, target, name, schema, true)?;
    for statement in &decided.prelude {
        client.simple_query(statement)?;
    }
    client.execute("COMMIT").map(drop)
}

/// Begins the transaction of a load, with limits as the operator wrote them or none.
fn begin(client: &Client, server: &Server) -> String {
    let mut sql = format!("{BEGIN}; {}; {NOTICED}", local_settings());
    for (timeout, since) in TIMEOUTS {
        if client.server_version() >= since && !server.sets(timeout) {
            sql += &format!("; SET LOCAL {timeout} = 0");
        }
    }
    sql
}

/// A foreign key that is checked at once stands against deleting all rows first.
fn still_referenced(error: Error) -> Error {
    if error.code != "pg_23503" {
        return error;
    }
    error.hint(
        "rows of another table refer to rows that are replaced: make that foreign key DEFERRABLE \
         (ALTER TABLE … ALTER CONSTRAINT … DEFERRABLE), so that it is checked at the end",
    )
}

/// Another session may make the same table between our look and our statement; what the server
/// says then depends on how far it was.
fn made_meanwhile(name: &Name, error: Error) -> Error {
    match error.code.as_str() {
        "pg_42P07" | "pg_23505" | "pg_42710" => {
            let text = format!("another session made {name} meanwhile: {}", error.message);
            Error::new(ErrorKind::Transient, "table_appeared", text).hint("run again")
        }
        _ => error,
    }
}

/// Triggers may have kept rows of a DELETE.
fn ensure_empty(client: &mut Client, name: &Name) -> Result<()> {
    let sql = format!("SELECT EXISTS (SELECT FROM {name})::text");
    let answers = client.simple_query(&sql)?;
    let left = answers.first().map(rapidbyte_pg_client::Rows::single);
    if left.transpose()? == Some("false") {
        return Ok(());
    }
    let text = format!("rows of {name} are still there after they were deleted");
    Err(Error::schema("rows_kept", text)
        .hint("a BEFORE DELETE trigger keeps them: drop it, or write to another table"))
}

fn copy_statement(name: &Name, columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
    // A list of no columns is no syntax, and means the same for a table that has none.
    let list = match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    format!("COPY {name}{list} FROM STDIN (FORMAT binary)")
}

/// Begins a COPY where none is under way.
fn begin_copy(
    wire: &mut Wire,
    statement: &str,
    encoder: &Encoder,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let client = match std::mem::replace(wire, Wire::Lost) {
        Wire::Idle(client) => client,
        other => {
            *wire = other;
            return Ok(());
        }
    };
    let _phase = phase::enter(Kind::Query);
    *wire = Wire::Copying(client.into_copy_in(statement)?, 0);
    buffer.truncate(COPY_HEADER_BYTES);
    encoder.header(buffer);
    Ok(())
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
) -> Result<Rows> {
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
        let found = look(client, &staging, &[])?;
        (sql, row_columns, found.relation)
    } else {
        let sql = insert::statement(&name.schema, &name.table, columns);
        (sql, columns.to_vec(), look(client, name, &[])?.relation)
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
    Ok(Rows::Insert(parameter, statement))
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
            let given = format!("u.{}", quote_ident(&column.name));
            match is_cast {
                true => cast::expression(&given, place, column),
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
    format!(
        "INSERT INTO {name} ({}){overriding} SELECT {} FROM unnest($1::{}[]) AS u",
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
    let Some((column, text)) = refused.and_then(|(at, text)| Some((targets.get(at)?, text))) else {
        return one_of(error, targets, cast);
    };
    let (name, ty) = (&column.name, &column.type_text);
    let said = format!("column {name:?}: {ty} does not hold the text {text:?} as it is");
    Error::data("value_does_not_fit", said)
        .hint("give the target's column another type, or convert the text in the source")
        .in_column(name)
}

/// A row that the server did not keep is lost; that may not go unsaid.
fn ensure_all(name: &Name, sent: u64, taken: u64) -> Result<()> {
    if sent == taken {
        return Ok(());
    }
    let text = format!("{sent} rows were sent to {name}, and the server kept {taken}");
    Err(Error::data("rows_not_kept", text)
        .hint("a trigger or rule of the table drops or redirects rows: change it, or write to another table"))
}

fn lost() -> Error {
    Error::internal("the load has failed and is given up")
}
