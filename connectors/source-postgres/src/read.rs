//! One read: a COPY of one relation, decoded as it comes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::digest::Recipe;
use rapidbyte_pg::form::{form, schema, select_expression, table_of};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg::{Column, NATIVE_FORM, Table, catalog};
use rapidbyte_pg_client::{Client, CopyOut, CopyRead, ROW_SECURITY};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::below::{Calls, NO_PRIVILEGE};
use crate::config::Settled;
use crate::error::{about, convert};
use crate::increment::{self, Checkpoints, PartKind};
use crate::query;
use crate::relation::{self, Relation, Wanted};
use crate::session::{self, Joined, Seen};
use crate::stall::{Backend, Patience};

/// The most rows of a batch. Only batches with tiny columns, or without columns, reach it.
const MAX_BATCH_ROWS: usize = 1 << 20;
/// Decoded at a time; as much as is read at a time, unless `fetch_bytes` says more.
const PIECE_BYTES: usize = 64 << 10;
/// A server that sorts, or waits for a table below a view, does not even begin to answer.
pub(crate) const FIRST_ROWS: &str = "the first rows";
/// For waits without a limit of their own.
const LONG: Duration = Duration::from_secs(3600);

/// Reads the rows of one stream. Holds one piece of the connection's bytes, one incomplete record
/// and one batch.
pub struct Rows {
    relation: Relation,
    settings: Settled,
    schema: SchemaRef,
    reading: Reading,
    /// Rows of the COPYs before it.
    before: u64,
    /// The COPYs that follow, in one transaction.
    queries: VecDeque<Query>,
    /// Nothing for a whole stream.
    checkpoints: Option<Checkpoints>,
    calls: Calls,
    /// The next events: at most the events of one batch.
    ready: VecDeque<Event>,
    has_ended: bool,
    /// The snapshot's token.
    snapshot: String,
    /// Where the connection goes at the end.
    joined: Joined,
    patience: Patience,
    native: bool,
    batch_bytes: usize,
    max_record_bytes: usize,
}

/// One COPY as it is decoded.
struct Reading {
    kind: Option<PartKind>,
    /// See [`Query::is_query`].
    is_query: bool,
    decoder: Decoder,
    /// Nothing once the server has sent everything.
    copy: Option<CopyOut<Client>>,
    /// Given so far.
    rows: u64,
}

/// One COPY.
struct Query {
    /// A table with columns, or a query in brackets.
    from: String,
    /// The columns of the stream, then the texts of the cursor.
    columns: Vec<Column>,
    /// Nothing for a whole stream.
    kind: Option<PartKind>,
}

/// A stream that can be read.
struct Prepared {
    relation: Relation,
    /// Its name for the schema.
    table: Table,
    queries: Queries,
    calls: Calls,
}

/// All that a selection comes to.
struct Queries {
    /// Of the stream.
    columns: Vec<Column>,
    queries: VecDeque<Query>,
    checkpoints: Option<Checkpoints>,
}

impl Rows {
    /// Begins to read. The transaction is `open` already and holds the snapshot, or the last reader left it in
    /// `joined`, or the read begins its own. A stream that the transaction has `seen` is not looked up again. The
    /// transaction ends with the connection.
    pub(crate) fn begin(
        settings: &Settled,
        request: &ReadRequest,
        open: Option<Client>,
        seen: Option<Seen>,
        joined: &Joined,
    ) -> Result<Self> {
        log::failpoint("source-postgres.read")?;
        let stream = &request.stream;
        let is_held = open.is_some();
        let mut selection = Selection {
            stream: stream.clone(),
            columns: request.columns.clone(),
            filter: request.filter.clone(),
            query: request.query.clone(),
            increment: request.increment.clone(),
            cursor: request.cursor.clone(),
        };
        let mut client = match open {
            Some(client) => client,
            None if request.snapshot.is_empty() => {
                let mut client = session::connect(settings)?;
                session::pin(&mut client, settings, &[Wanted::of(&selection)])?;
                client
            }
            None => match joined.take(&request.snapshot) {
                Some(mut client) => {
                    session::renew(&mut client, settings)?;
                    client
                }
                None => session::join(settings, &request.snapshot)?,
            },
        };
        let native = request.forms.iter().any(|form| form == NATIVE_FORM);
        let seen = seen.filter(|seen| seen.relation.stream() == *stream);
        let was_tried = !request.snapshot.is_empty();
        let is_joined = was_tried && !is_held;
        let backend = Backend::of(&client, settings);
        let prepared = prepare(
            &mut client,
            settings,
            (&mut selection, request.rows.as_ref()),
            seen,
            native,
            was_tried,
            is_held,
        );
        let Prepared {
            relation,
            table,
            queries:
                Queries {
                    columns,
                    mut queries,
                    checkpoints,
                },
            calls,
        } = match prepared {
            Err(error) if is_joined => {
                let snapshot = &request.snapshot;
                return Err(session::explain_lock(error, &backend, snapshot, stream));
            }
            prepared => prepared?,
        };
        refuse_newer(request, &table)?;
        let first = queries
            .pop_front()
            .ok_or_else(|| Error::internal("a read without a query"))?;
        let run = is_joined.then(|| session::virtual_id(&request.snapshot));
        let mut patience = Patience::new(backend, run.flatten());
        // More than memory is no limit.
        let max_record_bytes = usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX);
        let copy = start(client, &first, &mut patience)
            .map_err(|error| explain(error, &relation, settings))?;
        Ok(Self {
            reading: Reading::new(&first, copy, native, max_record_bytes, 0),
            before: 0,
            relation,
            settings: settings.clone(),
            schema: SchemaRef::new(schema(&columns, native, &table)),
            queries,
            checkpoints,
            calls,
            ready: VecDeque::new(),
            has_ended: false,
            snapshot: request.snapshot.clone(),
            joined: joined.clone(),
            patience,
            native,
            batch_bytes: (request.batch_bytes as usize).max(1),
            max_record_bytes,
        })
    }

    fn is_full(&self) -> bool {
        let decoder = &self.reading.decoder;
        let rows = decoder.rows();
        // Without a row there is nothing to give, whatever is held.
        rows >= MAX_BATCH_ROWS || (rows > 0 && decoder.bytes() >= self.batch_bytes)
    }

    /// Puts what comes of the rows so far into `ready`.
    fn take(&mut self) -> Result<()> {
        let _phase = phase::enter(Kind::Decode);
        let reading = &mut self.reading;
        let batch = reading.decoder.take_batch().map_err(convert)?;
        reading.rows += batch.num_rows() as u64;
        let (columns, texts) = batch.columns().split_at(self.schema.fields().len());
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = SchemaRef::clone(&self.schema);
        let rows = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options)?;
        match &mut self.checkpoints {
            Some(checkpoints) if reading.kind == Some(PartKind::Ordered) => {
                let mut events = checkpoints.cut(&rows, texts)?;
                if self.calls == Calls::MayRead {
                    // The rows are only known to be right when all have come.
                    events.retain(|event| !matches!(event, Event::Checkpoint(_)));
                }
                self.ready.extend(events);
            }
            _ => self.ready.push_back(Event::Batch(rows)),
        }
        Ok(())
    }

    /// Ends a COPY: puts its last checkpoint, if any, into `ready`, and begins the next COPY.
    fn go_on(&mut self, mut client: Client) -> Result<()> {
        if self.reading.is_query {
            session::refuse_outdated(&mut client)?;
        }
        let next = self.queries.pop_front();
        let Reading { kind, rows, .. } = self.reading;
        if let (Some(checkpoints), Some(kind)) = (&mut self.checkpoints, kind) {
            let checkpoint = checkpoints.end(kind, rows, next.is_none())?;
            self.ready.extend(checkpoint.map(Event::Checkpoint));
        }
        let Some(query) = next else {
            self.joined.put(client, &self.snapshot);
            self.has_ended = true;
            return Ok(());
        };
        self.patience.reset();
        let copy = start(client, &query, &mut self.patience)?;
        self.before += rows;
        let (native, max_record_bytes) = (self.native, self.max_record_bytes);
        self.reading = Reading::new(&query, copy, native, max_record_bytes, self.before);
        Ok(())
    }

    fn step(&mut self, wait: Duration) -> Result<Event> {
        let begin = Instant::now();
        loop {
            if let Some(event) = self.ready.pop_front() {
                if matches!(event, Event::Checkpoint(_)) {
                    log::failpoint("source-postgres.checkpoint")?;
                }
                return Ok(event);
            }
            if self.has_ended {
                return Ok(Event::End);
            }
            if self.is_full() {
                self.take()?;
                continue;
            }
            let Some(copy) = &mut self.reading.copy else {
                return Err(Error::internal("a read that failed before"));
            };
            let decoder = &mut self.reading.decoder;
            let asked = Instant::now();
            let left = self.patience.at_most(wait.saturating_sub(begin.elapsed()));
            let read = copy.feed(left, |bytes| {
                let _phase = phase::enter(Kind::Decode);
                // A batch ends behind a piece: more at once would make it larger than was asked for.
                let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
                decoder.push_messages(piece).map_err(convert)
            })?;
            // Rows that come slowly are given as they come, and with them where to go on.
            let is_time = begin.elapsed() >= wait && self.reading.decoder.rows() > 0;
            match read {
                CopyRead::Data(_) => {
                    self.patience.reset();
                    if is_time {
                        self.take()?;
                    }
                }
                CopyRead::Idle => {
                    self.patience.waited(asked.elapsed(), "the next rows")?;
                    if !is_time {
                        return Ok(Event::Idle);
                    }
                    self.take()?;
                }
                CopyRead::End => {
                    self.reading.decoder.finish().map_err(convert)?;
                    let (sent, came) = (copy.rows(), self.reading.came());
                    if sent != came {
                        return Err(lost_rows(sent, came));
                    }
                    if self.reading.decoder.rows() > 0 {
                        self.take()?;
                    }
                    if let Some(copy) = self.reading.copy.take() {
                        self.go_on(copy.into_client())?;
                    }
                }
            }
        }
    }
}

impl Query {
    /// False for a table by its name, which is held and calls no function.
    fn is_query(&self) -> bool {
        self.from.starts_with('(')
    }

    /// The read as a query that the server can plan.
    fn question(&self, relation: &Relation) -> String {
        match self.is_query() {
            true => self.from.clone(),
            false => format!("SELECT FROM {}", relation.sql()),
        }
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        let result = self.step(wait);
        result.map_err(|error| {
            let error = explain(error, &self.relation, &self.settings);
            about(error, &self.relation.stream())
        })
    }
}

impl Reading {
    /// Behind the `before` rows of other COPYs of the stream.
    fn new(
        query: &Query,
        copy: CopyOut<Client>,
        native: bool,
        max_record_bytes: usize,
        before: u64,
    ) -> Self {
        let decoder = Decoder::new(&query.columns, native, max_record_bytes);
        Self {
            kind: query.kind,
            is_query: query.is_query(),
            decoder: decoder.counting_from(before),
            copy: Some(copy),
            rows: 0,
        }
    }

    /// Rows of this COPY so far, given or not.
    fn came(&self) -> u64 {
        self.rows + self.decoder.rows() as u64
    }
}

/// The server counts what it sends: a row that is lost or added on the way is not overlooked.
fn lost_rows(sent: u64, came: u64) -> Error {
    let text = format!("the server reports {sent} sent rows, but {came} arrived");
    Error::new(ErrorKind::Connection, "rows_lost", text).hint(
        "connect to the server directly: a proxy or pooler in between changes the data, or \
             the server is not PostgreSQL",
    )
}

/// Looks up the stream, unless it was `seen`, and holds what its read needs. `rows` become a condition of the selection.
fn prepare(
    client: &mut Client,
    settings: &Settled,
    (selection, rows): (&mut Selection, Option<&KeyedRows>),
    seen: Option<Seen>,
    native: bool,
    was_tried: bool,
    is_held: bool,
) -> Result<Prepared> {
    let Seen {
        relation,
        mut described,
    } = match seen {
        Some(seen) => seen,
        None => look_up(client, selection)?,
    };
    let table = described.table();
    relation.refuse_unreadable(settings)?;
    if let Some(rows) = rows {
        let wanted = selection.columns.as_deref();
        let columns = relation::choose(described.columns.clone(), wanted)?;
        let columns: Vec<Option<&Column>> = columns.iter().map(Some).collect();
        let recipe = Recipe::parse(&rows.recipe, columns.len()).map_err(convert)?;
        let keys = recipe.has_key(&columns, &rows.keys);
        selection.filter = Some(match &selection.filter {
            // A condition may end in a comment.
            Some(filter) => format!("({filter}\n) AND {keys}"),
            None => keys,
        });
    }
    settings.fix_numerics(&mut described.columns, native);
    let columns = described.columns;
    let queries = queries(
        client, settings, selection, &relation, columns, native, was_tried,
    )?;
    let calls = Calls::of(client, selection, &relation)?;
    if calls == Calls::MayRead {
        client.execute(session::NO_WORKERS)?;
    }
    if !is_held {
        let questions = queries
            .queries
            .iter()
            .map(|query| query.question(&relation));
        session::hold(client, settings, &relation, questions)
            .map_err(|error| explain(error, &relation, settings))?;
    }
    Ok(Prepared {
        relation,
        table,
        queries,
        calls,
    })
}

/// Refuses a table that got a column after the plan. The destination takes rows of a read without that column for rows
/// that are older than the column. Errors: `schema_changed`.
fn refuse_newer(request: &ReadRequest, table: &Table) -> Result<()> {
    let newest = |table: &Table| table.origin.as_ref()?.newest();
    // A read without a plan has no columns.
    let planned = rapidbyte_sdk::ipc::decode_schema(&request.schema);
    let planned = planned.map_or(Ok(Table::default()), |planned| table_of(&planned));
    match (newest(&planned.map_err(convert)?), newest(table)) {
        (Some(planned), Some(now)) if now > planned => {
            let text = "the table got a column after the plan";
            Err(Error::schema("schema_changed", text).hint("run again"))
        }
        _ => Ok(()),
    }
}

/// Begins a COPY; waits until the server has something to send.
fn start(mut client: Client, query: &Query, patience: &mut Patience) -> Result<CopyOut<Client>> {
    let _phase = phase::enter(Kind::Query);
    client.send(&format!("COPY {} TO STDOUT (FORMAT binary)", query.from))?;
    loop {
        let asked = Instant::now();
        if client.is_answered(patience.at_most(LONG))? {
            break;
        }
        patience.waited(asked.elapsed(), FIRST_ROWS)?;
    }
    let copy = client.receive_copy_out();
    let copy = copy.map_err(|error| patience.explain(error, FIRST_ROWS))?;
    patience.reset();
    Ok(copy)
}

/// The relation and its columns as the transaction sees them.
pub(crate) fn look_up(client: &mut Client, selection: &Selection) -> Result<Seen> {
    if let Some(text) = &selection.query {
        return query::describe(client, &selection.stream, text);
    }
    let mut found = relation::find_wanted(client, &[Wanted::of(selection)])?;
    let relation = found
        .pop()
        .ok_or_else(|| Error::internal("a stream without its relation"))?;
    let described = describe(client, &relation)?;
    Ok(Seen {
        relation,
        described,
    })
}

fn describe(client: &mut Client, relation: &Relation) -> Result<catalog::Relation> {
    let described = relation::describe(client, &[relation.oid])?.pop();
    described.ok_or_else(|| {
        let text = "the table was dropped after the start of the run";
        Error::schema("unknown_stream", text)
    })?
}

/// Asks the server to plan a read, and reads nothing. A wrong condition, a missing column, a cursor that does not fit
/// or a missing privilege then fails before the first row of any stream. The transaction must be open.
pub(crate) fn try_out(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
) -> Result<()> {
    let mut select = selected(selection, relation);
    if relation.query().is_some() {
        let tried = client.simple_query(&format!("{select} {NO_ROWS}"));
        tried.map_err(|error| match query::is_of_query(&error) {
            true => query::wrong(error, None),
            false => explain(error, relation, settings),
        })?;
    }
    if let Some(filter) = &selection.filter {
        // Alone and between brackets: what closes a bracket itself, or begins another statement,
        // would mean something else in a longer query.
        for condition in [filter.clone(), format!("({filter}\n)")] {
            let parsed = client
                .prepare(&format!("{select} WHERE {condition}"), &[])
                .map_err(|error| match error.code.as_str() {
                    NO_PRIVILEGE => error,
                    _ => wrong_filter(error, filter),
                })?;
            client.forget(parsed)?;
        }
        select += &format!(" WHERE ({filter}\n)");
    }
    let mut selects = vec![select];
    if selection.increment.is_some() {
        let described = describe(client, relation)?;
        // Native or not makes no difference to what can be read.
        let queries = queries(
            client,
            settings,
            selection,
            relation,
            described.columns,
            false,
            false,
        )?;
        selects.extend(queries.queries.into_iter().map(|query| query.from));
    } else if selection.cursor.is_some() {
        return Err(no_increment());
    }
    for select in selects {
        let tried = client.simple_query(&trial(&select));
        tried.map_err(|error| match &selection.filter {
            Some(filter) if is_of_filter(&error) => wrong_filter(error, filter),
            _ => explain(error, relation, settings),
        })?;
    }
    Ok(())
}

/// All rows of a selection, as a question.
pub(crate) fn selected(selection: &Selection, relation: &Relation) -> String {
    let columns = match &selection.columns {
        None => "*".to_owned(),
        Some(names) => {
            let names: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
            names.join(", ")
        }
    };
    format!("SELECT {columns} FROM {}", relation.sql())
}

/// Has the server say what a question comes to, without an answer to it.
pub(crate) fn trial(select: &str) -> String {
    format!("EXPLAIN (COSTS false) {select}")
}

/// Ends a query that is begun and gives nothing: the server then refuses locks of rows (FOR UPDATE), which it plans in a
/// READ ONLY transaction.
const NO_ROWS: &str = "LIMIT 0";

fn no_increment() -> Error {
    Error::config("no_cursor", "a table that is read whole cannot resume")
        .hint("set sync_mode: incremental")
}

/// The queries that read a selection. Errors: as of [`relation::choose`] and [`increment::plan`]; `no_cursor`.
fn queries(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
    all: Vec<Column>,
    native: bool,
    was_tried: bool,
) -> Result<Queries> {
    let filter = selection.filter.as_deref();
    let wanted = selection.columns.as_deref();
    if relation.query().is_some() && selection.increment.is_some() {
        return Err(Error::internal("an incremental read of a query"));
    }
    let Some(increment) = &selection.increment else {
        if selection.cursor.is_some() {
            return Err(no_increment());
        }
        let columns = relation::choose(all, wanted)?;
        let query = Query {
            from: whole(relation, &columns, native, filter),
            columns: columns.clone(),
            kind: None,
        };
        return Ok(Queries {
            columns,
            queries: VecDeque::from([query]),
            checkpoints: None,
        });
    };
    let cursor = selection.cursor.as_deref();
    let plan = increment::plan(
        client, settings, relation, &all, increment, cursor, was_tried,
    )?;
    let columns = relation::choose(all, wanted)?;
    let query = |part: increment::Part| {
        let mut expressions = expressions(&columns, native);
        let mut columns = columns.clone();
        for (text, column) in plan.checkpoints.extra(part.kind) {
            expressions.push(text);
            columns.push(column);
        }
        let conditions = [filter, part.condition.as_deref()];
        Query {
            from: select(relation, &expressions, &conditions, &part.order),
            columns,
            kind: Some(part.kind),
        }
    };
    let queries = plan.parts.into_iter().map(query).collect();
    Ok(Queries {
        columns,
        queries,
        checkpoints: Some(plan.checkpoints),
    })
}

/// True for an error that only the condition can bring: a parameter such as `$1`, which nobody gives a
/// value, or a constant that cannot be computed.
pub(crate) fn is_of_filter(error: &Error) -> bool {
    error.code == "pg_42P02" || error.code.starts_with("pg_22")
}

pub(crate) fn wrong_filter(error: Error, filter: &str) -> Error {
    let text = format!("where: {filter}: {}", error.message);
    let hint = error.hint.unwrap_or_else(|| {
        "write one condition as after WHERE, with names as in the catalog".into()
    });
    Error::config("invalid_where", text).hint(hint)
}

/// The table or query of a COPY of all rows.
///
/// `COPY table` is faster than a query, but does not fit every case: it leaves out the rows of inheriting tables,
/// refuses views, foreign and partitioned tables and generated columns, and casts nothing.
fn whole(relation: &Relation, columns: &[Column], native: bool, filter: Option<&str>) -> String {
    let needs_query =
        |column: &Column| column.is_computed() || form(column, native).needs_text_cast();
    let is_plain = relation.kind == 'r'
        && !relation.has_children
        && !relation.has_row_security
        && filter.is_none()
        && !columns.is_empty()
        && !columns.iter().any(needs_query);
    if is_plain {
        let names: Vec<String> = columns.iter().map(|c| quote_ident(&c.name)).collect();
        let table = relation.sql();
        return format!("{table} ({})", names.join(", "));
    }
    select(relation, &expressions(columns, native), &[filter], "")
}

fn expressions(columns: &[Column], native: bool) -> Vec<String> {
    columns
        .iter()
        .map(|column| select_expression(column, native))
        .collect()
}

/// A query in brackets. `order` begins with a blank, or is empty.
fn select(
    relation: &Relation,
    expressions: &[String],
    conditions: &[Option<&str>],
    order: &str,
) -> String {
    // A condition may end in a comment.
    let conditions: Vec<String> = conditions
        .iter()
        .flatten()
        .map(|text| format!("({text}\n)"))
        .collect();
    let place = if conditions.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", conditions.join(" AND "))
    };
    let (table, expressions) = (relation.sql(), expressions.join(", "));
    format!("(SELECT {expressions} FROM {table}{place}{order})")
}

/// No GRANT lets a role past the policies of a table.
const BELOW_POLICIES: &str = "the policies of that table count for the view's owner, and in a function for the \
     one who calls it: let it be the table's owner or a role with BYPASSRLS; or, to read only the rows that the \
     policies show, set options: \"-c row_security=on\" in the source's config";

/// Says what to do about rows or columns that may not be read.
fn explain(error: Error, relation: &Relation, settings: &Settled) -> Error {
    if error.code == ROW_SECURITY && error.stream.is_none() {
        let text = format!(
            "row-level security hides rows that {} reads: {}",
            relation.shown(),
            error.message
        );
        let server = error.hint.map_or(String::new(), |hint| format!("; {hint}"));
        return Error::new(ErrorKind::Auth, ROW_SECURITY, text)
            .hint(format!("{BELOW_POLICIES}{server}"))
            .in_stream(relation.stream());
    }
    if relation.query().is_some() && error.code == query::WRITES {
        return query::wrong(error, None);
    }
    if error.code != NO_PRIVILEGE {
        return error;
    }
    if relation.query().is_some() {
        let role = quote_ident(&settings.connection.user);
        return error.hint(format!(
            "GRANT SELECT to {role} on each table that the query reads"
        ));
    }
    let grants = relation.grants(&quote_ident(&settings.connection.user));
    let more = match relation.kind {
        'v' => {
            "the owner of a view needs the same privileges for the relations below it, and \
                 BYPASSRLS if row-level security would hide rows"
        }
        _ => "or leave out the columns that the role cannot read",
    };
    error.hint(format!("{grants}; {more}"))
}
