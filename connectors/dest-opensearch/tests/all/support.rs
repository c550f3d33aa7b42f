//! Runs of one stream without the host.

use std::sync::Arc;

use dest_opensearch::OpenSearch;
use rapidbyte_sdk::prelude::arrow_array::RecordBatch;
use rapidbyte_sdk::prelude::arrow_schema::{FieldRef, Schema};
use rapidbyte_sdk::prelude::{
    Destination as _, LoadRequest, Plan, Progress, Rejects, Run, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{Commit, Error, Result, destination, ipc};
use rapidbyte_testkit::opensearch::OpenSearchSpace;
use serde_json::{Map, Value, json};

/// A stream and how it is written.
#[derive(Clone)]
pub struct Stream {
    /// Where the cluster is asked.
    pub url: String,
    /// The keys of the configuration beside `url`.
    pub config: Value,
    pub target: Target,
}

impl Stream {
    /// The stream `t` into the index `t` of a space.
    pub fn new(space: &OpenSearchSpace<'_>, schema: &Schema, mode: WriteMode) -> Self {
        let config = json!({
            "index": space.name("{stream}"), "checkpoint_index": space.name("checkpoint"), "max_retries": 2,
        });
        Self {
            url: space.url(),
            config,
            target: Target {
                stream: "t".into(),
                schema: ipc::encode_schema(schema).unwrap(),
                write_mode: mode,
                primary_key: Vec::new(),
                deleted_field: None,
                dedup_fields: Vec::new(),
                name: None,
                namespace: None,
                is_incremental: true,
                schema_changes: SchemaChanges::default(),
                rejects: None,
                deletes: None,
                repairs: None,
                stages: false,
            },
        }
    }

    /// With a key of the configuration.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// With a key.
    pub fn keyed(mut self, key: &str) -> Self {
        self.target.primary_key = vec![key.to_owned()];
        self
    }

    /// Rejects go to this index.
    pub fn keeping(mut self, to: String) -> Self {
        self.target.rejects = Some(Rejects {
            to,
            max_rows: None,
            replayed: Vec::new(),
        });
        self
    }

    fn config(&self) -> String {
        let mut config: Map<String, Value> = self.config.as_object().unwrap().clone();
        config.insert("url".into(), self.url.as_str().into());
        Value::from(config).to_string()
    }

    pub fn open(&self) -> destination::Session<OpenSearch> {
        destination::open(&self.config()).unwrap()
    }

    pub fn plan(&self) -> Result<Plan> {
        let config = serde_json::from_str(&self.config()).unwrap();
        OpenSearch::open(config)?.plan(&self.target)
    }

    /// A run that writes these batches and commits the cursor.
    pub fn run(&self, id: &str, batches: &[RecordBatch], cursor: Option<&str>) -> Result<Progress> {
        self.part(id, batches, cursor, true)
    }

    /// The same; it ends after its first commit if it is not `complete`.
    pub fn part(
        &self,
        id: &str,
        batches: &[RecordBatch],
        cursor: Option<&str>,
        complete: bool,
    ) -> Result<Progress> {
        let run = Run {
            pipeline: "p".into(),
            id: id.into(),
        };
        let request = LoadRequest {
            target: self.target.clone(),
            run,
        };
        let mut session = self.open();
        let mut load = session.begin(&[request])?;
        let progress = load.progress().clone();
        load.open_writer(progress.cursor.as_deref())?;
        for batch in batches {
            load.write(batch)?;
        }
        let part = load.flush()?;
        let commit = Commit {
            seq: progress.seq,
            cursor,
            complete,
            ..Commit::whole(&self.target.stream, vec![part])
        };
        load.commit(commit)?;
        Ok(progress)
    }

    /// The code of a run that fails.
    pub fn fails(&self, batches: &[RecordBatch]) -> Error {
        self.run("fails", batches, None).unwrap_err()
    }
}

pub fn batch(
    columns: Vec<(FieldRef, rapidbyte_sdk::prelude::arrow_array::ArrayRef)>,
) -> RecordBatch {
    let (fields, arrays): (Vec<FieldRef>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// The `_id` and the `_source` of all documents that searches find, in the order of `_id`.
pub fn documents(space: &OpenSearchSpace<'_>, index: &str) -> Vec<(String, Value)> {
    let found = space.done("POST", &format!("{index}/_search?size=1000"), "{}");
    let found: Value = serde_json::from_str(&found).unwrap();
    let hits = found["hits"]["hits"].as_array().unwrap().iter();
    let mut all: Vec<(String, Value)> = hits
        .map(|hit| {
            (
                hit["_id"].as_str().unwrap().to_owned(),
                hit["_source"].clone(),
            )
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// The fields `k` and `v` of all documents, in order.
pub fn pairs(space: &OpenSearchSpace<'_>, index: &str) -> Vec<(i64, String)> {
    let pair = |(_, source): (String, Value)| {
        let v = source["v"].as_str().unwrap_or_default().to_owned();
        (source["k"].as_i64().unwrap(), v)
    };
    let mut all: Vec<_> = documents(space, index).into_iter().map(pair).collect();
    all.sort();
    all
}

/// The names of all indices of the space, without its prefix.
pub fn indices(space: &OpenSearchSpace<'_>) -> Vec<String> {
    let found = space.done("GET", "*/_alias?expand_wildcards=all", "");
    let found: Map<String, Value> = serde_json::from_str(&found).unwrap();
    let mut names: Vec<String> = found
        .keys()
        .map(|name| name[space.name("").len()..].to_owned())
        .collect();
    names.sort();
    names
}
