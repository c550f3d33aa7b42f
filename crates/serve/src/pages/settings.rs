//! `/settings`: the limits and the settings of the server, without secrets.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use rapidbyte_page::figures::{bytes, count, counted};

use super::{Entry, Live, Page, escape, properties};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::server::Settings;
use crate::tokens::Action;

/// The page.
pub(super) async fn show(
    State(shared): State<Shared>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Read, None)?;
    let page = Page {
        title: "Settings",
        entry: Some(Entry::Settings),
        live: Live::No,
        body: content(&shared.settings, granted.has_token()),
    };
    Ok(page.answer())
}

pub(super) fn content(settings: &Settings, needs_token: bool) -> String {
    let Settings {
        listen,
        folder,
        queue,
        bodies,
        keep_free,
        retention,
        wait,
        streams,
        runs,
        connections,
        drain,
        tls,
        is_behind_proxy,
        notify_ca,
    } = settings;
    let number = |number: usize| count(number as u64);
    let tls = match (tls, is_behind_proxy) {
        (Some(tls), _) => format!(
            "<code>{}</code>",
            escape(&tls.certificate.to_string_lossy())
        ),
        (None, true) => "of a proxy in front of the server".to_owned(),
        (None, false) => "none".to_owned(),
    };
    let receivers = match notify_ca {
        Some(file) => format!("<code>{}</code>", escape(&file.to_string_lossy())),
        None => "the public ones".to_owned(),
    };
    let tokens = match needs_token {
        true => "each request needs one",
        false => "none: each program on this machine may do everything",
    };
    let groups = [
        (
            "Access",
            vec![
                ("listens on", escape(&listen.to_string())),
                ("certificate", tls),
                ("tokens", tokens.to_owned()),
                ("connections at most", number(*connections)),
                ("authorities of receivers of notify", receivers),
                (
                    "state in",
                    format!("<code>{}</code>", escape(&folder.to_string_lossy())),
                ),
            ],
        ),
        (
            "Queue",
            vec![
                ("pending jobs at most", count(queue.jobs)),
                ("bytes of pending and dead jobs at most", bytes(queue.bytes)),
                ("free disk space at least", bytes(*keep_free)),
                ("longest wait of a request with wait=true", exact(*wait)),
            ],
        ),
        (
            "Bodies",
            vec![
                ("size at most", bytes(bodies.bytes)),
                (
                    "kept in memory and in the store up to",
                    bytes(bodies.inline as u64),
                ),
                ("memory of all bodies", bytes(bodies.memory as u64)),
                ("longest wait for the next bytes", exact(bodies.idle)),
                (
                    "slowest client",
                    format!(
                        "{} per second after {}",
                        bytes(bodies.slowest),
                        exact(bodies.grace)
                    ),
                ),
            ],
        ),
        (
            "Retention",
            vec![
                ("bodies of jobs that are done", exact(retention.bodies)),
                ("bytes of these bodies at most", bytes(retention.bytes)),
                ("jobs that have ended", exact(retention.jobs)),
                ("jobs at most", count(retention.rows)),
            ],
        ),
        (
            "Runs",
            vec![
                ("streams of bodies at a time", number(*streams)),
                ("other pipelines at a time", number(*runs)),
                ("time to end after a signal", exact(*drain)),
            ],
        ),
    ];
    let groups = groups.iter();
    let groups: String = groups
        .map(|(title, values)| format!("<h2>{title}</h2>\n{}", properties(values)))
        .collect();
    format!(
        "<h1>Settings</h1>\n<p class=\"quiet\">As the server was started. The flags of <code>rapidbyte serve</code> set them.</p>\n{groups}"
    )
}

/// A time without loss: in the largest unit that divides it.
fn exact(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let secs = time.as_secs();
    let divides = |(unit, _): &&(u64, &str)| secs > 0 && secs.is_multiple_of(*unit);
    let (unit, noun) = UNITS.iter().find(divides).unwrap_or(&(1, "second"));
    counted(secs / unit, noun)
}
