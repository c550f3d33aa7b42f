//! How a stream gets into its table: decided from what is there, before anything is changed.

use rapidbyte_pg::catalog::Relation;
use rapidbyte_pg::form::table_of;
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, PgType, ddl, fit};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{Fit, NewColumn};

use crate::changes;
use crate::columns::{
    absent, column_plan, denied, ignored, is_own, refuse_unfilled, refuses_null, sequence_note,
    unfilled_note, unproved_note,
};
use crate::config::{LoadMethod, Name, ReplaceMethod, Settings};
use crate::convert;
use crate::deletes;
use crate::lock::{Lock, Mode};
use crate::look::{
    self, Asked, Beside, Found, MissingType, TableFacts, Wanted, Within, may_delete_rows, traces,
};
use crate::origins;
use crate::place::Place;
use crate::privileges;
use crate::rejects;
use crate::repeats;
use crate::swap::{self, Swap};
use crate::target::rows_may_come_again;
use crate::transaction::read_only;
use crate::types;
use crate::upsert::{self, Merge};

/// What a load remembers from one transaction to the next.
#[derive(Default)]
pub(crate) struct Remembered {
    /// The questions of [`Place::beside`], which are the same for a load.
    beside: Option<Beside>,
    /// The last decision: most tables do not change between two transactions.
    known: Option<Known>,
}

/// A decision, and the answers of the catalog that tell whether it still holds.
struct Known {
    asked: Asked,
    decided: Decision,
}

impl Remembered {
    /// Whether the role sees the rows of the table, as far as it is known.
    pub(crate) fn may_read(&self) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.decided.may_read)
    }
}

/// Everything that is needed to plan and to load one stream.
#[derive(Clone)]
pub(crate) struct Decision {
    /// Run and committed on their own before the load: schemas and types that are missing, and changes of the table.
    pub prelude: Vec<String>,
    /// The types that these statements make.
    pub types: Vec<Name>,
    /// The fields of the stream that go to the table. `None`: all of them.
    pub kept: Option<Vec<usize>>,
    /// The columns of an existing table whose older rows have no values of the stream.
    pub new_columns: Vec<String>,
    /// Run in the load's transaction: the table, then its comments.
    pub create: Vec<String>,
    /// Taken in the load's transaction on a table that was there.
    pub lock: Option<Lock>,
    /// Run in the load's transaction, for replace: what empties the table.
    pub clear: Option<String>,
    /// For replace: the rows go to a new table, and nothing is cleared.
    pub swap: Option<Swap>,
    /// The rows go to the temporary table of staged rows instead.
    pub stages: bool,
    /// The columns to fill, in the schema's order, with the table's own types.
    pub targets: Vec<Column>,
    /// Which of the targets the server reads from text.
    pub cast: Vec<usize>,
    /// For INSERT into a table that is there: its row type.
    pub row_type: Option<PgType>,
    /// For each column: what becomes of it.
    pub columns: Vec<ColumnPlan>,
    pub method: Method,
    /// The open transaction has made the table, so COPY can write rows that every snapshot sees.
    /// Without that, a reader whose snapshot is older would find the table, and no rows in it.
    pub is_frozen: bool,
    /// TRUNCATE empties a plain table: it has a new file then, as if the transaction had made it.
    pub is_truncated: bool,
    /// For upsert, and rows that may come again, into a table that is there.
    pub merge: Option<Merge>,
    /// Each INSERT or COPY runs triggers of the table, also one of no rows.
    pub runs_triggers: bool,
    /// The role sees all rows of a table that is there.
    pub may_read: bool,
    pub notes: Vec<String>,
}

/// How rows are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Copy,
    /// INSERT; `staged` when the rows need a row type of their own, because a column is cast from
    /// text or a column that is not filled refuses NULL already in the table's row type.
    Insert {
        staged: bool,
    },
}

/// The columns of the table to create: the types that the values come from, or else those that
/// hold all of them. `Err` in a place: why there is none.
fn new_columns(schema: &Schema) -> Result<Vec<Result<Column, String>>> {
    let column = |field: &std::sync::Arc<Field>| -> Result<_> {
        let column = rapidbyte_pg::fit::column_for(field).map_err(convert)?;
        Ok(column.map(|column| Column {
            name: field.name().clone(),
            not_null: !field.is_nullable(),
            // Values of generated and identity columns are data here.
            generated: Generated::No,
            default: None,
            collation: None,
            ..column
        }))
    };
    schema.fields().iter().map(column).collect()
}

impl Place<'_> {
    /// Reads the catalog and decides.
    pub(crate) fn decide(&self, client: &mut Client, within: Within<'_>) -> Result<Decision> {
        self.decide_beside(client, within, None)?.0
    }

    /// As [`Place::decide`], with a question in the same send, and its answer: what it is decided is
    /// told beside the answer, also where the stream is refused.
    pub(crate) fn decide_beside(
        &self,
        client: &mut Client,
        within: Within<'_>,
        question: Option<String>,
    ) -> Result<(Result<Decision>, Option<Rows>)> {
        self.decide_again(client, within, question, &mut Remembered::default())
    }

    /// As [`Place::decide_beside`]. Decides again only if the catalog answers otherwise than it did for the last decision.
    /// Remembers a decision that changes nothing and that the answers tell from others. `remembered` is of this place.
    pub(crate) fn decide_again(
        &self,
        client: &mut Client,
        within: Within<'_>,
        question: Option<String>,
        remembered: &mut Remembered,
    ) -> Result<(Result<Decision>, Option<Rows>)> {
        let mut within = within;
        let Remembered { beside, known } = remembered;
        let always = match beside {
            Some(beside) => beside,
            None => beside.insert(self.beside()?),
        };
        let mut beside = always.with(question);
        let mut answer = None;
        if let Some(it) = known.as_ref().filter(|_| beside.traces.is_some()) {
            let (answered, _) = beside.ask(client, &mut within, Vec::new())?;
            answer = answered.also;
            let then = &it.asked.beside;
            let has_traces = answered.traces.iter().any(|traces| !traces.rows.is_empty());
            if has_traces && answered.traces == then.traces && answered.origins == then.origins {
                return Ok((Ok(it.decided.clone()), answer));
            }
            beside = always.clone();
        }
        let requests = client.requests();
        let mut asked = self.ask(client, &mut within, beside)?;
        answer = asked.beside.also.take().or(answer);
        if let Some(known) = known
            && known.asked.is_same(&asked)
        {
            let decided = known.decided.clone();
            known.asked = asked;
            return Ok((Ok(decided), answer));
        }
        let decided = self.decide_from(client, within, &asked);
        let is_all_asked = asked.beside.traces.is_some() || client.requests() == requests + 1;
        let kept = decided.as_ref().ok();
        let kept = kept.filter(|decided| is_all_asked && decided.prelude.is_empty());
        *known = kept.cloned().map(|decided| Known { asked, decided });
        Ok((decided, answer))
    }

    /// The questions that go with those about the table. Only a plain append is known by its traces: the other ways into a
    /// table depend on more.
    fn beside(&self) -> Result<Beside> {
        let table = table_of(self.schema);
        let table = table.map_err(|error| convert(error).in_stream(&self.target.stream))?;
        let is_table = table.identity.is_some() || table.origin.is_some();
        let is_plain = matches!(self.wanted(), Wanted::Table)
            && !may_delete_rows(self.target)
            && !self.is_made;
        Ok(Beside {
            traces: is_plain.then(|| traces::question(self.name)),
            origins: is_table.then(|| origins::question(self.settings, self.name)),
            also: None,
        })
    }

    fn wanted(&self) -> Wanted<'_> {
        match Wanted::of(self.settings, self.target) {
            Wanted::Swap(_) if self.is_made => Wanted::Table,
            wanted => wanted,
        }
    }

    /// Asks the catalog what every decision needs.
    fn ask(&self, client: &mut Client, within: &mut Within<'_>, beside: Beside) -> Result<Asked> {
        let Self { target, name, .. } = *self;
        let wanted = (self.wanted(), may_delete_rows(target));
        let asked = look::ask(client, within, name, wanted, beside);
        asked.map_err(|error| error.in_stream(&target.stream))
    }

    fn decide_from(
        &self,
        client: &mut Client,
        within: Within<'_>,
        asked: &Asked,
    ) -> Result<Decision> {
        let Self { target, name, .. } = *self;
        let in_stream = |error: Error| error.in_stream(&target.stream);
        let new = new_columns(self.schema).map_err(in_stream)?;
        let columns: Vec<Column> = new.iter().flatten().cloned().collect();
        let is_added = target.schema_changes.new_column == NewColumn::Add;
        let mut within = within;
        let table = table_of(self.schema).map_err(|error| in_stream(convert(error)))?;
        let (source, older) = (table.origin, table.older);
        let wanted = self.wanted();
        let found = look::read(
            client,
            &mut within,
            name,
            (&columns, is_added),
            wanted,
            asked,
        );
        let mut found = found.map_err(in_stream)?;
        found.is_made = self.is_made;
        found.is_unproved = source.is_none() && found.has_record()?;
        if !self.is_made && changes::may_change(self.schema, &new, source.as_ref(), &mut found)? {
            found.differences.older = older;
            changes::look(client, &mut within, self, source, &mut found).map_err(in_stream)?;
        }
        decide(self.settings, target, name, self.schema, new, &found)
    }
}

/// Decides. `schema` is the stream's; `new` the columns of [`new_columns`].
fn decide(
    settings: &Settings,
    target: &Target,
    name: &Name,
    schema: &Schema,
    new: Vec<Result<Column, String>>,
    found: &Found,
) -> Result<Decision> {
    refuse_modes(target, found)?;
    refuse_swap_of_rejects(settings, target)?;
    if target.write_mode == WriteMode::Upsert {
        upsert::refuse_stream(target, schema).map_err(|error| error.in_stream(&target.stream))?;
    }
    refuse_unknown_key(target, schema).map_err(|error| error.in_stream(&target.stream))?;
    if let (Some(relation), Some(table)) = (&found.relation, &found.facts.table) {
        // First what no privilege would change.
        let fits = refuse_kind(name, table)
            .and_then(|()| refuse_itself(name, schema, relation))
            .and_then(|()| refuse_way(settings, target, name, table, found));
        fits.map_err(|error| error.in_stream(&target.stream))?;
    }
    let may = privileges::refuse_missing(target, name, schema, found, truncates(settings, target));
    let rejects = rejects::table(settings, target, name)?;
    let tables: Vec<&Name> = [name].into_iter().chain(&rejects).collect();
    types::refuse_reserved(settings, &tables, &found.missing_types)
        .map_err(|error| error.in_stream(&target.stream))?;
    let decision = match (&found.relation, &found.facts.table) {
        (Some(_), Some(_)) => existing(settings, target, name, schema, new, found),
        _ => fresh(settings, target, name, schema, new, found),
    };
    // How the rows go may take another privilege.
    let decision = match (may, decision) {
        (Err(first), Err(second)) if second.code == first.code => {
            Err(privileges::both(first, second))
        }
        (Err(first), _) => Err(first),
        (Ok(()), decision) => decision,
    };
    decision.map_err(|error| error.in_stream(&target.stream))
}

fn refuse_modes(target: &Target, found: &Found) -> Result<()> {
    if found.facts.in_recovery || found.facts.read_only {
        return Err(read_only(found.facts.in_recovery).in_stream(&target.stream));
    }
    Ok(())
}

/// A new table gets its unique indexes after its rows, so it cannot refuse single rows.
fn refuse_swap_of_rejects(settings: &Settings, target: &Target) -> Result<()> {
    let is_swapped = settings.replace_method == ReplaceMethod::Swap;
    if target.rejects.is_none() || target.write_mode != WriteMode::Replace || !is_swapped {
        return Ok(());
    }
    let text = "replace_method: swap cannot keep rejects: it checks unique keys after the last row";
    Err(Error::config("replace_not_possible", text)
        .hint("remove replace_method, or set it to delete or truncate")
        .in_stream(&target.stream)
        .at("config.replace_method"))
}

/// A table that is not there.
fn fresh(
    settings: &Settings,
    target: &Target,
    name: &Name,
    schema: &Schema,
    new: Vec<Result<Column, String>>,
    found: &Found,
) -> Result<Decision> {
    refuse_many_columns(name, schema).map_err(|error| error.in_stream(&target.stream))?;
    if found.facts.has_type {
        return Err(types::in_the_way(name));
    }
    let mut columns = Vec::new();
    let mut targets = Vec::new();
    let mut cast = Vec::new();
    for (field, column) in schema.fields().iter().zip(new) {
        match column {
            Ok(column) => {
                let column = found.as_it_is_there(&column);
                let fit = fit(field, &column).map_err(convert)?;
                if matches!(fit, PgFit::Cast(_)) {
                    cast.push(targets.len());
                }
                columns.push(column_plan(None, field, &column, fit)?);
                targets.push(column);
            }
            Err(reason) => columns.push(ColumnPlan {
                column: field.name().clone(),
                target_type: String::new(),
                fit: Fit::Refused,
                note: Some(reason),
                stored_type: None,
            }),
        }
    }
    let mut prelude = Vec::new();
    if !found.facts.has_schema {
        prelude.push(ddl::create_schema(&name.schema).map_err(convert)?);
    }
    let made = look::prelude(&found.missing_types)?;
    prelude.extend(
        made.into_iter()
            .filter(|sql| !prelude.contains(sql))
            .collect::<Vec<_>>(),
    );
    // Key and cursor identify rows that come again: each version of a key is a row.
    let has_versions = !target.dedup_fields.is_empty();
    let primary_key = match has_versions {
        true => &[],
        false => target.primary_key.as_slice(),
    };
    let mut create =
        vec![ddl::create_table(&name.schema, &name.table, &targets, primary_key).map_err(convert)?];
    let about = table_of(schema).map_err(convert)?;
    create.extend(ddl::comments(
        &name.schema,
        &name.table,
        about.comment.as_deref(),
        &targets,
    ));
    let mut notes = vec!["a new table; it exists from the commit on".to_owned()];
    if !prelude.is_empty() {
        notes.push(
            "a short transaction before the load creates schemas and types, so that streams do \
                 not wait for each other; they stay if the load is aborted"
                .into(),
        );
    }
    if has_versions {
        create.push(repeats::fresh(target, name, &mut notes));
    } else if !primary_key.is_empty() {
        let key: Vec<_> = primary_key.iter().map(|c| quote_ident(c)).collect();
        let refusal = match target.write_mode {
            WriteMode::Upsert => "",
            _ => ": rows whose key already exists will be refused",
        };
        let key = key.join(", ");
        notes.push(format!("its primary key is ({key}){refusal}"));
    }
    let method = if target.write_mode == WriteMode::Upsert {
        upsert::fresh(&mut notes);
        create.extend(deletes::fresh(target, name, &mut notes));
        Method::Copy
    } else if rows_may_come_again(target) {
        Method::Copy
    } else {
        method(
            settings,
            name,
            None,
            !cast.is_empty(),
            false,
            found,
            &mut notes,
        )?
    };
    Ok(Decision {
        prelude,
        types: found.missing_types.iter().map(MissingType::name).collect(),
        kept: None,
        new_columns: Vec::new(),
        create,
        lock: None,
        clear: None,
        swap: None,
        stages: false,
        targets,
        cast,
        row_type: None,
        columns,
        method,
        is_frozen: false,
        is_truncated: false,
        merge: None,
        runs_triggers: false,
        may_read: false,
        notes,
    })
}

/// PostgreSQL's limit for a table (`MaxHeapAttributeNumber`).
const MAX_COLUMNS: usize = 1600;

/// A server says so too, but only when the table is made.
fn refuse_many_columns(name: &Name, schema: &Schema) -> Result<()> {
    refuse_many(name, schema.fields().len())
}

fn refuse_many(name: &Name, count: usize) -> Result<()> {
    if count <= MAX_COLUMNS {
        return Ok(());
    }
    let text = format!(
        "with the columns of the stream, {name} would have {count} columns, and a table can have at most {MAX_COLUMNS}, \
         dropped ones included"
    );
    Err(Error::schema("too_many_columns", text)
        .hint("name the columns that you need: columns: [...]"))
}

fn refuse_unknown_key(target: &Target, schema: &Schema) -> Result<()> {
    let missing = |key: &&String| schema.field_with_name(key).is_err();
    let key = target.primary_key.iter().map(|key| ("primary key", key));
    let version = target.dedup_fields.iter().map(|key| ("cursor", key));
    match key.chain(version).find(|(_, key)| missing(key)) {
        Some((what, key)) => Err(Error::config(
            "unknown_key",
            format!("the {what} names {key:?}, which is not a column of the stream"),
        )
        .in_column(key)),
        None => Ok(()),
    }
}

/// A table, or something like it, that is there.
fn existing(
    settings: &Settings,
    target: &Target,
    name: &Name,
    schema: &Schema,
    new: Vec<Result<Column, String>>,
    found: &Found,
) -> Result<Decision> {
    let (Some(relation), Some(table)) = (&found.relation, &found.facts.table) else {
        return Err(Error::internal("a table that was not found"));
    };
    if !relation.columns.is_empty() {
        refuse_no_columns(name, schema)?;
    }
    refuse_strangers(name, schema, relation)?;
    let changes = changes::decide(target, name, schema, &new, (relation, table), found)?;
    let (before, relation) = (relation, &changes.relation);
    if !changes.added.is_empty() {
        refuse_many(name, table.numbers + changes.added.len())?;
    }
    let mut columns = Vec::new();
    let mut targets = Vec::new();
    let mut cast = Vec::new();
    for (place, field) in schema.fields().iter().enumerate() {
        if changes.leaves_out(place) {
            columns.push(ignored(name, field));
            continue;
        }
        match relation.columns.iter().find(|c| c.name == *field.name()) {
            Some(column) => {
                let fit = fit(field, column).map_err(convert)?;
                if matches!(fit, PgFit::Cast(_)) {
                    cast.push(targets.len());
                }
                let mut planned = column_plan(Some(name), field, column, fit)?;
                if planned.fit == Fit::Refused
                    && let (Some(note), Some(Ok(new))) = (&mut planned.note, new.get(place))
                {
                    // Before the statement that does the same by hand.
                    let at = note.find("; run on the target").unwrap_or(note.len());
                    note.insert_str(at, &changes::way_out(target, table, found, column, new));
                    let renamed = found.renamed.iter().find(|(_, new)| *new == column.name);
                    if let Some((old, new)) = renamed {
                        let (old, new) = (quote_ident(old), quote_ident(new));
                        note.push_str(&format!(
                            "; before that: ALTER TABLE {name} RENAME COLUMN {old} TO {new}"
                        ));
                    }
                }
                columns.push(planned);
                targets.push(column.clone());
            }
            None if let Some((old, new)) = found.denied(field.name()) => {
                columns.push(denied(name, field, old, new));
            }
            None => columns.push(absent(
                name,
                field,
                &changes::why_not(target, name, field, table, found),
            )?),
        }
    }
    let kept = changes.kept.as_ref().map(|kept| schema.project(kept));
    let kept = kept.transpose()?;
    let schema = kept.as_ref().unwrap_or(schema);
    let unfilled: Vec<&Column> = relation
        .columns
        .iter()
        .filter(|column| schema.field_with_name(&column.name).is_err())
        .collect();
    let fields = schema.fields().iter().map(|field| field.name().as_str());
    let is_new = |field: &&str| !before.columns.iter().any(|column| column.name == *field);
    let new: Vec<&str> = fields.filter(is_new).collect();
    refuse_unfilled(name, &unfilled, &new, &relation.primary_key)?;
    let mut notes: Vec<String> = unfilled
        .iter()
        .filter(|column| !changes.told.contains(&column.name))
        .filter(|column| deletes::mark_column(target) != Some(&column.name))
        .map(|column| {
            let there = found.still_there(&column.name);
            unfilled_note(column, target.write_mode, there)
        })
        .collect();
    notes.splice(..0, changes.notes);
    notes.extend(unproved_note(name, target.write_mode, found.is_unproved));
    let mut prelude = look::prelude(&found.missing_types)?;
    prelude.extend(changes.statements);
    let truncates = truncates(settings, target);
    let clear = match target.write_mode {
        WriteMode::Replace => Some(clear(name, table, truncates, &mut notes)?),
        WriteMode::Append => {
            notes.push("adds rows to the table, visible at each commit".into());
            None
        }
        WriteMode::Upsert => None,
    };
    let mode = match (&clear, truncates) {
        (None, _) => Mode::Add,
        (Some(_), false) => Mode::Replace,
        (Some(_), true) => Mode::Truncate,
    };
    let lock = matches!(table.kind, 'r' | 'p').then(|| Lock::of(name, mode));
    notes.extend(targets.iter().filter_map(sequence_note));
    let mut swap = None;
    let mut merge = None;
    let method = if target.write_mode == WriteMode::Upsert {
        merge = upsert::existing(target, name, schema, table, &targets, found, &mut notes)?;
        Method::Copy
    } else if rows_may_come_again(target) {
        merge = repeats::existing(target, name, table, &targets, found, &mut notes)?;
        Method::Copy
    } else {
        let strict = unfilled.iter().any(|column| refuses_null(&column.ty));
        let casts = !cast.is_empty();
        let method = method(
            settings,
            name,
            Some(table),
            casts,
            strict,
            found,
            &mut notes,
        )?;
        if clear.is_some() && !found.is_made && target.rejects.is_some() {
            notes.push(clear_note(truncates).into());
        } else if clear.is_some() && !found.is_made {
            let is_inserted = method != Method::Copy;
            let facts = found.swap.as_ref();
            swap = swap::decide(settings, name, facts, is_inserted, &mut notes)?;
            if swap.is_none() {
                notes.push(clear_note(truncates).into());
            }
        }
        method
    };
    Ok(Decision {
        prelude,
        types: found.missing_types.iter().map(MissingType::name).collect(),
        kept: changes.kept,
        new_columns: [changes.added, changes.moved].concat(),
        create: Vec::new(),
        lock,
        clear,
        swap,
        stages: false,
        targets,
        cast,
        row_type: (method != Method::Copy).then(|| relation.row_type()),
        columns,
        method,
        is_frozen: false,
        is_truncated: truncates && table.kind == 'r' && method == Method::Copy,
        merge,
        runs_triggers: table.has_statement_triggers,
        may_read: matches!(table.kind, 'r' | 'p') && table.may_select && !table.row_security,
        notes,
    })
}

/// Refuses a table that cannot be written in the way of `target`, whoever does it.
fn refuse_way(
    settings: &Settings,
    target: &Target,
    name: &Name,
    table: &TableFacts,
    found: &Found,
) -> Result<()> {
    if target.write_mode == WriteMode::Replace {
        clear(name, table, truncates(settings, target), &mut Vec::new())?;
    }
    if let Some(facts) = &found.upsert {
        upsert::refuse_table(target, name, table, facts)?;
    }
    if found.repeats.is_some() {
        repeats::refuse_table(name, table)?;
    }
    Ok(())
}

/// Rows of no columns can only go into a table of no columns.
fn refuse_no_columns(name: &Name, schema: &Schema) -> Result<()> {
    if !schema.fields().is_empty() {
        return Ok(());
    }
    let text = format!("the stream has no columns, so nothing can be written to {name}");
    Err(Error::schema("no_columns", text).hint("leave the stream out, or write to another table"))
}

/// Refuses a stream without any column of its table: it was read with the wrong header or delimiter, or belongs to
/// another table.
fn refuse_strangers(name: &Name, schema: &Schema, relation: &Relation) -> Result<()> {
    let is_there = |field: &&std::sync::Arc<Field>| {
        relation
            .columns
            .iter()
            .any(|column| column.name == *field.name())
    };
    let theirs: Vec<String> = relation
        .columns
        .iter()
        .filter(|column| !is_own(column))
        .map(|column| quote_ident(&column.name))
        .collect();
    if theirs.is_empty() || schema.fields().iter().any(|field| is_there(&field)) {
        return Ok(());
    }
    let ours = schema
        .fields()
        .iter()
        .map(|field| quote_ident(field.name()));
    let text = format!(
        "the stream has none of the columns of {name}: it has {}, and the table has {}",
        few(ours.collect()),
        few(theirs)
    );
    Err(Error::schema("no_common_column", text).hint(
        "look at the header and the delimiter of the file, or give the columns their names with `rename:`; if the stream \
         belongs to another table, name it with `table:`",
    ))
}

fn few(names: Vec<String>) -> String {
    /// The most names that the message lists.
    const MOST: usize = 8;
    let more = names.len().saturating_sub(MOST);
    let shown = names
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A table that replaces itself by some of its rows has lost the others.
fn refuse_itself(name: &Name, schema: &Schema, relation: &Relation) -> Result<()> {
    let source = table_of(schema).map_err(convert)?.identity;
    if source.is_none() || source != relation.identity {
        return Ok(());
    }
    let text = format!("{name} is the table that the stream is read from");
    Err(Error::config("target_is_source", text)
        .hint("write to another table or schema: `table:`, `schema:`")
        .at("destination.config"))
}

fn refuse_kind(name: &Name, table: &TableFacts) -> Result<()> {
    if table.kind == 'v' && !table.is_insertable {
        let text = format!("{name} is a view that cannot take rows");
        return Err(Error::schema("not_a_table", text)
            .hint("write to its table, or give the view a trigger INSTEAD OF INSERT"));
    }
    let what = match table.kind {
        'r' | 'p' | 'v' | 'f' => return Ok(()),
        'm' => "a materialized view",
        'S' => "a sequence",
        'i' | 'I' => "an index",
        'c' => "a composite type",
        _ => "no table",
    };
    let text = format!("{name} is {what}, which cannot take rows");
    Err(Error::schema("not_a_table", text).hint("name another table with `schema:` or `table:`"))
}

/// The statement that empties the table in the load's transaction.
///
/// DELETE keeps everything that depends on the table, and readers see the old rows until the commit.
/// TRUNCATE leaves no dead rows, and readers wait.
fn clear(
    name: &Name,
    table: &TableFacts,
    truncates: bool,
    notes: &mut Vec<String>,
) -> Result<String> {
    let refused = |what: String, hint: &str| {
        Err(Error::schema(
            "replace_not_possible",
            format!("{name} cannot be replaced: {what}"),
        )
        .hint(hint))
    };
    if !matches!(table.kind, 'r' | 'p') {
        return refused(
            "it is not a table of this server".into(),
            "write to the table itself",
        );
    }
    if table.children > 0 {
        return refused(
            "other tables inherit from it, so readers would also see their rows".into(),
            "write to another table",
        );
    }
    if table.row_security && !truncates {
        return refused(
            "row-level security may hide rows from this role, so they would not be deleted".into(),
            "run as the table's owner, or as a role with BYPASSRLS",
        );
    }
    if table.delete_rules > 0 && !truncates {
        return refused(
            "it has rules for DELETE".into(),
            "drop the rules, or write to another table",
        );
    }
    let keys = table.foreign_keys()?;
    if !keys.cascading.is_empty() {
        return refused(
            format!(
                "the foreign keys {} would delete or change rows in other tables",
                keys.cascading.join(", ")
            ),
            "write to another table, or make the keys ON DELETE NO ACTION",
        );
    }
    if truncates {
        if !keys.incoming.is_empty() {
            return refused(
                format!(
                    "the server cannot truncate a table that these foreign keys refer to: {}",
                    keys.incoming.join(", ")
                ),
                "set replace_method: delete, or drop the keys",
            );
        }
        return Ok(format!("TRUNCATE {name}"));
    }
    if !keys.incoming.is_empty() {
        notes.push(format!(
            "fails if rows of other tables refer to its rows by these foreign keys, unless the \
                 keys are DEFERRABLE and hold again at the end: {}",
            keys.incoming.join(", ")
        ));
    }
    Ok(format!("DELETE FROM {name}"))
}

/// TRUNCATE empties the table.
fn truncates(settings: &Settings, target: &Target) -> bool {
    target.write_mode == WriteMode::Replace && settings.replace_method == ReplaceMethod::Truncate
}

/// The note about the effects on other sessions while the rows are replaced.
fn clear_note(truncates: bool) -> &'static str {
    match truncates {
        true => {
            "TRUNCATE and load in one transaction: readers and other writers wait until the \
             commit; triggers for DELETE do not fire"
        }
        false => {
            "DELETE and load in one transaction: readers see the old rows until the commit; \
                 other writers wait; vacuum frees the space of the old rows later"
        }
    }
}

/// COPY, unless something needs INSERT; says why.
fn method(
    settings: &Settings,
    name: &Name,
    table: Option<&TableFacts>,
    casts: bool,
    strict: bool,
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<Method> {
    let why = match table {
        _ if settings.load_method == LoadMethod::Insert => Some("load_method is insert"),
        Some(table) if table.kind == 'v' => Some("it is a view"),
        Some(table) if table.insert_rules > 0 => Some("COPY bypasses the table's rules"),
        Some(table) if table.row_security => Some("COPY does not work with row-level security"),
        _ if casts => Some("values are cast from text"),
        _ => None,
    };
    let Some(why) = why else {
        notes.push("loaded by COPY in binary".into());
        return Ok(Method::Copy);
    };
    notes.push(format!("loaded by INSERT: {why}"));
    let staged = casts || strict;
    if staged {
        privileges::refuse_unstaged(name, found)?;
    }
    Ok(Method::Insert { staged })
}

impl Decision {
    /// True for a table that is missing.
    pub(crate) fn makes_table(&self) -> bool {
        !self.create.is_empty()
    }

    /// Refuses what the plan refuses.
    pub(crate) fn ensure_loadable(&self, name: &Name) -> Result<()> {
        let refused = self
            .columns
            .iter()
            .find(|column| column.fit == Fit::Refused);
        let Some(column) = refused else {
            return Ok(());
        };
        let note = column.note.as_deref().unwrap_or("it does not fit");
        let text = format!("the column {:?} cannot go to {name}: {note}", column.column);
        Err(Error::schema("column_refused", text)
            .hint("`rapidbyte plan PIPELINE` shows every column")
            .in_column(&column.column))
    }

    /// All statements that a run would make before the first row: none if the plan refuses the stream.
    pub(crate) fn statements(&self) -> Vec<String> {
        if self.columns.iter().any(|column| column.fit == Fit::Refused) {
            return Vec::new();
        }
        let lock = self.lock.as_ref().filter(|_| self.clear.is_some());
        let lock = lock.map(|lock| lock.statement.clone());
        let clear = match &self.swap {
            Some(swap) => Some(swap.statement().to_owned()),
            None => self.clear.clone(),
        };
        let before = self.prelude.iter().chain(&self.create).cloned();
        before.chain(lock).chain(clear).collect()
    }
}
