//! The first command on a connection: facts about the server (driver specification "MongoDB Handshake").

use rapidbyte_bson::{BsonError, Builder, Document, Value};
use rapidbyte_sdk::Result;

use crate::error::{malformed, protocol};
use crate::settings::{Compressor, Host, Settings};
use crate::wire::MAX_MESSAGE_BYTES;

/// Every version has allowed this since 1.8.
const MAX_BSON_BYTES: usize = 16 << 20;
/// Since 3.6, which is the oldest with OP_MSG.
const MAX_WRITES: usize = 100_000;
/// A server that takes less than this is not MongoDB, and no document would fit.
const LEAST_BYTES: usize = 64 << 10;
/// The largest length of an appName (MongoDB manual, "Connection Strings").
const MAX_APP_NAME_BYTES: usize = 128;

/// Facts about a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// It accepts writes: the primary of a replica set, a mongos, or a server of its own.
    pub is_writable: bool,
    /// It is a secondary of a replica set.
    pub is_secondary: bool,
    /// It is a mongos, the router of a sharded cluster.
    pub is_mongos: bool,
    /// The name of its replica set.
    pub set_name: Option<String>,
    /// The primary of its replica set, as the members name it: `host:port`.
    pub primary: Option<String>,
    /// The largest document, in bytes.
    pub max_bson_bytes: usize,
    /// The largest message, in bytes.
    pub max_message_bytes: usize,
    /// The largest number of documents in one write.
    pub max_writes: usize,
    /// The newest version of the protocol that it knows: 6 is MongoDB 3.6, 21 is 7.0.
    pub max_wire_version: i32,
    /// Sessions time out after this many minutes. `None`: it does not have sessions.
    pub session_minutes: Option<i64>,
    /// The mechanisms that the user of the login has, if the server was asked.
    pub mechanisms: Vec<String>,
    /// The compressors that both sides know, in the order in which the server names them.
    pub compressors: Vec<Compressor>,
}

impl Hello {
    /// True if the server has transactions and sessions that are honoured: a member of a replica set, or a mongos. Others
    /// may ignore `startTransaction` without an error.
    pub fn has_transactions(&self) -> bool {
        (self.set_name.is_some() || self.is_mongos) && self.session_minutes.is_some()
    }

    /// Limits above those of MongoDB are cut. Errors: `protocol_violation` for limits with which nothing can be written.
    pub(crate) fn read(document: Document<'_>) -> Result<Self> {
        let mut hello = Self::try_read(document).map_err(malformed)?;
        let limit = |name: &str, least: usize, most: usize| -> Result<usize> {
            let Some(said) = document.get(name).map_err(malformed)? else {
                return Ok(most);
            };
            let number = said.as_whole().and_then(|said| usize::try_from(said).ok());
            match number.filter(|number| *number >= least) {
                Some(number) => Ok(number.min(most)),
                None => {
                    let said = said.as_whole().map(|number| number.to_string());
                    let said = said.unwrap_or_else(|| "no number".to_owned());
                    Err(protocol(format!("{name} of the greeting is {said}")))
                }
            }
        };
        hello.max_bson_bytes = limit("maxBsonObjectSize", LEAST_BYTES, MAX_BSON_BYTES)?;
        hello.max_message_bytes = limit("maxMessageSizeBytes", LEAST_BYTES, MAX_MESSAGE_BYTES)?;
        hello.max_writes = limit("maxWriteBatchSize", 1, MAX_WRITES)?;
        Ok(hello)
    }

    fn try_read(document: Document<'_>) -> Result<Self, BsonError> {
        let is_true = |name: &str| -> Result<bool, BsonError> {
            Ok(document.get(name)?.is_some_and(|value| value.is_true()))
        };
        let text = |name: &str| -> Result<Option<String>, BsonError> {
            Ok(match document.get(name)? {
                Some(Value::String(text)) => Some(text.to_owned()),
                _ => None,
            })
        };
        let whole = |name: &str| -> Result<Option<i64>, BsonError> {
            Ok(document.get(name)?.and_then(|value| value.as_whole()))
        };
        let compressors = texts(document, "compression")?;
        Ok(Self {
            is_writable: is_true("isWritablePrimary")? || is_true("ismaster")?,
            is_secondary: is_true("secondary")?,
            is_mongos: text("msg")?.as_deref() == Some("isdbgrid"),
            set_name: text("setName")?,
            primary: text("primary")?,
            max_wire_version: whole("maxWireVersion")?
                .and_then(|version| i32::try_from(version).ok())
                .unwrap_or(0),
            session_minutes: whole("logicalSessionTimeoutMinutes")?,
            mechanisms: texts(document, "saslSupportedMechs")?,
            compressors: compressors
                .iter()
                .filter_map(|name| Compressor::parse(name))
                .collect(),
            ..Self::default()
        })
    }
}

fn texts(document: Document<'_>, name: &str) -> Result<Vec<String>, BsonError> {
    let mut texts = Vec::new();
    if let Some(Value::Array(found)) = document.get(name)? {
        for element in found.elements() {
            if let (_, Value::String(text)) = element? {
                texts.push(text.to_owned());
            }
        }
    }
    Ok(texts)
}

/// The command `hello`, or its older form under the name `isMaster`.
pub(crate) fn command(settings: &Settings, is_old: bool) -> Result<Builder> {
    let mut command = Builder::new();
    match is_old {
        true => command.int32("isMaster", 1).boolean("helloOk", true),
        false => command.int32("hello", 1),
    };
    command
        .open_document("client")
        .open_document("application")
        .string("name", app_name(&settings.app_name))
        .close()
        .open_document("driver")
        .string("name", "rapidbyte")
        .string("version", env!("CARGO_PKG_VERSION"))
        .close()
        .open_document("os")
        .string("type", std::env::consts::OS)
        .close()
        .close();
    command.open_array("compression");
    for (at, compressor) in settings.compressors.iter().enumerate() {
        command.string(&at.to_string(), compressor.name());
    }
    command.close();
    if let Some(login) = &settings.login
        && login.mechanism.is_none()
    {
        let user = format!("{}.{}", login.source, login.user);
        command.string("saslSupportedMechs", &user);
    }
    Ok(command)
}

fn app_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_APP_NAME_BYTES)]
}

/// True if a member of a replica set names this host as its primary.
pub(crate) fn is_named(primary: &str, host: &Host) -> bool {
    primary.eq_ignore_ascii_case(&host.to_string())
}
