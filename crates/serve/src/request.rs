//! The parts of a request, with errors in the form of the project.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
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

/// The fields of a form.
pub struct Filled<T>(pub T);

impl<S: Send + Sync, T> FromRequest<S> for Filled<T>
where
    Form<T>: FromRequest<S, Rejection = FormRejection>,
{
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let found = Form::from_request(request, state).await;
        let Form(found) = found.map_err(|error: FormRejection| {
            let hint = "send the fields of the page's form as application/x-www-form-urlencoded";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_form",
                error.body_text(),
                hint,
            )
        })?;
        Ok(Self(found))
    }
}
