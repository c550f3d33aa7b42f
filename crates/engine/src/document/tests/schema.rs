//! The JSON Schema knows the keys that the reader knows.
//!
//! That the schema is right, and that every example keeps it, is tested end to end with a validator
//! that is not ours.

use super::super::declare::mappings;
use super::super::schema;

#[test]
fn the_schema_and_the_reader_know_the_same_keys() {
    let schema = schema::json_schema(&[]);
    let root = &schema["properties"];
    let at = |mapping: &str| match mapping {
        "the top level" => &schema,
        "an entry of source.streams" => {
            &root["source"]["properties"]["streams"]["items"]["anyOf"][1]
        }
        "an entry of transforms" => {
            let stream = &root["source"]["properties"]["streams"]["items"]["anyOf"][1];
            &stream["properties"]["transforms"]["items"]["anyOf"][0]
        }
        "target" => {
            let stream = &root["source"]["properties"]["streams"]["items"]["anyOf"][1];
            &stream["properties"]["target"]
        }
        other => other.split('.').fold(&schema, |object, key| {
            let property = &object["properties"][key];
            // A word, or a mapping.
            if ["files", "schema_changes"].contains(&key) {
                &property["anyOf"][1]
            } else {
                property
            }
        }),
    };
    for (mapping, keys) in &mappings() {
        let object = at(mapping);
        let properties = object["properties"].as_object().expect(mapping);
        let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        known.sort_unstable();
        keys.sort_unstable();
        assert_eq!(known, keys, "{mapping}");
        assert_eq!(object["additionalProperties"], false, "{mapping}");
        for (key, property) in properties {
            assert!(property["description"].is_string(), "{mapping}: {key}");
        }
    }
}
