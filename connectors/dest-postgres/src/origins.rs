//! Where the columns of a target came from: the column `origins` of the table of checkpoints.
//!
//! It maps the numbers of the target's columns to the numbers of the source's columns. No server uses a number again,
//! so the numbers prove that a column was renamed or dropped.

use std::collections::{BTreeMap, BTreeSet};

use rapidbyte_pg::catalog::Relation;
use rapidbyte_pg::form::{self, Origin};
use rapidbyte_pg::ident::{qualified, quote_literal};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::NewColumn;
use rapidbyte_sdk::prelude::*;

use crate::config::{CHECKPOINT_TABLE as TABLE, Name, Settings};
use crate::convert;

/// The most rows of one target that are read. Only a target that a thousand pipelines fill has more.
const MAX_ORIGINS: usize = 1000;

/// The query for the origins of a target's columns, with `-` for a stream that has rows there and no record. It returns
/// one text, or no row if the role may not read the table of checkpoints or the table does not exist.
pub(crate) fn question(settings: &Settings, target: &Name) -> String {
    let schema = &settings.checkpoint_schema;
    // The inner query runs only if there is such a table. XML would escape the text.
    let inner = format!(
        "SELECT pg_catalog.encode(pg_catalog.convert_to(COALESCE(pg_catalog.to_jsonb(c) ->> 'origins', '-'), 'UTF8'), \
             'hex') AS o FROM {} AS c WHERE c.target = {} AND ((pg_catalog.to_jsonb(c) ->> 'seq')::int8 > 0 \
             OR pg_catalog.to_jsonb(c) ->> 'origins' IS NOT NULL) \
         ORDER BY c.updated_at DESC LIMIT {MAX_ORIGINS}",
        qualified(schema, TABLE),
        quote_literal(&target.sql())
    );
    format!(
        "SELECT pg_catalog.query_to_xml({}, false, true, '')::text FROM pg_catalog.pg_class AS t \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace WHERE n.nspname = {} AND t.relname = {} \
         AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(t.oid, 'SELECT')",
        quote_literal(&inner),
        quote_literal(schema),
        quote_literal(TABLE)
    )
}

/// The record of a run in `origins`.
#[derive(serde::Deserialize)]
struct Recorded {
    /// See [`Origin`].
    relation: String,
    #[serde(default)]
    xid: i64,
    /// The OID of the target.
    target: u32,
    /// The numbers of the columns at the source, by those in the target.
    columns: BTreeMap<i16, i16>,
    /// The numbers of columns that the relation filled and that another column has followed: older rows have its values
    /// there.
    #[serde(default)]
    left: BTreeSet<i16>,
    /// The highest number of a column that the relation had when the newest rows were read.
    newest: Option<i16>,
    /// The stream has also written rows of another relation, or rows of unknown origin.
    #[serde(default)]
    mixed: bool,
}

/// Where the columns of a target came from.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The number at the source of a column of the target, by name.
    pub columns: BTreeMap<String, i16>,
    /// The columns that have values of other relations, too, or values whose column has another name now.
    pub shared: BTreeSet<String>,
    /// All rows that runs have written are from the relation, and from a time when it had no column with a higher number
    /// than this.
    pub newest: Option<i16>,
}

/// Reads the answer to [`question`] for a target and the source of its stream. Skips a row that does not parse,
/// a row of an older table of this name, and a row from a later state of the source.
pub(crate) fn known(answer: &Rows, source: &Origin, target: &Relation) -> Result<Known> {
    let mut known = Known {
        newest: newest(answer, source, target),
        ..Known::default()
    };
    // Two pipelines may have recorded different columns.
    let mut doubtful = BTreeSet::new();
    for recorded in recorded(answer, target)? {
        for (name, number) in &target.numbers {
            if recorded.left.contains(number) {
                known.shared.insert(name.clone());
            }
            let Some(from) = recorded.columns.get(number) else {
                continue;
            };
            if recorded.relation != source.relation {
                known.shared.insert(name.clone());
            } else if recorded.xid > source.xid {
                doubtful.insert(name.clone());
            } else if let Some(other) = known.columns.insert(name.clone(), *from)
                && other != *from
            {
                doubtful.insert(name.clone());
            }
        }
    }
    known.columns.retain(|name, _| !doubtful.contains(name));
    Ok(known)
}

/// See [`Known::newest`]. `None` also if there are more records than were read.
fn newest(answer: &Rows, source: &Origin, target: &Relation) -> Option<i16> {
    let mut newest = None;
    let mut records = 0;
    for recorded in all_recorded(answer).ok()? {
        records += 1;
        let recorded = recorded?;
        if records == MAX_ORIGINS {
            return None;
        }
        if recorded.target != target.oid {
            continue;
        }
        let is_of_source = recorded.relation == source.relation && recorded.xid <= source.xid;
        if !is_of_source || recorded.mixed {
            return None;
        }
        newest = newest.max(Some(recorded.newest?));
    }
    newest
}

/// Whether a run has recorded the origins of the target's columns. `answer` is the answer to [`question`].
pub(crate) fn has_record(answer: &Rows, target: &Relation) -> Result<bool> {
    Ok(recorded(answer, target)?.next().is_some())
}

/// The records of runs that filled this target.
fn recorded(answer: &Rows, target: &Relation) -> Result<impl Iterator<Item = Recorded>> {
    let oid = target.oid;
    let all = all_recorded(answer)?.flatten();
    Ok(all.filter(move |recorded| recorded.target == oid))
}

/// The records of all streams that filled a target of this name; `None` for one that does not parse.
fn all_recorded(answer: &Rows) -> Result<impl Iterator<Item = Option<Recorded>>> {
    let text = match answer.rows.first() {
        Some(row) => row.text(0)?.unwrap_or_default(),
        None => "",
    };
    let read = |text: &str| -> Option<Recorded> {
        let hex = text.split('<').next()?;
        serde_json::from_slice(&unhex(hex)?).ok()
    };
    Ok(text.split("<o>").skip(1).map(read))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

/// The origins of the columns that a load fills, as the table of checkpoints keeps them. `None` if the source sends
/// none.
pub(crate) fn filled(schema: &Schema, kept: Option<&[usize]>) -> Result<Option<String>> {
    let Some(source) = form::table_of(schema).map_err(convert)?.origin else {
        return Ok(None);
    };
    let mut columns = BTreeMap::new();
    for (place, field) in schema.fields().iter().enumerate() {
        let is_kept = kept.is_none_or(|kept| kept.contains(&place));
        if let (true, Some(number)) = (is_kept, source.number(field).map_err(convert)?) {
            columns.insert(field.name().clone(), number);
        }
    }
    let filled = serde_json::json!({
        "relation": source.relation, "xid": source.xid, "columns": columns, "newest": source.newest(),
    });
    Ok(Some(filled.to_string()))
}

/// The assignment of a commit whose rows have no known origin, because the source does not send it: see
/// [`Known::newest`].
pub(crate) const UNPROVED: &str = "origins = c.origins || '{\"mixed\": true}'::pg_catalog.jsonb";

/// Takes back the proof of [`Known::newest`] for a target that gets rows without all columns of the source, beside the
/// runs that record what they read.
pub(crate) fn unprove(
    client: &mut Client,
    settings: &Settings,
    target: &Target,
    name: &Name,
) -> Result<()> {
    let schema = target.arrow_schema()?;
    let source = form::table_of(&schema).map_err(convert)?.origin;
    let is_whole = source.is_some_and(|source| source.columns.len() == schema.fields().len());
    if is_whole && target.schema_changes.new_column != NewColumn::Ignore {
        return Ok(());
    }
    let table = qualified(&settings.checkpoint_schema, TABLE);
    let has_origins = client.simple_query(&format!(
        "SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = pg_catalog.to_regclass({}) \
         AND a.attname = 'origins' AND NOT a.attisdropped",
        quote_literal(&table)
    ))?;
    if has_origins.iter().all(|answer| answer.rows.is_empty()) {
        return Ok(());
    }
    let target = quote_literal(&name.sql());
    client.simple_query(&format!(
        "UPDATE {table} AS c SET {UNPROVED} WHERE c.target = {target} AND c.origins IS NOT NULL"
    ))?;
    Ok(())
}

/// The assignment that sets the column to the numbers of the columns in `origins`, which [`filled`] returned. `oid` is
/// a query for the OID of the target. Keeps what was recorded of other columns of the same table and the same source.
pub(crate) fn assignment(oid: &str, origins: &str) -> String {
    format!(
        "origins = (SELECT pg_catalog.jsonb_build_object('relation', n.o -> 'relation', 'xid', n.o -> 'xid', \
             'newest', n.o -> 'newest', 'target', t.oid::int8, 'mixed', c.seq > 0 AND c.origins IS NULL \
                 OR COALESCE(c.origins ->> 'target' = t.oid::text AND (NOT s.same OR (c.origins ->> 'mixed')::bool), false), \
             'columns', \
             COALESCE((SELECT pg_catalog.jsonb_object_agg(e.key, e.value) FROM pg_catalog.jsonb_each(k.o) AS e \
                 WHERE e.value NOT IN (SELECT x.value FROM pg_catalog.jsonb_each(n.o -> 'columns') AS x)), \
                 '{{}}'::pg_catalog.jsonb) || f.o, \
             'left', COALESCE((SELECT pg_catalog.jsonb_agg(DISTINCT l.number) FROM (\
                 SELECT e.key::int8 AS number FROM pg_catalog.jsonb_each(k.o) AS e \
                     WHERE e.value IN (SELECT x.value FROM pg_catalog.jsonb_each(n.o -> 'columns') AS x) \
                 UNION ALL SELECT e.value::int8 FROM pg_catalog.jsonb_array_elements(k.l) AS e) AS l \
                 WHERE NOT pg_catalog.jsonb_exists(f.o, l.number::text)), '[]'::pg_catalog.jsonb)) \
         FROM (SELECT {}::pg_catalog.jsonb) AS n(o) CROSS JOIN ({}) AS t(oid) \
         CROSS JOIN LATERAL (SELECT COALESCE(pg_catalog.jsonb_object_agg(a.attnum::text, x.value), '{{}}'::pg_catalog.jsonb) \
             FROM pg_catalog.jsonb_each(n.o -> 'columns') AS x JOIN pg_catalog.pg_attribute AS a \
             ON a.attrelid = t.oid AND a.attname = x.key AND NOT a.attisdropped) AS f(o) \
         CROSS JOIN LATERAL (SELECT c.origins -> 'relation' = n.o -> 'relation' AND c.origins ->> 'target' = t.oid::text) \
             AS s(same) \
         CROSS JOIN LATERAL (SELECT \
             CASE WHEN s.same AND pg_catalog.jsonb_typeof(c.origins -> 'columns') = 'object' THEN c.origins -> 'columns' END, \
             CASE WHEN s.same AND pg_catalog.jsonb_typeof(c.origins -> 'left') = 'array' THEN c.origins -> 'left' END) AS k(o, l))",
        quote_literal(origins),
        oid
    )
}
