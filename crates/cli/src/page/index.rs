//! `runs --page FILE`: the attempts of a pipeline as a page, with links to their own pages.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use rapidbyte::AttemptRecord;

use rapidbyte_page::figures::{bytes, count};

use super::{document, escape, table};

/// Everything that the page tells.
pub struct Index<'a> {
    /// The pipeline's name.
    pub pipeline: &'a str,
    /// Its file, as it was given.
    pub file: &'a str,
    /// Newest first.
    pub attempts: &'a [AttemptRecord],
}

impl Index<'_> {
    /// The page; `path` is where it will be, absolute.
    pub fn html(&self, path: &Path) -> String {
        let mut rows = String::new();
        for attempt in self.attempts {
            let class = if attempt.status == "ok" { "ok" } else { "bad" };
            let status = escape(&attempt.status);
            let _ = writeln!(
                rows,
                "<tr><td>{}</td><td class=\"n\">{}</td><td><span class=\"badge {class}\">{status}</span></td>\
                 <td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
                escape(&attempt.run_id),
                attempt.attempt,
                escape(&attempt.started_at),
                escape(attempt.ended_at.as_deref().unwrap_or("-")),
                count(attempt.rows),
                bytes(attempt.bytes),
                escape(attempt.error.as_deref().unwrap_or("-")),
                link(attempt, path),
            );
        }
        let head = [
            "run", "#attempt", "outcome", "started", "ended", "#rows", "#bytes", "code", "report",
        ];
        let name = escape(self.pipeline);
        let body = format!(
            "<header>\n<h1>{name}</h1>\n<p class=\"quiet\">{}</p>\n</header>\n\
             <section>\n<h2>Runs</h2>\n<p class=\"quiet\">The newest first, one line for each attempt.</p>\n{}</section>\n",
            escape(self.file),
            table(&head, &rows)
        );
        document(&format!("{name}: runs of Rapidbyte"), &body)
    }
}

/// A link to the attempt's page, if that is still there.
fn link(attempt: &AttemptRecord, page: &Path) -> String {
    let Some(report) = attempt.report.as_deref().map(Path::new) else {
        return "-".into();
    };
    if !report.is_file() {
        return "-".into();
    }
    let folder = page.parent().unwrap_or(page);
    let name = report.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "<a href=\"{}\">{}</a>",
        encoded(&relative(folder, report)),
        escape(&name)
    )
}

/// The way from a folder to a file, both absolute.
fn relative(folder: &Path, file: &Path) -> PathBuf {
    let (from, to): (Vec<_>, Vec<_>) = (folder.components().collect(), file.components().collect());
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from[same..].iter().map(|_| Component::ParentDir);
    up.chain(to[same..].iter().copied()).collect()
}

/// A relative reference (RFC 3986): `./` in front, so that a colon in a name begins no scheme.
fn encoded(path: &Path) -> String {
    let mut text = String::from("./");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                text.push(char::from(*byte));
            }
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_link_the_pages_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("re ports/a-1.html");
        std::fs::create_dir(folder.path().join("re ports")).unwrap();
        std::fs::write(&report, "").unwrap();
        let attempt = |report: Option<&Path>| AttemptRecord {
            run_id: "r<1>".into(),
            pipeline: "a".into(),
            attempt: 1,
            started_at: "2026-01-31T23:59:59.123Z".into(),
            ended_at: None,
            status: "unfinished".into(),
            rows: 5,
            bytes: 50,
            error: Some("disk_full".into()),
            report: report.map(|path| path.to_string_lossy().into_owned()),
        };
        let gone = folder.path().join("gone.html");
        let attempts = [attempt(Some(&report)), attempt(Some(&gone)), attempt(None)];
        let index = Index {
            pipeline: "a",
            file: "a.yaml",
            attempts: &attempts,
        };
        let page = index.html(&folder.path().join("site/index.html"));
        let link = "<a href=\"./../re%20ports/a-1.html\">a-1.html</a>";
        assert!(page.contains(link), "{page}");
        assert_eq!(page.matches("href").count(), 1, "{page}");
        assert!(
            page.contains("r&lt;1&gt;") && page.contains("disk_full"),
            "{page}"
        );
    }
}
