//! Files with one JSON document each.

use std::io::Write;

use rapidbyte_formats::Compression;
use rapidbyte_formats::compression::Compressor;
use rapidbyte_sdk::prelude::*;
use serde_json::json;

use crate::reads::{WAIT, folder, open, read, request, rows, shown, unreadable};

#[test]
fn documents_are_read_as_json_lines_are() {
    let folder = folder(&[
        (
            "in/1.json",
            "[\n  {\"id\": 1, \"name\": \"a]\"},\n  {\"id\": 2}\n]\n",
        ),
        ("in/2.json", "{\"name\": \"b\",\n\"id\": 3}"),
        ("in/3.json", "[]"),
    ]);
    for (name, compression) in [
        ("4.json.gz", Compression::Gzip),
        ("5.json.zst", Compression::Zstd),
    ] {
        let mut compressor = Compressor::new(compression).unwrap();
        compressor.push(b"[{\"id\":4}]").unwrap();
        std::fs::write(
            folder.path().join("in").join(name),
            compressor.finish().unwrap(),
        )
        .unwrap();
    }
    let config = json!({"path": "in/*", "stream": "s", "format": "json"});
    let mut source = open(folder.path(), config).unwrap();
    let streams = source.discover(&[]).unwrap();
    assert_eq!(shown(&streams[0]), "s: id int64, name string");
    assert_eq!(
        read(&mut source, "s", None).unwrap(),
        "{\"id\":1,\"name\":\"a]\"}\n{\"id\":2,\"name\":null}\n{\"id\":3,\"name\":\"b\"}\n\
         {\"id\":4,\"name\":null}\n{\"id\":4,\"name\":null}\n"
    );
    let mut source = open(folder.path(), json!({"path": "in/1.json"})).unwrap();
    assert_eq!(
        read(&mut source, "1", Some(&["id"])).unwrap(),
        "{\"id\":1}\n{\"id\":2}\n"
    );
}

#[test]
fn a_bad_document_names_its_line() {
    for (text, code, line) in [
        ("[{\"id\":1},\n{\"id\":\n\"x\"}]", "value_does_not_fit", 3),
        ("[{\"id\":1},\n{\"id\":2}", "json_truncated", 2),
        ("[{\"id\":1},\n{\"id\":2},]", "json_broken_document", 2),
        ("{\"id\":1}\n{\"id\":2}\n", "json_broken_document", 2),
        ("7", "json_not_rows", 1),
    ] {
        let folder = folder(&[("a.json", text)]);
        let config = json!({"path": "a.json", "schema": {"id": "int64"}});
        let error = read(&mut open(folder.path(), config).unwrap(), "a", None).unwrap_err();
        assert_eq!(error.code, code, "{text}: {}", error.message);
        let place = error.location.unwrap();
        assert!(place.ends_with(&format!("a.json:{line}")), "{place}");
    }
    let folder = folder(&[("a.json", "[{\"id\":1} {\"id\":2}]")]);
    let error = unreadable(
        &mut open(folder.path(), json!({"path": "a.json"})).unwrap(),
        "a",
    );
    assert_eq!(error.code, "json_broken_document");
}

#[test]
fn rejects_have_the_place_of_their_value_and_are_replayed() {
    let folder = folder(&[("a.json", "[{\"id\":1},\n{\n\"id\":\"x\"},\n {\"id\":2}, 5]")]);
    let config = json!({"path": "a.json", "schema": {"id": "int64"}});
    let mut source = open(folder.path(), config).unwrap();
    let mut request = request(&mut source, "a", None);
    request.keeps_rejects = true;
    let mut reader = source.read(&request).unwrap();
    let Event::Rejects(rejects) = reader.next(WAIT).unwrap() else {
        panic!("no rejects");
    };
    let shown = rejects.iter().map(|reject| {
        let place = reject.location.as_deref().unwrap();
        let line = place.rsplit_once(':').unwrap().1.to_owned();
        (
            reject.code.clone(),
            line,
            String::from_utf8(reject.data.clone()).unwrap(),
        )
    });
    let shown: Vec<_> = shown.collect();
    let expected = [
        ("value_does_not_fit", "3", "{\n\"id\":\"x\"}"),
        ("jsonl_not_an_object", "4", "5"),
    ];
    let expected =
        expected.map(|(code, line, data)| (code.to_owned(), line.to_owned(), data.to_owned()));
    assert_eq!(shown, expected);
    assert_eq!(rows(&mut reader).unwrap()[0].num_rows(), 2);
    let repaired = rejects
        .into_iter()
        .zip([&b"{\n\"id\": 7}"[..], b"[{\"id\":8},{\"id\":9}]"]);
    let repaired = repaired.map(|(reject, data)| Reject {
        data: data.to_vec(),
        ..reject
    });
    request.records = Some(repaired.collect());
    let batches = rows(&mut source.read(&request).unwrap()).unwrap();
    assert_eq!(batches[0].num_rows(), 3);
}

#[test]
fn a_late_key_of_a_document_is_a_column_if_the_host_follows() {
    let folder = folder(&[("a.json", "[{\"id\":1},\n{\"id\":2,\"late\":true}]")]);
    let config = json!({"path": "a.json", "sample_rows": 1});
    let mut source = open(folder.path(), config).unwrap();
    let mut request = request(&mut source, "a", None);
    request.follows_columns = true;
    let mut reader = source.read(&request).unwrap();
    let Event::Changed(change) = reader.next(WAIT).unwrap() else {
        panic!("no change");
    };
    assert_eq!(self::shown(&change.described), "a: id int64, late bool");
}

#[test]
fn a_document_that_changes_while_it_is_read_is_refused() {
    let element = "{\"a\":1234567890123456},\n";
    let text = format!("[{}{{}}]", element.repeat(60_000));
    let folder = folder(&[("a.json", &text)]);
    let path = folder.path().join("a.json");
    let mut source = open(folder.path(), json!({"path": "a.json"})).unwrap();
    let mut request = request(&mut source, "a", None);
    request.batch_bytes = 1000;
    let mut reader = source.read(&request).unwrap();
    assert!(matches!(reader.next(WAIT), Ok(Event::Batch(_))));
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b" ").unwrap();
    assert_eq!(rows(&mut reader).unwrap_err().code, "file_changed");
}

#[test]
fn an_array_of_any_size_takes_the_memory_of_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let element = "{\"id\":1234567,\"text\":\"some more text, with [brackets] in it\"},";
    let mut file = std::fs::File::create(folder.path().join("big.json")).unwrap();
    let piece = element.repeat((1 << 20) / element.len());
    file.write_all(b"[").unwrap();
    for _ in 0..40 {
        file.write_all(piece.as_bytes()).unwrap();
    }
    file.write_all(b"{}]").unwrap();
    let mut source = open(folder.path(), json!({"path": "big.json"})).unwrap();
    let request = request(&mut source, "big", None);
    let mut reader = source.read(&request).unwrap();
    let mut count = 0;
    while let Event::Batch(batch) = reader.next(WAIT).unwrap() {
        count += batch.num_rows();
        assert!(batch.get_array_memory_size() + reader.held_bytes() < 4 << 20);
    }
    assert_eq!(count, 40 * (piece.len() / element.len()) + 1);
}
