//! The `find` command of a read.

use rapidbyte_bson::{Builder, Document};
use rapidbyte_mongo::extjson;
use rapidbyte_mongo::form::ID;
use rapidbyte_sdk::prelude::*;

use crate::error::malformed;
use crate::increment::Tracker;
use crate::snapshot::Moment;

/// Names in a hint.
pub(crate) const MAX_NAMED: usize = 20;
/// The first version of the protocol whose `find` sorts with files: MongoDB 4.4.
const DISK_VERSION: i32 = 9;

/// What a read asks for.
pub(crate) struct Query<'a> {
    pub collection: &'a str,
    /// A query document as Extended JSON.
    pub filter: Option<&'a str>,
    pub tracker: Option<&'a Tracker>,
    /// The fields to send. `None`: whole documents.
    pub fields: Option<Vec<&'a str>>,
    /// Documents of the first batch.
    pub documents: i32,
    pub read_concern: Option<&'a str>,
    pub moment: Option<&'a Moment>,
    /// The server's version of the protocol.
    pub wire_version: i32,
}

impl Query<'_> {
    /// Errors: `invalid_where`.
    pub fn command(&self) -> Result<Builder> {
        let mut command = Builder::new();
        command.string("find", self.collection);
        command.open_document("filter");
        self.conditions(&mut command)?;
        command.close();
        if let Some(fields) = &self.fields {
            command.open_document("projection");
            for field in fields {
                command.int32(field, 1);
            }
            // The server adds it otherwise.
            if !fields.contains(&ID) {
                command.int32(ID, 0);
            }
            command.close();
        }
        if let Some(tracker) = self.tracker {
            command.open_document("sort").int32(&tracker.field, 1);
            if tracker.field != ID {
                command.int32(ID, 1);
            }
            command.close();
            if self.wire_version >= DISK_VERSION {
                command.boolean("allowDiskUse", true);
            }
        }
        command.int32("batchSize", self.documents);
        match (self.moment, self.read_concern) {
            (Some(moment), _) => moment.append(&mut command),
            (None, Some(level)) => {
                command
                    .open_document("readConcern")
                    .string("level", level)
                    .close();
            }
            (None, None) => {}
        }
        Ok(command)
    }

    fn conditions(&self, command: &mut Builder) -> Result<()> {
        let filter = self.filter.map(parse_filter).transpose()?;
        let filter = filter
            .as_deref()
            .map(Document::parse)
            .transpose()
            .map_err(malformed)?;
        let Some(tracker) = self.tracker else {
            if let Some(filter) = filter {
                command.elements_of(filter);
            }
            return Ok(());
        };
        let mut both = Builder::new();
        both.open_array("$and");
        let mut count = 0;
        if let Some(filter) = filter {
            both.document("0", filter);
            count += 1;
        }
        count += usize::from(tracker.condition(&count.to_string(), &mut both)?);
        both.close();
        // The server refuses an empty list of conditions.
        if count > 0 {
            let both = both.finish().map_err(malformed)?;
            command.elements_of(Document::parse(&both).map_err(malformed)?);
        }
        Ok(())
    }
}

/// The query document that `where` of a stream is. Errors: `invalid_where`.
pub(crate) fn parse_filter(text: &str) -> Result<Vec<u8>> {
    let mut document = Vec::new();
    extjson::parse_document(text, &mut document).map_err(|problem| {
        Error::config("invalid_where", format!("`where` is not a query document: {problem}")).hint(
            "write JSON, such as '{\"age\": {\"$gte\": 18}, \"at\": {\"$gte\": {\"$date\": \"2026-01-01T00:00:00Z\"}}}'",
        )
    })?;
    Ok(document)
}

/// The fields that a read of these columns needs. `None`: whole documents.
pub(crate) fn fields<'a>(schema: &'a Schema, tracker: Option<&'a Tracker>) -> Option<Vec<&'a str>> {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let mut fields: Vec<&str> = names.collect();
    if let Some(tracker) = tracker {
        for name in [tracker.field.as_str(), ID] {
            if !fields.contains(&name) {
                fields.push(name);
            }
        }
    }
    if fields.is_empty() {
        fields.push(ID);
    }
    // A projection would take such a name for a path or an expression.
    let is_plain = |name: &&str| !name.is_empty() && !name.contains('.') && !name.starts_with('$');
    fields.iter().all(is_plain).then_some(fields)
}
