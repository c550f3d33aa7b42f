//! The description of the API that a server gives, checked by a validator of OpenAPI 3.1 that is not ours.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::remote::Server;
use crate::support::Folder;

/// Gives the faults of a document as a JSON list of texts. Exit code 3: the validator is not installed.
const CHECK: &str = "
import json, sys
try:
    from openapi_spec_validator import OpenAPIV31SpecValidator
except ImportError:
    sys.exit(3)
document = json.load(open(sys.argv[1], encoding='utf-8'))
faults = OpenAPIV31SpecValidator(document).iter_errors()
print(json.dumps(['/'.join(map(str, f.absolute_path)) + ': ' + f.message for f in faults]))
";

/// The document of a server.
fn served(folder: &Folder) -> Value {
    folder.write("pipelines/.keep", "");
    let server = Server::start(folder, &["--listen", "127.0.0.1:0"]);
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = "GET /v1/openapi.json HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn the_description_of_the_api_is_valid_openapi() {
    let Some(python) = std::env::var_os("RAPIDBYTE_PYTHON") else {
        println!("SKIPPED: RAPIDBYTE_PYTHON names no Python: run `cargo xtask test`");
        return;
    };
    let folder = Folder::new();
    folder.write("check.py", CHECK);
    let faults = |document: &Value| -> Option<Vec<String>> {
        folder.write("openapi.json", document.to_string());
        let output = Command::new(&python)
            .current_dir(folder.path())
            .args(["check.py", "openapi.json"])
            .output()
            .expect("Python starts");
        if output.status.code() == Some(3) {
            return None;
        }
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        Some(serde_json::from_slice(&output.stdout).expect("a list of texts"))
    };
    let mut document = served(&folder);
    let Some(found) = faults(&document) else {
        println!("SKIPPED: the Python of RAPIDBYTE_PYTHON does not have openapi-spec-validator");
        return;
    };
    assert_eq!(found, Vec::<String>::new());
    // The validator finds what is wrong.
    for (place, wrong) in [
        ("/paths/~1v1~1jobs/get/parameters/0/in", json!("nowhere")),
        ("/components/schemas/Job/type", json!("objekt")),
        ("/info/title", json!(7)),
    ] {
        let part = document.pointer_mut(place).expect(place);
        let right = std::mem::replace(part, wrong);
        let found = faults(&document).expect("the validator");
        assert!(!found.is_empty(), "{place}");
        *document.pointer_mut(place).expect(place) = right;
    }
}
