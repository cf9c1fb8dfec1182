//! Tries again, every five minutes, to plan dates whose rules could not be written, and to schedule rules that are pending or failed;
//! drops those whose instant is past.

use punctual_sdk::{Attempt, Error, Outcome, on_either, sqlx};
use serde_json::json;
use tracing::{info, warn};
use uuid::Uuid;

use crate::scheduler::{self, Scheduled};

pub(crate) const TOPIC: &str = "operations.reconcile";

/// How many subjects, and how many rules, one round takes; the rest wait for the next.
const MOST: i64 = 1000;

pub(crate) async fn reconcile(attempt: Attempt) -> Result<Outcome, Error> {
    let (context, now) = (&attempt.context, attempt.started_at);
    let database = attempt.database();
    let unplanned = "SELECT id FROM operations_subjects WHERE unplanned IS NOT NULL ORDER BY id LIMIT $1";
    let subjects: Vec<(Uuid,)> =
        on_either!(database, |pool| sqlx::query_as(unplanned).bind(MOST).fetch_all(pool).await?);
    for (id,) in subjects {
        if let Err(error) = scheduler::plan_again(context, id, now).await {
            warn!(subjectId = %id, %error, "notification rules not planned");
        }
    }
    let open = "SELECT id FROM operations_notification_rules WHERE sync_status <> 'synced' AND deleted_at IS NULL
        ORDER BY id LIMIT $1";
    let ids: Vec<(Uuid,)> = on_either!(database, |pool| sqlx::query_as(open).bind(MOST).fetch_all(pool).await?);
    let scanned = ids.len();
    let (mut healed, mut dropped, mut failed) = (0, 0, 0);
    for (id,) in ids {
        let scheduled = match scheduler::try_to_schedule(context, id, now).await {
            Ok(Scheduled::Past) => scheduler::drop_past(context, id, now).await.map(|is_dropped| {
                dropped += u32::from(is_dropped);
                Scheduled::Past
            }),
            scheduled => scheduled,
        };
        match scheduled {
            Ok(Scheduled::Synced) => healed += 1,
            Ok(Scheduled::NotNeeded | Scheduled::Past) => {}
            Err(error) => {
                failed += 1;
                warn!(notificationRuleId = %id, %error, "notification rule not scheduled");
                // Noted with the rule; an error here is the same once more.
                let _ = scheduler::schedule(context, id, now).await;
            }
        }
    }
    if scanned > 0 {
        info!(scanned, healed, dropped, failed, "notification rules reconciled");
    }
    Ok(Outcome::completed_with(json!({"scanned": scanned, "healed": healed, "dropped": dropped, "failed": failed})))
}
