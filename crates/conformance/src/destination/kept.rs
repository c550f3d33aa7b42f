//! Rejects that a destination keeps: from the commit of the rows around them until a replay removes them.

use rapidbyte_runtime::{ErrorKind, KeptReject, Reject, RejectOrigin, Rejects, Target, WriteMode};

use super::{Load, OTHER_PIPELINE, PIPELINE, Subject, simple};
use crate::bench::{Reach, Trouble};
use crate::verdict::*;

const ACTION: &str = "keep the rejects in the commit of the rows around them, and list each of them with all that the host \
    gave, under the pipeline that kept it";
const REPLAY: &str = "let the commit of a replay remove its rejects, or fail with reject_missing if one of them is gone";

/// The run that keeps the rejects.
const RUN: &str = "kept";

pub(super) fn judge(subject: &Subject<'_>) -> Judged {
    subject.needs_write()?;
    let spec = subject.bench.spec()?;
    if !spec.supports_rejects {
        return Err(skip("it does not keep rejects (supports-rejects)"));
    }
    let mode = match spec.write_modes.contains(&WriteMode::Append) {
        true => WriteMode::Append,
        false => subject.mode(),
    };
    let to = format!("{}rejects", subject.prefix());
    let target = |replayed| Target {
        rejects: Some(Rejects {
            to: to.clone(),
            max_rows: None,
            replayed,
        }),
        ..subject.target_as("kept", &simple(), mode)
    };
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let first = target(Vec::new());
    let mut load = Load::begin(subject, &first, simple(), RUN).map_err(refused)?;
    load.write(0..3).map_err(refused)?;
    let given = given();
    load.reject(RejectOrigin::Source, &given).map_err(fails)?;
    let part = load.flush().map_err(fails)?;
    let listed = |pipeline, after, with_data| subject.rejects(&to, pipeline, after, with_data);
    let early = listed(PIPELINE, None, true).map_err(refused)?;
    if !early.is_empty() {
        let seen = format!("{} rejects are listed before the commit", early.len());
        return Err(fail(seen, ACTION));
    }
    load.commit(&[part], None, true).map_err(fails)?;
    drop(load);
    let kept = listed(PIPELINE, None, true).map_err(fails)?;
    if let Some(seen) = differs(subject, &first, &given, &kept) {
        return Err(fail(seen, ACTION));
    }
    let (one, other) = (&kept[0], &kept[1]);
    let action =
        "list the rejects behind `after` alone, and those of another pipeline under its own name";
    for (pipeline, after, expected) in [
        (PIPELINE, Some(&one.id), 1),
        (PIPELINE, Some(&other.id), 0),
        (OTHER_PIPELINE, None, 0),
    ] {
        let page = listed(pipeline, after, false).map_err(fails)?;
        if page.len() != expected {
            let seen = format!(
                "{} rejects of {pipeline} are listed instead of {expected}, after {after:?}",
                page.len()
            );
            return Err(fail(seen, action));
        }
    }
    let again = target(vec![(one.id.clone(), one.version.clone())]);
    replay(subject, &again).map_err(|trouble| trouble.fails_unless_settings(REPLAY))?;
    let left = listed(PIPELINE, None, true).map_err(fails)?;
    if left.len() != 1 || left[0].id != other.id {
        let seen = format!(
            "after the replay of 1 of 2 rejects, {} are listed",
            left.len()
        );
        return Err(fail(seen, REPLAY));
    }
    match replay(subject, &again) {
        Err(Trouble::Error(_, error)) if error.code == "reject_missing" => {}
        Err(trouble) => return Err(trouble.fails_unless_settings(REPLAY)),
        Ok(()) => return Err(fail("the same reject was replayed twice", REPLAY)),
    }
    Ok("2 rejects, 1 replayed".into())
}

/// Settings may leave no place for rejects, or none that can be listed.
fn refused(trouble: Trouble) -> Verdict {
    match trouble {
        Trouble::Error(_, error) if matches!(error.kind, ErrorKind::Config | ErrorKind::Schema) => {
            skip(format!(
                "not with these settings: {}; give others",
                error.message
            ))
        }
        trouble => trouble.blocks(&WRITE),
    }
}

/// One that has everything, and one that has only what it must have.
fn given() -> [Reject; 2] {
    [
        Reject {
            data: b"{\"n\": \"it's \\\\ 7\"}\tx".to_vec(),
            is_cut: true,
            location: Some("in/a.jsonl:17".into()),
            column: Some("n".into()),
            code: "value_does_not_fit".into(),
            message: "\"it's \\ 7\" is not a whole number".into(),
            read_with: Some("{\"header\":[\"n\"]}".into()),
        },
        Reject {
            data: b"1,\xff\x00".to_vec(),
            is_cut: false,
            location: None,
            column: None,
            code: "file_not_utf8".into(),
            message: "bytes that are not UTF-8".into(),
            read_with: None,
        },
    ]
}

/// How the listed rejects differ from the given ones, also in number.
fn differs(
    subject: &Subject<'_>,
    target: &Target,
    given: &[Reject],
    kept: &[KeptReject],
) -> Option<String> {
    if kept.len() != given.len() {
        return Some(format!(
            "{} rejects are listed of {}",
            kept.len(),
            given.len()
        ));
    }
    let run_id = subject.run_id(RUN);
    for (given, kept) in given.iter().zip(kept) {
        let found = &kept.reject;
        let fields = [
            ("id", kept.id.is_empty()),
            ("version", kept.version.is_empty()),
            ("time", kept.time.is_empty()),
            ("stream", kept.stream != target.stream),
            ("run-id", kept.run_id != run_id),
            ("origin", kept.origin != RejectOrigin::Source),
            ("data", found.data != given.data),
            ("is-cut", found.is_cut != given.is_cut),
            ("location", found.location != given.location),
            ("column", found.column != given.column),
            ("code", found.code != given.code),
            ("message", found.message != given.message),
            ("read-with", found.read_with != given.read_with),
        ];
        let wrong = fields
            .iter()
            .find_map(|(field, differs)| differs.then_some(*field));
        if let Some(field) = wrong {
            return Some(format!(
                "the {field} of a reject is another one: {kept:?} for {given:?}"
            ));
        }
    }
    (kept[0].id == kept[1].id).then(|| "two rejects have one id".to_owned())
}

/// A run that replays rejects, whose record becomes one row.
fn replay(subject: &Subject<'_>, target: &Target) -> Result<(), Trouble> {
    let mut load = Load::begin(subject, target, simple(), "replayed")?;
    load.write(3..4)?;
    let part = load.flush()?;
    load.commit(&[part], None, true).map(drop)
}

impl Subject<'_> {
    /// A page of kept rejects, from a session of its own.
    fn rejects(
        &self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>, Trouble> {
        let config = self.bench.config().cloned().unwrap_or_default();
        let mut destination = self.bench.destination(&config, Reach::Granted)?;
        self.bench
            .note(destination.rejects(to, pipeline, after, with_data))
    }
}
