//! Pictures of every page of the demo, for people who look at them; `scripts/screenshots` asks for those of the README.

use std::path::PathBuf;

use crate::browser::{Browser, Scheme, Width};
use crate::demo::Demo;

/// Writes them to the folder that `PUNCTUAL_SCREENSHOTS` names; does nothing without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_in_light_and_dark_at_the_desk_and_on_the_phone() {
    let Some(folder) = std::env::var_os("PUNCTUAL_SCREENSHOTS").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    let chosen = std::env::var("PUNCTUAL_SCREENSHOTS_OF").ok();
    for (name, path) in demo.pages().await {
        if chosen.as_ref().is_some_and(|chosen| !chosen.split(',').any(|one| one == name)) {
            continue;
        }
        for (width, at) in [(Width::Desk, "desk"), (Width::Phone, "phone")] {
            for (scheme, in_) in [(Scheme::Light, "light"), (Scheme::Dark, "dark")] {
                browser.look(width, scheme).await;
                browser.go(&path).await;
                browser.screenshot(&folder.join(format!("{name}-{at}-{in_}.png")), width).await;
            }
        }
    }
}

/// The pictures of the README, with half a minute of history at the least and nothing late: written to the folder that `PUNCTUAL_PICTURES`
/// names; nothing without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_pages_for_the_readme() {
    let Some(folder) = std::env::var_os("PUNCTUAL_PICTURES").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    let many = |list: &serde_json::Value| list["items"].as_array().unwrap().len() >= 250;
    demo.server.wait_for("/api/v1/tasks?status=completed&topic=shop.orders&limit=500", many).await;
    // Its one worker does not keep up, which is the first thing that the overview would say.
    assert_eq!(demo.server.post("/api/v1/topics/pictures.resize/pause", "{}").await.status, 200);
    let pages = demo.pages().await;
    for (name, scheme) in [
        ("overview", Scheme::Light),
        ("schedules", Scheme::Light),
        ("schedule-edit", Scheme::Light),
        ("task", Scheme::Light),
        ("nodes", Scheme::Dark),
    ] {
        let (_, path) = pages.iter().find(|(known, _)| *known == name).unwrap();
        browser.look(Width::Desk, scheme).await;
        browser.go(path).await;
        // What the demo catches up on at first is late for a moment.
        let is_calm = "const said = document.querySelector('h1.headline'); return !said || said.matches('.good')";
        browser.wait_for(is_calm, &[], "a calm headline").await;
        let file = folder.join(format!("{name}.webp"));
        browser.picture(&file).await;
        assert!(std::fs::metadata(&file).unwrap().len() < 150_000, "{} is too large", file.display());
    }
}
