//! The exports of the component.

mod load;
mod session;
mod target;
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
            write_modes: script.write_modes,
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
