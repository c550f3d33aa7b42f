//! The collections and views of a database.

use rapidbyte_bson::{Builder, Value};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::{Settled, is_own};
use crate::error::malformed;
use crate::query::MAX_NAMED;

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
///
/// # Errors
/// `mongo_no_collections`: the server shows none to the user, or none of those that `collections:` names. A database
/// begins with its first collection, so the name of the database may be wrong.
pub(crate) fn list(client: &mut Client, settings: &Settled) -> Result<Vec<Collection>> {
    let mut command = Builder::new();
    command
        .int32("listCollections", 1)
        .boolean("nameOnly", true)
        .boolean("authorizedCollections", true);
    let mut cursor = client.find(&settings.database, command)?;
    let (mut found, mut others, mut seen) = (Vec::new(), Vec::new(), 0_usize);
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
            } else if others.len() < MAX_NAMED && !is_own(name) {
                others.push(name.to_owned());
            }
        }
        if found.len() > MAX_COLLECTIONS || seen > MAX_SEEN {
            let text = format!("the database has more than {MAX_COLLECTIONS} collections");
            return Err(Error::config("mongo_too_many_collections", text)
                .hint("name the collections to list under collections:"));
        }
    }
    if found.is_empty() {
        return Err(none(client, settings, &others));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Why there is no collection to read. `others`: collections that are not listed.
fn none(client: &mut Client, settings: &Settled, others: &[String]) -> Error {
    let database = &settings.database;
    if !others.is_empty() {
        let patterns = settings.collections.join(", ");
        let text =
            format!("no collection of the database {database} matches collections: {patterns}");
        return Error::config("mongo_no_collections", text)
            .hint(format!("the database has {}", others.join(", ")))
            .at("config.collections");
    }
    let text = format!(
        "the database {database} does not exist, or has no collection that the user may read"
    );
    // Without the right to list them, the hint has no names.
    let databases = databases(client, database).unwrap_or_default();
    let hint = match databases.is_empty() {
        true => {
            "check the name of the database, which is case-sensitive, and the roles of the user"
                .to_owned()
        }
        false => format!(
            "check the name of the database, which is case-sensitive, and the roles of the user; the server has {}",
            databases.join(", ")
        ),
    };
    Error::config("mongo_no_collections", text).hint(hint)
}

/// The first other databases that the user may see.
fn databases(client: &mut Client, database: &str) -> Result<Vec<String>> {
    let mut command = Builder::new();
    command.int32("listDatabases", 1).boolean("nameOnly", true);
    let reply = client.command("admin", command)?;
    let Some(Value::Array(found)) = reply.document()?.get("databases").map_err(malformed)? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for element in found.elements().take(MAX_NAMED) {
        if let Value::Document(one) = element.map_err(malformed)?.1
            && let Some(Value::String(name)) = one.get("name").map_err(malformed)?
            && name != database
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The collection of a stream.
///
/// # Errors
/// `unknown_stream` with the names that exist.
pub(crate) fn find(collections: &[Collection], name: &str) -> Result<Collection> {
    let found = collections.iter().find(|one| one.name == name);
    found.cloned().ok_or_else(|| {
        let names = collections.iter().map(|one| one.name.as_str());
        let names: Vec<_> = names.take(MAX_NAMED).collect();
        let text = format!("the collection {name} does not exist in the database");
        Error::config("unknown_stream", text)
            .hint(format!("use one of {}", names.join(", ")))
            .in_stream(name)
    })
}
