//! The threads that send the messages of `notify`: a receiver that is slow holds up no other. Each has one message at a time.
//!
//! The operator wrote the URL into the pipeline file, so it may name any server, also one of a private network. A server that
//! answers cannot lead further: redirects are not followed, and no part of an answer is kept or shown but its status.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::PoisonError;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use rapidbyte::{Notify, NotifyUrl, Pipeline};
use serde::Serialize;
use serde_json::json;
use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig};

use super::messages::Event;
use super::outbox::{Failed, Message, Next, Receiver, new_id};
use super::signature::signature;
use super::{RunsError, Shared};

/// The longest time from the connection to the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest sleep: a clock that jumps is noticed then.
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// The pause after the store could not do something.
const PAUSE: Duration = Duration::from_secs(5);
/// The event of a message that is about nothing.
const TEST: &str = "test";
const NO_URL: &str = "the URL is not valid";
const USER_AGENT: &str = concat!("rapidbyte/", env!("CARGO_PKG_VERSION"));

/// The outcome of an attempt.
enum Sent {
    /// The receiver took it.
    Taken,
    /// The pipeline does not want the message any more.
    Unwanted,
    Failed(Failed),
}

impl Shared {
    /// Sends the messages that are due, until the end.
    pub(super) fn deliver(&self) {
        let agent = agent(self.settings.authorities.clone());
        loop {
            let seen = {
                let agenda = self.agenda();
                if agenda.ends {
                    return;
                }
                agenda.messages
            };
            let sleep = match self.deliver_next(&agent) {
                Ok(None) => continue,
                Ok(Some(sleep)) => sleep,
                Err(error) => {
                    self.tell("a message of notify is not sent", &error);
                    PAUSE
                }
            };
            let agenda = self.agenda();
            let is_idle = |agenda: &mut super::Agenda| !agenda.ends && agenda.messages == seen;
            let waited = self.mail.wait_timeout_while(agenda, sleep, is_idle);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Takes the next message, and notes that its receiver is busy.
    fn take_message(&self, now_ms: i64) -> Result<Next, RunsError> {
        // Held meanwhile, so that no other thread takes one for the same receiver.
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.store.take_message(now_ms, busy.clone())?;
        if let Next::Send(message) = &next {
            busy.push(message.receiver());
        }
        Ok(next)
    }

    /// Sends the next message. Returns how long nothing is due.
    fn deliver_next(&self, agent: &Agent) -> Result<Option<Duration>, RunsError> {
        let now_ms = self.now_ms();
        let message = match self.take_message(now_ms)? {
            Next::Send(message) => message,
            Next::Wait(until_ms) => {
                let wait = |until_ms: i64| {
                    Duration::from_millis(until_ms.saturating_sub(now_ms).max(0).unsigned_abs())
                };
                return Ok(Some(until_ms.map_or(MAX_SLEEP, wait).min(MAX_SLEEP)));
            }
        };
        let _freed = Freed(self, message.receiver());
        let sent = catch_unwind(AssertUnwindSafe(|| self.send(agent, &message)));
        let sent = sent.unwrap_or_else(|_| {
            Sent::Failed(of_server(
                "the thread of the messages panicked: the server has a bug",
            ))
        });
        let facts = json!({
            "pipeline": message.pipeline, "event": message.event.name(), "message": message.delivery,
        });
        match sent {
            Sent::Taken => self.store.remove_message(message.id)?,
            Sent::Unwanted => {
                self.store.remove_message(message.id)?;
                let text = format!(
                    "notify of {}: a message about {} is dropped, because the pipeline file has no URL for it any more",
                    message.pipeline,
                    message.event.name()
                );
                self.warn(&text, "notify_dropped", facts);
            }
            Sent::Failed(failed) => {
                let is_given_up = self.store.fail_message(&message, &failed, self.now_ms())?;
                let (name, event, why) = (&message.pipeline, message.event.name(), &failed.text);
                if is_given_up {
                    let text =
                        format!("notify of {name}: a message about {event} is given up: {why}");
                    self.warn(&text, "notify_failed", facts);
                } else if message.attempt == 1 {
                    let text = format!(
                        "notify of {name}: a message about {event} waits for another attempt: {why}"
                    );
                    self.warn(&text, "notify_delayed", facts);
                }
            }
        }
        Ok(None)
    }

    fn send(&self, agent: &Agent, message: &Message) -> Sent {
        let Some(pipeline) = self.pipelines.pipeline(&message.pipeline) else {
            return Sent::Failed(of_server(
                "the server cannot read the file of the pipeline, which has the URL",
            ));
        };
        let notify = pipeline.notify();
        let url = notify.and_then(|notify| message.event.url(notify));
        let (Some(notify), Some(url)) = (notify, url) else {
            return Sent::Unwanted;
        };
        let Message { delivery, body, .. } = message;
        let event = message.event.name();
        match Target::of(url.text()) {
            Some(target) => self.post(agent, &pipeline, notify, &target, (event, delivery, body)),
            None => Sent::Failed(Failed::for_good(None, NO_URL)),
        }
    }

    /// Sends each receiver of a pipeline a message that is about nothing. Waits for the answers.
    ///
    /// # Errors
    /// `System`: no random bytes.
    pub(super) fn try_receivers(&self, pipeline: &Pipeline) -> Result<Vec<Tried>, RunsError> {
        let Some(notify) = pipeline.notify() else {
            return Ok(Vec::new());
        };
        let mut receivers: Vec<(&str, Vec<&'static str>)> = Vec::new();
        for event in Event::ALL {
            let Some(url) = event.url(notify).map(NotifyUrl::text) else {
                continue;
            };
            match receivers.iter_mut().find(|(known, _)| *known == url) {
                Some((_, events)) => events.push(event.name()),
                None => receivers.push((url, vec![event.name()])),
            }
        }
        let agent = agent(self.settings.authorities.clone());
        let tried = receivers.into_iter().map(|(url, events)| {
            let Some(target) = Target::of(url) else {
                return Ok(Tried::of("", events, Sent::Failed(Failed::for_good(None, NO_URL))));
            };
            let delivery = new_id()?;
            let content = json!({
                "id": delivery, "event": TEST, "pipeline": pipeline.name(), "server_time_ms": self.now_ms(),
                "events": events,
            });
            let message = (TEST, &*delivery, &*content.to_string());
            let sent = self.post(&agent, pipeline, notify, &target, message);
            Ok(Tried::of(&target.origin, events, sent))
        });
        tried.collect()
    }

    /// Sends a message: its event, its id and its body.
    fn post(
        &self,
        agent: &Agent,
        pipeline: &Pipeline,
        notify: &Notify,
        target: &Target,
        (event, delivery, body): (&str, &str, &str),
    ) -> Sent {
        let mut request = agent
            .post(&target.url)
            .header("content-type", "application/json")
            .header("rapidbyte-event", event)
            .header("rapidbyte-delivery", delivery);
        if let Some(secret) = &notify.secret {
            let seconds = self.now_ms().div_euclid(1000);
            let signature = signature(secret.text(), seconds, body);
            request = request.header("rapidbyte-signature", signature);
        }
        if let Some(authorization) = &target.authorization {
            request = request.header("authorization", authorization);
        }
        match request.send(body) {
            Ok(answer) => outcome(answer.status(), answer.headers(), &target.origin),
            Err(error) => Sent::Failed(of_error(&error, &target.origin, pipeline)),
        }
    }
}

/// A receiver that got a message about nothing.
#[derive(Debug, Serialize)]
pub(crate) struct Tried {
    /// Its URL without the path.
    url: String,
    /// The events that it is told.
    events: Vec<&'static str>,
    /// Why it did not take the message. `None` if it did. The answer has it as an error.
    #[serde(skip)]
    pub(crate) problem: Option<String>,
}

impl Tried {
    fn of(origin: &str, events: Vec<&'static str>, sent: Sent) -> Self {
        Self {
            url: origin.to_owned(),
            events,
            problem: match sent {
                Sent::Taken | Sent::Unwanted => None,
                Sent::Failed(failed) => Some(failed.text),
            },
        }
    }
}

/// A receiver that is free again when this is dropped.
struct Freed<'a>(&'a Shared, Receiver);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|receiver| *receiver != self.1);
        drop(busy);
        // Its next message may be due.
        self.0.agenda().messages += 1;
        self.0.mail.notify_all();
    }
}

fn agent(authorities: RootCerts) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // The URL says where a message goes.
        .proxy(None)
        // Messages are rare: a connection that was kept would often be closed by then.
        .max_idle_connections(0)
        .tls_config(TlsConfig::builder().root_certs(authorities).build())
        .user_agent(USER_AGENT);
    config.build().new_agent()
}

/// The place of a receiver.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// The URL without its user and password.
    url: String,
    /// The user and the password, as a header.
    authorization: Option<String>,
    /// The part of the URL that is shown: the path may be as good as a password.
    origin: String,
}

impl Target {
    fn of(url: &str) -> Option<Self> {
        let uri = Uri::from_str(url).ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let (credentials, host) = match authority.as_str().rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority.as_str()),
        };
        let origin = format!("{scheme}://{host}");
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let authorization = credentials.map(|credentials| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let mut plain: Vec<u8> = percent_decode_str(user).collect();
            plain.push(b':');
            plain.extend(percent_decode_str(password));
            format!("Basic {}", STANDARD.encode(plain))
        });
        Some(Self {
            url: format!("{origin}{path}"),
            authorization,
            origin,
        })
    }
}

impl Failed {
    /// Another attempt would fail, too.
    fn for_good(status: Option<StatusCode>, text: impl Into<String>) -> Self {
        Self {
            status: status.map(|status| status.as_u16()),
            text: text.into(),
            retry_after_ms: None,
            is_of_receiver: false,
        }
    }

    /// Another attempt may succeed.
    fn for_now(status: Option<StatusCode>, text: impl Into<String>, retry_after_ms: i64) -> Self {
        Self {
            retry_after_ms: Some(retry_after_ms),
            ..Self::for_good(status, text)
        }
    }
}

/// A failure on this side.
fn of_server(text: &str) -> Failed {
    Failed::for_now(None, text, 0)
}

fn outcome(status: StatusCode, headers: &HeaderMap, origin: &str) -> Sent {
    let text = format!("{origin} answers {}", status.as_u16());
    if status.is_success() {
        return Sent::Taken;
    }
    if status.is_redirection() {
        let text =
            format!("{text}, a redirect, which is not followed: write the URL to which it leads");
        return Sent::Failed(Failed::for_good(Some(status), text));
    }
    let is_busy = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if !is_busy && !status.is_server_error() && status != StatusCode::REQUEST_TIMEOUT {
        return Sent::Failed(Failed::for_good(Some(status), text));
    }
    let seconds = headers.get("retry-after").filter(|_| is_busy);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let wait_ms = i64::from(seconds.unwrap_or(0)) * 1000;
    Sent::Failed(Failed {
        is_of_receiver: is_busy,
        ..Failed::for_now(Some(status), text, wait_ms)
    })
}

fn of_error(error: &ureq::Error, origin: &str, pipeline: &Pipeline) -> Failed {
    let why = match error {
        ureq::Error::Timeout(_) => format!("no answer within {} seconds", TIMEOUT.as_secs()),
        ureq::Error::HostNotFound => "the name of the host is not known".to_owned(),
        ureq::Error::BadUri(_) => "the URL is not valid".to_owned(),
        other => other.to_string(),
    };
    let text = pipeline.redact(&format!("{origin}: {why}"));
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => Failed::for_good(None, text),
        _ => Failed {
            is_of_receiver: true,
            ..Failed::for_now(None, text, 0)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_become_a_header_and_the_rest_is_the_target() {
        let target =
            Target::of("https://me:p%40ss@hooks.example.com:8443/a/b?c=d").expect("a target");
        let expected = Target {
            url: "https://hooks.example.com:8443/a/b?c=d".into(),
            authorization: Some(format!("Basic {}", STANDARD.encode("me:p@ss"))),
            origin: "https://hooks.example.com:8443".into(),
        };
        assert_eq!(target, expected);
        let plain = Target::of("http://[::1]:80").expect("a target");
        assert_eq!(
            (&*plain.url, plain.authorization),
            ("http://[::1]:80/", None)
        );
        assert_eq!(Target::of("not a url"), None);
    }

    #[test]
    fn a_status_says_whether_another_attempt_may_succeed() {
        let of = |status: u16, retry_after: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = retry_after {
                headers.insert("retry-after", value.parse().expect("a value"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            match outcome(status, &headers, "https://a") {
                Sent::Taken => None,
                Sent::Failed(failed) => Some((failed.retry_after_ms, failed.is_of_receiver)),
                Sent::Unwanted => panic!("{status}"),
            }
        };
        for status in [200, 202, 204, 299] {
            assert_eq!(of(status, None), None, "{status}");
        }
        for status in [301, 302, 307, 308, 400, 401, 404, 410, 422] {
            assert_eq!(of(status, Some("5")), Some((None, false)), "{status}");
        }
        for status in [408, 500, 502, 504] {
            assert_eq!(of(status, Some("5")), Some((Some(0), false)), "{status}");
        }
        for status in [429, 503] {
            assert_eq!(of(status, Some("5")), Some((Some(5_000), true)), "{status}");
            assert_eq!(of(status, Some("soon")), Some((Some(0), true)), "{status}");
        }
    }
}
