//! Rejects that are kept, as the host lists them: which are committed, and in what order.

use rapidbyte_bson::{BsonError, Builder, Document, Value};
use rapidbyte_document_store::{
    Naming as _, Page, Place, ReplayKey, Visible, origin_of, time_text,
};
use rapidbyte_sdk::prelude::*;

use crate::server::Server;

/// A document of a collection of rejects.
pub(crate) struct Kept {
    pub place: Place,
    pub version: String,
    pub kept: KeptReject,
}

impl Kept {
    /// Errors: `rejects_differ`.
    pub fn read(document: Document<'_>, to: &str) -> Result<Self> {
        let read = Self::try_read(document).ok().flatten();
        read.ok_or_else(|| {
            let text = format!("{to} has a document that is not a reject");
            Error::schema("rejects_differ", text)
                .hint("name another collection for rejects")
                .at("rejects.to")
        })
    }

    fn try_read(document: Document<'_>) -> Result<Option<Self>, BsonError> {
        let text = |name: &str| -> Result<Option<String>, BsonError> {
            Ok(match document.get(name)? {
                Some(Value::String(text)) => Some(text.to_owned()),
                _ => None,
            })
        };
        let binary = |name: &str| -> Result<Option<Vec<u8>>, BsonError> {
            Ok(match document.get(name)? {
                Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
                _ => None,
            })
        };
        let (Some(id), Some(first), Some(code)) = (binary("_id")?, binary("first")?, text("code")?)
        else {
            return Ok(None);
        };
        let place = Place { first, id };
        let data = match document.get("record")? {
            Some(Value::String(record)) => record.as_bytes().to_vec(),
            Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
            _ => Vec::new(),
        };
        let time = match document.get("rejected_at")? {
            Some(Value::DateTime(ms)) => time_text(ms),
            _ => String::new(),
        };
        let version = format!("{:016x}", hash(document.as_bytes()));
        Ok(Some(Self {
            kept: KeptReject {
                id: place.to_string(),
                version: version.clone(),
                stream: text("stream")?.unwrap_or_default(),
                run_id: text("run_id")?.unwrap_or_default(),
                time,
                origin: origin_of(text("origin")?.as_deref()),
                reject: Reject {
                    data,
                    is_cut: document
                        .get("record_is_cut")?
                        .is_some_and(|cut| cut.is_true()),
                    location: text("location")?,
                    column: text("column")?,
                    code,
                    message: text("message")?.unwrap_or_default(),
                    read_with: text("read_with")?,
                },
            },
            place,
            version,
        }))
    }
}

/// FNV-1a of 64 bits: a change of a reject is seen, and nobody gains by hiding one.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A page of the rejects of a pipeline behind the reject `after`, without records unless `with_data`.
pub(crate) fn page(
    server: &mut Server,
    (to, pipeline): (&str, &str),
    after: Option<&str>,
    with_data: bool,
) -> Result<Vec<KeptReject>> {
    server.settings.check_rejects(to)?;
    let after = after.map(Place::parse).transpose()?;
    let key = ReplayKey {
        pipeline: pipeline.to_owned(),
        to: to.to_owned(),
    };
    let visible = Visible::of(server, &key)?;
    let mut command = Builder::new();
    command
        .string("find", to)
        .open_document("filter")
        .string("pipeline", pipeline);
    if let Some(Place { first, id }) = &after {
        let binary = |bytes| Value::Binary { subtype: 0, bytes };
        command
            .open_array("$or")
            .open_document("0")
            .open_document("first")
            .value("$gt", &binary(first))
            .close()
            .close()
            .open_document("1")
            .binary("first", first)
            .open_document("_id")
            .value("$gt", &binary(id))
            .close()
            .close()
            .close();
    }
    command
        .close()
        .open_document("sort")
        .int32("first", 1)
        .int32("_id", 1)
        .close();
    let Server {
        client, settings, ..
    } = server;
    let mut cursor = client.find(&settings.database, command)?;
    let mut page = Page::default();
    while let Some(batch) = cursor.next(client, 0)? {
        for document in batch.documents()? {
            let Kept { place, kept, .. } = Kept::read(document?, to)?;
            if visible.has(&place.id) && page.push(kept, with_data) {
                cursor.close(client)?;
                return Ok(page.finish());
            }
        }
    }
    Ok(page.finish())
}
