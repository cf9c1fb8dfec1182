//! Instants and durations as people type them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeDelta, Utc};
use punctual_domain::time::{Resolution, ZoneDatabase};

/// The zone data of this machine, as the service would choose it.
pub(super) fn zones() -> Result<ZoneDatabase> {
    let tzdir = std::env::var_os("PUNCTUAL_TZDIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    Ok(ZoneDatabase::current(tzdir.as_deref())?)
}

/// Reads an instant: RFC 3339, or a local time in `zone`, or `now`, or so long ago (`-2h`) or ahead (`+1d`).
///
/// # Errors
/// When it is none of these; and when the local time does not exist or comes twice, which only the user can decide.
pub(crate) fn instant(text: &str, zone: &str, zones: &ZoneDatabase, now: DateTime<Utc>) -> Result<DateTime<Utc>> {
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-').and_then(|text| duration(text).ok()) {
        return Ok(now - TimeDelta::from_std(ago)?);
    }
    if let Some(ahead) = text.strip_prefix('+').and_then(|text| duration(text).ok()) {
        return Ok(now + TimeDelta::from_std(ahead)?);
    }
    if let Ok(at) = DateTime::parse_from_rfc3339(&text.replacen(' ', "T", 1)) {
        return Ok(at.to_utc());
    }
    let local = local(text).with_context(|| {
        format!(
            "{text:?} is no time: use 2026-12-01T09:00:00-05:00, '2026-12-01 09:00' (read in --tz), 2026-12-01, now, -24h or +7d"
        )
    })?;
    let zone = zones.zone(zone)?;
    match zone.resolve(local) {
        Resolution::Unique { at } => Ok(at),
        Resolution::Gap { end } => bail!(
            "{local} does not exist in {zone}: the clocks go forward over it; the first time after is {}",
            zone.local(end)
        ),
        Resolution::Fold { first, second } => bail!(
            "{local} comes twice in {zone}: the clocks go back over it; say which, {} or {}",
            with_offset(first, zone.offset_seconds_at(first)),
            with_offset(second, zone.offset_seconds_at(second))
        ),
    }
}

fn local(text: &str) -> Option<NaiveDateTime> {
    let text = text.replacen('T', " ", 1);
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(&text, format).ok())
        .or_else(|| NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0))
}

fn with_offset(at: DateTime<Utc>, offset_seconds: i32) -> String {
    match chrono::FixedOffset::east_opt(offset_seconds) {
        Some(offset) => at.with_timezone(&offset).to_rfc3339(),
        None => at.to_rfc3339(),
    }
}

/// Reads a duration: `90s`, `15m`, `1h30m`, `2d`, `500ms`.
///
/// # Errors
/// A sentence that says what to write.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: use 500ms, 90s, 15m, 1h30m or 2d");
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit_on) = rest.split_at(digits);
        let letters = unit_on.find(|c: char| c.is_ascii_digit()).unwrap_or(unit_on.len());
        let (unit, after) = unit_on.split_at(letters);
        let unit: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        millis = number.checked_mul(unit).and_then(|more| millis.checked_add(more)).ok_or_else(wrong)?;
        rest = after;
    }
    if text.trim().is_empty() || millis > 1_000 * 366 * 86_400_000 {
        return Err(wrong());
    }
    Ok(Duration::from_millis(millis))
}

/// An instant as the API reads it.
pub(crate) fn written(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> Result<String> {
        let now = "2026-11-16T12:00:00Z".parse()?;
        instant(text, zone, &ZoneDatabase::bundled(), now).map(written)
    }

    #[test]
    fn instants_are_read_in_many_forms() {
        for (text, zone, at) in [
            ("2026-12-01T09:00:00-05:00", "UTC", "2026-12-01T14:00:00Z"),
            ("2026-12-01 09:00:00Z", "America/New_York", "2026-12-01T09:00:00Z"),
            ("2026-12-01 09:00", "America/New_York", "2026-12-01T14:00:00Z"),
            ("2026-12-01T09:00:30", "America/New_York", "2026-12-01T14:00:30Z"),
            ("2026-12-01", "Asia/Tokyo", "2026-11-30T15:00:00Z"),
            ("2026-11-16 08:30", "America/Edmonton", "2026-11-16T14:30:00Z"),
            ("now", "UTC", "2026-11-16T12:00:00Z"),
            ("-1h30m", "UTC", "2026-11-16T10:30:00Z"),
            ("+7d", "UTC", "2026-11-23T12:00:00Z"),
        ] {
            assert_eq!(read(text, zone).unwrap(), at, "{text}");
        }
        for text in ["", "tomorrow", "9:00", "2026-13-01", "-", "+x", "1700000000"] {
            assert!(read(text, "UTC").unwrap_err().to_string().contains("is no time"), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_skipped_or_comes_twice_is_the_users_to_decide() {
        let gap = read("2026-03-08 02:30", "America/New_York").unwrap_err().to_string();
        assert!(gap.contains("does not exist") && gap.contains("2026-03-08 03:00:00"), "{gap}");
        let fold = read("2026-11-01 01:30", "America/New_York").unwrap_err().to_string();
        assert!(fold.contains("2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00"), "{fold}");
        let zone = read("2026-11-01 01:30", "EST").unwrap_err().to_string();
        assert!(zone.contains("America/New_York"), "{zone}");
    }

    #[test]
    fn durations_have_units() {
        for (text, ms) in [("500ms", 500), ("90s", 90_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("0s", 0)] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "90", "x", "1y", "-5s", "99999999999999999999d", "s", "1000000d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
