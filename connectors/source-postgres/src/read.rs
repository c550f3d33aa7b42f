//! One read: a COPY of one relation, decoded as it comes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::digest::Recipe;
use rapidbyte_pg::form::{schema, table_of};
use rapidbyte_pg::{Column, NATIVE_FORM, Table};
use rapidbyte_pg_client::{Client, CopyOut, CopyRead};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::below::Calls;
use crate::config::Settled;
use crate::copies::{Queries, Query, queries};
use crate::error::{about, convert};
use crate::explain::explain;
use crate::increment::{Checkpoints, PartKind};
use crate::look::look_up;
use crate::relation::{self, Relation, Seen, Wanted};
use crate::session::{self, Joined};
use crate::stall::{Backend, FIRST_ROWS, Patience};

/// The most rows of a batch. Only batches with tiny columns, or without columns, reach it.
const MAX_BATCH_ROWS: usize = 1 << 20;
/// Decoded at a time; as much as is read at a time, unless `fetch_bytes` says more.
const PIECE_BYTES: usize = 64 << 10;
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

/// A stream that can be read.
struct Prepared {
    relation: Relation,
    /// Its name for the schema.
    table: Table,
    queries: Queries,
    calls: Calls,
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
            // Rows that come slowly are given as they come, with the cursor to resume from.
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
