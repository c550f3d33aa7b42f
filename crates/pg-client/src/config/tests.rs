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
    let settings = url("postgres://ann@db.internal");
    assert_eq!(settings.to_string(), "ann@db.internal:5432/ann");
    assert_eq!(settings.sslmode, SslMode::Prefer);
    assert_eq!(settings.password, None);
    assert_eq!(settings.connect_timeout, CONNECT_TIMEOUT);
    assert_eq!(settings.application_name, "rapidbyte");
}

#[test]
fn every_part_of_a_url_is_read_and_decoded() {
    let settings = url(
        "postgresql://a%40b:p%2Fw%3A%25:@h1:1,[::1]:2,h3/my%20db?sslmode=verify-full\
         &application_name=x%26y&options=-c%20geqo%3Doff&connect_timeout=7\
         &channel_binding=require&target_session_attrs=prefer-standby",
    );
    assert_eq!(settings.user, "a@b");
    assert_eq!(settings.password.as_deref(), Some("p/w:%:"));
    assert_eq!(settings.database, "my db");
    let hosts: Vec<String> = settings.hosts.iter().map(Host::to_string).collect();
    assert_eq!(hosts, ["h1:1", "[::1]:2", "h3:5432"]);
    assert_eq!(settings.application_name, "x&y");
    assert_eq!(settings.options.as_deref(), Some("-c geqo=off"));
    assert_eq!(settings.connect_timeout, Duration::from_secs(7));
    assert_eq!(settings.sslmode, SslMode::VerifyFull);
    assert_eq!(settings.channel_binding, ChannelBinding::Require);
    assert_eq!(settings.target_session, TargetSession::PreferStandby);
}

#[test]
fn the_password_is_never_shown() {
    let settings = url("postgres://u:sesame@h/d");
    assert!(!format!("{settings:?} {settings}").contains("sesame"));
    for text in [
        "postgres://u:sesame#x@h/d",
        "postgres://u:sesame%zz@h/d",
        "postgres://u:sesame@h:no/d",
        "postgres://u:sesame%00@h/d",
        "postgres://u:sesame/@h/d",
        "mysql://u:sesame@h/d",
        "postgres://u:sesame@h/d?password=other",
    ] {
        let error = refused(text);
        assert_eq!(error.code, "invalid_url", "{text}");
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}

#[test]
fn an_unknown_parameter_gets_a_suggestion() {
    let error = refused("postgres://u@h/d?ssl_mode=require");
    assert!(matches!(error.kind, ErrorKind::Config));
    assert_eq!(error.location.as_deref(), Some("config.url"));
    assert_eq!(error.hint.as_deref(), Some("did you mean `sslmode`?"));
    let error = refused("postgres://u@h/d?sslmode=required");
    assert_eq!(error.hint.as_deref(), Some("did you mean `require`?"));
}

#[test]
fn sockets_and_missing_parts_are_refused() {
    for (text, says) in [
        ("postgres://u@%2Fvar%2Frun/d", "a Unix socket"),
        ("postgres:///d", "no user"),
        ("postgres://u@/d", "no host"),
        ("postgres://u@a,,b/d", "no host"),
        ("postgres://h/d", "no user"),
        ("postgres://u@::1/d", "without brackets"),
        ("postgres://u@[::1/d", "closing bracket"),
        ("postgres://u@h:0/d", "no port"),
        ("postgres://u@h/d?host=other", "`host` as a parameter"),
        ("postgres://u@h/d?sslcert=a.pem", "without `sslkey`"),
        ("postgres://u@h/d?connect_timeout=soon", "no number"),
    ] {
        let error = refused(text);
        assert!(error.message.contains(says), "{text}: {error:?}");
    }
}

#[test]
fn fields_say_the_same_as_a_url() {
    let fields = Fields {
        host: Some("h1,h2".into()),
        port: Some(6000),
        user: Some("u".into()),
        password: Some("p".into()),
        database: Some("d".into()),
        ..Fields::default()
    };
    let settings = Settings::from_fields(fields.clone()).unwrap();
    let same = url("postgres://u:p@h1:6000,h2:6000/d");
    assert_eq!(settings.location, "config.host");
    assert_eq!(
        settings,
        Settings {
            location: "config.host".into(),
            ..same
        }
    );
    let both = Settings::from_config(Some("postgres://x@h1,h2/d"), fields).unwrap_err();
    assert_eq!(both.code, "invalid_setting");
    assert!(
        !format!(
            "{:?}",
            Fields {
                password: Some("sesame".into()),
                ..Fields::default()
            }
        )
        .contains("sesame")
    );
}

#[test]
fn an_authority_that_is_named_is_checked() {
    let settings = url("postgres://u@h/d?sslrootcert=ca.pem");
    assert_eq!(settings.sslmode, SslMode::VerifyFull);
}
