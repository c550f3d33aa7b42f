//! The exports of the component.

mod load;
mod session;
mod writer;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::pedantic)]
mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit", "../rows/wit"],
        world: "rapidbyte:script/destination-part",
        generate_all,
        pub_export_macro: true,
    });
}

use bindings::exports::rapidbyte::connector::destination as contract;
use bindings::rapidbyte::connector::types::Error;
use bindings::rapidbyte::script::destination as script;
use contract::Spec;

struct Part;

impl contract::Guest for Part {
    type Session = session::Session;
    type Load = load::Load;
    type Writer = writer::Writer;

    fn describe() -> Spec {
        let script = script::describe();
        Spec {
            name: script.name,
            version: script.version,
            description: script.description,
            config_schema: script.config_schema,
            sync_modes: Vec::new(),
            write_modes: script.write_modes,
            native_forms: Vec::new(),
            supports_filter: false,
            supports_queries: false,
            supports_checkpoints: false,
            deduplicates_appends: false,
            supports_rejects: false,
            reads_together: false,
            commits_together: false,
            repeatable_reads: false,
            compares_keys: false,
            names_targets: false,
            has_namespaces: false,
            digest_forms: Vec::new(),
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
