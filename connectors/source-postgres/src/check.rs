//! Checks everything that a run needs, and changes nothing.

use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::ask;
use crate::config::Settled;
use crate::relation::{self, Relation};
use crate::session;

/// Relations that may not be read and are named; more only make the answer long.
const MAX_NAMED: usize = 20;

/// User, database, TLS (NULL without), whether in recovery: as text, four columns.
const ABOUT: &str = "\
SELECT current_user::text, pg_catalog.current_database()::text,
    (SELECT s.version || ', ' || s.cipher FROM pg_catalog.pg_stat_ssl s
     WHERE s.pid = pg_catalog.pg_backend_pid() AND s.ssl),
    pg_catalog.pg_is_in_recovery()";

/// One item for each check. A failed `connect` or `version` ends the list.
pub(crate) fn items(settings: &Settled) -> Vec<CheckItem> {
    let mut items = Vec::new();
    let mut client = match Client::connect(&settings.connection) {
        Ok(client) => client,
        Err(error) => return vec![CheckItem::failed("connect", error)],
    };
    let role = match about(&mut client, &mut items) {
        Ok(role) => role,
        Err(error) => return vec![CheckItem::failed("connect", error)],
    };
    if let Err(error) = session::check_version(&client) {
        items.push(CheckItem::failed("version", error));
        return items;
    }
    let version = client.parameter("server_version").unwrap_or_default();
    items.push(CheckItem::ok("version", version));
    if client.is_pgbouncer() {
        items.push(CheckItem::ok(
            "pooler",
            "a connection pooler is in between: it must give a server for at least a whole \
                 transaction (session or transaction pooling), one for each stream at the same \
                 time and one more, and must not end long transactions",
        ));
    }
    client.close();
    items.push(match snapshot(settings) {
        Ok(()) => CheckItem::ok("snapshot", "all streams can be read in one snapshot"),
        Err(error) => CheckItem::failed("snapshot", error),
    });
    items.push(match relations(settings) {
        Ok(relations) => readable(&relations, &role),
        Err(error) => CheckItem::failed("read", error),
    });
    items
}

/// Adds who and where we are; gives the role.
fn about(client: &mut Client, items: &mut Vec<CheckItem>) -> Result<String> {
    let rows = ask::query(client, ABOUT)?;
    let row = rows
        .rows
        .first()
        .ok_or_else(|| Error::internal("the server did not say which role is logged in"))?;
    let text = |column| -> Result<String> { Ok(row.text(column)?.unwrap_or_default().to_owned()) };
    let (role, database, tls) = (text(0)?, text(1)?, text(2)?);
    let tls = if tls.is_empty() {
        "without TLS".to_owned()
    } else {
        format!("with {tls}")
    };
    let version = client.parameter("server_version").unwrap_or("unknown");
    items.push(CheckItem::ok(
        "connect",
        format!(
            "PostgreSQL {version} at {} as {role}, database {database}, {tls}",
            client.host()
        ),
    ));
    if text(3)? == "t" {
        items.push(CheckItem::ok(
            "standby",
            "the server is a standby: it may cancel long reads that delay replay \
                 (hot_standby_feedback, max_standby_streaming_delay), and unlogged tables are not \
                 readable there",
        ));
    }
    Ok(role)
}

/// Takes a snapshot as a run does, and joins it.
fn snapshot(settings: &Settled) -> Result<()> {
    let mut client = session::connect(settings)?;
    let token = session::export(&mut client, settings, &[], &[])?.token;
    session::join(settings, &token)?.close();
    client.close();
    Ok(())
}

fn relations(settings: &Settled) -> Result<Vec<Relation>> {
    let mut client = session::connect(settings)?;
    let begin = session::beginning(&client, settings, None);
    let [relations] = client.query_all(&format!("{begin}; {}", relation::all()))?;
    let relations = relation::parse(&relations)?;
    client.close();
    Ok(relations)
}

fn readable(relations: &[Relation], role: &str) -> CheckItem {
    let unreadable: Vec<&Relation> = relations.iter().filter(|r| !r.is_readable()).collect();
    let (all, bad) = (relations.len(), unreadable.len());
    let named: Vec<String> = unreadable
        .iter()
        .take(MAX_NAMED)
        .map(|r| r.stream())
        .collect();
    let mut detail = format!("{} of {all} tables and views are readable", all - bad);
    if bad > 0 {
        let more = if bad > MAX_NAMED { ", …" } else { "" };
        detail += &format!("; not readable: {}{more}", named.join(", "));
    }
    if bad < all || all == 0 {
        return CheckItem::ok("read", detail);
    }
    let grants = format!(
        "grant USAGE on the schemas and SELECT on the tables to {role}, such as: GRANT USAGE ON \
         SCHEMA s TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA s TO {role}"
    );
    let error = Error::new(ErrorKind::Auth, "nothing_readable", detail).hint(grants);
    CheckItem::failed("read", error)
}
