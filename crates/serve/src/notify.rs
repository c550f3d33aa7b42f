//! `POST /v1/pipelines/{pipeline}/notify/test`: whether the receivers of `notify` take a message.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use rapidbyte::{Class, Failure};
use serde_json::{Value, json};

use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::call::{Problem, call, known};
use crate::ingest::Shared;
use crate::request::Place;
use crate::tokens::Action;

/// The longest time for which three receivers are waited for.
const LIMIT: Duration = Duration::from_secs(40);

/// Sends each receiver of the pipeline a message about nothing, and waits for the answers. It is sent once.
pub(crate) async fn test(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Operate, Some(&name))?;
    let (_, pipeline) = known(&shared, &name)?;
    let Some(runs) = shared.runs.clone().filter(|_| pipeline.notify().is_some()) else {
        let text = format!("the pipeline {name:?} has no notify");
        let hint = "write notify: { failure: URL } into the pipeline file";
        return Err(Refusal::new(StatusCode::CONFLICT, "no_notify", text, hint).into());
    };
    let tried = call(pipeline, LIMIT, move |pipeline, _| {
        let tried = runs.try_receivers(pipeline);
        tried.map_err(|error| Failure::new(Class::Environment, "store_failed", error))
    })
    .await?;
    let problems: Vec<&str> = tried
        .iter()
        .filter_map(|one| one.problem.as_deref())
        .collect();
    if problems.is_empty() {
        return Ok(Json(json!({ "status": "ok", "receivers": tried })));
    }
    let hint = "check the URL in notify, and the log of the receiver";
    let refusal = Refusal::new(
        StatusCode::BAD_GATEWAY,
        "notify_failed",
        problems.join("; "),
        hint,
    );
    Err(refusal.into())
}
