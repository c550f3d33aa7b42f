//! One read: a COPY of one relation, decoded as it comes.

use std::time::{Duration, Instant};

use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::form::{form, select_expression};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg::{Column, NATIVE_FORM, catalog};
use rapidbyte_pg_client::{Client, CopyOut, CopyRead};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;
use crate::error::{about, convert};
use crate::relation::{self, Relation};
use crate::session;

/// Rows of a batch whose columns take next to nothing, or that has no columns.
const MAX_BATCH_ROWS: usize = 1 << 20;

/// Reads the rows of one stream. Holds one piece of the connection's bytes, one incomplete record
/// and one batch.
pub struct Rows {
    stream: String,
    decoder: Decoder,
    /// Nothing once the server has sent everything.
    copy: Option<CopyOut<Client>>,
    batch_bytes: usize,
}

impl Rows {
    /// Begins to read. The transaction ends with the connection.
    pub(crate) fn begin(settings: &Settled, request: &ReadRequest) -> Result<Self> {
        let stream = &request.stream;
        let mut client = if request.snapshot.is_empty() {
            let mut client = session::connect(settings)?;
            session::pin(&mut client, settings, std::slice::from_ref(stream))?;
            client
        } else {
            session::join(settings, &request.snapshot)?
        };
        let (relation, described) = look_up(&mut client, stream)?;
        let table = described.table();
        relation.refuse_unreadable(settings)?;
        let columns = relation::choose(described.columns, request.columns.as_deref())?;
        let native = request.forms.iter().any(|form| form == NATIVE_FORM);
        let filter = request.filter.as_deref();
        let sql = statement(&relation, &columns, native, filter);
        let copy = client
            .into_copy_out(&sql)
            .map_err(|error| explain(error, &relation, settings))?;
        // More than memory is no limit.
        let max_record_bytes = usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX);
        Ok(Self {
            stream: stream.clone(),
            decoder: Decoder::new(&columns, native, max_record_bytes)
                .of_table(&columns, native, &table),
            copy: Some(copy),
            batch_bytes: (request.batch_bytes as usize).max(1),
        })
    }

    fn is_full(&self) -> bool {
        let rows = self.decoder.rows();
        // Without a row there is nothing to give, whatever is held.
        rows >= MAX_BATCH_ROWS || (rows > 0 && self.decoder.bytes() >= self.batch_bytes)
    }

    fn take(&mut self) -> Result<Event> {
        let _phase = phase::enter(Kind::Decode);
        self.decoder.take_batch().map(Event::Batch).map_err(convert)
    }

    fn step(&mut self, wait: Duration) -> Result<Event> {
        let begin = Instant::now();
        while !self.is_full() {
            let Some(copy) = &mut self.copy else {
                return if self.decoder.rows() > 0 {
                    self.take()
                } else {
                    Ok(Event::End)
                };
            };
            let decoder = &mut self.decoder;
            let left = wait.saturating_sub(begin.elapsed());
            let read = copy.feed(left, |bytes| {
                let _phase = phase::enter(Kind::Decode);
                decoder.push_messages(bytes).map_err(convert)
            })?;
            match read {
                CopyRead::Data(_) => {}
                CopyRead::Idle => return Ok(Event::Idle),
                CopyRead::End => {
                    self.decoder.finish().map_err(convert)?;
                    if let Some(copy) = self.copy.take() {
                        copy.into_client().close();
                    }
                }
            }
        }
        self.take()
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema().clone()
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        self.step(wait).map_err(|error| about(error, &self.stream))
    }
}

/// The relation and its columns as the transaction sees them.
fn look_up(client: &mut Client, stream: &str) -> Result<(Relation, catalog::Relation)> {
    let mut found = relation::find(client, &[stream.to_owned()])?;
    let relation = found
        .pop()
        .ok_or_else(|| Error::internal("a stream without its relation"))?;
    let described = relation::describe(client, &[relation.oid])?.pop();
    let described = described.ok_or_else(|| {
        let text = "the table was dropped since the run began";
        Error::schema("unknown_stream", text)
    })??;
    Ok((relation, described))
}

/// Asks the server what a read would do and reads nothing: a wrong condition, a missing column and a
/// missing privilege are told before the first row of any stream. The transaction must be open.
pub(crate) fn try_out(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
) -> Result<()> {
    let columns = match &selection.columns {
        None => "*".to_owned(),
        Some(names) => {
            let names: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
            names.join(", ")
        }
    };
    let mut select = format!("SELECT {columns} FROM {}", relation.sql());
    if let Some(filter) = &selection.filter {
        // Alone and between brackets: what closes a bracket itself, or begins another statement,
        // would mean something else in a longer query.
        for condition in [filter.clone(), format!("({filter}\n)")] {
            let parsed = client
                .prepare(&format!("{select} WHERE {condition}"), &[])
                .map_err(|error| wrong_filter(error, filter))?;
            client.forget(parsed)?;
        }
        select += &format!(" WHERE ({filter}\n)");
    }
    let explained = client.simple_query(&format!("EXPLAIN (COSTS false) {select}"));
    explained
        .map(drop)
        .map_err(|error| explain(error, relation, settings))
}

fn wrong_filter(error: Error, filter: &str) -> Error {
    let text = format!("where: {filter}: {}", error.message);
    let hint = error.hint.unwrap_or_else(|| {
        "write one condition as it would stand behind WHERE, with names as the server has them"
            .into()
    });
    Error::config("wrong_where", text).hint(hint)
}

/// The COPY that gives these columns.
///
/// `COPY table` is faster than a query, and does not do for everything: it leaves out the rows of
/// inheriting tables, refuses views, foreign and partitioned tables and generated columns, and
/// casts nothing.
fn statement(
    relation: &Relation,
    columns: &[Column],
    native: bool,
    filter: Option<&str>,
) -> String {
    let needs_query =
        |column: &Column| column.is_computed() || form(column, native).needs_text_cast();
    let is_plain = relation.kind == 'r'
        && !relation.has_children
        && !relation.has_row_security
        && filter.is_none()
        && !columns.is_empty()
        && !columns.iter().any(needs_query);
    let table = relation.sql();
    let from = if is_plain {
        let names: Vec<String> = columns.iter().map(|c| quote_ident(&c.name)).collect();
        format!("{table} ({})", names.join(", "))
    } else {
        let expressions: Vec<String> = columns
            .iter()
            .map(|column| select_expression(column, native))
            .collect();
        // The condition may end in a comment.
        let condition = filter.map_or(String::new(), |text| format!(" WHERE ({text}\n)"));
        format!(
            "(SELECT {} FROM {table}{condition})",
            expressions.join(", ")
        )
    };
    format!("COPY {from} TO STDOUT (FORMAT binary)")
}

/// Says what to do about rows or columns that may not be read.
fn explain(error: Error, relation: &Relation, settings: &Settled) -> Error {
    if error.code != "pg_42501" {
        return error;
    }
    let grants = relation.grants(&quote_ident(&settings.connection.user));
    let more = match relation.kind {
        'v' => {
            "the owner of a view needs the same for what is below it, and BYPASSRLS where row-level \
             security would hide rows"
        }
        _ => "or leave out the columns that may not be read",
    };
    error.hint(format!("{grants}; {more}"))
}
