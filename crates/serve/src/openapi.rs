//! `GET /v1/openapi.json`: the API for programs that make clients.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const DOCUMENT: &str = include_str!("openapi.json");

/// The document, with the version of this program.
pub(crate) async fn document() -> Response {
    let text = DOCUMENT.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let mut response = text.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The paths of the routes in a source, as they stand there. Pages are for people.
    fn routes(source: &str) -> Vec<String> {
        let calls = source.split(".route(").skip(1);
        let paths = calls.map(|call| call.split('"').nth(1).unwrap_or_default().to_owned());
        paths.collect()
    }

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document = oas3::from_json(DOCUMENT).expect("a document");
        let known = document.paths.expect("paths");
        let known: BTreeSet<String> = known.keys().cloned().collect();
        let sources = [include_str!("routes.rs"), include_str!("runs/http.rs")];
        let found = sources.iter().flat_map(|source| routes(source));
        let found = found.filter(|path| path.starts_with('/'));
        let found: BTreeSet<String> = found.chain([crate::metrics::INGEST.to_owned()]).collect();
        assert_eq!(known, found);
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).expect("JSON");
        let mut references = Vec::new();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                serde_json::Value::Object(keys) => {
                    references.extend(keys.get("$ref").and_then(serde_json::Value::as_str));
                    open.extend(keys.values());
                }
                serde_json::Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert!(references.len() > 20);
        for reference in references {
            let pointer = reference
                .strip_prefix('#')
                .expect("a place in the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
