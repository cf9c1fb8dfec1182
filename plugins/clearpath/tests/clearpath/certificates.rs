//! Certificates, their PDFs, and the job `certificateExpiry`.

use punctual_testing::{Punctual, TaskStatus, TestDatabase, logged, on_both_databases};
use serde_json::{Value, json};

use crate::picture::Picture;
use crate::{execute, freeze, items, run, session, start};

/// A certificate that is valid until this date.
async fn valid_until(punctual: &Punctual, date: &str) -> Value {
    let id = session(punctual, json!({"clearpathOrderId": format!("CP-{date}")})).await;
    assert_eq!(punctual.post(&format!("/sessions/{id}/result"), json!({"radonLevel": 120.5})).await.status, 201);
    punctual.advance(std::time::Duration::ZERO).await;
    let made = items(punctual, &format!("/certificates?sessionId={id}")).await.remove(0);
    let set = format!("UPDATE clearpath_certificates SET valid_until = '{date}' WHERE valid_until = '2028-11-16'");
    execute(punctual, &set).await;
    made
}

fn path(certificate: &Value) -> String {
    format!("/certificates/{}", certificate["id"].as_str().unwrap())
}

async fn download(punctual: &Punctual, certificate: &Value) -> Vec<u8> {
    punctual.get(&format!("{}/download", path(certificate))).await.file
}

/// Downloads the PDF; `true` if it says EXPIRED.
async fn is_marked(punctual: &Punctual, certificate: &Value) -> bool {
    let file = download(punctual, certificate).await;
    assert!(file.starts_with(b"%PDF-"), "{} bytes", file.len());
    String::from_utf8_lossy(&file).contains("(EXPIRED)")
}

async fn a_result_makes_a_certificate_soon_after(database: TestDatabase) {
    let punctual = start(database).await;
    let made = valid_until(&punctual, "2028-11-16").await;
    assert_eq!(
        (&made["status"], &made["issuedOn"], &made["validUntil"]),
        (&json!("valid"), &json!("2026-11-16"), &json!("2028-11-16"))
    );
    assert_eq!(made["pdfNeedsRegeneration"], false);
    let [task] = punctual.tasks("clearpath.certificate").await.try_into().unwrap();
    assert_eq!((task.status, task.result), (TaskStatus::Completed, made["id"].clone()));
    assert!(!is_marked(&punctual, &made).await);
}

async fn a_certificate_expires_the_day_after_its_last(database: TestDatabase) {
    let punctual = start(database).await;
    let today = valid_until(&punctual, "2026-11-16").await;
    let yesterday = valid_until(&punctual, "2026-11-15").await;
    assert_eq!(run(&punctual, "certificateExpiry").await["processed"], 1);
    assert_eq!(punctual.get(&path(&today)).await.text("status"), "valid");
    let expired = punctual.get(&path(&yesterday)).await;
    assert_eq!((expired.text("status"), expired.text("expiredAt")), ("expired", "2026-11-16T18:00:00.000Z"));
    assert_eq!(expired.body["pdfNeedsRegeneration"], true);
    assert_eq!(logged("certificates expired", json!({"expired": 1}))[0]["level"], "INFO");
}

async fn the_watermark_is_drawn_when_somebody_asks_for_it(database: TestDatabase) {
    let punctual = start(database).await;
    let certificate = valid_until(&punctual, "2026-11-15").await;
    assert!(!is_marked(&punctual, &certificate).await);
    run(&punctual, "certificateExpiry").await;
    assert_eq!(punctual.get(&path(&certificate)).await.body["pdfNeedsRegeneration"], true);
    assert!(is_marked(&punctual, &certificate).await);
    assert_eq!(punctual.get(&path(&certificate)).await.body["pdfNeedsRegeneration"], false);
    assert!(is_marked(&punctual, &certificate).await);
}

/// How far a place on the paper is along the watermark, and how far above its line.
fn along_the_watermark((x, y): (f64, f64)) -> (f64, f64) {
    let (x, y) = (x - 140.0, y - 200.0);
    ((x + y) / 2_f64.sqrt(), (y - x) / 2_f64.sqrt())
}

async fn the_watermark_is_seen_and_what_it_lies_under_can_be_read(database: TestDatabase) {
    let punctual = start(database).await;
    let certificate = valid_until(&punctual, "2026-11-15").await;
    // With the date as it is by now, so that both differ in nothing else.
    assert_eq!(punctual.post(&format!("{}/regenerate", path(&certificate)), json!({})).await.status, 200);
    let Some(before) = Picture::of(&download(&punctual, &certificate).await) else { return };
    run(&punctual, "certificateExpiry").await;
    let Some(after) = Picture::of(&download(&punctual, &certificate).await) else { return };
    assert_eq!((before.size(), after.size()), ((612, 792), (612, 792)));

    let is_ink = |pixel: [u8; 3]| pixel.iter().all(|part| *part < 120);
    let is_red = |[red, green, blue]: [u8; 3]| red > 200 && (140..=200).contains(&green) && green == blue;
    let count = |picture: &Picture, is: &dyn Fn([u8; 3]) -> bool| picture.pixels().filter(|(_, of)| is(*of)).count();
    assert!(count(&before, &is_ink) > 3_000, "the page is as good as blank");
    assert_eq!(count(&before, &is_red), 0);
    assert!(count(&after, &is_red) > 10_000, "the watermark is not seen");
    let pairs = || before.pixels().zip(after.pixels());
    let differs: Vec<_> =
        pairs().filter(|(was, is)| was.1 != is.1).map(|(was, _)| along_the_watermark(was.0)).collect();
    // Across the page, and nowhere else.
    assert!(differs.iter().all(|(along, above)| (-5.0..500.0).contains(along) && (-30.0..100.0).contains(above)));
    for part in (0..450).step_by(50).map(f64::from) {
        assert!(differs.iter().any(|(along, _)| (part..part + 50.0).contains(along)), "nothing at {part}");
    }
    assert!(pairs().all(|(was, is)| !is_ink(was.1) || is_ink(is.1)), "the watermark hides what it lies under");
}

async fn a_pdf_that_cannot_be_drawn_anew_is_answered_as_it_was(database: TestDatabase) {
    let punctual = start(database).await;
    let certificate = valid_until(&punctual, "2026-11-15").await;
    run(&punctual, "certificateExpiry").await;
    execute(&punctual, "ALTER TABLE clearpath_results RENAME TO elsewhere").await;
    assert!(!is_marked(&punctual, &certificate).await);
    let failed = logged("certificate not regenerated", json!({"certificate": certificate["id"]}));
    assert_eq!(failed[0]["level"], "ERROR");
    assert_eq!(punctual.get(&path(&certificate)).await.body["pdfNeedsRegeneration"], true);
    assert_eq!(punctual.post(&format!("{}/regenerate", path(&certificate)), json!({})).await.status, 409);
    execute(&punctual, "ALTER TABLE elsewhere RENAME TO clearpath_results").await;
    let again = punctual.post(&format!("{}/regenerate", path(&certificate)), json!({})).await;
    assert_eq!((again.status, &again.body["pdfNeedsRegeneration"]), (200, &json!(false)));
    assert!(is_marked(&punctual, &certificate).await);
}

async fn running_it_twice_expires_nothing_more(database: TestDatabase) {
    let punctual = start(database).await;
    let certificate = valid_until(&punctual, "2026-11-15").await;
    run(&punctual, "certificateExpiry").await;
    assert!(is_marked(&punctual, &certificate).await);
    let first = punctual.get(&path(&certificate)).await;
    assert_eq!(run(&punctual, "certificateExpiry").await["processed"], 0);
    assert_eq!(punctual.get(&path(&certificate)).await, first);
}

async fn one_bad_certificate_never_stops_the_batch(database: TestDatabase) {
    let punctual = start(database).await;
    let bad = valid_until(&punctual, "2026-11-14").await;
    let good = valid_until(&punctual, "2026-11-15").await;
    freeze(&punctual, "clearpath_certificates", "valid_until", "2026-11-14").await;
    assert_eq!(
        run(&punctual, "certificateExpiry").await,
        json!({"processed": 2, "sent": 0, "skipped": 0, "failed": 1})
    );
    assert_eq!(punctual.get(&path(&bad)).await.text("status"), "valid");
    assert_eq!(punctual.get(&path(&good)).await.text("status"), "expired");
}

async fn a_certificate_that_failed_leaves_the_result_and_can_be_made_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({})).await;
    execute(&punctual, "ALTER TABLE clearpath_certificates RENAME TO elsewhere").await;
    assert_eq!(punctual.post(&format!("/sessions/{id}/result"), json!({"radonLevel": 7})).await.status, 201);
    punctual.advance(crate::MINUTE * 2).await;
    let [task] = punctual.tasks("clearpath.certificate").await.try_into().unwrap();
    assert_eq!((task.status, punctual.task(task.id).await.outcomes.len()), (TaskStatus::Failed, 3));
    assert_eq!(logged("certificate not made", json!({"session_id": id})).len(), 3);
    assert_eq!(punctual.get(&format!("/sessions/{id}/result")).await.status, 200);
    execute(&punctual, "ALTER TABLE elsewhere RENAME TO clearpath_certificates").await;
    let made = punctual.post("/certificates", json!({"sessionId": id})).await;
    assert_eq!((made.status, made.text("testSessionId")), (201, id.as_str()));
    // Once more makes no second.
    assert_eq!(punctual.post("/certificates", json!({"sessionId": id})).await.body["id"], made.body["id"]);
}

async fn a_session_without_a_result_has_no_certificate(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({})).await;
    assert_eq!(punctual.post("/certificates", json!({"sessionId": id})).await.status, 409);
    assert_eq!(punctual.post("/certificates", json!({})).await.bad_fields(), ["sessionId"]);
    let nobody = "018f0000-0000-7000-8000-000000000000";
    assert_eq!(punctual.post("/certificates", json!({"sessionId": nobody})).await.bad_fields(), ["sessionId"]);
    assert_eq!(punctual.get(&format!("/certificates/{nobody}/download")).await.status, 404);
}

on_both_databases![
    a_result_makes_a_certificate_soon_after,
    a_certificate_expires_the_day_after_its_last,
    the_watermark_is_drawn_when_somebody_asks_for_it,
    the_watermark_is_seen_and_what_it_lies_under_can_be_read,
    a_pdf_that_cannot_be_drawn_anew_is_answered_as_it_was,
    running_it_twice_expires_nothing_more,
    one_bad_certificate_never_stops_the_batch,
    a_certificate_that_failed_leaves_the_result_and_can_be_made_again,
    a_session_without_a_result_has_no_certificate,
];
