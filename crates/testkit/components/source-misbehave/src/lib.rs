//! A source that does one wrong thing, for tests of the host ([`How`] lists them).
//!
//! Its stream `rows` has one int64 column `n`, which counts. An incremental read resumes by `n`, and gives
//! a checkpoint after each batch. After `at_batch` good batches the configured thing happens. The source
//! logs `opened` when the host opens it, for tests to see. The SDK's checks would prevent some of the
//! wrong things, so this crate implements the contract's own traits.

pub mod config;
pub mod wrong;

use std::cell::{Cell, RefCell};

use rapidbyte_sdk::bindings::exports_source::{self as wit, Guest, GuestReader, GuestSession};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{Spec, ipc, log, source};

pub use crate::config::{Call, Config, How};

/// The connector, opened with one configuration.
pub struct Misbehave(Config);

/// One read.
pub struct Misbehaving {
    config: Config,
    given: Cell<u64>,
    acted: Cell<u64>,
    /// The number that it begins with, where it gives checkpoints.
    from: Option<u64>,
    /// The checkpoint that is due.
    due: RefCell<Option<String>>,
}

/// The component's exports.
pub struct Export;

impl Misbehaving {
    /// Begins to read.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            given: Cell::new(0),
            acted: Cell::new(0),
            from: None,
            due: RefCell::default(),
        }
    }

    /// Gives checkpoints, and begins behind `cursor`.
    fn incremental(mut self, cursor: Option<&str>) -> Self {
        let number = |text: &str| {
            text.strip_prefix("{\"n\":")?
                .strip_suffix('}')?
                .parse()
                .ok()
        };
        self.from = Some(cursor.and_then(number).unwrap_or(0));
        self
    }

    fn schema(&self) -> Vec<u8> {
        match self.config.how {
            How::GarbageSchema => b"this is no schema message".to_vec(),
            how => ipc::encode_schema(&wrong::schema(how)).unwrap_or_default(),
        }
    }

    /// The next good batch.
    fn good(&self) -> Result<wit::Batch> {
        let (given, rows) = (self.given.get(), self.config.batch_rows);
        self.given.set(given + 1);
        let first = self.from.unwrap_or(0) + given * u64::from(rows);
        if self.from.is_some() && self.config.how != How::CheckpointMissing {
            *self.due.borrow_mut() = Some(wrong::cursor(first + u64::from(rows)));
        }
        match self.config.how {
            How::BadOffsets => wrong::good_strings(rows),
            How::HugeValue => wrong::good_strings(1),
            How::WideDecimal => wrong::decimals(rows, 99_999),
            _ => wrong::good(first, rows),
        }
    }
}

impl GuestReader for Misbehaving {
    fn schemas(&self) -> Vec<Vec<u8>> {
        if let (Call::Schemas, How::Deed(deed)) = (self.config.at, self.config.how) {
            deed.act();
        }
        vec![self.schema()]
    }

    fn next(&self, _wait_ms: u32) -> Result<wit::Event> {
        if self.config.how == How::CheckpointFirst && self.acted.replace(1) == 0 {
            let cursor = wrong::cursor(self.from.unwrap_or(0));
            return Ok(wrong::checkpoint(cursor));
        }
        if let Some(cursor) = self.due.take() {
            return Ok(wrong::checkpoint(cursor));
        }
        if self.given.get() < self.config.at_batch {
            return self.good().map(wrong::rows_of);
        }
        let acted = self.acted.replace(self.acted.get() + 1);
        if self.config.at != Call::Next {
            return Ok(wit::Event::End);
        }
        match self.config.how {
            How::Idle | How::CheckpointFlood | How::EmptyBatches => wrong::act(&self.config),
            How::EndTwice if acted == 1 => self.good().map(wrong::rows_of),
            _ if acted == 0 => wrong::act(&self.config),
            _ => Ok(wit::Event::End),
        }
    }

    fn acknowledge(&self, _positions: Vec<wit::Position>) -> Result<()> {
        wrong::act_at(Call::Acknowledge, &self.config)
    }
}

impl GuestSession for Misbehave {
    fn check(&self) -> Result<Vec<CheckItem>> {
        wrong::act_at(Call::Check, &self.0)?;
        Ok(vec![match self.0.how {
            How::DiscoverError => CheckItem::failed("misbehave", self.0.kind.error()),
            how => CheckItem::ok("misbehave", format!("{how:?}")),
        }])
    }

    fn discover(&self, _forms: Vec<String>) -> Result<Vec<Stream>> {
        wrong::act_at(Call::Discover, &self.0)?;
        match self.0.how {
            How::DiscoverError => Err(self.0.kind.error()),
            how => {
                let mut stream = Stream::new("rows", &wrong::schema(how))?;
                stream.cursor_fields.push("n".into());
                Ok(vec![stream])
            }
        }
    }

    fn describe_query(&self, _: String, _: String, _: Vec<String>) -> Result<Stream> {
        Err(Error::internal("it has no queries"))
    }

    fn digest_limits(&self, _: Selection, _: Option<String>) -> Result<Vec<RowLimit>> {
        Err(Error::internal("it has no digests"))
    }

    fn digest(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: Option<Buckets>,
        _: u8,
    ) -> Result<Vec<Bucket>> {
        Err(Error::internal("it has no digests"))
    }

    fn digest_rows(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: ChosenRows,
        _: u32,
    ) -> Result<Vec<DigestedRow>> {
        Err(Error::internal("it has no digests"))
    }

    fn snapshot(&self, _streams: Vec<Selection>) -> Result<String> {
        wrong::act_at(Call::Snapshot, &self.0)?;
        Ok(String::new())
    }

    fn read(&self, requests: Vec<ReadRequest>) -> Result<wit::Reader> {
        wrong::act_at(Call::Read, &self.0)?;
        match self.0.how {
            How::ReadError => Err(self.0.kind.error()),
            _ => {
                let reader = Misbehaving::new(self.0.clone());
                Ok(wit::Reader::new(match requests.first() {
                    Some(request) if request.increment.is_some() => {
                        reader.incremental(request.cursor.as_deref())
                    }
                    _ => reader,
                }))
            }
        }
    }
}

impl Drop for Misbehave {
    fn drop(&mut self) {
        // Nobody hears of an error here.
        let _ = wrong::act_at(Call::Drop, &self.0);
    }
}

impl Guest for Export {
    type Session = Misbehave;
    type Reader = Misbehaving;

    fn describe() -> Spec {
        source::spec::<Misbehave>()
    }

    fn open(config: String) -> Result<wit::Session> {
        Ok(wit::Session::new(source::open::<Misbehave>(&config)?))
    }
}

/// Only for the SDK's reading of the configuration and its spec; the rest is never called.
impl Source for Misbehave {
    type Config = Config;
    type Reader = Never;
    const NAME: &str = "source-misbehave";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Does one wrong thing, for tests of the host";
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];

    fn open(config: Config) -> Result<Self> {
        if config.batch_rows == 0 {
            return Err(Error::config("no_rows", "a batch needs rows").at("config.batch_rows"));
        }
        log::debug("opened");
        wrong::act_at(Call::Open, &config)?;
        match config.how {
            How::OpenError => Err(config.kind.error()),
            _ => Ok(Self(config)),
        }
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        GuestSession::discover(self, forms.to_vec())
    }

    fn read(&mut self, _request: &ReadRequest) -> Result<Never> {
        Err(Error::internal("read through the contract's own traits"))
    }
}

/// A reader that does not exist.
pub enum Never {}

impl Reader for Never {
    fn schema(&self) -> SchemaRef {
        match *self {}
    }

    fn next(&mut self, _wait: std::time::Duration) -> Result<Event> {
        match *self {}
    }
}

// A native shared library cannot carry the contract's symbol names.
#[cfg(target_family = "wasm")]
rapidbyte_sdk::bindings::source_world::export_source_world!(
    Export with_types_in rapidbyte_sdk::bindings::source_world
);

#[cfg(test)]
mod tests {
    use super::*;
    use rapidbyte_wire::verify::Layout;

    fn config(how: &str) -> Config {
        let config = format!(r#"{{"how": "{how}", "at_batch": 2, "batch_rows": 10}}"#);
        source::open::<Misbehave>(&config).unwrap().0.clone()
    }

    /// A reader past its two good batches, which both are well.
    fn at_the_point(how: &str) -> Misbehaving {
        let reader = Misbehaving::new(config(how));
        for _ in 0..2 {
            let batch = batch(reader.next(0).unwrap());
            assert_eq!(problems(&reader, batch), (false, false), "{how}");
        }
        reader
    }

    fn batch(event: wit::Event) -> wit::Batch {
        match event {
            wit::Event::Batch((0, batch)) => batch,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the host's look at the header and the destination's decoding refuse a batch.
    fn problems(reader: &Misbehaving, batch: wit::Batch) -> (bool, bool) {
        let schema = reader.schema();
        let layout = Layout::of(&ipc::decode_schema(&schema).unwrap()).unwrap();
        let decoder = ipc::Decoder::new(&schema).unwrap();
        (
            layout.verify(&batch.data, batch.rows).is_err(),
            decoder.decode(batch.data).is_err(),
        )
    }

    #[test]
    fn each_lie_is_one() {
        for (how, found) in [
            ("lie_rows", (true, false)),
            ("garbage", (true, true)),
            ("truncated", (true, true)),
            ("bad_offsets", (false, true)),
        ] {
            let reader = at_the_point(how);
            let lie = batch(reader.next(0).unwrap());
            assert_eq!(problems(&reader, lie), found, "{how}");
            assert!(matches!(reader.next(0), Ok(wit::Event::End)), "{how}");
        }
        let reader = at_the_point("other_schema");
        let lie = batch(reader.next(0).unwrap());
        assert!(problems(&reader, lie).0);
        assert!(ipc::decode_schema(&Misbehaving::new(config("garbage_schema")).schema()).is_err());
    }

    #[test]
    fn ends_and_floods_come_in_their_order() {
        let reader = at_the_point("end_twice");
        assert!(matches!(reader.next(0), Ok(wit::Event::End)));
        assert!(matches!(reader.next(0), Ok(wit::Event::Batch(_))));
        assert!(matches!(reader.next(0), Ok(wit::Event::End)));
        let (idle, flood) = (at_the_point("idle"), at_the_point("checkpoint_flood"));
        for _ in 0..5 {
            assert!(matches!(idle.next(0), Ok(wit::Event::Idle)));
            assert!(matches!(flood.next(0), Ok(wit::Event::Checkpoint(_))));
        }
        assert!(matches!(
            at_the_point("nothing").next(0),
            Ok(wit::Event::End)
        ));
    }

    #[test]
    fn errors_come_from_the_asked_call() {
        assert_eq!(at_the_point("error").next(0).unwrap_err().code, "misbehave");
        let open = |config| source::open::<Misbehave>(config).map(drop).unwrap_err();
        let limited = open(r#"{"how": "open_error", "kind": "rate_limited"}"#);
        assert!(matches!(limited.kind, ErrorKind::RateLimited(Some(50))));
        assert_eq!(
            open(r#"{"how": "nothing", "batch_rows": 0}"#).code,
            "no_rows"
        );
        let session = Misbehave(config("discover_error"));
        assert!(GuestSession::discover(&session, Vec::new()).is_err());
        assert!(session.check().unwrap()[0].problem.is_some());
        let request = ReadRequest::of(&Stream::new("rows", &Schema::empty()).unwrap());
        let session = Misbehave(config("read_error"));
        assert!(GuestSession::read(&session, vec![request]).is_err());
        let missing = at_the_point("forbidden_file").next(0).unwrap_err();
        assert_eq!(missing.location.as_deref(), Some("config.ungranted_path"));
    }

    #[test]
    fn outside_a_sandbox_the_surroundings_are_found() {
        let error = at_the_point("env").next(0).unwrap_err();
        assert_eq!(error.code, "was_allowed");
    }

    #[test]
    #[should_panic = "misbehave: a panic on purpose"]
    fn panics() {
        let _ = at_the_point("panic").next(0);
    }

    #[test]
    fn only_the_granted_keys_carry_a_grant() {
        let schema = <Export as Guest>::describe().config_schema;
        for (key, grant) in [("host", "host"), ("port", "port"), ("path", "read")] {
            let from = schema.find(&format!("\"{key}\":{{")).expect(key);
            let property = &schema[from..schema[from..].find('}').unwrap() + from];
            assert!(
                property.contains(&format!("\"x-grant\":\"{grant}\"")),
                "{property}"
            );
        }
        assert_eq!(schema.matches("x-grant").count(), 3);
    }
}
