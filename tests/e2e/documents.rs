//! The documents: what a link names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

/// Every page of `docs/`, and the documents beside it.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    add_pages(&root().join("docs"), &mut pages);
    let beside = fs::read_dir(root()).expect("the repository");
    pages.extend(beside.map(|entry| entry.expect("an entry").path()));
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    pages
}

fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => add_pages(&path, pages),
            false => pages.push(path),
        }
    }
}

/// The prose of a page: its lines without blocks of code.
fn prose(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("UTF-8");
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The targets of `[text](target)`. A link may stretch over two lines, its target may not.
fn links(page: &Path) -> Vec<String> {
    let text = prose(page).join("\n");
    let targets = text.split("](").skip(1);
    targets
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

/// The names of a page's headings in links, as the common renderers make them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let lines = prose(page);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = text.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            kept.collect()
        })
        .collect()
}

#[test]
fn every_link_within_the_repository_leads_to_a_file_and_a_heading() {
    let mut known: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let (mut seen, mut broken) = (0, Vec::new());
    for page in pages() {
        for link in links(&page) {
            if link.contains("://") {
                continue;
            }
            seen += 1;
            let (path, anchor) = match link.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (link.as_str(), None),
            };
            let target = match path {
                "" => page.clone(),
                path => page.parent().expect("a directory").join(path),
            };
            let found = match anchor {
                None => target.exists(),
                Some(anchor) => {
                    target.is_file()
                        && known
                            .entry(target.clone())
                            .or_insert_with(|| anchors(&target))
                            .contains(anchor)
                }
            };
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(seen > 50, "{seen} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The pipelines of the guides, unchanged: the name, and the lines below `destination:`.
fn guides() -> Vec<(String, String)> {
    let mut pipelines = Vec::new();
    let guides = pages()
        .into_iter()
        .filter(|page| page.parent().is_some_and(|d| d.ends_with("guides")));
    for page in guides {
        let text = fs::read_to_string(&page).expect("UTF-8");
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let name = block
                .lines()
                .find_map(|line| line.strip_prefix("pipeline: "));
            let (Some(name), Some((_, destination))) = (name, block.split_once("\ndestination:\n"))
            else {
                continue;
            };
            let below = destination.lines().take_while(|line| line.starts_with(' '));
            let target = below.filter(|line| !line.contains("write_mode"));
            pipelines.push((name.to_owned(), target.collect::<Vec<_>>().join("\n")));
        }
    }
    pipelines
}

/// Otherwise a reader of two guides would lose the rows of the first guide, or get
/// `table_of_another_pipeline`.
#[test]
fn each_pipeline_of_the_guides_has_a_target_of_its_own() {
    let pipelines = guides();
    assert!(pipelines.len() > 10, "{pipelines:#?}");
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, target) in &pipelines {
        let owner = *owners.entry(target).or_insert(name);
        assert_eq!(owner, name, "{target}");
    }
}
