//! Generated from `wit/rapidbyte.wit`. The types are the SDK's vocabulary; the functions are
//! wrapped by the modules beside this one.
#![allow(missing_docs, clippy::all, clippy::unwrap_used, unsafe_code)]

mod imports {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "imports",
        generate_unused_types: true,
    });
}

mod digest_world {
    wit_bindgen::generate!({
        path: "../../wit/digest",
        world: "imports",
    });
}

pub mod source_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "source-connector",
        pub_export_macro: true,
        export_macro_name: "export_source_world",
        default_bindings_module: "rapidbyte_sdk::bindings::source_world",
        with: {
            "rapidbyte:connector/types@0.2.0": crate::bindings::types,
            "rapidbyte:connector/connection@0.2.0": crate::bindings::connection,
            "rapidbyte:connector/files@0.2.0": crate::bindings::files,
            "rapidbyte:connector/log@0.2.0": crate::bindings::log,
            "rapidbyte:connector/phase@0.2.0": crate::bindings::phase,
        },
    });
}

pub mod destination_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "destination-connector",
        pub_export_macro: true,
        export_macro_name: "export_destination_world",
        default_bindings_module: "rapidbyte_sdk::bindings::destination_world",
        with: {
            "rapidbyte:connector/types@0.2.0": crate::bindings::types,
            "rapidbyte:connector/connection@0.2.0": crate::bindings::connection,
            "rapidbyte:connector/files@0.2.0": crate::bindings::files,
            "rapidbyte:connector/log@0.2.0": crate::bindings::log,
            "rapidbyte:connector/phase@0.2.0": crate::bindings::phase,
        },
    });
}

pub mod transform_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "transform-connector",
        pub_export_macro: true,
        export_macro_name: "export_transform_world",
        default_bindings_module: "rapidbyte_sdk::bindings::transform_world",
        with: {
            "rapidbyte:connector/types@0.2.0": crate::bindings::types,
            "rapidbyte:connector/connection@0.2.0": crate::bindings::connection,
            "rapidbyte:connector/files@0.2.0": crate::bindings::files,
            "rapidbyte:connector/log@0.2.0": crate::bindings::log,
            "rapidbyte:connector/phase@0.2.0": crate::bindings::phase,
        },
    });
}

pub use destination_world::exports::rapidbyte::connector::destination as exports_destination;
#[cfg(target_family = "wasm")]
pub use digest_world::rapidbyte::digest::digest;
pub use imports::rapidbyte::connector::{connection, files, log, phase, types};
pub use source_world::exports::rapidbyte::connector::source as exports_source;
pub use transform_world::exports::rapidbyte::connector::transform as exports_transform;
