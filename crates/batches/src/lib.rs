//! Batches of a program: a source that reads what the program gives, a transform that calls it, and a destination that
//! gives it what arrives.
//!
//! ```text
//! Input    streams of record batches, from an iterator (once) or from a function that begins again (any number of reads)
//! Function calls a function that makes batches of batches
//! Output   calls a function with each batch that arrives, or sends the batches to another thread
//! ```
//!
//! Neither has memory of its own: a batch is taken when the run has room for it, and handed over before the next one is
//! taken. A destination of this crate cannot take back what it has handed over, so it is not transactional: only its
//! last call says that a stream is complete.

mod function;
mod input;
mod output;

pub use function::Function;
pub use input::{Batches, Input};
pub use output::{Output, Received, Taken};
pub use rapidbyte_runtime::{ConnectorError, ErrorKind};

use arrow_schema::Schema;
use rapidbyte_runtime::{NO_SETTINGS, Spec};
use rapidbyte_wire::types::type_name;

fn spec(name: &str, description: &str) -> Spec {
    Spec::plain(name, env!("CARGO_PKG_VERSION"), description, NO_SETTINGS)
}

/// The columns of a schema, for an error.
fn columns(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    let columns = fields.map(|field| {
        let may_be_null = if field.is_nullable() { "" } else { " not null" };
        format!("{} {}{may_be_null}", field.name(), type_name(field))
    });
    columns.collect::<Vec<_>>().join(", ")
}
