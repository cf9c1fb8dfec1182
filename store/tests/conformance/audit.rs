//! The audit log.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::audit::{AuditEntry, LOCAL};
use punctual_domain::id::{AuditId, KeyId, NodeId};
use punctual_domain::json::Json;
use punctual_domain::node::Node;
use punctual_domain::store::{AuditFilter, Page, Pruned, Span};

use crate::support::*;

fn entry(world: &World, target: &str) -> AuditEntry {
    AuditEntry {
        id: AuditId::generate(),
        at: world.now(),
        key_id: None,
        actor: LOCAL.into(),
        action: "PUT /api/v1/topics/{name}".into(),
        target: target.into(),
        status: 200,
        request_id: "r-1".into(),
    }
}

pub(crate) async fn every_field_of_an_entry_comes_back(world: World) {
    let full =
        AuditEntry { key_id: Some(KeyId::generate()), actor: "é'\"".into(), status: 409, ..entry(&world, "mail.*") };
    let bare = AuditEntry { target: String::new(), ..entry(&world, "") };
    world.record(vec![full.clone(), bare.clone()]).await.unwrap();
    world.record(Vec::new()).await.unwrap();
    assert_eq!(world.audit(&AuditFilter::default(), Page::first(10)).await, Ok(vec![bare, full]));
}

pub(crate) async fn entries_are_filtered_and_paged_newest_first(world: World) {
    let key = KeyId::generate();
    let mut written = Vec::new();
    for n in 0..7 {
        let mut entry = entry(&world, if n % 2 == 0 { "even" } else { "odd" });
        if n == 3 {
            (entry.key_id, entry.actor) = (Some(key), "ops".into());
        }
        if n == 4 {
            entry.action = "DELETE /api/v1/topics/{name}".into();
        }
        world.record(vec![entry.clone()]).await.unwrap();
        written.insert(0, entry);
        world.advance_secs(1);
    }
    let found = async |filter: AuditFilter| {
        let found = world.audit(&filter, Page::first(100)).await.unwrap();
        found.iter().map(|entry| 6 - written.iter().position(|known| known == entry).unwrap()).collect::<Vec<_>>()
    };
    let by = AuditFilter::default;
    assert_eq!(found(by()).await, [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(found(AuditFilter { target: Some("odd".into()), ..by() }).await, [5, 3, 1]);
    assert_eq!(found(AuditFilter { key_id: Some(key), ..by() }).await, [3]);
    assert_eq!(found(AuditFilter { actor: Some("ops".into()), ..by() }).await, [3]);
    assert_eq!(found(AuditFilter { action: Some("DELETE /api/v1/topics/{name}".into()), ..by() }).await, [4]);
    let at = Span { from: Some(written[4].at), to: Some(written[1].at) };
    assert_eq!(found(AuditFilter { at, ..by() }).await, [4, 3, 2]);

    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = world.audit(&by(), Page { after, limit: 3 }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        paged.extend(page);
    }
    assert_eq!(paged, written);
}

pub(crate) async fn old_entries_and_nodes_are_pruned(world: World) {
    let node = |id| Node {
        id,
        version: "1".into(),
        tz_version: "2026e".into(),
        about: Json::empty_object(),
        started_at: world.now(),
        seen_at: world.now(),
    };
    let (dead, alive) = (NodeId::generate(), NodeId::generate());
    world.record(vec![entry(&world, "old")]).await.unwrap();
    world.heartbeat(&node(dead)).await.unwrap();
    world.advance(TimeDelta::hours(2));
    world.heartbeat(&node(alive)).await.unwrap();
    world.record(vec![entry(&world, "new")]).await.unwrap();
    let keep = Duration::from_secs(60 * 60);
    assert_eq!(world.prune(keep, 10).await, Ok(Pruned { audit: 1, nodes: 1, ..Default::default() }));
    let left = world.audit(&AuditFilter::default(), Page::first(10)).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.target.as_str()).collect::<Vec<_>>(), ["new"]);
    let nodes = world.nodes(Duration::from_secs(1_000_000)).await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [alive]);
}
