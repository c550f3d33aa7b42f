//! Failures of `write`, `sink` and `read`, whose pipeline the caller never saw: they name arguments instead of its keys.

use rapidbyte::Failure;

use crate::words;

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

/// The failure in words of the call. `is_write`: of `write` or `sink`, which have no columns to choose.
pub fn named(mut failure: Failure, is_write: bool) -> Failure {
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
    failure.message = words::of_calls(failure.message, is_write);
    failure.hint = failure
        .hint
        .map(|hint| words::with_arguments(&words::of_calls(hint, is_write)));
    let others = std::mem::take(&mut failure.streams.failures);
    failure.streams.failures = others
        .into_iter()
        .map(|other| named(other, is_write))
        .collect();
    failure
}

/// Whether a key is this one or a part of it.
fn is_below(key: &str, part: &str) -> bool {
    let rest = key.strip_prefix(part);
    let is_whole = part.ends_with('.');
    rest.is_some_and(|rest| is_whole || rest.is_empty() || rest.starts_with(['.', '[']))
}
