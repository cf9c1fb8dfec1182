use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often it is looked how far a run is.
const LOOK: Duration = Duration::from_millis(200);
/// What is shown while nobody can say how far it is, and while somebody can.
const WITHOUT_LENGTH: &str = "{spinner} {prefix}{msg} {elapsed}";
const WITH_LENGTH: &str = "{spinner} {prefix}[{bar:40}] {percent:>3} % {elapsed}";

/// How far the measuring is: a bar on a terminal, nothing in a pipe.
#[derive(Debug, Clone)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// On stderr, if that is a terminal.
    pub(crate) fn new() -> Self {
        Self(ProgressBar::no_length())
    }

    /// Another run begins.
    pub(super) fn run(&self, run: u32, runs: u32) {
        if runs > 1 {
            self.0.set_prefix(format!("run {run} of {runs} "));
        }
        self.show(WITHOUT_LENGTH, "");
    }

    /// What is measured is being written.
    pub(super) fn preparing(&self) {
        self.show(WITHOUT_LENGTH, "preparing");
    }

    /// From now on the run can say how far it is.
    pub(super) fn begin(&self, length: u64) {
        self.show(WITH_LENGTH, "");
        self.0.set_length(length);
        self.0.set_position(0);
    }

    /// The run has come so far.
    pub(super) fn reached(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Asks again and again how far the run is, and never ends.
    pub(super) async fn follow<T>(&self, position: impl Fn() -> u64) -> T {
        if self.0.is_hidden() {
            return std::future::pending().await;
        }
        loop {
            self.0.set_position(position());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Leaves nothing on the terminal.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }

    fn show(&self, template: &str, message: &'static str) {
        if self.0.is_hidden() {
            return;
        }
        self.0.set_style(ProgressStyle::with_template(template).expect("one of ours"));
        self.0.set_message(message);
        self.0.enable_steady_tick(LOOK);
    }
}
