//! The schema of the configuration, as an editor gets it.

use serde_json::Value;

use super::Place;

#[tokio::test]
async fn the_schema_is_written_as_one_document() {
    let ended = Place::toml("").seawall(&["schema"]).await;
    let schema: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (ended.code, &schema["$schema"]),
        (0, &"https://json-schema.org/draft/2020-12/schema".into())
    );
    assert!(schema["properties"]["servers"].is_object() && ended.err.is_empty());
}
