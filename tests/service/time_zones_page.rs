//! The commands in `docs/time-zones.md`, and what they print.

use crate::operating_page::{blocks, run};

#[test]
fn every_command_of_the_page_prints_what_stands_under_it() {
    let folder = tempfile::tempdir().unwrap();
    let page = include_str!("../../docs/time-zones.md");
    let (commands, printed): (Vec<_>, Vec<_>) = (blocks(page, "sh").collect(), blocks(page, "text").collect());
    assert!(commands.len() == printed.len() && commands.len() >= 4, "{commands:?} {printed:?}");
    for (command, printed) in commands.into_iter().zip(printed) {
        assert_eq!(run(command.trim(), folder.path()), printed, "{command}");
    }
}
