//! Keeps the engine of a program: stops it when asked, when the last handle is gone, or when its actors have given up.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::engine::Engine;

/// How an engine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was stopped.
    Stopped,
    /// Its actors failed too often.
    GaveUp,
}

/// The handle on a kept engine. Dropping it stops the engine at once: what is under way is handed back.
pub(super) struct Keeper {
    stop: mpsc::UnboundedSender<Duration>,
    ended: watch::Receiver<Option<Ended>>,
}

impl Keeper {
    pub(super) fn of(mut engine: Engine) -> Self {
        let (stop, mut asked) = mpsc::unbounded_channel();
        let (tell, ended) = watch::channel(None);
        tokio::spawn(async move {
            let how = tokio::select! {
                () = engine.gave_up() => Ended::GaveUp,
                within = asked.recv() => {
                    engine.drain(within.unwrap_or_default()).await;
                    Ended::Stopped
                }
            };
            engine.close().await;
            tell.send_replace(Some(how));
        });
        Self { stop, ended }
    }

    /// Stops the engine; attempts may finish until `within` has passed. The first call decides how long that is.
    pub(super) async fn stop(&self, within: Duration) -> Ended {
        // An engine that has ended needs not be stopped.
        let _ = self.stop.send(within);
        self.ended().await
    }

    /// Returns when the engine has ended, however that came.
    pub(super) async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let how = ended.wait_for(Option::is_some).await.map(|how| *how);
        // Without a word from it, whatever kept it is gone.
        how.ok().flatten().unwrap_or(Ended::GaveUp)
    }
}
