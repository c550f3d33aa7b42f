//! The components that the build script put into the program.

use rapidbyte_runtime::Embedded;

// `EMBEDDED` and `PARTS`.
include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The bundled connectors; none where the code was built without them.
pub const CONNECTORS: &[Embedded] = EMBEDDED;

/// The components that go around connectors in scripting languages, by name.
pub const ADAPTERS: &[(&str, &[u8])] = PARTS;
