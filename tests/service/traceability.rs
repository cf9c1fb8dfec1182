//! The tables in the plugins' pages: every rule names the tests that show it, and those exist.

use std::path::{Path, PathBuf};

/// The tests that a page names in its table: the cells behind the rules.
fn named(page: &str) -> Vec<String> {
    let table = page.split("## What shows it").nth(1).expect("a table of what shows it");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.trim_end_matches(" |").rsplit_once(" | "));
    let tests = cells.flat_map(|(_, tests)| tests.split(", ").map(str::to_owned).collect::<Vec<_>>());
    tests.filter(|test| test.starts_with('`')).map(|test| test.trim_matches('`').to_owned()).collect()
}

/// Where a plugin's test is, and what it is called there. What is behind `service::` is one of ours.
fn place(plugin: &str, test: &str) -> (PathBuf, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, test) = match test.strip_prefix("service::") {
        Some(test) => (root.join("tests/service"), test),
        None => (root.join("plugins").join(plugin).join("tests").join(plugin), test),
    };
    match test.split_once("::") {
        Some((module, name)) => (folder.join(format!("{module}.rs")), name.to_owned()),
        None => (folder.with_extension("rs"), test.to_owned()),
    }
}

#[test]
fn every_test_that_a_plugins_page_names_exists() {
    for (plugin, fewest) in [("signup", 12), ("operations", 45), ("clearpath", 55)] {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins").join(plugin).join("README.md");
        let tests = named(&std::fs::read_to_string(page).unwrap());
        assert!(tests.len() >= fewest, "{plugin} names {}", tests.len());
        for test in tests {
            let (file, name) = place(plugin, &test);
            let source = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{test}: {error}"));
            assert!(source.contains(&format!("fn {name}(")), "{plugin} names {test}, and there is none");
            // It stands on the list of those that are run on each database, too.
            assert!(source.matches(&name).count() >= 2, "{test} is on no list, and not run");
        }
    }
}
