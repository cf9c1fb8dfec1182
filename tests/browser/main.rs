//! The dashboard in a real browser: Chromium without a window, driven over WebDriver.
//!
//! Without `TEST_CHROMEDRIVER` these tests say that they were skipped; where `CI` is set they fail.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

mod accessibility;
mod actions;
mod browser;
mod demo;
mod keyboard;
mod live;
mod nodes;
mod plain;
mod roles;
mod schedules;
mod screenshots;
mod scripts;
mod tasks;
