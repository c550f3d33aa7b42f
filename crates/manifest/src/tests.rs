use super::*;

const RUN: Run<'static> = Run {
    pipeline: "p",
    stream: "s",
    id: "r1",
};

fn link(manifest: &Manifest) -> Link {
    let bytes = manifest.encode().expect("bytes");
    Link::decode(manifest.number, &bytes).expect("a manifest")
}

#[test]
fn names_and_numbers_are_each_others_inverse() {
    assert_eq!(name(7).expect("a name"), "00000007.json");
    assert_eq!(number("00000007.json"), Some(7));
    for other in [
        "7.json",
        "0000000a.json",
        "00000007.json.pending",
        "+0000007.json",
    ] {
        assert_eq!(number(other), None, "{other}");
    }
    assert_eq!(name(MAX_NUMBER + 1), Err(ManifestError::Full));
    assert_eq!(part(2, 7, 12), "0002-00000007-00012");
    assert_eq!(number_of_part(&part(12_345, 7, 123_456)), Some(7));
    for other in ["00000", "1-2", "1-2-3-4", "1--3", "a-2-3"] {
        assert_eq!(number_of_part(other), None, "{other}");
    }
}

#[test]
fn a_chain_says_where_it_was_cut_or_changed() {
    let let_in = |last: Option<&Link>| {
        let mut manifest = Link::follow(last, RUN).expect("a manifest");
        manifest.epoch += 1;
        manifest
    };
    let first = link(&let_in(None));
    let second = link(&let_in(Some(&first)));
    Link::is_before(None, &first).expect("the beginning");
    Link::is_before(Some(&first), &second).expect("the next");
    let cut = Link::is_before(None, &second).expect_err("a gap");
    assert!(cut.to_string().contains("1 is missing"), "{cut}");
    let mut other = first.manifest.clone();
    other.rows += 1;
    let changed = Link::is_before(Some(&link(&other)), &second);
    assert!(matches!(changed, Err(ManifestError::Broken(_))));
}

#[test]
fn a_manifest_that_no_run_writes_is_found_by_the_one_before_it() {
    type Change = fn(&mut Manifest);
    fn file(rows: u64) -> File {
        File {
            path: "a".into(),
            size: 1,
            sha256: Hash::of(b"x"),
            rows,
        }
    }
    let mut first = Link::follow(None, RUN).expect("a manifest");
    first.epoch = 1;
    let first = link(&first);
    let mut commit = Link::follow(Some(&first), RUN).expect("a manifest");
    commit.seq = 1;
    commit.rows = 3;
    commit.cursor = Some("{}".into());
    commit.files = vec![file(1), file(2)];
    let commit = link(&commit);
    let is_good = |before: &Link, next: &Manifest| Link::is_before(Some(before), &link(next));
    is_good(&first, &commit.manifest).expect("a commit");
    let follow = |change: Change| {
        let mut next = Link::follow(Some(&commit), RUN).expect("a manifest");
        change(&mut next);
        next
    };
    let cases: &[(&str, Change)] = &[
        ("", |m| m.epoch = 2),
        ("", |m| m.seq = 2),
        ("", |m| (m.seq, m.begins, m.rows) = (2, 3, 0)),
        ("", |m| {
            (m.seq, m.begins, m.rows, m.files) = (2, 3, 4, vec![file(4)])
        }),
        ("seq", |_| {}),
        ("epoch", |m| m.epoch = 3),
        ("epoch", |m| m.epoch = 0),
        ("seq", |m| (m.epoch, m.seq) = (2, 2)),
        ("cursor", |m| (m.epoch, m.cursor) = (2, None)),
        ("rows", |m| (m.epoch, m.rows) = (2, 4)),
        ("begins", |m| (m.epoch, m.begins) = (2, 1)),
        ("files", |m| (m.epoch, m.files) = (2, vec![file(0)])),
        ("seq", |m| m.seq = u64::MAX),
        ("rows", |m| (m.seq, m.rows) = (2, u64::MAX)),
        ("rows", |m| (m.seq, m.files) = (2, vec![file(u64::MAX)])),
        ("begins", |m| (m.seq, m.begins) = (2, 2)),
    ];
    for (key, change) in cases.iter().copied() {
        let next = follow(change);
        match is_good(&commit, &next) {
            Ok(()) => assert_eq!(key, "", "{next:?}"),
            Err(error) => {
                let told = format!("its {key} was changed");
                assert!(error.to_string().ends_with(&told), "{key}: {error}");
            }
        }
    }
}

#[test]
fn a_run_that_begins_again_is_as_complete_as_before() {
    let mut done = Link::follow(None, RUN).expect("a manifest");
    done.complete = true;
    let done = link(&done);
    let again = Link::follow(Some(&done), RUN).expect("a manifest");
    assert!(again.complete);
    let other = Run { id: "r2", ..RUN };
    assert!(
        !Link::follow(Some(&done), other)
            .expect("a manifest")
            .complete
    );
}

#[test]
fn no_file_is_outside_of_the_directory() {
    for path in ["../x", "/x", "a//b", "a/..", "*", ""] {
        let mut manifest = Link::follow(None, RUN).expect("a manifest");
        manifest.files.push(File {
            path: path.into(),
            size: 1,
            sha256: Hash::of(b"x"),
            rows: 1,
        });
        let bytes = manifest.encode().expect("bytes");
        let error = Link::decode(1, &bytes).expect_err("outside");
        assert!(error.to_string().contains("outside"), "{path}");
    }
    assert!(Link::decode(2, b"{}").is_err());
}

#[test]
fn the_hash_is_sha_256() {
    // FIPS 180-2, appendix B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(Hash::of(b"abc"), abc);
}

#[test]
fn a_file_of_rejects_tells_its_manifest_and_stays_out_of_the_rows() {
    assert_eq!(
        number_of_rejects("bad.0002-00000007-00000.rejects.jsonl"),
        Some(7)
    );
    for other in [
        "bad.rejects.jsonl",
        "0002-00000007-00000.rejects.jsonl",
        "bad.0002-00000007-00000.jsonl",
    ] {
        assert_eq!(number_of_rejects(other), None, "{other}");
    }
}
