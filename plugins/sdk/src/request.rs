use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::engine::{Call, Kept};
use crate::{Answer, AnswerContent, Context, Database, Fields, Notifier, Problem, Transaction};

/// One call of a plugin's route.
#[derive(Debug, Clone)]
pub struct Request {
    /// What stands in the places of the path, by name.
    pub places: BTreeMap<String, String>,
    /// The parameters.
    pub parameters: BTreeMap<String, String>,
    /// The body; an empty object where there is none.
    pub body: Value,
    /// When it came: the "now" of a route that a test can move.
    pub now: DateTime<Utc>,
    /// Under which `Idempotency-Key` it came, if under any.
    pub call: Option<Call>,
    /// The database, state cells, and the name of the plugin.
    pub context: Context,
}

impl Request {
    /// The id in the place `id` of the path, of what `what` names.
    ///
    /// # Errors
    /// When it is none: there is no such thing then.
    pub fn id(&self, what: &str) -> Result<Uuid, Problem> {
        let text = self.places.get("id").map_or("", String::as_str);
        Uuid::parse_str(text).map_err(|_| {
            let short: String = text.chars().take(100).collect();
            Problem::not_found(format!("{what} {short:?}"))
        })
    }

    /// The fields of the body.
    pub fn fields(&self) -> Fields {
        Fields::of(self.body.clone())
    }

    /// The fields of `there` with those of the body merged into it, as `PATCH` has it: `null` takes one away.
    pub fn merged_into(&self, there: Value) -> Fields {
        let Value::Object(changes) = &self.body else { return Fields::of(self.body.clone()) };
        let mut merged = there;
        merge(&mut merged, changes);
        Fields::of(merged)
    }

    /// The parameters of the query.
    pub fn query(&self) -> Fields {
        let given = self.parameters.iter().filter(|(_, value)| !value.is_empty());
        Fields::of(given.map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect())
    }

    /// Refuses parameters, for a route that takes none.
    ///
    /// # Errors
    /// When there are any.
    pub fn no_query(&self) -> Result<(), Problem> {
        self.query().finish()
    }

    /// Commits what the call writes, and keeps the answer in the same transaction where it came under an `Idempotency-Key`.
    /// If the same call was answered before, nothing is written, and the first answer is given.
    ///
    /// A route may commit without it: its answer is kept right afterwards then, and what it does could be done twice if
    /// the node dies in between.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn commit(&self, mut transaction: Transaction, answer: Answer) -> Result<Answer, Problem> {
        if let (Some(call), AnswerContent::Json(body)) = (&self.call, &answer.content) {
            match transaction.keep(call, answer.status, body).await? {
                Kept::Now => {}
                Kept::Before(status, body) => {
                    transaction.rollback().await?;
                    return Ok(Answer { status, content: AnswerContent::Json(body), is_kept: true });
                }
                Kept::Reused => return Err(Problem::conflict("the Idempotency-Key was used before with another body")),
            }
        }
        transaction.commit().await?;
        Ok(Answer { is_kept: true, ..answer })
    }

    /// The database: see [`Context::database`].
    pub fn database(&self) -> Database {
        self.context.database()
    }

    /// What sends messages for the plugin: see [`Context::notifier`].
    pub fn notifier(&self) -> Notifier {
        self.context.notifier()
    }
}

fn merge(there: &mut Value, changes: &Map<String, Value>) {
    if !there.is_object() {
        *there = Value::Object(Map::new());
    }
    let Some(fields) = there.as_object_mut() else { return };
    for (name, change) in changes {
        match change {
            // It stays as null, which is read as nothing, so that what nobody knows is refused.
            Value::Null => drop(fields.insert(name.clone(), Value::Null)),
            Value::Object(inner) => merge(fields.entry(name).or_insert(Value::Null), inner),
            other => drop(fields.insert(name.clone(), other.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_merges_and_null_takes_away() {
        let mut there =
            json!({"title": "A", "endDate": "x", "creator": {"name": "Ada", "email": "a@b.c"}, "people": [1]});
        let changes =
            json!({"title": "B", "endDate": null, "creator": {"name": "Eve"}, "people": [2], "new": {"a": null}});
        merge(&mut there, changes.as_object().unwrap());
        assert_eq!(
            there,
            json!({"title": "B", "endDate": null, "creator": {"name": "Eve", "email": "a@b.c"}, "people": [2], "new": {"a": null}})
        );
        let mut fields = Fields::of(json!({"endDate": null, "": null}));
        assert_eq!(fields.date("endDate"), None);
        assert!(fields.finish().is_err(), "nobody knows a field without a name");
    }
}
