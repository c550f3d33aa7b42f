//! Failures of `write`, `sink` and `read`, whose pipeline the caller never saw: they name arguments instead of its keys.

use rapidbyte::Failure;

/// Keys of the pipeline and their arguments. A key below one of these is a part of it.
const KEYS: [(&str, &str); 20] = [
    ("source.streams[0].columns", "columns"),
    ("source.streams[0].where", "where"),
    ("source.streams[0].query", "query"),
    ("source.streams[0].primary_key", "key"),
    ("source.streams", "table"),
    ("source.config.url", "source"),
    ("source.config.path", "source"),
    ("source.config.collections", "table"),
    ("source.config.containers", "table"),
    ("source.config.", "config"),
    ("source.config", "source"),
    ("destination.write_mode", "mode"),
    ("destination.config.url", "to"),
    ("destination.config.path", "to"),
    ("destination.config.format", "to"),
    ("destination.config.collection", "table"),
    ("destination.config.container", "table"),
    ("destination.config.index", "table"),
    ("destination.config.", "config"),
    ("destination.config", "to"),
];

/// Words about keys and the same about arguments, the longer ones first.
const WORDS: [(&str, &str); 34] = [
    (
        "leave it out with columns:, choose another type at the source (schema:, if it has that key), or change the \
         destination",
        "leave it out, give its values another type, or change the table",
    ),
    (
        "declare another type for the column, leave such rows out by `where`, or convert the value in the source",
        "convert the value",
    ),
    (
        "set sub_millisecond: text to write finer times as strings, or sub_millisecond: cut to drop their digits",
        "config={\"sub_millisecond\": \"text\"} writes finer times as strings, and config={\"sub_millisecond\": \"cut\"} \
         drops their digits",
    ),
    (
        "name another with `collection:`, or with `target:` of the stream",
        "give another name",
    ),
    (
        "use write_mode: upsert with them as primary_key to keep the last one",
        "use mode=\"upsert\" with them as key= to keep the last one",
    ),
    (
        "use one of these keys: version, pipeline, source, defaults, destination, ",
        "use one of these: ",
    ),
    ("two rows of the stream", "two rows"),
    (
        "move it to destination",
        "use the arguments of the function, such as mode= and key=",
    ),
    (
        "write columns: [id, total], or remove the key to take all columns",
        "give columns=[\"id\", \"total\"], or leave it out",
    ),
    (
        "remove where:, or filter in the destination",
        "leave where= out, and filter the rows that are read",
    ),
    (
        "set format: csv, jsonl, parquet or arrow",
        "end the path with .csv, .jsonl, .parquet or .arrow",
    ),
    (
        "it is relative to the pipeline file",
        "it is relative to the working directory",
    ),
    (
        "which is relative to the pipeline file",
        "which is relative to the working directory",
    ),
    ("leave such rows out with `where:`", "leave such rows out"),
    (
        "let rejects keep such records",
        "keep such rows with rejects=",
    ),
    ("rename it in the pipeline", "rename it in the rows"),
    (
        "schema_changes: { type_change: widen }",
        "schema_changes={\"type_change\": \"widen\"}",
    ),
    (
        "schema_changes: { type_change: rewrite }",
        "schema_changes={\"type_change\": \"rewrite\"}",
    ),
    (
        "schema_changes: { new_column: fail }",
        "schema_changes={\"new_column\": \"fail\"}",
    ),
    ("schema_changes: frozen", "schema_changes=\"frozen\""),
    (
        "rejects: { max_rows: 100, to: rejects }",
        "rejects={\"max_rows\": 100, \"to\": \"rejects\"}",
    ),
    (
        "schema_changes.dropped_column is fail",
        "schema_changes= has \"dropped_column\": \"fail\"",
    ),
    (
        "set dropped_column: keep",
        "set \"dropped_column\": \"keep\"",
    ),
    ("write_mode: replace", "mode=\"replace\""),
    ("write_mode: upsert", "mode=\"upsert\""),
    ("write_mode: append", "mode=\"append\""),
    ("write_mode ", "mode "),
    ("the stream does not have", "the rows do not have"),
    ("no stream ", "no table "),
    (" matches collections: ", " has the name "),
    ("no column of the stream", "no column of the rows"),
    ("where: ", "where="),
    ("`columns:`", "columns="),
    ("`where:`", "where="),
];

/// The failure in words of the call.
pub fn named(mut failure: Failure) -> Failure {
    if let Some(key) = failure.key.take() {
        let argument = match KEYS.iter().find(|(part, _)| is_below(&key, part)) {
            Some((_, argument)) => {
                failure.message = failure.message.replace(&key, &format!("{argument}="));
                argument
            }
            // Further keys of the pipeline are arguments of the same name.
            None => key.split(['.', '[']).next().unwrap_or(&key),
        };
        failure.location = Some(format!("argument {argument}="));
        failure.key = Some(argument.to_owned());
    }
    failure.message = in_words_of_calls(failure.message);
    failure.hint = failure.hint.map(in_words_of_calls);
    let others = std::mem::take(&mut failure.streams.failures);
    failure.streams.failures = others.into_iter().map(named).collect();
    failure
}

/// Whether a key is this one or a part of it.
fn is_below(key: &str, part: &str) -> bool {
    let rest = key.strip_prefix(part);
    let is_whole = part.ends_with('.');
    rest.is_some_and(|rest| is_whole || rest.is_empty() || rest.starts_with(['.', '[']))
}

fn in_words_of_calls(text: String) -> String {
    WORDS.iter().fold(text, |text, (of_key, of_call)| {
        text.replace(of_key, of_call)
    })
}
