//! What commands print: tables and facts for people, JSON for programs.

use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement};
use punctual_domain::time::ZoneDatabase;
use serde_json::Value;

/// Prints to stdout. That nobody reads on (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Rows under a heading. On a terminal it fits the width; in a pipe no line is broken.
pub(super) struct Table {
    table: comfy_table::Table,
    is_empty: bool,
}

impl Table {
    pub(super) fn new<const N: usize>(heading: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        let arrangement = match std::io::stdout().is_terminal() {
            true => ContentArrangement::Dynamic,
            false => ContentArrangement::Disabled,
        };
        table.load_style(NOTHING).set_content_arrangement(arrangement).set_header(heading);
        for (column, name) in table.column_iter_mut().zip(heading) {
            column.set_padding((0, 2));
            if ["ID", "TASK", "NODE", "TO WHAT"].contains(&name) {
                // Ids are there to be copied.
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        Self { table, is_empty: true }
    }

    /// Puts numbers where numbers belong.
    pub(super) fn right(mut self, columns: &[usize]) -> Self {
        for column in columns {
            if let Some(column) = self.table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.is_empty = false;
        self.table.add_row(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The table of a page of a list, with how the next one is asked for; `empty` if nothing is in it.
    pub(super) fn page(&self, empty: &str, found: &Value) -> String {
        let text = if self.is_empty { empty.to_owned() } else { self.text() };
        match found["nextCursor"].as_str() {
            Some(cursor) => format!("{text}\n\nmore: --cursor {cursor}"),
            None => text,
        }
    }

    /// The table as text, without blanks at the ends of lines.
    pub(super) fn text(&self) -> String {
        self.table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// Facts about one thing: a name and a value on each line.
#[derive(Default)]
pub(super) struct Facts(Vec<(&'static str, String)>);

impl Facts {
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    /// Adds what is there.
    pub(super) fn add_some(&mut self, name: &'static str, value: Option<String>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.add(name, value);
        }
    }

    pub(super) fn text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let line = |(name, value): &(&str, String)| format!("{name:<width$}  {value}");
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Instants as people read them: in a zone, with its offset.
pub(super) struct Clockface {
    zones: ZoneDatabase,
}

impl Clockface {
    pub(super) fn new(zones: ZoneDatabase) -> Self {
        Self { zones }
    }

    /// `2026-11-16 08:30:00 -06:00`, or UTC where the zone is unknown here.
    pub(super) fn show(&self, at: DateTime<Utc>, zone: &str) -> String {
        let seconds = self.zones.zone(zone).map_or(0, |zone| zone.offset_seconds_at(at));
        let local = at.naive_utc() + TimeDelta::seconds(seconds.into());
        // Milliseconds matter where there are any.
        let format =
            if local.and_utc().timestamp_subsec_millis() == 0 { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S%.3f" };
        let local = local.format(format);
        if seconds == 0 {
            return format!("{local} UTC");
        }
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.abs() / 60;
        format!("{local} {sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }

    /// The same for an instant of the API; nothing if it is null.
    pub(super) fn show_field(&self, value: &Value, zone: &str) -> Option<String> {
        let at = value.as_str()?;
        Some(at.parse().map_or_else(|_| at.to_owned(), |at| self.show(at, zone)))
    }
}

/// A text of the API's answer; a dash if it is null.
pub(super) fn field(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// One line of a text that may be long.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= most && line.len() == text.len() {
        return line.to_owned();
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Tells on a terminal how far something has come; the line goes away when it is dropped.
pub(super) struct Progress;

impl Progress {
    /// A teller, where somebody looks.
    pub(super) fn start() -> Option<Self> {
        std::io::stderr().is_terminal().then(|| Self)
    }

    pub(super) fn tell(how_far: &str) {
        eprint!("\r\x1b[K{how_far}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        eprint!("\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_their_zone() {
        let clockface = Clockface::new(ZoneDatabase::bundled());
        for (at, zone, shown) in [
            ("2026-11-16T14:30:00Z", "America/Edmonton", "2026-11-16 08:30:00 -06:00"),
            ("2026-11-16T14:30:00.250Z", "Asia/Kolkata", "2026-11-16 20:00:00.250 +05:30"),
            ("2026-11-16T14:30:00Z", "UTC", "2026-11-16 14:30:00 UTC"),
            ("2026-11-16T14:30:00Z", "Mars/Base", "2026-11-16 14:30:00 UTC"),
        ] {
            assert_eq!(clockface.show(at.parse().unwrap(), zone), shown);
        }
    }

    #[test]
    fn long_texts_become_one_short_line() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("rather long indeed", 10), "rather lo…");
        assert_eq!(shortened("two\nlines", 10), "two…");
    }

    #[test]
    fn a_table_has_no_blanks_at_the_end_of_lines() {
        let mut table = Table::new(["NAME", "FIRES"]).right(&[1]);
        table.row(["nightly".to_owned(), "12".to_owned()]);
        assert_eq!(table.text(), "NAME     FIRES\nnightly     12");
    }
}
