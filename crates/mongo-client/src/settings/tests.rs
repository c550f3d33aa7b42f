#![allow(clippy::unwrap_used)]

use super::*;
use rapidbyte_sdk::{Error, ErrorKind};

fn url(url: &str) -> Settings {
    Settings::from_url(url).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

fn refused(text: &str) -> Error {
    Settings::from_url(text).expect_err(text)
}

#[test]
fn a_url_is_read_with_its_defaults() {
    let settings = url("mongodb://db.internal");
    assert_eq!(settings.to_string(), "db.internal:27017/");
    assert_eq!(settings.login, None);
    assert_eq!(settings.tls, Tls::Off);
    assert_eq!(settings.read_preference, ReadPreference::Primary);
    assert_eq!(settings.write_concern, WriteConcern::default());
    assert_eq!(settings.compressors, []);
    assert_eq!(settings.connect_timeout, CONNECT_TIMEOUT);
    assert_eq!(settings.app_name, "rapidbyte");
}

#[test]
fn every_part_of_a_url_is_read_and_decoded() {
    let settings = url(
        "mongodb://a%40b:p%2Fw%3A%25:@h1:1,[::1]:2,h3/my%20db?tls=true\
         &tlsCAFile=ca.pem&replicaSet=rs0&readPreference=secondaryPreferred&w=majority&journal=true\
         &wtimeoutMS=500&compressors=zstd,snappy&zlibCompressionLevel=9&appName=x%26y\
         &connectTimeoutMS=7000&socketTimeoutMS=0&authMechanism=SCRAM-SHA-1&authSource=users\
         &retryWrites=true&readConcernLevel=majority",
    );
    let login = settings.login.as_ref().unwrap();
    assert_eq!(login.user, "a@b");
    assert_eq!(login.password, "p/w:%:");
    assert_eq!(login.source, "users");
    assert_eq!(login.mechanism, Some(Mechanism::ScramSha1));
    assert_eq!(settings.database.as_deref(), Some("my db"));
    let hosts: Vec<String> = settings.hosts.iter().map(Host::to_string).collect();
    assert_eq!(hosts, ["h1:1", "[::1]:2", "h3:27017"]);
    assert_eq!(settings.tls, Tls::On);
    assert_eq!(settings.replica_set.as_deref(), Some("rs0"));
    assert_eq!(settings.read_preference, ReadPreference::SecondaryPreferred);
    assert_eq!(settings.read_concern.as_deref(), Some("majority"));
    let concern = WriteConcern {
        w: Some(W::Named("majority".into())),
        journal: Some(true),
        timeout_ms: Some(500),
    };
    assert_eq!(settings.write_concern, concern);
    assert_eq!(settings.compressors, [Compressor::Zstd, Compressor::Snappy]);
    assert_eq!(settings.zlib_level, 9);
    assert_eq!(settings.app_name, "x&y");
    assert_eq!(settings.connect_timeout, Duration::from_secs(7));
    assert!(settings.reply_timeout > Duration::from_secs(1_000_000));
}

#[test]
fn a_user_is_looked_for_where_the_url_says() {
    let source = |text: &str| url(text).login.unwrap().source;
    assert_eq!(source("mongodb://u:p@h"), "admin");
    assert_eq!(source("mongodb://u:p@h/d"), "d");
    assert_eq!(source("mongodb://u:p@h/d?authsource=s"), "s");
}

#[test]
fn the_password_is_never_shown() {
    let settings = url("mongodb://u:sesame@h/d");
    assert!(!format!("{settings:?} {settings}").contains("sesame"));
    for text in [
        "mongodb://u:sesame#x@h/d",
        "mongodb://u:sesame%zz@h/d",
        "mongodb://u:sesame@h:no/d",
        "mongodb://u:sesame%00@h/d",
        "mongodb://u:sesame/@h/d",
        "mongodb+srv://u:sesame@h/d",
        "postgres://u:sesame@h/d",
        "mongodb://u:sesame@h/d?password=other",
    ] {
        let error = refused(text);
        assert_eq!(error.code, "invalid_url", "{text}");
        assert_eq!(error.location.as_deref(), Some("config.url"));
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}

#[test]
fn an_option_that_is_not_known_is_refused_by_its_name() {
    let error = refused("mongodb://h/d?tlsCaFiles=x");
    assert!(matches!(error.kind, ErrorKind::Config));
    assert!(error.message.contains("`tlsCaFiles`"), "{error:?}");
    assert!(error.hint.unwrap().contains("`tlsCAFile`"));
    let error = refused("mongodb://h/d?maxPoolSize=5");
    assert!(error.message.contains("`maxPoolSize`"), "{error:?}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (text, says) in [
        ("mongodb+srv://cluster.example.com/d", "mongodb+srv"),
        ("mongodb://%2Ftmp%2Fmongodb.sock/d", "a Unix socket"),
        ("mongodb:///d", "a host is missing"),
        ("mongodb://a,,b/d", "a host is missing"),
        ("mongodb://u@h/d", "the password of u is missing"),
        ("mongodb://:p@h/d", "without a user"),
        ("mongodb://::1/d", "without brackets"),
        ("mongodb://[::1/d", "closing bracket"),
        ("mongodb://h:0/d", "not a number from 1"),
        ("mongodb://h/d?tls", "without `=`"),
        ("mongodb://h/d?tls=yes", "not a value of tls"),
        ("mongodb://h/d?tls=true&ssl=false", "different values"),
        ("mongodb://h/d?tlsCAFile=a.pem", "without tls=true"),
        ("mongodb://h/d?tls=true&TLS=false", "two values"),
        ("mongodb://h/d?w=0", "w=0"),
        ("mongodb://h/d?w=-1", "not a number of members"),
        ("mongodb://h/d?compressors=lz4", "`lz4`"),
        ("mongodb://h/d?zlibCompressionLevel=10", "`10`"),
        ("mongodb://h/d?connectTimeoutMS=soon", "`soon`"),
        ("mongodb://h/d?readPreference=any", "`any`"),
        (
            "mongodb://u:p@h/d?authMechanism=MONGODB-X509",
            "MONGODB-X509",
        ),
        ("mongodb://h/d?authMechanism=SCRAM-SHA-1", "without a user"),
        ("mongodb://a,b/d?directConnection=true", "several hosts"),
    ] {
        let error = refused(text);
        assert!(error.message.contains(says), "{text}: {error:?}");
    }
}

#[test]
fn a_detail_of_tls_that_is_off_needs_no_tls() {
    assert_eq!(url("mongodb://h/d?tlsInsecure=false").tls, Tls::Off);
}
