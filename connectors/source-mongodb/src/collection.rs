//! The collections and views of a database.

use rapidbyte_bson::{Builder, Value};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;
use crate::error::malformed;

/// More collections than this are not listed one by one by any person.
const MAX_COLLECTIONS: usize = 100_000;
/// More than any server has.
const MAX_SEEN: usize = 1_000_000;

/// A collection or a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collection {
    pub name: String,
    pub is_view: bool,
}

/// The listed collections, by name.
pub(crate) fn list(client: &mut Client, settings: &Settled) -> Result<Vec<Collection>> {
    let mut command = Builder::new();
    command
        .int32("listCollections", 1)
        .boolean("nameOnly", true)
        .boolean("authorizedCollections", true);
    let mut cursor = client.find(&settings.database, command)?;
    let (mut found, mut seen) = (Vec::new(), 0_usize);
    while let Some(batch) = cursor.next(client, 0)? {
        for document in batch.documents()? {
            let document = document?;
            seen += 1;
            let Some(Value::String(name)) = document.get("name").map_err(malformed)? else {
                continue;
            };
            let kind = document.get("type").map_err(malformed)?;
            let is_view = kind == Some(Value::String("view"));
            if settings.lists(name) {
                let name = name.to_owned();
                found.push(Collection { name, is_view });
            }
        }
        if found.len() > MAX_COLLECTIONS || seen > MAX_SEEN {
            let text = format!("the database has more than {MAX_COLLECTIONS} collections");
            return Err(Error::config("mongo_too_many_collections", text)
                .hint("name the collections to list under collections:"));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The collection of a stream.
///
/// # Errors
/// `unknown_stream` with the names that exist.
pub(crate) fn find(collections: &[Collection], name: &str) -> Result<Collection> {
    let found = collections.iter().find(|one| one.name == name);
    found.cloned().ok_or_else(|| {
        let names = collections.iter().map(|one| one.name.as_str());
        let names: Vec<_> = names.take(crate::query::MAX_NAMED).collect();
        let text = format!("the collection {name} does not exist in the database");
        let hint = match names.is_empty() {
            true => "check the database and the rights of the user".to_owned(),
            false => format!("use one of {}", names.join(", ")),
        };
        Error::config("unknown_stream", text)
            .hint(hint)
            .in_stream(name)
    })
}
