//! A test as a person asks for it becomes a [`Trial`].

use std::path::Path;

use rapidbyte_engine::{Class, Environment, Failure, Host, Settings};
use rapidbyte_runtime::Kind;

use crate::trial::{Peer, Trial};

/// The connector to test, its settings and its peer. Names are bundled names, or paths to a `.wasm`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The connector under test.
    pub connector: &'a str,
    /// Its settings as YAML or JSON.
    pub config: Option<&'a str>,
    /// The file of its settings, if they are not in `config`.
    pub config_file: Option<&'a Path>,
    /// As of [`Trial::streams`].
    pub streams: &'a [String],
    /// The peer and its settings.
    pub peer: Option<(&'a str, &'a str)>,
    /// As of [`Peer::stream`].
    pub peer_stream: Option<&'a str>,
}

impl Trial {
    /// Loads the connector and its peer. Relative paths start at the working directory.
    ///
    /// # Errors
    /// `invalid_argument` for what the kind of the connector does not take, `invalid_world` for a peer that is not a
    /// source, and the errors of loading and of reading settings.
    pub fn of(
        asked: &Asked<'_>,
        environment: &Environment<'_>,
        host: Host,
    ) -> Result<Self, Failure> {
        let here = Path::new(".");
        let base_dir = std::path::absolute(here).map_err(|error| {
            let text = format!("cannot find the working directory: {error}");
            Failure::new(Class::Config, "file_unreadable", text)
        })?;
        let (_, connector) = host.load(asked.connector, here)?;
        let settings = match (asked.config, asked.config_file) {
            (Some(text), _) => Some(Settings::parse(text, "--config", &base_dir, environment)?),
            (None, Some(file)) => Some(Settings::load(file, &base_dir, environment)?),
            (None, None) => None,
        };
        asked.refuse_misplaced(connector.kind())?;
        let peer = match asked.peer {
            Some((name, text)) => {
                let mut peer = peer(name, text, &base_dir, environment, &host)?;
                peer.stream = asked.peer_stream.map(str::to_owned);
                Some(peer)
            }
            None => None,
        };
        Ok(Self {
            host,
            connector,
            settings,
            base_dir,
            streams: asked.streams.to_vec(),
            peer,
        })
    }

    /// A text without the values of the secrets in the settings of the connector and its peer.
    pub fn redact(&self, text: &str) -> String {
        let settings = self.settings.as_ref();
        let text = settings.map_or_else(|| text.to_owned(), |settings| settings.redact(text));
        match &self.peer {
            Some(peer) => peer.settings.redact(&text),
            None => text,
        }
    }
}

impl Asked<'_> {
    fn refuse_misplaced(&self, kind: Kind) -> Result<(), Failure> {
        let (text, hint) = match kind {
            Kind::Source if self.peer.is_some() => (
                "--peer is for transforms and destinations",
                "remove the flag",
            ),
            Kind::Destination if !self.streams.is_empty() => {
                ("--stream is for sources and transforms", "remove the flag")
            }
            Kind::Transform if self.peer_stream.is_some() => {
                ("--peer-stream is for destinations", "write --stream")
            }
            Kind::Transform if self.peer.is_none() && !self.streams.is_empty() => (
                "--stream names a stream of the peer of a transform",
                "add --peer and --peer-config, or remove the flag",
            ),
            Kind::Transform if self.streams.len() > 1 => (
                "a transform is tested with one stream",
                "write --stream once",
            ),
            _ => return Ok(()),
        };
        let text = format!("{text}; {} is a {}", self.connector, kind.name());
        Err(Failure::new(Class::Config, "invalid_argument", text).hint(hint))
    }
}

fn peer(
    name: &str,
    text: &str,
    base_dir: &Path,
    environment: &Environment<'_>,
    host: &Host,
) -> Result<Peer, Failure> {
    let (_, connector) = host.load(name, base_dir)?;
    let spec = host.describe_alone(&connector)?;
    if connector.kind() != Kind::Source {
        let text = format!("{name} is a {}", connector.kind().name());
        return Err(
            Failure::new(Class::Config, "invalid_world", text).hint("name a source in --peer")
        );
    }
    let settings = Settings::parse(text, "--peer-config", base_dir, environment)?;
    let schema = serde_json::from_str(&spec.config_schema)
        .map_err(|error| Failure::new(Class::Run, "contract_broken", error))?;
    settings.keep_secrets(&schema);
    Ok(Peer {
        connector,
        settings,
        schema,
        stream: None,
    })
}
