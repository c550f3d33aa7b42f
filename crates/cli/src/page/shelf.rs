//! `report: { directory, keep }`: a page for each run; the newest pages stay.

use std::path::{Path, PathBuf};

use rapidbyte::{Failure, Pages, Plan};

use super::paper::{Paper, is_ours, on_disk, refuse_foreign_links, unwritten};

/// The directory of a pipeline's pages.
pub struct Shelf {
    directory: PathBuf,
    pipeline: String,
    keep: usize,
    /// The place of a page without the id of a run.
    fallback: Paper,
}

/// How hints call it.
const KEY: &str = "report.directory";

impl Shelf {
    /// Creates the directory, and checks that pages can be written there. Errors:
    /// `report_not_written`, and `link_refused` for a link of another user.
    pub fn new(
        pages: &Pages,
        base_dir: &Path,
        pipeline: &str,
        started: &str,
    ) -> Result<Self, Failure> {
        let directory = base_dir.join(&pages.directory);
        refuse_foreign_links(&directory, base_dir, KEY)?;
        std::fs::create_dir_all(&directory).map_err(|error| unwritten(&directory, &error, KEY))?;
        let directory = on_disk(&directory);
        // Like the id of a run: its time, and what tells two of them apart.
        let digits: String = started
            .chars()
            .filter(char::is_ascii_digit)
            .take(14)
            .collect();
        let (date, time) = digits.split_at(digits.len().min(8));
        let id = format!("{date}-{time}-{:08x}", std::process::id());
        let fallback = Paper::named(&directory.join(name(pipeline, &id, 1)), KEY)?;
        Ok(Self {
            directory,
            pipeline: pipeline.to_owned(),
            keep: usize::try_from(pages.keep).unwrap_or(usize::MAX),
            fallback,
        })
    }

    /// Refuses a directory in which the run writes itself. Errors: `report_not_written`.
    pub fn refuse_targets(&self, plan: &Plan) -> Result<(), Failure> {
        self.fallback.refuse_targets(plan)
    }

    /// The place of a run's page.
    pub fn paper(self, run: Option<(&str, u64)>) -> Result<Paper, Failure> {
        match run {
            Some((id, attempt)) => {
                let name = name(&self.pipeline, id, attempt);
                Paper::named(&self.directory.join(name), KEY)
            }
            None => Ok(self.fallback),
        }
    }
}

/// Removes the older pages of a pipeline.
pub struct Old {
    directory: PathBuf,
    pipeline: String,
    keep: usize,
}

impl Shelf {
    /// The removal of older pages, for the time after the page is written.
    pub fn old(&self) -> Old {
        Old {
            directory: self.directory.clone(),
            pipeline: self.pipeline.clone(),
            keep: self.keep,
        }
    }
}

impl Old {
    /// Removes all pages of the pipeline but the newest. Other files stay.
    pub fn remove(&self) -> std::io::Result<()> {
        let mut pages = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let file = entry.file_name();
            let Some(order) = file.to_str().and_then(|name| order(name, &self.pipeline)) else {
                continue;
            };
            if is_ours(&entry.path()).unwrap_or(false) {
                pages.push((order, entry.path()));
            }
        }
        pages.sort();
        let excess = pages.len().saturating_sub(self.keep);
        for (_, path) in &pages[..excess] {
            match std::fs::remove_file(path) {
                // Another run of the pipeline removes the same ones.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The file of a run's page.
fn name(pipeline: &str, run_id: &str, attempt: u64) -> String {
    format!("{pipeline}-{run_id}-{attempt}.html")
}

/// The sort key of a pipeline's page. `None` for the name of another file.
fn order(name: &str, pipeline: &str) -> Option<(String, u64)> {
    let rest = name.strip_prefix(pipeline)?.strip_prefix('-')?;
    let (id, attempt) = rest.strip_suffix(".html")?.rsplit_once('-')?;
    let parts: Vec<&str> = id.split('-').collect();
    let [date, time, random] = parts[..] else {
        return None;
    };
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    let is_id = digits(date, 8)
        && digits(time, 6)
        && random.len() == 8
        && random.bytes().all(|b| b.is_ascii_hexdigit());
    Some((id.to_owned(), attempt.parse().ok()?)).filter(|_| is_id)
}

#[cfg(test)]
mod tests {
    use super::super::{DOCTYPE, MARK};
    use super::*;

    #[test]
    fn a_directory_behind_a_link_of_another_user_is_refused() {
        use std::os::unix::fs::{lchown, symlink};
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let link = folder.path().join("reports");
        symlink("other", &link).unwrap();
        let shelf = |directory: &str| {
            let pages = Pages {
                directory: directory.into(),
                keep: 2,
            };
            Shelf::new(&pages, folder.path(), "a", "2026-01-31T23:59:59.123Z").err()
        };
        assert!(shelf("reports").is_none());
        // Only root can make a link of another user.
        if lchown(&link, Some(65534), None).is_err() {
            return;
        }
        for directory in ["reports", "reports/new"] {
            let failure = shelf(directory).unwrap();
            assert_eq!(failure.code, "link_refused", "{failure:?}");
            assert!(failure.message.contains("uid 65534"), "{failure:?}");
        }
        assert!(!folder.path().join("other/new").exists());
        for page in [link.join("run.html"), link.join("new/run.html")] {
            for paper in [Paper::at(&page), Paper::of_index(&page)] {
                assert_eq!(paper.err().unwrap().code, "link_refused");
            }
        }
    }

    #[test]
    fn the_newest_pages_of_the_pipeline_stay_and_other_files_are_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pages = Pages {
            directory: "reports".into(),
            keep: 2,
        };
        let shelf = || Shelf::new(&pages, folder.path(), "a", "2026-01-31T23:59:59.123Z").unwrap();
        let directory = folder.path().join("reports");
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        let ours = format!("{DOCTYPE}{MARK}");
        shelf();
        for run in ["20260101-000000-0000000a", "20260102-000000-00000009"] {
            write(&name("a", run, 1), &ours);
        }
        write(&name("a", "20260102-000000-00000009", 10), &ours);
        write(&name("a", "20260102-000000-00000009", 9), &ours);
        write(&name("a-b", "20250101-000000-00000000", 1), &ours);
        write(&name("a", "20250101-000000-00000000", 1), "not a page");
        write("a-notes.html", &ours);
        shelf().old().remove().unwrap();
        let mut left: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let expected = [
            "a-20250101-000000-00000000-1.html",
            "a-20260102-000000-00000009-10.html",
            "a-20260102-000000-00000009-9.html",
            "a-b-20250101-000000-00000000-1.html",
            "a-notes.html",
        ];
        assert_eq!(left, expected);
        let paper = shelf()
            .paper(Some(("20260103-000000-00000000", 4)))
            .unwrap();
        assert!(paper.path().ends_with("a-20260103-000000-00000000-4.html"));
        let name = shelf().paper(None).unwrap();
        let name = name
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        assert!(order(&name, "a").is_some(), "{name}");
    }
}
