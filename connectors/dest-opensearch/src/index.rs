//! Indices: what is there, what a run makes, and how a filled index takes the place of another.

use std::collections::BTreeMap;

use rapidbyte_document_store::{Lease, RowId, epoch_prefix};
use rapidbyte_sdk::http::encode_component;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Call, Client, Verb};
use crate::config::Settings;
use crate::error;

/// Hexadecimal digits of the tag of a stream and an epoch, which name an index that is filled for `replace`.
const FILLED_DIGITS: usize = 24;

/// An index that exists.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its own name. The name of the stream's target is this one, or an alias of it.
    pub name: String,
    /// The target is an alias.
    pub is_alias: bool,
    /// Another one if somebody deletes the index and makes it again.
    pub uuid: String,
    /// As `GET /index` has them.
    pub mappings: Value,
    /// Its settings, below `index`.
    settings: Value,
}

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    aliases: Map<String, Value>,
    #[serde(default)]
    mappings: Value,
    settings: StoredSettings,
}

#[derive(Deserialize)]
struct StoredSettings {
    index: Value,
}

impl Found {
    /// A limit of the mapping, such as `total_fields`.
    pub fn limit(&self, name: &str, default: usize) -> usize {
        let limit = &self.settings["mapping"][name]["limit"];
        let text = limit.as_str().and_then(|text| text.parse().ok());
        text.unwrap_or(default)
    }

    /// Rapidbyte has made it for a `replace` of this target, which the next one may delete.
    pub fn is_filled(&self, target: &str) -> bool {
        self.is_alias && filled_mark(&self.name, target).is_some()
    }

    /// Whether Rapidbyte has made it for this purpose.
    pub fn is_for(&self, purpose: &str) -> bool {
        self.mappings["_meta"]["rapidbyte"] == purpose
    }
}

/// The digits of the tag and the epoch, if `index` is one that was filled to become `target`.
fn filled_mark<'a>(index: &'a str, target: &str) -> Option<&'a str> {
    let mark = index.strip_prefix(target)?.strip_prefix('-')?;
    let is_mark = mark.len() == FILLED_DIGITS
        && mark
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_mark.then_some(mark)
}

/// The name of the index that a run fills to become `target`.
pub(crate) fn filled_name(target: &str, lease: &Lease) -> String {
    let checkpoint = &lease.checkpoint;
    format!(
        "{target}-{}",
        epoch_prefix(checkpoint.tag, checkpoint.epoch)
    )
}

/// The path of an index.
pub(crate) fn path_of(index: &str) -> String {
    encode_component(index)
}

/// The index with this name, or behind this alias. Errors: `alias_refused`.
pub(crate) fn look(client: &Client, name: &str) -> Result<Option<Found>> {
    let _phase = phase::enter(Kind::Query);
    let call = Call::new(
        Verb::Get,
        path_of(name),
        format!("look for the index {name}"),
    );
    let answer = client.ask(&call)?;
    if answer.status == 404 {
        return Ok(None);
    }
    let stored: BTreeMap<String, Stored> = answer.read()?;
    let mut stored = stored.into_iter();
    let (Some((own, index)), None) = (stored.next(), stored.next()) else {
        let text = format!("{name} is an alias of several indices, or of none");
        return Err(Error::schema("alias_refused", text)
            .hint("name an index, or an alias of one index, with `index:`, or with `target:` of the stream"));
    };
    let is_alias = own != name;
    if is_alias && !index.aliases.contains_key(name) {
        let text = format!(
            "{name} is a data stream, and its rows cannot be replaced or deleted by their _id"
        );
        return Err(Error::schema("alias_refused", text)
            .hint("name an index with `index:`, or with `target:` of the stream"));
    }
    let uuid = index.settings.index["uuid"].as_str();
    let uuid = uuid.ok_or_else(|| error::violation("an index without a uuid"))?;
    Ok(Some(Found {
        is_alias,
        uuid: uuid.to_owned(),
        mappings: index.mappings,
        settings: index.settings.index,
        name: own,
    }))
}

/// Makes an index, unless somebody else has just made it. `hidden`: wildcards do not find it.
pub(crate) fn create(
    client: &Client,
    settings: &Settings,
    (name, mappings): (&str, Value),
    is_hidden: bool,
) -> Result<Found> {
    {
        let _phase = phase::enter(Kind::Query);
        let mut index = Map::new();
        if is_hidden {
            index.insert("hidden".into(), true.into());
            index.insert("number_of_shards".into(), 1.into());
            index.insert("auto_expand_replicas".into(), "0-1".into());
        } else {
            let numbers = [
                ("number_of_shards", settings.shards),
                ("number_of_replicas", settings.replicas),
            ];
            for (key, number) in numbers {
                index.extend(number.map(|number| (key.to_owned(), number.into())));
            }
        }
        let body = json!({ "settings": { "index": index }, "mappings": mappings });
        let call = Call::new(Verb::Put, path_of(name), format!("create the index {name}"));
        let answer = client.ask(&call.json(&body))?;
        let is_there =
            answer.status == 400 && answer.said().ty == "resource_already_exists_exception";
        if !is_there {
            answer.read::<Value>()?;
        }
    }
    look(client, name)?.ok_or_else(|| {
        let text = format!("the index {name} is gone: somebody deleted it");
        Error::new(ErrorKind::Transient, "index_changed", text).hint("run again")
    })
}

/// Adds fields to an index.
pub(crate) fn add_fields(
    client: &Client,
    name: &str,
    properties: &Map<String, Value>,
) -> Result<()> {
    if properties.is_empty() {
        return Ok(());
    }
    let _phase = phase::enter(Kind::Query);
    let path = format!("{}/_mapping", path_of(name));
    let call = Call::new(Verb::Put, path, format!("add fields to the index {name}"));
    let answer = client.ask(&call.json(&json!({ "properties": properties })))?;
    answer.read::<Value>().map(drop)
}

/// Deletes an index, if it is there.
pub(crate) fn delete(client: &Client, name: &str) -> Result<()> {
    let _phase = phase::enter(Kind::Query);
    let call = Call::new(
        Verb::Delete,
        path_of(name),
        format!("delete the index {name}"),
    );
    let answer = client.ask(&call)?;
    match answer.status {
        404 => Ok(()),
        _ => answer.read::<Value>().map(drop),
    }
}

/// Makes all documents of an index visible to searches, if it is there.
pub(crate) fn refresh(client: &Client, name: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct Refreshed {
        #[serde(rename = "_shards")]
        shards: Shards,
    }
    #[derive(Deserialize)]
    struct Shards {
        failed: u64,
    }
    let _phase = phase::enter(Kind::Flush);
    let path = format!("{}/_refresh", path_of(name));
    let answer = client.ask(&Call::new(
        Verb::Post,
        path,
        format!("refresh the index {name}"),
    ))?;
    if answer.status == 404 {
        return Ok(());
    }
    let refreshed: Refreshed = answer.read()?;
    match refreshed.shards.failed {
        0 => Ok(()),
        failed => {
            let text = format!("refresh the index {name}: {failed} shards failed");
            Err(
                Error::new(ErrorKind::Transient, "opensearch_unavailable", text)
                    .hint("check the health of the cluster, and run again later"),
            )
        }
    }
}

/// Whether an index has no documents.
pub(crate) fn is_empty(client: &Client, name: &str) -> Result<bool> {
    #[derive(Deserialize)]
    struct Counted {
        count: u64,
    }
    refresh(client, name)?;
    let _phase = phase::enter(Kind::Query);
    let path = format!("{}/_count", path_of(name));
    let answer = client.ask(&Call::new(
        Verb::Get,
        path,
        format!("count the documents of {name}"),
    ))?;
    Ok(answer.read::<Counted>()?.count == 0)
}

/// Fails if the index is not the one that the run began to write to: then a part of its rows is lost. Errors:
/// `index_changed`.
pub(crate) fn ensure_same(client: &Client, name: &str, uuid: &str) -> Result<()> {
    match look(client, name)? {
        Some(found) if found.uuid == uuid => Ok(()),
        _ => {
            let text = format!("somebody deleted or replaced the index {name} during the run");
            Err(Error::schema("index_changed", text)
                .hint("run again; reset the stream's cursor first if older rows were deleted, too"))
        }
    }
}

/// Deletes the indices that older runs of the stream have filled to become `target`, and which did not: then these runs
/// have nothing to put there.
pub(crate) fn delete_filled(client: &Client, target: &str, lease: &Lease) -> Result<()> {
    let checkpoint = &lease.checkpoint;
    let (tag, own) = (
        checkpoint.tag.to_string(),
        epoch_prefix(checkpoint.tag, checkpoint.epoch),
    );
    let found: BTreeMap<String, Value> = {
        let _phase = phase::enter(Kind::Query);
        let path = format!("{}-{tag}*/_alias", path_of(target));
        let call = Call::new(Verb::Get, path, format!("look for indices of {target}"));
        let answer = client.ask(&call)?;
        match answer.status {
            404 => return Ok(()),
            _ => answer.read()?,
        }
    };
    for (name, index) in found {
        let is_older = filled_mark(&name, target)
            .is_some_and(|mark| mark.starts_with(&tag) && mark < own.as_str());
        if is_older && index["aliases"].get(target).is_none() {
            delete(client, &name)?;
        }
    }
    Ok(())
}

/// Makes `target` an alias of the index `filled`, in one step with the deletion of the index `older`. False: one of the two
/// indices is not there.
pub(crate) fn publish(
    client: &Client,
    target: &str,
    filled: &str,
    older: Option<&str>,
) -> Result<bool> {
    let _phase = phase::enter(Kind::Commit);
    let removed = older.map(|older| json!({ "remove_index": { "index": older } }));
    let added = json!({ "add": { "index": filled, "alias": target } });
    let actions: Vec<Value> = removed.into_iter().chain([added]).collect();
    let call = Call::new(Verb::Post, "_aliases", format!("replace {target}"));
    let answer = client.ask(&call.json(&json!({ "actions": actions })))?;
    if answer.status != 404 {
        return answer.read::<Value>().map(|_| true);
    }
    // The answer to an earlier attempt may have been lost.
    let found = look(client, target)?;
    Ok(found.is_some_and(|found| found.name == filled))
}

/// The documents of the ids from the first up to the second, by the field that has them.
pub(crate) fn range_of((begin, end): &(RowId, RowId)) -> Value {
    json!({ "range": { crate::layout::MARK: { "gte": begin.to_string(), "lt": end.to_string() } } })
}

#[cfg(test)]
mod tests {
    use super::filled_mark;

    #[test]
    fn only_indices_of_a_replace_are_taken_for_one() {
        let mark = "0123456789abcdef00000001";
        assert_eq!(filled_mark(&format!("t-{mark}"), "t"), Some(mark));
        for other in [
            "t".to_owned(),
            format!("t{mark}"),
            format!("t-{mark}0"),
            format!("u-{mark}"),
            "t-0123456789abcdef0000000g".to_owned(),
            "t-0123456789ABCDEF00000001".to_owned(),
        ] {
            assert_eq!(filled_mark(&other, "t"), None, "{other}");
        }
    }
}
