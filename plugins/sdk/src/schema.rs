use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

/// What a value looks like, in JSON Schema as OpenAPI 3.1 has it.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Schema(Map<String, Value>);

impl Schema {
    /// Any JSON value.
    pub fn any() -> Self {
        Self::of(json!({}))
    }

    /// A text.
    pub fn text() -> Self {
        Self::of(json!({"type": "string"}))
    }

    /// A text with so many characters.
    pub fn text_of(length: RangeInclusive<usize>) -> Self {
        Self::of(json!({"type": "string", "minLength": length.start(), "maxLength": length.end()}))
    }

    /// A text as [`Fields::text`](crate::Fields::text) reads it: of at most 1000 characters, and not all of them blank.
    pub fn field_text() -> Self {
        Self::text_of(1..=1000).matching(r"\S")
    }

    /// A name or key, as most things have one.
    pub fn key() -> Self {
        Self::text_of(1..=200).example("order-17")
    }

    /// A text that a program has to understand, such as `date-time`. The usual ones bring an example.
    pub fn format(name: &str) -> Self {
        let schema = Self::of(json!({"type": "string", "format": name}));
        match name {
            "date-time" => schema.example("2036-12-01T21:37:00.000Z"),
            "date" => schema.example("2036-12-01"),
            "email" => schema.example("ada@example.com"),
            "iana-timezone" => schema.example("America/Mexico_City"),
            "uri" => schema.example("https://example.com/hook"),
            "uuid" => schema.example("019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d11"),
            _ => schema,
        }
    }

    /// An instant: RFC 3339 with an offset; in answers UTC with milliseconds.
    pub fn instant() -> Self {
        Self::format("date-time")
    }

    /// The name of a time zone.
    pub fn timezone() -> Self {
        Self::format("iana-timezone").about("an IANA name")
    }

    /// An id.
    pub fn id() -> Self {
        Self::format("uuid")
    }

    /// A topic.
    pub fn topic() -> Self {
        Self::of(json!({
            "type": "string", "maxLength": 200, "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
        }))
        .example("mail.send")
    }

    /// A topic, or a prefix of topics such as `mail.*`.
    pub fn topic_pattern() -> Self {
        Self::of(json!({
            "type": "string", "maxLength": 200, "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?$",
        }))
        .example("mail.*")
    }

    /// True or false.
    pub fn flag() -> Self {
        Self::of(json!({"type": "boolean"}))
    }

    /// A whole number.
    pub fn whole(bounds: RangeInclusive<i64>) -> Self {
        Self::of(json!({"type": "integer", "minimum": bounds.start(), "maximum": bounds.end()}))
    }

    /// How many.
    pub fn count() -> Self {
        Self::of(json!({"type": "integer", "minimum": 0}))
    }

    /// A number.
    pub fn number(bounds: RangeInclusive<f64>) -> Self {
        Self::of(json!({"type": "number", "minimum": bounds.start(), "maximum": bounds.end()}))
    }

    /// A number above zero.
    pub fn positive(most: f64) -> Self {
        Self::of(json!({"type": "number", "exclusiveMinimum": 0, "maximum": most}))
    }

    /// One of a few words.
    pub fn word<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(json!({"type": "string", "enum": words.into_iter().collect::<Vec<_>>()}))
    }

    /// Several values.
    pub fn list(items: Self) -> Self {
        Self::of(json!({"type": "array", "items": items.into_value()}))
    }

    /// So many values.
    pub fn list_of(items: Self, length: RangeInclusive<usize>) -> Self {
        Self::list(items).with("minItems", json!(length.start())).with("maxItems", json!(length.end()))
    }

    /// One value or more.
    pub fn some(items: Self) -> Self {
        Self::list(items).with("minItems", json!(1))
    }

    /// With no value twice.
    pub fn each_once(self) -> Self {
        self.with("uniqueItems", json!(true))
    }

    /// A text that says something.
    pub fn said() -> Self {
        Self::text().with("minLength", json!(1))
    }

    /// One text, or several.
    pub fn texts(item: Self, length: RangeInclusive<usize>) -> Self {
        Self::either([item.clone(), Self::list_of(item, length)])
    }

    /// Texts under names that callers choose.
    pub fn metadata() -> Self {
        Self::of(json!({
            "type": "object", "maxProperties": 50, "propertyNames": {"minLength": 1},
            "additionalProperties": {"type": "string"},
            "description": "at most 50 entries, each of at most 1 KiB with its name",
            "examples": [{"ownerId": "me"}],
        }))
    }

    /// Values of one shape under names that nobody knows before.
    pub fn by_name(value: Self) -> Self {
        Self::of(json!({"type": "object", "additionalProperties": value.into_value()}))
    }

    /// One of several shapes.
    pub fn either(shapes: impl IntoIterator<Item = Self>) -> Self {
        Self::of(json!({"anyOf": shapes.into_iter().map(Self::into_value).collect::<Vec<_>>()}))
    }

    /// A shape that stands among the components.
    pub fn named(name: &str) -> Self {
        Self::of(json!({"$ref": format!("#/components/schemas/{name}")}))
    }

    /// An object with these fields, all of them, and no others.
    pub fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::of(json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}))
            .needs(fields)
    }

    /// A page of a list.
    pub fn page(items: Self) -> Self {
        let next = Self::text().or_null().about("the cursor of the next page; null on the last one");
        Self::object([("items", Self::list(items)), ("nextCursor", next)])
    }

    /// With further fields, which are always there.
    pub fn needs<const N: usize>(mut self, fields: [(&str, Self); N]) -> Self {
        for (name, schema) in fields {
            self.property(name, schema);
            if let Some(required) = self.0.get_mut("required").and_then(Value::as_array_mut) {
                required.push(name.into());
            }
        }
        self
    }

    /// With further fields, which may be missing.
    pub fn may_have<const N: usize>(mut self, fields: [(&str, Self); N]) -> Self {
        for (name, schema) in fields {
            self.property(name, schema);
        }
        self
    }

    /// With further fields that callers may give; `null` is the same as leaving one out.
    pub fn takes<const N: usize>(self, fields: [(&str, Self); N]) -> Self {
        self.may_have(fields.map(|(name, schema)| (name, schema.or_null())))
    }

    /// With a rule that fields have to follow together: one of these shapes too.
    pub fn one_of<const N: usize>(mut self, shapes: [Value; N]) -> Self {
        let rules = self.0.entry("allOf").or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({"anyOf": shapes.to_vec()}));
        }
        self
    }

    /// With a rule that callers have to give at least one of these fields.
    pub fn says_some_of(mut self, names: &[&str]) -> Self {
        let says = |name: &&str| json!({"required": [name], "properties": {*name: {"not": {"type": "null"}}}});
        self.0.insert("anyOf".to_owned(), names.iter().map(says).collect());
        self
    }

    /// The same, or `null`.
    pub fn or_null(mut self) -> Self {
        if let Some(words) = self.0.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
        if let Some(kind) = self.0.get_mut("type") {
            *kind = json!([kind.take(), "null"]);
            return self;
        }
        // What may be anything may be null already.
        let is_shaped = ["anyOf", "$ref"].iter().any(|keyword| self.0.contains_key(*keyword));
        if is_shaped { Self::either([self, Self::of(json!({"type": "null"}))]) } else { self }
    }

    /// A text that a regular expression finds.
    pub fn matching(self, pattern: &str) -> Self {
        self.with("pattern", pattern.into())
    }

    /// With a sentence about it.
    pub fn about(self, text: &str) -> Self {
        self.with("description", text.into())
    }

    /// With what it is where nobody says it.
    pub fn or(self, default: impl Into<Value>) -> Self {
        self.with("default", default.into())
    }

    /// With an example.
    pub fn example(self, example: impl Into<Value>) -> Self {
        self.with("examples", json!([example.into()]))
    }

    /// The JSON Schema itself.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    fn of(schema: Value) -> Self {
        match schema {
            Value::Object(keywords) => Self(keywords),
            _ => Self(Map::new()),
        }
    }

    fn property(&mut self, name: &str, schema: Self) {
        if let Some(properties) = self.0.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert(name.to_owned(), schema.into_value());
        }
    }

    fn with(mut self, keyword: &str, value: Value) -> Self {
        self.0.insert(keyword.to_owned(), value);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_may_leave_out_may_be_null() {
        let input = Schema::object([("a", Schema::flag())])
            .takes([("b", Schema::word(["x"])), ("c", Schema::named("C")), ("d", Schema::any())])
            .into_value();
        assert_eq!(input["required"], json!(["a"]));
        assert_eq!(input["properties"]["b"], json!({"type": ["string", "null"], "enum": ["x", null]}));
        assert_eq!(input["properties"]["c"]["anyOf"][1], json!({"type": "null"}));
        assert_eq!(input["properties"]["d"], json!({}));
    }

    #[test]
    fn rules_are_added_up() {
        let schema = Schema::object([]).one_of([json!(1), json!(2)]).one_of([json!(3)]).into_value();
        assert_eq!(schema["allOf"], json!([{"anyOf": [1, 2]}, {"anyOf": [3]}]));
    }
}
