//! The names of the types that a load makes: whoever describes a column chooses them.

use rapidbyte_pg::ident::quote_ident;
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};
use crate::look::{MissingType, swap::SWAP_PREFIX};

/// Refuses types that would take a name from the load itself: a table and a type of a schema cannot have one name.
pub(crate) fn refuse_reserved(
    settings: &Settings,
    tables: &[&Name],
    missing: &[MissingType],
) -> Result<()> {
    for ty in missing {
        let name = ty.name();
        let why = if name.schema == settings.checkpoint_schema {
            "that schema has the tables of Rapidbyte itself".to_owned()
        } else if name.table.starts_with(SWAP_PREFIX) {
            "tables that are swapped have such names".to_owned()
        } else if let Some(table) = tables.iter().find(|table| ***table == name) {
            format!("the load writes to a table {table}")
        } else {
            continue;
        };
        return Err(reserved(&name, &why).in_column(&ty.column));
    }
    Ok(())
}

/// A type with the name of a table that the load, or another stream, writes to.
pub(crate) fn reserved(name: &Name, why: &str) -> Error {
    let text = format!("the type {name} is missing, and Rapidbyte does not create it: {why}");
    Error::schema("reserved_type_name", text).hint(
        "if you trust the description of the column, write to another table (`target` of the stream, `table:`); otherwise \
         set trust_metadata: false in source-file (or remove it in ingest), which reads the column without the description",
    )
}

/// A table that cannot be made, because a type has its name.
pub(crate) fn in_the_way(name: &Name) -> Error {
    let text = format!("{name} cannot be created: a type of the target has that name");
    let other = quote_ident(&format!("{}_type", name.table));
    Error::schema("type_in_the_way", text).hint(format!(
        "run on the target: ALTER TYPE {name} RENAME TO {other}, or DROP TYPE {name} if no column needs it; or write to \
         another table (`target` of the stream, `table:`)"
    ))
}
