//! A run that hears a lie, and a run behind it that hears the truth.

use std::sync::Arc;

use Says::Bytes;
use dest_mongodb::MongoDb;
use rapidbyte_mongo_client::bson::Builder;
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{
    DataType, Field, LoadRequest, Rejects, Result, Run, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{Commit, destination, ipc};
use rapidbyte_testkit::liar::memory_peak;
use rapidbyte_testkit::mongodb::liar::{Asked, Liar, Lie, Says};
use rapidbyte_testkit::mongodb::{MongoDatabase, shared};
use serde_json::json;

/// Makes a lie.
pub(crate) type Speech = fn(&Asked<'_>) -> Says;

pub(crate) const VIOLATED: &str = "protocol_violation";

/// An answer with `ok: 1` and nothing else.
pub(crate) fn bare(asked: &Asked<'_>) -> Says {
    Bytes(asked.answer(|answer| answer.int32("ok", 1)))
}

/// Milliseconds that the client waits for an answer. Only silence lasts so long, also on a slow machine.
pub(crate) const PATIENCE: u32 = 60_000;
/// Milliseconds to wait for a server that is silent: the next one where a slow machine took longer to answer the rest.
pub(crate) const SILENCE: [u32; 3] = [1_000, 5_000, 25_000];
pub(crate) const MEMORY: u64 = 320 << 20;
pub(crate) const ROWS: i64 = 100;

/// A kind of run: whether the collection exists before, and how rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    mode: WriteMode,
    is_new: bool,
    keeps_rejects: bool,
}

pub(crate) const APPEND: Way = Way {
    mode: WriteMode::Append,
    is_new: false,
    keeps_rejects: false,
};
pub(crate) const UPSERT: Way = Way {
    mode: WriteMode::Upsert,
    ..APPEND
};
pub(crate) const REPLACE: Way = Way {
    mode: WriteMode::Replace,
    ..APPEND
};
pub(crate) const NEW: Way = Way {
    is_new: true,
    ..APPEND
};
pub(crate) const KEEPS: Way = Way {
    keeps_rejects: true,
    ..APPEND
};

pub(crate) fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let texts = ids.clone().map(|id| format!("t{id}"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids)),
        Arc::new(StringArray::from_iter_values(texts)),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

pub(crate) fn target(way: Way) -> Target {
    Target {
        stream: "t".into(),
        schema: ipc::encode_schema(&batch(0..0).schema()).unwrap(),
        write_mode: way.mode,
        primary_key: match way.mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: way.keeps_rejects.then(|| Rejects {
            to: "bad".into(),
            max_rows: None,
            replayed: Vec::new(),
        }),
        deletes: None,
        repairs: None,
        stages: false,
    }
}

/// All that a run asks of a destination. Returns the rows that were committed in the end.
pub(crate) fn speak(url: &str, options: &str, patience: u32, way: Way, id: &str) -> Result<()> {
    let limits = format!("connectTimeoutMS={patience}&socketTimeoutMS={patience}");
    let config = json!({
        "url": format!("{url}?{limits}{options}"),
        "bulk_rows": 10,
    });
    let mut to: destination::Session<MongoDb> = destination::open(&config.to_string())?;
    let target = target(way);
    to.plan(&target)?;
    let run = Run {
        pipeline: "p".into(),
        id: id.into(),
    };
    let mut load = to.begin(&[LoadRequest {
        target: target.clone(),
        run,
    }])?;
    let progress = load.progress().clone();
    if progress.cursor.is_some() {
        // The run before has committed everything.
        return Ok(());
    }
    load.open_writer(None)?;
    let mut refused = 0;
    for first in (0..ROWS).step_by(5) {
        load.write(&batch(first..first + 5))?;
        refused += load.refused().rows;
    }
    let part = load.flush()?;
    refused += load.refused().rows;
    assert_eq!(part.rows + refused, ROWS as u64, "rows that nobody counts");
    let commit = Commit {
        seq: progress.seq,
        cursor: Some("done"),
        ..Commit::whole(&target.stream, vec![part])
    };
    let receipt = load.commit(commit)?;
    assert_eq!(receipt.rows + refused, ROWS as u64);
    Ok(())
}

pub(crate) fn client(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

/// The field `id` of all documents, in order.
pub(crate) fn ids(database: &MongoDatabase<'_>, collection: &str) -> Vec<i64> {
    let mut client = client(database);
    let mut command = Builder::new();
    command.string("find", collection);
    let mut cursor = client.find(database.name(), command).unwrap();
    let mut ids = Vec::new();
    while let Some(batch) = cursor.next(&mut client, 0).unwrap() {
        for document in batch.documents().unwrap() {
            let id = document.unwrap().get("id").unwrap();
            ids.extend(id.and_then(|id| id.as_whole()));
        }
    }
    ids.sort_unstable();
    ids
}

pub(crate) struct Told {
    way: Way,
    lie: Lie,
    options: &'static str,
    /// How long the client waits for an answer, in milliseconds. Where a run does not hear the lie or ends in another
    /// way, it is repeated with the next limit.
    limits: &'static [u32],
    /// Empty: the run succeeds.
    code: &'static str,
}

pub(crate) fn always(way: Way, of: &'static str, says: Speech, code: &'static str) -> Told {
    Told {
        way,
        lie: Lie {
            of,
            nth: 1,
            is_once: false,
            says,
        },
        options: "",
        limits: limits(code),
        code,
    }
}

pub(crate) fn once(way: Way, of: &'static str, says: Speech, code: &'static str) -> Told {
    let mut told = always(way, of, says, code);
    told.lie.is_once = true;
    told
}

impl Told {
    pub(crate) fn nth(mut self, nth: usize) -> Self {
        self.lie.nth = nth;
        self
    }

    pub(crate) fn with(self, options: &'static str) -> Self {
        Self { options, ..self }
    }

    /// The server says nothing, whatever the code of the run is in the end.
    pub(crate) fn silent(mut self) -> Self {
        self.limits = &SILENCE;
        self
    }

    fn is_as_expected(&self, result: &Result<()>) -> bool {
        result.as_ref().err().map_or("", |error| &error.code) == self.code
    }
}

/// The limits for a lie that ends in this code.
pub(crate) fn limits(code: &str) -> &'static [u32] {
    match code {
        "timeout" => &SILENCE,
        _ => &[PATIENCE],
    }
}

/// Tells each lie to a run of its own, and lets a run follow that hears the truth.
pub(crate) fn tell(lies: Vec<Told>) {
    let Some(server) = shared() else {
        return;
    };
    let before = memory_peak();
    let mut wrong = Vec::new();
    let count = lies.len();
    for (number, told) in lies.into_iter().enumerate() {
        let what = format!("{number}: {:?} about {:?}", told.way, told.lie.of);
        let mut runs = told.limits.iter().map(|patience| {
            let database = server.database();
            if !told.way.is_new {
                let mut create = Builder::new();
                create.string("create", "t");
                client(&database).command(database.name(), create).unwrap();
            }
            let liar = Liar::in_front_of(server.port(), told.lie).unwrap();
            let url = database.url_at(liar.port());
            let result = speak(&url, told.options, *patience, told.way, "older");
            (database, liar, result)
        });
        let mut run = runs.next().unwrap();
        while run.1.lies_told() == 0 || !told.is_as_expected(&run.2) {
            let Some(next) = runs.next() else { break };
            run = next;
        }
        let (database, liar, result) = run;
        assert!(liar.lies_told() > 0, "{what}: not told, {result:?}");
        if !told.is_as_expected(&result) {
            wrong.push(format!("{what}: {result:?}, and not {:?}", told.code));
        }
        if let Err(error) = &result {
            assert!(!error.message.is_empty(), "{what}: {error:?}");
        }
        let all: Vec<i64> = (0..ROWS).collect();
        if result.is_ok() && !told.way.keeps_rejects {
            assert_eq!(ids(&database, "t"), all, "{what}");
        }
        drop(liar);
        speak(&database.url(), "", PATIENCE, told.way, "newer")
            .unwrap_or_else(|e| panic!("{what}: {e:?}"));
        if !told.way.keeps_rejects {
            assert_eq!(ids(&database, "t"), all, "{what}, after a second run");
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}
