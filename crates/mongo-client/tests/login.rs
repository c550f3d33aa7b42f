//! Logins on FerretDB, which has users and SCRAM-SHA-256. Skipped where the test kit has another server.
#![allow(clippy::unwrap_used)]

use rapidbyte_mongo_client::bson::Builder;
use rapidbyte_mongo_client::{Client, Settings, number_of};
use rapidbyte_sdk::{Error, ErrorKind, Result};
use rapidbyte_testkit::mongodb::{self, MongoDatabase, USER};
use rapidbyte_testkit::postgres::PASSWORD;

/// Connects, and sends a command that needs a login.
fn reach(url: &str, database: &MongoDatabase<'_>) -> Result<Client> {
    let mut client = Client::connect(&Settings::from_url(url)?)?;
    let mut command = Builder::new();
    command.string("find", "c");
    client.find(database.name(), command)?;
    Ok(client)
}

fn refused(url: &str, database: &MongoDatabase<'_>) -> Error {
    match reach(url, database) {
        Ok(_) => panic!("{url} is let in"),
        Err(error) => error,
    }
}

fn create_user(database: &MongoDatabase<'_>, name: &str, password: &str) {
    let mut client = reach(&database.url(), database).unwrap();
    let mut command = Builder::new();
    command
        .string("createUser", name)
        .string("pwd", password)
        .open_array("roles")
        .open_document("0")
        .string("role", "readWriteAnyDatabase")
        .string("db", "admin")
        .close()
        .open_document("1")
        .string("role", "clusterAdmin")
        .string("db", "admin")
        .close()
        .close();
    client.command("admin", command).unwrap();
}

#[test]
fn a_user_logs_in_with_the_password_in_any_spelling_that_is_the_same() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let database = server.database();
    for (user, password, given) in [
        ("plain", "pencil", "pencil"),
        ("a=b,c", "p@ss:w/rd %20", "p@ss:w/rd %20"),
        // SASLprep makes them one: a Roman numeral, a soft hyphen, a space of another width.
        ("roman", "\u{2168}", "IX"),
        ("hyphen", "I\u{ad}X", "IX"),
        ("wide", "a\u{3000}b", "a b"),
        ("long", &"ü".repeat(100), &"u\u{308}".repeat(100)),
    ] {
        create_user(&database, user, password);
        for options in ["", "?authMechanism=SCRAM-SHA-256", "?authSource=admin"] {
            let url = database.url_of(user, given) + options;
            let client = reach(&url, &database);
            let client = client.unwrap_or_else(|error| panic!("{user} {options}: {error:?}"));
            assert_eq!(client.hello().mechanisms, ["SCRAM-SHA-256"]);
        }
    }
}

#[test]
fn whoever_proves_nothing_is_refused() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let database = server.database();
    for (user, password) in [
        (USER, "wrong"),
        (USER, &PASSWORD.to_uppercase()),
        (USER, &format!("{PASSWORD} ")),
        ("nobody", PASSWORD),
        ("", PASSWORD),
    ] {
        let error = refused(&database.url_of(user, password), &database);
        if user.is_empty() {
            assert_eq!(error.code, "invalid_url");
            continue;
        }
        assert_eq!(error.code, "mongo_18", "{user}: {error:?}");
        assert!(matches!(error.kind, ErrorKind::Auth), "{error:?}");
        assert_eq!(number_of(&error), Some(18));
        assert!(
            error.hint.is_some() && error.location.is_some(),
            "{error:?}"
        );
        assert!(!format!("{error:?}").contains("c4nary"), "{error:?}");
    }
    let url = format!("mongodb://127.0.0.1:{}/d", server.port());
    let error = refused(&url, &database);
    assert_eq!(error.code, "mongo_13", "{error:?}");
    assert!(matches!(error.kind, ErrorKind::Auth), "{error:?}");
}

#[test]
fn a_mechanism_that_the_server_does_not_have_is_refused() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let database = server.database();
    let url = database.url() + "?authMechanism=SCRAM-SHA-1";
    let error = refused(&url, &database);
    assert_eq!(error.code, "mongo_334", "{error:?}");
    assert!(matches!(error.kind, ErrorKind::Auth), "{error:?}");
    assert!(error.message.contains("SCRAM-SHA-1"), "{error:?}");
}

/// FerretDB offers none, so nothing is compressed.
#[test]
fn a_server_without_compression_gets_messages_as_they_are() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let database = server.database();
    let url = database.url() + "?compressors=zstd,snappy,zlib";
    let client = reach(&url, &database).unwrap();
    assert_eq!(client.hello().compressors, []);
}
