//! The parts of a request, with errors in the form of the project.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::answer::Refusal;

/// The parts of the path that a route names.
pub struct Place<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Path::from_request_parts(parts, state).await;
        let Path(found) = found.map_err(|error| {
            let hint = "encode names in the path as UTF-8, percent-encoded";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_path",
                error.body_text(),
                hint,
            )
        })?;
        Ok(Self(found))
    }
}

/// The query of a request.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Query::from_request_parts(parts, state).await;
        let Query(found) = found.map_err(|error| {
            let hint = "correct the part of the URL after the question mark";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_query",
                error.body_text(),
                hint,
            )
        })?;
        Ok(Self(found))
    }
}
