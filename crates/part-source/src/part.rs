//! The exports of the component.

mod reader;
mod session;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::pedantic)]
mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit", "../rows/wit"],
        world: "rapidbyte:script/source-part",
        generate_all,
        pub_export_macro: true,
    });
}

use bindings::exports::rapidbyte::connector::source as contract;
use bindings::rapidbyte::connector::types::{Error, SyncMode};
use bindings::rapidbyte::script::source as script;
use contract::Spec;

struct Part;

impl contract::Guest for Part {
    type Session = session::Session;
    type Reader = reader::Reader;

    fn describe() -> Spec {
        let script = script::describe();
        let sync_modes = match script.incremental {
            true => vec![SyncMode::FullRefresh, SyncMode::Incremental],
            false => vec![SyncMode::FullRefresh],
        };
        Spec {
            sync_modes,
            ..rapidbyte_rows::plain_spec!(
                Spec,
                script.name,
                script.version,
                script.description,
                script.config_schema
            )
        }
    }

    fn open(config: String) -> Result<contract::Session, Error> {
        let session = session::Session::new(script::open(&config)?);
        Ok(contract::Session::new(session))
    }
}

rapidbyte_rows::refused!(bindings::rapidbyte::connector::types);

#[allow(unsafe_code)]
const _: () = {
    bindings::export!(Part with_types_in bindings);
};
