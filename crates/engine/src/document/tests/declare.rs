//! One declaration gives the reader, the known keys, the schema and the description.

use serde_json::json;

use super::super::declare::Keys;
use super::super::node;
use super::*;

fn sample(text: &str) -> Result<Sample, DocumentError> {
    let root = node::parse(text, "p.yaml")?.expect("not empty");
    let environment = environment();
    let variables = environment.open(Path::new("."))?;
    let reader = Reader::new("p.yaml", Path::new("."), &variables);
    Sample::read(&Spot::root(&reader, &root))
}

#[test]
fn one_declaration_reads_a_key_describes_it_and_makes_its_schema() {
    let read = sample("row_count: ${NOT_SET:-4}\nnames: [a, b]\n").expect("good");
    let expected = Sample {
        rows: 4,
        word: WhenRunning::Wait,
        names: vec!["a".into(), "b".into()],
        own: 0,
    };
    assert_eq!(read, expected);
    assert_eq!(sample("{}").expect("good"), Sample::default());
    assert_eq!(Sample::default().rows, 2);
    let written = serde_json::to_value(&read).expect("a value");
    assert_eq!(written["row_count"], 4);

    assert_eq!(Sample::KEYS, ["row_count", "word", "names"]);
    let error = sample("rows: 3").expect_err("the field has another name in the file");
    assert_eq!(
        error.to_string(),
        "p.yaml:1:1: unknown key \"rows\" (use one of these keys: \
         row_count, word, names)"
    );
    let error = sample("row_count: 6").expect_err("too large");
    assert_eq!(
        error.hint.as_deref(),
        Some("write a whole number from 1 to 5")
    );

    let schema = Sample::schema();
    let variable = json!({ "type": "string", "pattern": r"\$\{.+\}" });
    let expected = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "row_count": {
                "description": "How many rows there are.",
                "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 5 }, variable],
            },
            "word": {
                "description": "A word.",
                "anyOf": [{ "enum": ["refuse", "wait", "replace"] }, variable],
            },
            "names": {
                "description": "Names.",
                "type": "array",
                "minItems": 1,
                "items": { "type": "string", "minLength": 1 },
                "uniqueItems": true,
            },
        },
    });
    assert_eq!(schema, expected);
}
