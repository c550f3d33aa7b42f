//! The exports of the component.

use std::cell::RefCell;
use std::collections::VecDeque;

use rapidbyte_rows::{Decoder, Encoded, Encoder, Piece, Refusal, Relation as Columns};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::pedantic)]
mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit", "../rows/wit"],
        world: "rapidbyte:script/transform-part",
        generate_all,
        pub_export_macro: true,
    });
}

use bindings::exports::rapidbyte::connector::transform as contract;
use bindings::rapidbyte::connector::phase::{self, Kind};
use bindings::rapidbyte::connector::types::{Batch, Error, Reject};
use bindings::rapidbyte::script::transform as script;
use contract::{GuestSession, GuestTransformer, Plan, Relation, Spec};

struct Part;

/// The script, opened with one configuration.
struct Session(script::Session);

/// Transforms one stream.
struct Transformer {
    stream: String,
    script: script::Transformer,
    state: RefCell<State>,
}

struct State {
    decoder: Decoder,
    encoder: Encoder,
    /// Of the batch of the last `put`.
    pieces: VecDeque<Piece>,
}

impl contract::Guest for Part {
    type Session = Session;
    type Transformer = Transformer;

    fn describe() -> Spec {
        let script = script::describe();
        rapidbyte_rows::plain_spec!(
            Spec,
            script.name,
            script.version,
            script.description,
            script.config_schema
        )
    }

    fn open(config: String) -> Result<contract::Session, Error> {
        Ok(contract::Session::new(Session(script::open(&config)?)))
    }
}

impl GuestSession for Session {
    fn plan(&self, input: Relation) -> Result<Plan, Error> {
        let stream = input.stream.clone();
        let (_, columns, plan) = self.planned(input)?;
        let encoder = Encoder::of(columns.schema()).map_err(|refusal| refused(refusal, &stream))?;
        Ok(Plan {
            output: Relation {
                stream,
                schema: encoder.schema_message().to_vec(),
                // Nobody knows whether the script leaves the values of a column as they are.
                source_types: vec![String::new(); encoder.names().len()],
                primary_key: plan.primary_key,
            },
            notes: plan.notes,
        })
    }

    /// The host does not ask for rejects: the connector does not support them.
    fn begin(&self, input: Relation, _: bool) -> Result<contract::Transformer, Error> {
        let (stream, schema) = (input.stream.clone(), input.schema.clone());
        let refused = |refusal| refused(refusal, &stream);
        let (asked, columns, _) = self.planned(input)?;
        let wide_texts = script::describe().wide_texts;
        let state = State {
            decoder: Decoder::new(&schema, wide_texts).map_err(refused)?,
            encoder: Encoder::of(columns.schema()).map_err(refused)?,
            pieces: VecDeque::new(),
        };
        let script = self.0.begin(&asked, &columns.names())?;
        Ok(contract::Transformer::new(Transformer {
            script,
            state: RefCell::new(state),
            stream,
        }))
    }
}

impl Session {
    /// The stream as the script has it, the columns behind the transform, and the plan of the script.
    fn planned(&self, input: Relation) -> Result<(script::Relation, Columns, script::Plan), Error> {
        let stream = input.stream.clone();
        let refused = |refusal| refused(refusal, &stream);
        let before = Columns::read(&input.schema).map_err(refused)?;
        let asked = script::Relation {
            stream: input.stream,
            columns: before.declared().map_err(refused)?,
            names: before.names(),
            primary_key: input.primary_key,
        };
        let plan = self.0.plan(&asked)?;
        let columns = before.with(&plan.columns).map_err(refused)?;
        if let Some(name) = plan.primary_key.iter().find(|name| !columns.has(name)) {
            let text = format!("the key of the plan has `{name}`, which is not a column of it");
            let hint = "`plan` returns columns and a key that consists of some of them";
            return Err(refused(
                Refusal::internal("unknown_column", text).hint(hint),
            ));
        }
        Ok((asked, columns, plan))
    }
}

impl GuestTransformer for Transformer {
    fn schema(&self) -> Vec<u8> {
        self.state.borrow().encoder.schema_message().to_vec()
    }

    fn put(&self, batch: Batch) -> Result<(), Error> {
        phase::enter(Kind::ArrowDecode);
        let state = &mut *self.state.borrow_mut();
        let pieces = state.decoder.pieces(batch.data, batch.rows);
        state.pieces = pieces
            .map_err(|refusal| refused(refusal, &self.stream))?
            .into();
        Ok(())
    }

    fn next(&self) -> Result<Option<Batch>, Error> {
        let state = &mut *self.state.borrow_mut();
        let refused = |refusal| refused(refusal, &self.stream);
        while let Some(piece) = state.pieces.pop_front() {
            phase::enter(Kind::ArrowDecode);
            let columns = state.decoder.columns(&piece).map_err(refused)?;
            phase::enter(Kind::Other);
            let rows = self.script.transform(piece.rows(), &columns)?;
            phase::enter(Kind::ArrowEncode);
            let encoder = &mut state.encoder;
            let encoded = match rows {
                script::Rows::Objects(lines) => encoder.rows(&lines),
                script::Rows::ObjectsText(lines) => encoder.rows(lines.as_bytes()),
                script::Rows::Columns(columns) => encoder.columns(&columns),
                script::Rows::ColumnsText(columns) => encoder.columns(&columns),
            };
            if let Some(Encoded { data, rows }) = encoded.map_err(refused)? {
                return Ok(Some(Batch { data, rows }));
            }
        }
        Ok(None)
    }

    fn rejects(&self) -> Vec<Reject> {
        Vec::new()
    }
}

rapidbyte_rows::refused!(bindings::rapidbyte::connector::types);

#[allow(unsafe_code)]
const _: () = {
    bindings::export!(Part with_types_in bindings);
};
