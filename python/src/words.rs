//! Words about a pipeline and the same about the arguments of a call: in messages some phrases, in hints also each key.

/// Words about keys and the same about arguments, the longer ones first.
const WORDS: [(&str, &str); 44] = [
    (", or with `target:` of the stream", ""),
    (
        "write to another table (`target` of the stream, `table:`)",
        "give another table=",
    ),
    (
        "as primary_key: another row",
        "as key=, because another row",
    ),
    ("or schema: `table:`, `schema:`", "or schema with table="),
    (" by `rename:` of the stream", " in the rows"),
    (" with `rename:`", " in the rows"),
    (" in the pipeline file", ""),
    (
        " with --full-refresh or write_mode: replace",
        " with write_mode: replace",
    ),
    ("where: instead", "where= instead"),
    (" a value in the source, name other", " a value, name other"),
    ("it needs a value in the source", "it needs a value"),
    (
        "schema_changes.dropped_column is fail",
        "schema_changes= has \"dropped_column\": \"fail\"",
    ),
    (
        "schema_changes.new_column is fail",
        "schema_changes= has \"new_column\": \"fail\"",
    ),
    (
        "schema_changes.new_column is ignore",
        "schema_changes= has \"new_column\": \"ignore\"",
    ),
    (
        "schema_changes.type_change is fail",
        "schema_changes= has \"type_change\": \"fail\"",
    ),
    ("the stream has NULL", "the rows have NULL"),
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
        "use write_mode: upsert with them as primary_key to keep the last one",
        "use mode=\"upsert\" with them as key= to keep the last one",
    ),
    (
        "use one of these keys: version, pipeline, source, defaults, destination, ",
        "use one of these: ",
    ),
    ("two rows of the stream", "two rows"),
    ("the stream has a column", "the rows have a column"),
    ("`columns:` of the stream", "columns="),
    ("`columns:`", "columns="),
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
    ("write_mode: replace", "mode=\"replace\""),
    ("write_mode: upsert", "mode=\"upsert\""),
    ("write_mode: append", "mode=\"append\""),
    ("write_mode ", "mode "),
    ("the stream does not have", "the rows do not have"),
    ("no stream ", "no table "),
    (" matches collections: ", " has the name "),
    ("no column of the stream", "no column of the rows"),
    ("where: ", "where="),
    ("`where:`", "where="),
];

/// Places in a pipeline that only a read has.
const OF_READS: [&str; 3] = [" with `columns:`", " by `columns:`", " by `where`"];

/// Replaces words about a pipeline by words about a call. `is_write`: the call writes rows.
pub fn of_calls(text: String, is_write: bool) -> String {
    let of_reads = OF_READS.iter().filter(|_| is_write);
    let text = of_reads.fold(text, |text, words| text.replace(words, ""));
    WORDS.iter().fold(text, |text, (of_key, of_call)| {
        text.replace(of_key, of_call)
    })
}

/// Keys whose argument has another name. A list of one is written as its item.
const RENAMED: [(&str, &str); 2] = [("primary_key", "key"), ("write_mode", "mode")];
/// Keys that are words of every language, too. They count with a colon alone.
const WORDS_TOO: [(&str, &str); 10] = [
    ("columns", "columns"),
    ("where", "where"),
    ("query", "query"),
    ("rejects", "rejects"),
    ("deletes", "deletes"),
    ("target", "table"),
    ("table", "table"),
    ("collection", "table"),
    ("container", "table"),
    ("index", "table"),
];
/// Keys of the whole pipeline: arguments of the same name.
const OF_PIPELINES: [&str; 3] = ["schema_changes", "when_running", "on_stream_failure"];
/// Keys below one of these, which a call gives in its dict.
const PARTS: [(&str, &str); 13] = [
    ("resources", "memory"),
    ("resources", "batch_bytes"),
    ("resources", "max_record_bytes"),
    ("resources", "parallelism"),
    ("schema_changes", "new_column"),
    ("schema_changes", "dropped_column"),
    ("schema_changes", "type_change"),
    ("schema_changes", "backfill"),
    ("rejects", "max_rows"),
    ("rejects", "max_share"),
    ("deletes", "max_share"),
    ("retry", "max_attempts"),
    ("checkpoint", "every_rows"),
];
/// Keys of connectors, which `config=` takes.
const OF_CONNECTORS: [&str; 30] = [
    "application_name",
    "bulk_bytes",
    "bulk_rows",
    "checkpoint_collection",
    "checkpoint_container",
    "checkpoint_index",
    "checkpoint_schema",
    "column_formats",
    "commit_timeout",
    "copy_flush_bytes",
    "date_format",
    "false_values",
    "fetch_bytes",
    "insert_rows",
    "keep_domain",
    "load_method",
    "lock_timeout",
    "null_text",
    "open_files",
    "partition_by",
    "partition_key",
    "replace_method",
    "requests_in_flight",
    "row_group_bytes",
    "sample_bytes",
    "sample_documents",
    "sample_rows",
    "sub_millisecond",
    "system_fields",
    "trust_metadata",
];
/// Keys below others, which a call gives in a dict.
const OF_OTHERS: [&str; 8] = [
    "change_detection",
    "cursor_field",
    "dropped_column",
    "max_rows",
    "new_column",
    "sync_mode",
    "type_change",
    "unknown_keys",
];
/// Words that begin a sentence behind a key and a colon.
const NO_VALUES: [&str; 4] = ["it", "the", "another", "then"];
/// The ways to write.
const MODES: [&str; 3] = ["append", "replace", "upsert"];
/// Words behind a key in some hints that mean nothing for a call.
const OF_STREAM: &str = " of the stream";

/// The hint with arguments of a call instead of keys of a pipeline: `key="id"` instead of `primary_key: [id]`.
pub fn with_arguments(hint: &str) -> String {
    let mut made = String::with_capacity(hint.len());
    let mut rest = hint;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|c| !is_of_names(c)).unwrap_or(rest.len());
        let name = rest[..len].trim_end_matches('.');
        let is_quoted = made.ends_with('`');
        let Some((argument, taken)) = argument(name, &rest[name.len()..], is_quoted) else {
            // The name, or what is between two names.
            let (done, behind) = rest.split_at(len.max(first.len_utf8()));
            made.push_str(done);
            rest = behind;
            continue;
        };
        let mut behind = &rest[name.len() + taken..];
        if let Some(unquoted) = behind.strip_prefix('`').filter(|_| is_quoted) {
            made.pop();
            behind = unquoted;
        }
        made.push_str(&argument);
        rest = behind.strip_prefix(OF_STREAM).unwrap_or(behind);
    }
    made
}

/// Whether a character is part of a name, or keeps it from being a key: in quotes, in a path, or in an option of a URL.
fn is_of_names(c: char) -> bool {
    c.is_alphanumeric() || "_.\"'/$-=".contains(c)
}

/// The argument of a key that this text follows, and how much of the text it takes. `None`: the name is not a key.
fn argument(name: &str, behind: &str, is_quoted: bool) -> Option<(String, usize)> {
    let of = |names: &[(&str, &'static str)]| {
        let found = names.iter().find(|(key, _)| *key == name)?;
        Some(found.1)
    };
    let colon = behind.strip_prefix(':');
    let text = colon.and_then(|behind| behind.strip_prefix(' '));
    let value = text.and_then(value_of);
    let has_structure = text.is_some_and(|text| text.starts_with(['[', '{']));
    let given = |made: &dyn Fn(&str) -> String| {
        let (value, rest) = value.as_ref()?;
        Some((made(value), behind.len() - rest.len()))
    };
    if let Some(argument) = of(&RENAMED) {
        let is_mode = |(value, _): &(String, _)| MODES.contains(&value.trim_matches('"'));
        let single = |value: &str| {
            let item = value
                .strip_prefix('[')
                .and_then(|text| text.strip_suffix(']'));
            let item = item.filter(|item| !item.contains(','));
            format!("{argument}={}", item.unwrap_or(value))
        };
        return match has_structure || value.as_ref().is_some_and(is_mode) {
            true => given(&single),
            false => Some((format!("{argument}="), 0)),
        };
    }
    if let Some(argument) = of(&WORDS_TOO) {
        return match colon {
            Some(_) if has_structure => given(&|value| format!("{argument}={value}")),
            Some(_) if is_quoted => Some((format!("{argument}="), 1)),
            _ => None,
        };
    }
    if let Some((first, last)) = name.split_once('.').filter(|key| PARTS.contains(key)) {
        return given(&|value| format!("{first}={{\"{last}\": {value}}}"))
            .or_else(|| Some((format!("\"{last}\" of {first}="), 0)));
    }
    if OF_PIPELINES.contains(&name) {
        return given(&|value| format!("{name}={value}"));
    }
    if OF_CONNECTORS.contains(&name) {
        let whole = |value: &str| format!("config={{\"{name}\": {value}}}");
        return given(&whole).or_else(|| (is_quoted && colon.is_some()).then(|| (whole("…"), 1)));
    }
    match OF_OTHERS.contains(&name) {
        true => given(&|value| format!("\"{name}\": {value}")),
        false => None,
    }
}

/// The value of YAML that a text begins with, as one of Python, and the text behind it.
fn value_of(text: &str) -> Option<(String, &str)> {
    let end = match text.chars().next()? {
        '[' => text.find(']')? + 1,
        '{' => text.find('}')? + 1,
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || ",;)`".contains(c));
            text[..end.unwrap_or(text.len())]
                .trim_end_matches(['.', ':'])
                .len()
        }
    };
    let (value, rest) = text.split_at(end);
    let items = |inside: &str, one: &dyn Fn(&str) -> Option<String>| {
        let items: Option<Vec<_>> = inside.split(',').map(|item| one(item.trim())).collect();
        items.map(|items| items.join(", "))
    };
    let inside = |ends: [char; 2]| value.strip_prefix(ends[0])?.strip_suffix(ends[1]);
    let made = match (inside(['[', ']']), inside(['{', '}'])) {
        (Some(list), _) => format!("[{}]", items(list, &scalar)?),
        (_, Some(mapping)) => {
            let entry = |entry: &str| {
                let (key, value) = entry.split_once(": ")?;
                Some(format!("\"{key}\": {}", scalar(value)?))
            };
            format!("{{{}}}", items(mapping, &entry)?)
        }
        _ => scalar(value)?,
    };
    Some((made, rest))
}

/// One value. `None`: it is nothing that a hint gives as one.
fn scalar(text: &str) -> Option<String> {
    Some(match text {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        _ if text.is_empty() || NO_VALUES.contains(&text) => return None,
        _ if text.starts_with('"')
            || text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.') =>
        {
            text.to_owned()
        }
        _ => format!("\"{text}\""),
    })
}
