//! The description of the API: that it can be had, and that it is true of itself. That it is true of what is answered is
//! checked with every answer of every test.

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::Value;

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Contract, Database, Server};

on_each_database_and_pooler!(what_is_served_is_what_is_printed);

async fn what_is_served_is_what_is_printed(database: Database) {
    add_key(&database, "pk_read", Role::Read, &[]).await;
    let server = Server::start_with_plugins(&database);
    server.get("/api/v1/openapi.json").await.problem(401, "UNAUTHENTICATED");
    let answer = Answer::to(server.request(Method::GET, "/api/v1/openapi.json").bearer_auth("pk_read")).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, Contract::of_binary().document.clone()));
    assert_eq!(answer.json()["openapi"], "3.1.0");
    server.stop();
}

#[test]
fn every_example_is_as_its_schema_says() {
    let contract = Contract::of_binary();
    let mut checked = 0;
    walk(&contract.document, &mut |member| {
        let examples = member["examples"].as_array().into_iter().flatten();
        for example in examples {
            assert_eq!(contract.violations(member, example), Vec::<String>::new(), "{example}");
            checked += 1;
        }
        if let (Some(schema), Some(example)) = (member.get("schema"), member.get("example")) {
            assert_eq!(contract.violations(schema, example), Vec::<String>::new(), "{example}");
            checked += 1;
        }
    });
    assert!(checked > 300, "{checked} examples");
}

#[test]
fn every_body_and_every_problem_has_an_example() {
    for operation in Contract::of_binary().operations() {
        let bodies = operation.told["requestBody"]["content"].as_object().into_iter().flatten();
        let responses = operation.told["responses"].as_object().unwrap().values();
        let problems =
            responses.filter_map(|response| Some(("problem", response["content"].get("application/problem+json")?)));
        for (kind, media) in bodies.map(|(kind, media)| (kind.as_str(), media)).chain(problems) {
            assert!(media.get("example").is_some(), "{} {}: {kind}", operation.method, operation.route);
        }
    }
}

#[test]
fn every_good_answer_every_parameter_and_every_shape_has_an_example() {
    let document = &Contract::of_binary().document;
    let mut without = Vec::new();
    for operation in Contract::of_binary().operations() {
        let name = format!("{} {}", operation.method, operation.route);
        for parameter in operation.told["parameters"].as_array().unwrap() {
            if parameter.get("example").or_else(|| parameter["schema"].get("examples")).is_none() {
                without.push(format!("{name}: {}", parameter["name"]));
            }
        }
        let answers = operation.told["responses"].as_object().unwrap().iter();
        for (status, answer) in answers.filter(|(status, _)| status.starts_with('2')) {
            // What is not text has none.
            let contents = answer["content"].as_object().into_iter().flatten();
            for (kind, media) in contents.filter(|(_, media)| media["schema"]["format"] != "binary") {
                if media.get("example").is_none() {
                    without.push(format!("{name}: {status} {kind}"));
                }
            }
        }
    }
    let shapes = document["components"]["schemas"].as_object().unwrap().iter();
    without.extend(shapes.filter(|(_, shape)| shape.get("examples").is_none()).map(|(name, _)| name.clone()));
    assert_eq!(without, Vec::<String>::new());
}

fn walk(value: &Value, visit: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(members) => {
            visit(value);
            members.values().for_each(|member| walk(member, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}
