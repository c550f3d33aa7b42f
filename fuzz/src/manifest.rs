//! A manifest in a folder that others may write to.

use rapidbyte_manifest::{Link, Manifest, ManifestError, Run, name, number, number_of_part, part};

/// A manifest that is read is written and read as the same, and another one can follow it.
pub fn run(data: &[u8]) {
    let mut data = data;
    let expected = u64::from(crate::byte(&mut data));
    let text = String::from_utf8_lossy(data);
    if let Some(of_name) = number(&text) {
        assert_eq!(name(of_name).as_deref(), Ok(&*text));
    }
    if let Some(of_part) = number_of_part(&text) {
        let again = part(1, of_part, 1);
        assert_eq!(number_of_part(&again), Some(of_part));
    }
    let Ok(link) = Link::decode(expected, data) else {
        return;
    };
    for file in &link.manifest.files {
        let inside = file
            .path
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."));
        assert!(inside, "{:?} leads out of the folder", file.path);
        assert!(!file.name().is_empty());
    }
    let bytes = link
        .manifest
        .encode()
        .expect("what was read can be written");
    let again = Link::decode(expected, &bytes).expect("and read");
    assert_eq!(again.manifest, link.manifest);
    let run = Run {
        pipeline: "p",
        stream: "s",
        id: "r",
    };
    match Link::follow(Some(&link), run) {
        Ok(next) => {
            let mut fences = next.clone();
            fences.epoch = next.epoch.saturating_add(1);
            follows(&link, &fences);
            // Behind the last epoch of all, every manifest is read as one that fences.
            if next.epoch < u64::MAX {
                let mut commits = next;
                commits.seq = commits.seq.saturating_add(1);
                follows(&link, &commits);
            }
        }
        Err(error) => assert_eq!(error, ManifestError::Full),
    }
}

/// A manifest that a run writes behind `link` is read as the next one of the chain.
fn follows(link: &Link, next: &Manifest) {
    let bytes = next.encode().expect("a manifest of our own");
    let next = Link::decode(link.manifest.number + 1, &bytes).expect("can be read");
    assert_eq!(Link::is_before(Some(link), &next), Ok(()));
    assert!(Link::is_before(Some(&next), link).is_err());
}
