//! Examples for what brings none of its own: put together of those of its parts.

use serde_json::{Map, Value, json};

/// How deep shapes may stand in each other.
const DEEPEST: usize = 12;

/// Gives an example to every shape, parameter and good answer of a description that has none, as far as its parts say what
/// they look like.
pub(super) fn complete(document: &mut Value) {
    let mut shapes = document["components"]["schemas"].take();
    let Some(names) = shapes.as_object().map(|shapes| shapes.keys().cloned().collect::<Vec<_>>()) else { return };
    for name in names {
        if shapes[&name].get("examples").is_none()
            && let Some(example) = sample(&shapes[&name], &shapes, 0)
        {
            shapes[&name]["examples"] = json!([example]);
        }
    }
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    for operation in paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
            if parameter["schema"].get("examples").is_none() {
                add(parameter, &shapes);
            }
        }
        for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
            let contents = response.get_mut("content").and_then(Value::as_object_mut).into_iter();
            for content in contents.flat_map(Map::values_mut).filter(|_| status.starts_with('2')) {
                add(content, &shapes);
            }
        }
    }
    document["components"]["schemas"] = shapes;
}

/// Gives an example to what has a schema.
fn add(described: &mut Value, shapes: &Value) {
    if described.get("example").is_none()
        && let Some(example) = sample(&described["schema"], shapes, 0)
    {
        described["example"] = example;
    }
}

/// A value of that shape; none if nobody says what a part of it looks like.
fn sample(schema: &Value, shapes: &Value, depth: usize) -> Option<Value> {
    if depth > DEEPEST {
        return None;
    }
    let inner = |schema: &Value| sample(schema, shapes, depth + 1);
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return inner(&shapes[name]);
    }
    if may_be_null(schema) {
        return Some(Value::Null);
    }
    if let Some(given) = ["const", "default"].iter().find_map(|keyword| schema.get(keyword)) {
        return Some(given.clone());
    }
    if let Some(given) = ["examples", "enum"].iter().find_map(|keyword| schema[keyword].get(0)) {
        return Some(given.clone());
    }
    match schema["type"].as_str() {
        Some("object") => {
            let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields = names.map(|name| Some((name.to_owned(), inner(&schema["properties"][name])?)));
            fields.collect::<Option<Map<_, _>>>().map(Value::from)
        }
        Some("array") => inner(&schema["items"]).map(|item| json!([item])),
        Some("boolean") => Some(json!(false)),
        Some("integer" | "number") => Some(json!(schema["minimum"].as_i64().unwrap_or_default().max(1))),
        Some(_) => None,
        None => match schema["anyOf"].get(0) {
            Some(first) => inner(first),
            None => Some(json!({})),
        },
    }
}

/// Whether it may be null, and says so.
fn may_be_null(schema: &Value) -> bool {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    ["type", "anyOf"].iter().any(|keyword| schema[keyword].as_array().is_some_and(|kinds| kinds.iter().any(is_null)))
}

#[cfg(test)]
mod tests {
    use punctual_sdk::Schema;

    use super::*;

    #[test]
    fn an_example_is_made_of_those_of_its_parts() {
        let shapes = json!({"Part": Schema::object([("id", Schema::text().example("x"))]).into_value()});
        let whole = Schema::object([
            ("part", Schema::named("Part")),
            ("word", Schema::word(["a", "b"])),
            ("when", Schema::instant().or_null()),
            ("count", Schema::count()),
            ("some", Schema::list(Schema::named("Part"))),
        ])
        .may_have([("more", Schema::text())]);
        let expected = json!({"part": {"id": "x"}, "word": "a", "when": null, "count": 1, "some": [{"id": "x"}]});
        assert_eq!(sample(&whole.into_value(), &shapes, 0), Some(expected));
        let unknown = Schema::object([("name", Schema::text())]);
        assert_eq!(sample(&unknown.into_value(), &shapes, 0), None, "nobody says what a name looks like");
    }
}
