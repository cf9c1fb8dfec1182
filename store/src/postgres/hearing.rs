//! Hearing what other nodes announce.
//!
//! `LISTEN` needs a session of its own, and a pooler in between may swallow what is announced without a word. So a
//! listener first says something to itself, and again whenever it has heard nothing for a while; one that does not hear
//! itself is deaf, and says so.

use std::time::Duration;

use punctual_domain::news::News;
use punctual_domain::store::StoreError;
use sqlx::PgPool;
use sqlx::postgres::{PgConnection, PgListener};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::broken;
use super::kept::Connections;

/// Where nodes tell each other what changed; named for what they tell most.
const CHANNEL: &str = "punctual_tasks";
/// How long silence may last before it is put to the test.
const SILENCE: Duration = Duration::from_secs(30);
/// How long one's own word may take to come back.
const ECHO: Duration = Duration::from_secs(2);
/// What such a word begins with; nobody else means anything by it.
const PROBE: &str = "probe ";

/// Tells all nodes what changed; inside a transaction, once it commits.
pub(super) async fn announce(connection: &mut PgConnection, news: &News) -> Result<(), StoreError> {
    let mut news = news.clone();
    while !news.is_empty() {
        let rest = news.cancelled.split_off(news.cancelled.len().min(News::MOST_CANCELLED));
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(news.to_string())
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
        news = News::of_cancelled(rest);
    }
    Ok(())
}

/// The listener, once it hears.
#[derive(Default)]
pub(super) struct Hearing(Mutex<Option<PgListener>>);

impl Hearing {
    /// Returns when something was announced, or may have been while nobody listened.
    pub(super) async fn hear(&self, Connections { pool, pooler }: &Connections) -> Result<News, StoreError> {
        if pooler.is_some() {
            return Err(StoreError::Unavailable("a pooler passes on no notifications".into()));
        }
        let mut place = self.0.lock().await;
        match place.take() {
            None => {
                let mut listener = PgListener::connect_with(pool).await.map_err(broken)?;
                listener.listen(CHANNEL).await.map_err(broken)?;
                test(&mut listener, pool).await?;
                *place = Some(listener);
                Ok(News::unheard())
            }
            Some(mut listener) => {
                let mut news = News::default();
                while news.is_empty() {
                    match tokio::time::timeout(SILENCE, listener.try_recv()).await {
                        Ok(Ok(Some(heard))) if heard.payload().starts_with(PROBE) => {}
                        Ok(Ok(Some(heard))) => news.merge(News::from_text(heard.payload())),
                        // The connection was lost, and with it what was announced meanwhile.
                        Ok(Ok(None)) => news.merge(News::unheard()),
                        Ok(Err(error)) => return Err(broken(error)),
                        Err(_) => news.merge(test(&mut listener, pool).await?),
                    }
                }
                // What has come by now is looked for by the same look.
                while let Some(heard) = listener.next_buffered() {
                    if !heard.payload().starts_with(PROBE) {
                        news.merge(News::from_text(heard.payload()));
                    }
                }
                *place = Some(listener);
                Ok(news)
            }
        }
    }

    /// Stops listening.
    pub(super) fn close(&self) {
        if let Ok(mut place) = self.0.try_lock() {
            place.take();
        }
    }
}

/// Says something and waits to hear it; answers what else was heard meanwhile.
async fn test(listener: &mut PgListener, pool: &PgPool) -> Result<News, StoreError> {
    let word = format!("{PROBE}{}", Uuid::new_v4());
    let told = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(&word).execute(pool);
    told.await.map_err(broken)?;
    let mut news = News::default();
    let echo = async {
        loop {
            match listener.try_recv().await {
                Ok(Some(said)) if said.payload() == word => return Ok(()),
                Ok(Some(said)) if said.payload().starts_with(PROBE) => {}
                Ok(Some(said)) => news.merge(News::from_text(said.payload())),
                Ok(None) => news.merge(News::unheard()),
                Err(error) => return Err(broken(error)),
            }
        }
    };
    match tokio::time::timeout(ECHO, echo).await {
        Ok(Ok(())) => Ok(news),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(StoreError::Unavailable("notifications do not arrive; is a pooler in between?".into())),
    }
}
