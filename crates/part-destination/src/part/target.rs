//! A target as a script needs it.

use rapidbyte_rows::{Held, Refusal, columns};

use crate::part::contract::{Target, WriteMode};
use crate::part::script;
use crate::part::{Error, refused};

/// The target as a script needs it.
pub fn as_script(target: Target) -> Result<(Vec<Held>, script::Target), Error> {
    let (held, columns) =
        columns(&target.schema).map_err(|refusal| refused(refusal, &target.stream))?;
    if target.write_mode == WriteMode::Upsert {
        let text = "a destination in Python or JavaScript cannot change existing rows";
        let refusal = Refusal::config("write_mode_not_possible", text)
            .hint("set write_mode: append or replace, as the connector offers");
        return Err(refused(refusal, &target.stream));
    }
    let target = script::Target {
        stream: target.stream,
        columns,
        names: held.iter().map(|column| column.name.clone()).collect(),
        write_mode: target.write_mode,
        primary_key: target.primary_key,
    };
    Ok((held, target))
}
