//! The stream that a transform gets.

use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rapidbyte_runtime::Relation;
use rapidbyte_wire::{ipc, types};

use crate::bench::{Bench, Trouble};
use crate::same::KEY;
use crate::trial::Peer;
use crate::verdict::{Verdict, setup, skip};
use crate::{peer, values};

/// The stream's name, unless it is one of the peer.
const STREAM: &str = "conformance";
/// Rows of the first batch that the test makes: each value of a type, with NULLs.
const ROWS: usize = 20;
/// Rows of the second one.
const OTHERS: usize = 13;
/// Rows of a peer, for both batches.
const PEER_ROWS: usize = 2_000;

/// Columns with two batches of rows.
pub(super) struct Input {
    pub relation: Relation,
    pub rows: RecordBatch,
    pub others: RecordBatch,
    /// The rows come from a peer.
    is_of_peer: bool,
    /// Columns that the plan refused.
    refused: Vec<String>,
}

impl Input {
    /// Rows of the peer, or rows of every type.
    pub fn of(bench: &Bench<'_>) -> Result<Self, Verdict> {
        match &bench.trial.peer {
            None => Self::made(&[]),
            Some(peer) => Self::of_peer(bench, peer),
        }
    }

    /// Rows of every type, without some columns.
    fn made(refused: &[String]) -> Result<Self, Verdict> {
        let mut fields = vec![Field::new(KEY, DataType::Int64, false)];
        for name in values::TYPES {
            fields.push(values::column(name).map_err(skip)?);
        }
        fields.retain(|field| !refused.contains(field.name()));
        let source_types = fields.iter().map(types::type_name).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = |rows| values::batch(&schema, rows).map_err(skip);
        Ok(Self {
            relation: Relation {
                stream: STREAM.into(),
                schema: encoded(&schema)?,
                source_types,
                primary_key: vec![KEY.into()],
            },
            rows: batch(0..ROWS)?,
            others: batch(ROWS..ROWS + OTHERS)?,
            is_of_peer: false,
            refused: refused.to_vec(),
        })
    }

    fn of_peer(bench: &Bench<'_>, peer: &Peer) -> Result<Self, Verdict> {
        let wanted = bench.trial.streams.first();
        let wanted = wanted.map(String::as_str);
        let (stream, rows) = peer::first_rows(bench, peer, wanted, PEER_ROWS)?;
        let count = rows.num_rows().min(PEER_ROWS);
        if count == 0 {
            let text = format!("the peer's stream {} has no rows", stream.name);
            return Err(setup(format!("{text}: name another one with --stream")));
        }
        let half = count.div_ceil(2);
        Ok(Self {
            relation: Relation {
                schema: encoded(&rows.schema())?,
                stream: stream.name,
                source_types: stream.source_types,
                primary_key: stream.primary_key,
            },
            others: rows.slice(half, count - half),
            rows: rows.slice(0, half),
            is_of_peer: true,
            refused: Vec::new(),
        })
    }

    /// The same without the column that a plan refused by name. Nothing if it refused something else, or if the column
    /// is one of the peer's.
    pub fn without_refused(&self, trouble: &Trouble) -> Result<Option<Self>, Verdict> {
        let Trouble::Error(_, error) = trouble else {
            return Ok(None);
        };
        let schema = self.rows.schema_ref();
        let is_made = |name: &String| name != KEY && schema.index_of(name).is_ok();
        let column = error.column.clone().filter(is_made);
        match column.filter(|_| trouble.accuses_setup() && !self.is_of_peer) {
            None => Ok(None),
            Some(column) => Self::made(&[&self.refused[..], &[column]].concat()).map(Some),
        }
    }

    /// The next action of somebody whose transform refuses the input.
    pub fn advice(&self) -> String {
        if self.is_of_peer {
            return "correct the settings, or name another stream of the peer with --stream".into();
        }
        format!(
            "the stream of the test has the columns {KEY}, c_string, c_int64 and others. Give settings for them, or the \
             rows of a source that has the columns: --peer SOURCE --peer-config SETTINGS --stream NAME"
        )
    }

    /// The input in a few words.
    pub fn told(&self) -> String {
        let columns = self.rows.num_columns();
        match self.refused.is_empty() {
            true => columns.to_string(),
            false => format!("{columns}; refused: {}", self.refused.join(", ")),
        }
    }

    /// Some rows with NULL in each column that may have it.
    pub fn nulls(&self) -> Result<RecordBatch, Verdict> {
        const NULLS: usize = 3;
        let rows = self.rows.slice(0, NULLS.min(self.rows.num_rows()));
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns());
        let columns = columns.map(|(field, column)| match field.is_nullable() {
            true => new_null_array(field.data_type(), rows.num_rows()),
            false => Arc::clone(column),
        });
        let nulls = RecordBatch::try_new(Arc::clone(&schema), columns.collect());
        nulls.map_err(|error| skip(error.to_string()))
    }

    /// Another stream: the same columns in reverse order.
    pub fn reversed(&self) -> Result<Self, Verdict> {
        let order: Vec<usize> = (0..self.rows.num_columns()).rev().collect();
        let turned = |rows: &RecordBatch| {
            let turned = rows.project(&order);
            turned.map_err(|error| skip(error.to_string()))
        };
        let rows = turned(&self.rows)?;
        Ok(Self {
            relation: Relation {
                stream: format!("{}_reversed", self.relation.stream),
                schema: encoded(rows.schema_ref())?,
                source_types: self.relation.source_types.iter().rev().cloned().collect(),
                primary_key: self.relation.primary_key.clone(),
            },
            others: turned(&self.others)?,
            rows,
            is_of_peer: self.is_of_peer,
            refused: self.refused.clone(),
        })
    }
}

fn encoded(schema: &SchemaRef) -> Result<Vec<u8>, Verdict> {
    ipc::encode_schema(schema).map_err(|error| skip(error.to_string()))
}
