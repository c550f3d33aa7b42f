//! The transforms of a stream: each plans with the rows of the one before.

use rapidbyte_runtime::Relation;
use rapidbyte_wire::{WARNING_NOTE, ipc, types};

use super::open::{Stage, Transforming};
use super::shown;
use crate::document::{self, Document};
use crate::failure::Failure;

/// One transform of a stream.
#[derive(Clone)]
pub struct Step {
    /// The transform.
    pub stage: Stage,
    /// Its entry in the pipeline file.
    pub asked: document::Transform,
    /// The rows before it.
    pub input: Relation,
    /// The `Schema` message of the rows after it.
    pub(crate) output: Vec<u8>,
    /// Notes for `plan`, without secrets.
    pub notes: Vec<String>,
}

impl Step {
    /// The names and types of the columns before it.
    pub fn columns_before(&self) -> Vec<(String, String)> {
        // The host has decoded this schema before.
        let schema = ipc::decode_schema(&self.input.schema).ok();
        let fields = schema.iter().flat_map(|schema| schema.fields().iter());
        fields
            .map(|field| (field.name().clone(), types::type_name(field)))
            .collect()
    }

    /// The notes that the operator of a run has to know.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &str> {
        let notes = self.notes.iter();
        notes.filter_map(|note| note.strip_prefix(WARNING_NOTE))
    }
}

/// Plans all transforms of a stream that falls under `entry`. Returns them with the rows after the last one.
pub(super) fn all(
    document: &Document,
    entry: usize,
    transforms: &mut [Transforming],
    relation: Relation,
) -> Result<(Vec<Step>, Relation), Failure> {
    let asked = &document.source.streams[entry].transforms;
    let mut relation = relation;
    let mut steps = Vec::new();
    for (transform, asked) in transforms.iter_mut().zip(asked) {
        let planned = transform.session(document)?.plan(&relation);
        if planned.is_err() {
            // It may have trapped. The next stream gets another session.
            transform.close();
        }
        let stage = &transform.stage;
        let planned = planned.map_err(|e| {
            let mut failure = Failure::from_runtime(e, document, &stage.key);
            if failure.location.is_none() {
                failure.locate(document, &stage.key);
            }
            failure.in_stream(&relation.stream)
        })?;
        let mut notes = planned.notes;
        shown::texts(document, &mut notes);
        let output = planned.output;
        steps.push(Step {
            stage: stage.clone(),
            asked: asked.clone(),
            input: relation,
            output: output.schema.clone(),
            notes,
        });
        relation = output;
    }
    Ok((steps, relation))
}
