//! Collections: what is there, and collections that are filled before they replace a target.

use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_document_store::{Naming as _, Tag};
use rapidbyte_mongo_client::{Client, Cursor, number_of};
use rapidbyte_sdk::prelude::*;

use crate::config::{STAGING, Settings};

/// NamespaceNotFound.
const MISSING: i32 = 26;
/// NamespaceExists.
const EXISTS: i32 = 48;
/// A staging collection gets these options of its target, too. The connector refuses other kinds of collections.
const KEPT_OPTIONS: [&str; 5] = [
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "storageEngine",
];

/// More than any server has.
const MAX_COLLECTIONS: usize = 1_000_000;

/// A collection that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collection {
    /// The document `options` of `listCollections`.
    options: Vec<u8>,
    /// `collection`, `view` or `timeseries`.
    kind: String,
}

impl Collection {
    fn of(listed: Document<'_>) -> Result<Self> {
        let options = match listed.get("options").map_err(Error::internal)? {
            Some(Value::Document(options)) => options.as_bytes().to_vec(),
            _ => Builder::new().finish().map_err(Error::internal)?,
        };
        let kind = match listed.get("type").map_err(Error::internal)? {
            Some(Value::String(kind)) => kind.to_owned(),
            _ => "collection".to_owned(),
        };
        Ok(Self { options, kind })
    }

    /// Errors: `target_refused` for a view and the like; for a capped collection unless rows are only added.
    pub fn ensure_writable(&self, namespace: &str, mode: WriteMode) -> Result<()> {
        let refused = |what: &str| {
            let text = format!("{namespace} is {what}");
            Err(Error::schema("target_refused", text)
                .hint("write to another collection, with `collection:` or `target:`"))
        };
        match self.kind.as_str() {
            "collection" => {}
            "view" => return refused("a view"),
            kind => return refused(&format!("a collection of the kind {kind}")),
        }
        let options = Document::parse(&self.options).map_err(Error::internal)?;
        let capped = options.get("capped").map_err(Error::internal)?;
        let is_capped = capped.is_some_and(|capped| capped.is_true());
        match mode {
            WriteMode::Append => Ok(()),
            _ if is_capped => refused("a capped collection, from which nothing can be deleted"),
            _ => Ok(()),
        }
    }
}

/// The collection with this name. `None` if it does not exist.
pub(crate) fn look(
    client: &mut Client,
    settings: &Settings,
    name: &str,
) -> Result<Option<Collection>> {
    let mut found = None;
    let cursor = client.find(&settings.database, list())?;
    each(client, cursor, |document, listed| {
        if listed == name {
            found = Some(Collection::of(document)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Lists the collections of a database. All of them: some servers ignore a filter.
pub(crate) fn list() -> Builder {
    let mut command = Builder::new();
    command.int32("listCollections", 1);
    command
}

/// Calls `take` with each collection of a list and its name.
fn each(
    client: &mut Client,
    mut cursor: Cursor,
    mut take: impl FnMut(Document<'_>, &str) -> Result<()>,
) -> Result<()> {
    let mut count = 0;
    while let Some(batch) = cursor.next(client, 0)? {
        for document in batch.documents()? {
            let document = document?;
            count += 1;
            if count > MAX_COLLECTIONS {
                let text = format!("the database has more than {MAX_COLLECTIONS} collections");
                return Err(Error::config("mongo_too_many_collections", text)
                    .hint("write to another database, with `database:`"));
            }
            if let Some(Value::String(name)) = document.get("name").map_err(Error::internal)? {
                take(document, name)?;
            }
        }
    }
    Ok(())
}

/// The collection that a run fills before it replaces a target.
pub(crate) fn staging_name(tag: Tag, epoch: u32) -> String {
    format!("{}{epoch:08x}", staging_prefix(tag))
}

fn staging_prefix(tag: Tag) -> String {
    // Without dots: FerretDB does not rename a collection if its name has one.
    format!("{STAGING}_{tag}_")
}

/// Drops the collections that earlier runs of a stream were filling, out of a list that the server has made after the
/// fence. A run that is fenced then cannot put its own in the place of the target. Returns the target, which is in the same
/// list: `None` if it does not exist.
pub(crate) fn drop_staging(
    client: &mut Client,
    settings: &Settings,
    listed: Cursor,
    (tag, target): (Tag, &str),
) -> Result<Option<Collection>> {
    let prefix = staging_prefix(tag);
    let (mut names, mut found) = (Vec::new(), None);
    each(client, listed, |document, name| {
        if name.starts_with(&prefix) {
            names.push(name.to_owned());
        } else if name == target {
            found = Some(Collection::of(document)?);
        }
        Ok(())
    })?;
    for name in &names {
        drop(client, settings, name)?;
    }
    Ok(found)
}

pub(crate) fn drop(client: &mut Client, settings: &Settings, name: &str) -> Result<()> {
    let mut command = Builder::new();
    command.string("drop", name);
    settings.add_write_concern(&mut command);
    match client.command(&settings.database, command) {
        // It is gone already; MongoDB before 7.0 says so.
        Err(error) if is_missing(&error) => Ok(()),
        done => done.map(|_| ()),
    }
}

fn is_missing(error: &Error) -> bool {
    // Some servers give no number.
    number_of(error) == Some(MISSING) || error.message.contains("ns not found")
}

/// Makes an empty collection with the options and the indexes of the target, if that is there.
pub(crate) fn make_staging(
    client: &mut Client,
    settings: &Settings,
    name: &str,
    (target, found): (&str, Option<&Collection>),
) -> Result<()> {
    let mut command = Builder::new();
    command.string("create", name);
    if let Some(found) = found {
        let options = Document::parse(&found.options).map_err(Error::internal)?;
        for element in options.elements() {
            let (option, value) = element.map_err(Error::internal)?;
            if KEPT_OPTIONS.contains(&option) {
                command.value(option, &value);
            }
        }
    }
    settings.add_write_concern(&mut command);
    client.command(&settings.database, command)?;
    if found.is_none() {
        return Ok(());
    }
    let mut list = Builder::new();
    list.string("listIndexes", target);
    let mut cursor = match client.find(&settings.database, list) {
        Err(error) if is_missing(&error) => return Ok(()),
        cursor => cursor?,
    };
    let mut create = Builder::new();
    create.string("createIndexes", name).open_array("indexes");
    let mut indexes = 0;
    while let Some(batch) = cursor.next(client, 0)? {
        for index in batch.documents()? {
            let index = index?;
            if index.get("name").map_err(Error::internal)? == Some(Value::String("_id_")) {
                continue;
            }
            create.open_document(&indexes.to_string());
            for element in index.elements() {
                let (option, value) = element.map_err(Error::internal)?;
                // The collection of the index, which older servers name.
                if option != "ns" {
                    create.value(option, &value);
                }
            }
            create.close();
            indexes += 1;
        }
    }
    create.close();
    settings.add_write_concern(&mut create);
    if indexes > 0 {
        client.command(&settings.database, create)?;
    }
    Ok(())
}

/// Gives the collection `name` the name `target`, and drops the collection that has it if it `replaces` one. False: it
/// does not exist, because a newer run dropped it. Errors: `target_appeared`.
pub(crate) fn publish(
    client: &mut Client,
    settings: &Settings,
    name: &str,
    target: &str,
    replaces: bool,
) -> Result<bool> {
    let mut command = Builder::new();
    command
        .string("renameCollection", &settings.namespace(name))
        .string("to", &settings.namespace(target))
        .boolean("dropTarget", replaces);
    settings.add_write_concern(&mut command);
    match client.command("admin", command) {
        Ok(_) => Ok(true),
        Err(error) if number_of(&error).is_some() => match look(client, settings, name)? {
            None => Ok(false),
            Some(_) if number_of(&error) == Some(EXISTS) => {
                let namespace = settings.namespace(target);
                let text = format!("somebody made {namespace} during the run");
                Err(Error::new(ErrorKind::Transient, "target_appeared", text)
                    .hint("the run retries, and adds to the collection"))
            }
            Some(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}
