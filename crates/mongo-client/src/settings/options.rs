//! The options of a URL by their documented names. Names are not case-sensitive; values are.

use std::time::Duration;

use rapidbyte_sdk::{Error, Result};

use super::url::{LOCATION, Parts, bad};
use super::{
    CONNECT_TIMEOUT, Compressor, Login, Mechanism, ReadPreference, Settings, Tls, W, WriteConcern,
};
use crate::client::REPLY_TIMEOUT;

/// Every option that counts here.
const KNOWN: [&str; 23] = [
    "appName",
    "authMechanism",
    "authSource",
    "compressors",
    "connectTimeoutMS",
    "directConnection",
    "journal",
    "readConcernLevel",
    "readPreference",
    "replicaSet",
    // Both are about drivers that repeat one command. Here the engine retries the stream, whatever they say.
    "retryReads",
    "retryWrites",
    "socketTimeoutMS",
    "ssl",
    "tls",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsInsecure",
    "w",
    "wtimeoutMS",
    "zlibCompressionLevel",
];
/// They say how TLS is done, for the host; here only that TLS is meant.
const TLS_DETAILS: [&str; 5] = [
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsInsecure",
];
/// How like a known name an unknown one must be for a suggestion; 1 is equal.
const SIMILAR: f64 = 0.8;
/// The level at which zlib compresses by default, as a number.
const ZLIB_LEVEL: u32 = 6;

/// The settings that these parts of a URL mean.
pub(super) fn settings(parts: Parts) -> Result<Settings> {
    let options = Options::read(parts.options)?;
    let tls = tls(&options)?;
    let login = login(
        &options,
        parts.user,
        parts.password,
        parts.database.as_deref(),
    )?;
    let connect_timeout = options.number("connectTimeoutMS", i32::MAX)?;
    let reply_timeout = options.number("socketTimeoutMS", i32::MAX)?;
    let is_direct = options.boolean("directConnection")?.unwrap_or(false);
    if is_direct && parts.hosts.len() > 1 {
        return Err(bad("directConnection=true with several hosts").hint("name one host"));
    }
    for name in ["retryReads", "retryWrites"] {
        options.boolean(name)?;
    }
    let zlib_level = options.zlib_level()?;
    Ok(Settings {
        hosts: parts.hosts,
        login,
        database: parts.database,
        tls,
        connect_timeout: connect_timeout.map_or(CONNECT_TIMEOUT, timeout),
        reply_timeout: reply_timeout.map_or(REPLY_TIMEOUT, timeout),
        replica_set: options.text("replicaSet").map(str::to_owned),
        is_direct,
        read_preference: options
            .word("readPreference", &READ_PREFERENCES)?
            .unwrap_or(ReadPreference::Primary),
        read_concern: options.text("readConcernLevel").map(str::to_owned),
        write_concern: write_concern(&options)?,
        compressors: compressors(&options)?,
        zlib_level,
        app_name: options.text("appName").unwrap_or("rapidbyte").to_owned(),
        location: LOCATION.into(),
    })
}

const READ_PREFERENCES: [(&str, ReadPreference); 5] = [
    ("primary", ReadPreference::Primary),
    ("primaryPreferred", ReadPreference::PrimaryPreferred),
    ("secondary", ReadPreference::Secondary),
    ("secondaryPreferred", ReadPreference::SecondaryPreferred),
    ("nearest", ReadPreference::Nearest),
];
const MECHANISMS: [(&str, Mechanism); 2] = [
    ("SCRAM-SHA-256", Mechanism::ScramSha256),
    ("SCRAM-SHA-1", Mechanism::ScramSha1),
];

/// Zero is for ever, as in the drivers.
fn timeout(ms: i32) -> Duration {
    match u64::try_from(ms) {
        Ok(0) | Err(_) => Duration::from_secs(u64::from(u32::MAX / 1000)),
        Ok(ms) => Duration::from_millis(ms),
    }
}

fn tls(options: &Options) -> Result<Tls> {
    let (tls, ssl) = (options.boolean("tls")?, options.boolean("ssl")?);
    if let (Some(tls), Some(ssl)) = (tls, ssl)
        && tls != ssl
    {
        return Err(bad("`tls` and `ssl` have different values").hint("remove `ssl`"));
    }
    let is_on = tls.or(ssl).unwrap_or(false);
    let detail = TLS_DETAILS
        .iter()
        .find(|name| options.text(name).is_some_and(|value| value != "false"));
    match (is_on, detail) {
        (true, _) => Ok(Tls::On),
        (false, None) => Ok(Tls::Off),
        (false, Some(name)) => Err(bad(format!("`{name}` without tls=true")).hint("add tls=true")),
    }
}

fn login(
    options: &Options,
    user: Option<String>,
    password: Option<String>,
    database: Option<&str>,
) -> Result<Option<Login>> {
    let mechanism = options.word("authMechanism", &MECHANISMS)?;
    let Some(user) = user else {
        return match mechanism {
            None => Ok(None),
            Some(_) => Err(bad("`authMechanism` without a user").hint("add user:password@")),
        };
    };
    let Some(password) = password else {
        let error = Error::config("invalid_url", format!("the password of {user} is missing"));
        return Err(error
            .hint(
                "write user:password@, with the password as ${VARIABLE} rather than in plain text",
            )
            .at(LOCATION));
    };
    let source = options.text("authSource").or(database).unwrap_or("admin");
    Ok(Some(Login {
        source: source.to_owned(),
        user,
        password,
        mechanism,
    }))
}

fn write_concern(options: &Options) -> Result<WriteConcern> {
    let w = match options.text("w") {
        None => None,
        Some(text) => Some(match text.parse::<i32>() {
            Ok(members @ 1..) => W::Members(members),
            Ok(0) => {
                return Err(bad("w=0: the server would not say whether it has the rows")
                    .hint("write w=1 or w=majority"));
            }
            Ok(_) => return Err(bad(format!("w={text} is not a number of members"))),
            Err(_) => W::Named(text.to_owned()),
        }),
    };
    Ok(WriteConcern {
        w,
        journal: options.boolean("journal")?,
        timeout_ms: options.number("wtimeoutMS", i32::MAX)?,
    })
}

fn compressors(options: &Options) -> Result<Vec<Compressor>> {
    let text = options.text("compressors").unwrap_or_default();
    let mut compressors = Vec::new();
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let Some(compressor) = Compressor::parse(name) else {
            return Err(bad(format!("`{name}` is not a compressor"))
                .hint("use snappy, zlib or zstd, with commas between"));
        };
        if !compressors.contains(&compressor) {
            compressors.push(compressor);
        }
    }
    Ok(compressors)
}

/// The values that were given, by their documented names; an empty one counts as absent.
struct Options(Vec<(&'static str, String)>);

impl Options {
    fn read(given: Vec<(String, String)>) -> Result<Self> {
        let mut options: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in given {
            let Some(known) = KNOWN.iter().find(|known| known.eq_ignore_ascii_case(&name)) else {
                return Err(unknown(&name));
            };
            if value.is_empty() {
                continue;
            }
            match options.iter().find(|(earlier, _)| earlier == known) {
                Some((_, earlier)) if *earlier == value => {}
                Some(_) => return Err(bad(format!("`{known}` has two values")).hint("keep one")),
                None => options.push((known, value)),
            }
        }
        Ok(Self(options))
    }

    fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.text(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                Err(bad(format!("`{other}` is not a value of {name}")).hint("write true or false"))
            }
        }
    }

    fn number(&self, name: &str, most: i32) -> Result<Option<i32>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text
            .parse()
            .ok()
            .filter(|number| (0..=most).contains(number));
        number.map(Some).ok_or_else(|| {
            bad(format!("`{text}` is not a value of {name}"))
                .hint(format!("write a number from 0 to {most}"))
        })
    }

    fn zlib_level(&self) -> Result<u32> {
        // -1 is the default of the library, in the drivers.
        let level = match self.text("zlibCompressionLevel") {
            Some("-1") => None,
            _ => self.number("zlibCompressionLevel", 9)?,
        };
        Ok(level
            .and_then(|level| u32::try_from(level).ok())
            .unwrap_or(ZLIB_LEVEL))
    }

    /// One of a set of words.
    fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(bad(format!("`{text}` is not a supported {name}"))
            .hint(format!("use one of {}", all.join(", "))))
    }
}

fn unknown(name: &str) -> Error {
    let likeness =
        |known: &str| strsim::jaro_winkler(&name.to_ascii_lowercase(), &known.to_ascii_lowercase());
    let nearest = KNOWN
        .iter()
        .map(|known| (likeness(known), *known))
        .filter(|(likeness, _)| *likeness >= SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let hint = match nearest {
        Some((_, known)) => format!("did you mean `{known}`? If not, remove it"),
        None => format!("remove it; known are {}", KNOWN.join(", ")),
    };
    bad(format!("the option `{name}` is not supported")).hint(hint)
}
