//! Nodes that share a database, and the way from one to the other.

use serde_json::json;

use crate::browser::Browser;
use crate::support::{Database, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_of_another_node_leads_to_its_actors() {
    let Some(database) = Database::postgres().await else { return };
    let (one, other) = (Server::start(&database), Server::start(&database));
    let both = |nodes: &serde_json::Value| nodes["items"].as_array().unwrap().len() == 2;
    one.wait_for("/api/v1/nodes", both).await;
    let Some(browser) = Browser::open(&one.url).await else { return };
    browser.go("/nodes").await;
    assert!(browser.text("#actors").await.contains("the address of another, above, leads to its own"));
    assert!(!browser.has(&format!("#nodes a[href='{}/nodes']", one.url)).await, "its own row leads nowhere");
    browser.click(&format!("#nodes a[href='{}/nodes']", other.url)).await;
    let there = "return location.href === arguments[0]";
    browser.wait_for(there, &[json!(format!("{}/nodes", other.url))], "the page of the other node").await;
    let row = browser.run("return [...document.querySelectorAll('#nodes tr')].find((row) => row.innerText.includes('this node')).innerText", &[]);
    let row = row.await;
    assert!(row.as_str().unwrap().contains(other.url.trim_start_matches("http://")), "{row}");
    assert!(browser.text("#actors").await.contains("supervisor"));
    browser.check().await;
}
