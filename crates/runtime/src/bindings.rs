//! Generated from `wit/rapidbyte.wit`. The types are the host's vocabulary.
#![allow(missing_docs, clippy::all, clippy::unwrap_used)]

pub mod source_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "source-connector",
        imports: { default: trappable },
        additional_derives: [Clone],
        with: {
            "rapidbyte:connector/connection.connection": crate::host::connection::Connection,
            "rapidbyte:connector/files.input": crate::host::files::Input,
            "rapidbyte:connector/files.output": crate::host::files::HeldOutput,
            "rapidbyte:connector/files.output-folder": crate::host::folder::HeldFolder,
        },
    });
}

pub mod destination_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "destination-connector",
        imports: { default: trappable },
        additional_derives: [Clone],
        with: {
            "rapidbyte:connector/types": crate::bindings::types,
            "rapidbyte:connector/connection": crate::bindings::connection,
            "rapidbyte:connector/files": crate::bindings::files,
            "rapidbyte:connector/log": crate::bindings::log,
            "rapidbyte:connector/phase": crate::bindings::phase,
        },
    });
}

pub mod transform_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "transform-connector",
        imports: { default: trappable },
        additional_derives: [Clone],
        with: {
            "rapidbyte:connector/types": crate::bindings::types,
            "rapidbyte:connector/connection": crate::bindings::connection,
            "rapidbyte:connector/files": crate::bindings::files,
            "rapidbyte:connector/log": crate::bindings::log,
            "rapidbyte:connector/phase": crate::bindings::phase,
        },
    });
}

pub mod digest_world {
    wasmtime::component::bindgen!({
        path: "../../wit/digest",
        world: "imports",
        imports: { default: trappable },
    });
}

pub use destination_world::exports::rapidbyte::connector::destination;
pub use digest_world::rapidbyte::digest::digest;
pub use source_world::exports::rapidbyte::connector::source;
pub use source_world::rapidbyte::connector::{connection, files, log, phase, types};
pub use transform_world::exports::rapidbyte::connector::transform;
