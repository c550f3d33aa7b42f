//! One moment for several reads: the read concern `snapshot` of MongoDB 5.0 (manual, "Read Concern \"snapshot\"").

use rapidbyte_bson::{Builder, Value};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::error::malformed;

/// The first version of the protocol with such reads outside of transactions: MongoDB 5.0.
const SNAPSHOT_VERSION: i32 = 13;

/// A moment of the cluster, and a session to read in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moment {
    /// `None`: the server chooses it.
    time: Option<u64>,
    session: [u8; 16],
}

impl Moment {
    /// The moment of a name that [`take`] returned.
    pub fn parse(name: &str) -> Result<Self> {
        let time = name.parse::<u64>();
        let time = time.map_err(|_| Error::internal("a snapshot of another source"))?;
        Self::new(Some(time))
    }

    fn new(time: Option<u64>) -> Result<Self> {
        let mut session = [0; 16];
        getrandom::fill(&mut session).map_err(Error::internal)?;
        Ok(Self { time, session })
    }

    /// Adds session and moment to a command.
    pub fn append(&self, command: &mut Builder) {
        command.open_document("lsid");
        self.append_id(command);
        command.close();
        command
            .open_document("readConcern")
            .string("level", "snapshot");
        if let Some(time) = self.time {
            command.value("atClusterTime", &Value::Timestamp(time));
        }
        command.close();
    }

    /// The elements that each `getMore` of a read needs.
    pub fn more(&self) -> Result<Vec<u8>> {
        let mut more = Builder::new();
        more.open_document("lsid");
        self.append_id(&mut more);
        more.close();
        more.finish().map_err(malformed)
    }

    fn append_id(&self, command: &mut Builder) {
        let bytes = &self.session[..];
        command.value("id", &Value::Binary { subtype: 4, bytes });
    }
}

/// Takes a snapshot and returns its name. Errors: `mongo_no_snapshots`.
pub(crate) fn take(client: &mut Client, database: &str, collection: &str) -> Result<String> {
    let hello = client.hello();
    if !hello.has_transactions() || hello.max_wire_version < SNAPSHOT_VERSION {
        let text = "the server does not read as of one moment: it is not MongoDB 5.0 or later with a replica set or mongos";
        return Err(Error::config("mongo_no_snapshots", text)
            .hint("remove snapshot: true")
            .at("config.snapshot"));
    }
    let mut command = Builder::new();
    command.string("find", collection).int32("limit", 1);
    command.boolean("singleBatch", true);
    Moment::new(None)?.append(&mut command);
    let reply = client.command(database, command)?;
    let cursor = reply.document()?.get("cursor").map_err(malformed)?;
    if let Some(Value::Document(cursor)) = cursor
        && let Some(Value::Timestamp(time)) = cursor.get("atClusterTime").map_err(malformed)?
    {
        return Ok(time.to_string());
    }
    let text = "the server did not name the moment of its answer (atClusterTime)";
    Err(Error::config("mongo_no_snapshots", text).hint("remove snapshot: true"))
}
