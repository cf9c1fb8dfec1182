//! Noon of an all-day event, in its own zone, the organisation's, or UTC.

use punctual_testing::{TestDatabase, on_both_databases};
use serde_json::json;

use crate::{EVENT, HOUR, at_work, instant, start};

async fn all_day_is_noon_utc_where_nobody_has_a_zone(database: TestDatabase) {
    let punctual = start(database).await;
    for written in ["2026-11-16", "2026-11-16T00:00:00Z", "2026-11-16T23:59:59Z"] {
        let mut body = EVENT.body(Some(written), None);
        body["isAllDay"] = json!(true);
        let id = EVENT.make(&punctual, body).await;
        assert_eq!(
            EVENT.live(&punctual, "start").await.pop().unwrap().run_at,
            instant("2026-11-16T12:00:00Z"),
            "{written}"
        );
        assert_eq!(punctual.get(&format!("/events/{id}")).await.text("startDate"), "2026-11-16T00:00:00.000Z");
    }
}

async fn all_day_is_noon_in_the_events_zone(database: TestDatabase) {
    let punctual = start(database).await;
    for (date, zone, noon) in [
        // Alberta changes its clocks no more in 2026.
        ("2026-11-16", "America/Edmonton", "2026-11-16T18:00:00Z"),
        ("2026-01-16", "America/Edmonton", "2026-01-16T19:00:00Z"),
        ("2026-07-01T00:00:00+09:00", "Asia/Tokyo", "2026-07-01T03:00:00Z"),
    ] {
        let mut body = EVENT.body(Some(date), None);
        body["isAllDay"] = json!(true);
        body["timezone"] = json!(zone);
        let id = EVENT.make(&punctual, body).await;
        let task = EVENT.live(&punctual, "start").await.into_iter().max_by_key(|task| task.stored.id.0).unwrap();
        assert_eq!((task.run_at, task.stored.timezone.as_str()), (instant(noon), zone), "{date}");
        assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["scheduleId"], json!(task.id));
    }
}

async fn the_organisations_zone_counts_where_the_event_has_none(database: TestDatabase) {
    let punctual = at_work(database).setting("PUNCTUAL_OPERATIONS_TIMEZONE", "America/Edmonton").start().await;
    let mut body = EVENT.body(Some("2026-11-16"), Some("2026-11-17"));
    body["isAllDay"] = json!(true);
    EVENT.make(&punctual, body).await;
    assert_eq!(EVENT.live(&punctual, "start").await[0].run_at, instant("2026-11-16T18:00:00Z"));
    let end = EVENT.live(&punctual, "end").await.pop().unwrap();
    assert_eq!((end.run_at, end.stored.timezone.as_str()), (instant("2026-11-17T18:00:00Z"), "America/Edmonton"));
}

async fn a_change_of_zone_or_of_all_day_moves_the_task(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some("2026-11-16T09:00:00Z"), None).await;
    for (change, at) in [
        (json!({"isAllDay": true}), "2026-11-16T12:00:00Z"),
        (json!({"timezone": "America/Edmonton"}), "2026-11-16T18:00:00Z"),
        (json!({"timezone": null}), "2026-11-16T12:00:00Z"),
        (json!({"isAllDay": false, "startDate": "2026-11-16T09:30:00Z"}), "2026-11-16T09:30:00Z"),
    ] {
        EVENT.patch(&punctual, &id, change.clone()).await;
        let [task] = EVENT.live(&punctual, "start").await.try_into().unwrap();
        assert_eq!(task.run_at, instant(at), "{change}");
    }
}

async fn an_instant_is_an_instant_in_every_zone(database: TestDatabase) {
    let punctual = start(database).await;
    let mut body = EVENT.body(Some("2026-01-01T01:00:00-07:00"), None);
    body["timezone"] = json!("Asia/Tokyo");
    EVENT.make(&punctual, body).await;
    assert_eq!(EVENT.live(&punctual, "start").await[0].run_at, instant("2026-01-01T08:00:00Z"));
    punctual.advance(HOUR * 8).await;
    assert!(punctual.messages().await[0].text.contains("2026-01-01 17:00 (Asia/Tokyo)"));
}

on_both_databases![
    all_day_is_noon_utc_where_nobody_has_a_zone,
    all_day_is_noon_in_the_events_zone,
    the_organisations_zone_counts_where_the_event_has_none,
    a_change_of_zone_or_of_all_day_moves_the_task,
    an_instant_is_an_instant_in_every_zone,
];
