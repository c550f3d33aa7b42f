//! Follows redirects, so that nobody is sent where the first server must not send them.

use super::{Method, Request, Response};
use crate::{Error, Result};

/// Redirects in a row.
const MAX_REDIRECTS: usize = 5;
/// Headers that are for one server, whoever set them.
const PERSONAL: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Makes the request, and those that its answers ask for.
pub(super) fn follow(
    mut request: Request,
    exchange: impl Fn(&Request) -> Result<Response>,
) -> Result<Response> {
    let first = request.url.without_query();
    for redirects in 0..=MAX_REDIRECTS {
        let response = exchange(&request).map_err(|mut error| {
            if redirects > 0 {
                error.message = format!("redirected from {first}: {}", error.message);
            }
            error
        })?;
        let Some(location) = response
            .header("location")
            .filter(|_| is_redirect(&response))
        else {
            return Ok(response);
        };
        request = next(request, response.status, &location)?;
    }
    Err(refused(format!(
        "{first} redirects more than {MAX_REDIRECTS} times"
    )))
}

fn is_redirect(response: &Response) -> bool {
    matches!(response.status, 301 | 302 | 303 | 307 | 308)
}

fn next(mut request: Request, status: u16, location: &str) -> Result<Request> {
    let from = request.url.clone();
    let shown = from.without_query();
    let to = from.join(location).map_err(|error| {
        refused(format!(
            "{shown} redirects to something that is not a URL: {}",
            error.message
        ))
    })?;
    if from.is_https() && !to.is_https() {
        let text = format!("{shown} redirects to {}, without TLS", to.without_query());
        return Err(refused(text));
    }
    // As every browser does: what was posted is not posted again.
    let is_read_instead = match request.method {
        Method::Post => matches!(status, 301..=303),
        Method::Put | Method::Delete => status == 303,
        Method::Get => false,
    };
    if is_read_instead {
        request.method = Method::Get;
        request.body.clear();
        request
            .headers
            .retain(|header| !header.name.starts_with("content-"));
    }
    if !from.is_same_server(&to) {
        if !request.body.is_empty() {
            let text = format!(
                "{shown} would redirect posted data to another server, {}",
                to.without_query()
            );
            return Err(refused(text));
        }
        request
            .headers
            .retain(|header| !header.is_secret && !PERSONAL.contains(&header.name.as_str()));
    }
    request.url = to;
    Ok(request)
}

fn refused(text: String) -> Error {
    Error::config("http_redirect", text).hint("write the final URL into the configuration")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::http::{Body, Url};

    struct Empty;
    impl Body for Empty {
        fn read(&mut self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    /// A web of redirects: `(from, status, to)`. Gives how the last request looked.
    fn run(request: Request, web: &[(&str, u16, &str)]) -> Result<String> {
        let seen = RefCell::new(String::new());
        follow(request, |request| {
            let names: Vec<&str> = request.headers.iter().map(|h| h.name.as_str()).collect();
            let url = request.url.to_string();
            *seen.borrow_mut() = format!("{:?} {url} {}", request.method, names.join(","));
            let found = web.iter().find(|(from, ..)| *from == url);
            Ok(Response {
                status: found.map_or(200, |(_, status, _)| *status),
                headers: found
                    .map(|(_, _, to)| ("Location".to_owned(), (*to).to_owned()))
                    .into_iter()
                    .collect(),
                url: request.url.clone(),
                body: Box::new(Empty),
            })
        })?;
        Ok(seen.into_inner())
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn get(text: &str) -> Request {
        Request::get(url(text))
            .secret_header("X-Key", "k")
            .header("Authorization", "a")
            .header("accept", "b")
    }

    #[test]
    fn another_server_gets_no_secret() {
        let web = [
            ("https://a/1", 302, "/2"),
            ("https://a/2", 307, "https://b/3"),
        ];
        let seen = run(get("https://a/1"), &web[..1]).unwrap();
        assert_eq!(seen, "Get https://a/2 x-key,authorization,accept");
        assert_eq!(
            run(get("https://a/1"), &web).unwrap(),
            "Get https://b/3 accept"
        );
        // Another port is another server.
        let seen = run(
            get("https://a/1"),
            &[("https://a/1", 308, "https://a:8443/")],
        );
        assert_eq!(seen.unwrap(), "Get https://a:8443/ accept");
    }

    #[test]
    fn a_posted_body_goes_to_no_other_server() {
        let post = || Request::post(url("https://a/"), "secret").header("content-type", "t");
        let to = |status, to| run(post(), &[("https://a/", status, to)]);
        assert_eq!(to(303, "https://b/").unwrap(), "Get https://b/ ");
        assert_eq!(to(307, "/x").unwrap(), "Post https://a/x content-type");
        assert_eq!(to(307, "https://b/").unwrap_err().code, "http_redirect");
    }

    #[test]
    fn a_document_that_is_put_or_deleted_stays_so_unless_the_answer_is_elsewhere() {
        let put = || Request::put(url("https://a/"), "x").header("content-type", "t");
        let delete = || Request::delete(url("https://a/"));
        let to = |request, status, to| run(request, &[("https://a/", status, to)]);
        assert_eq!(
            to(put(), 302, "/x").unwrap(),
            "Put https://a/x content-type"
        );
        assert_eq!(to(put(), 303, "/x").unwrap(), "Get https://a/x ");
        assert_eq!(
            to(put(), 307, "https://b/").unwrap_err().code,
            "http_redirect"
        );
        assert_eq!(to(delete(), 301, "/x").unwrap(), "Delete https://a/x ");
        assert_eq!(to(delete(), 303, "/x").unwrap(), "Get https://a/x ");
    }

    #[test]
    fn a_redirect_that_leads_nowhere_or_out_of_tls_is_refused() {
        let refuses = |from: &str, to: &str| {
            let error = run(get(from), &[(from, 302, to)]).unwrap_err();
            assert_eq!(error.code, "http_redirect", "{from} {to}");
            error.message
        };
        assert!(refuses("https://a/", "http://a/").contains("without TLS"));
        assert!(refuses("http://a/", "file:///etc/passwd").contains("not a URL"));
        assert!(refuses("http://a/", "/").contains("more than 5 times"));
    }
}
