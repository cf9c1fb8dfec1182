//! The zone name somebody probably meant. Only ever a hint in a refusal.

/// Abbreviations, names without a place, and Windows names, in upper case.
///
/// Where an abbreviation means several places, the most populous one that uses it stands here.
const INSTEAD: &[(&str, &str)] = &[
    ("ACDT", "Australia/Adelaide"),
    ("ACST", "Australia/Darwin"),
    ("ADT", "America/Halifax"),
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Anchorage"),
    ("AKST", "America/Anchorage"),
    ("ALASKAN STANDARD TIME", "America/Anchorage"),
    ("ARABIAN STANDARD TIME", "Asia/Dubai"),
    ("ART", "America/Argentina/Buenos_Aires"),
    ("AST", "America/Halifax"),
    ("ATLANTIC STANDARD TIME", "America/Halifax"),
    ("AUS EASTERN STANDARD TIME", "Australia/Sydney"),
    ("AWST", "Australia/Perth"),
    ("BRT", "America/Sao_Paulo"),
    ("BST", "Europe/London"),
    ("CANADA CENTRAL STANDARD TIME", "America/Regina"),
    ("CAT", "Africa/Maputo"),
    ("CDT", "America/Chicago"),
    ("CENTRAL EUROPE STANDARD TIME", "Europe/Budapest"),
    ("CENTRAL EUROPEAN STANDARD TIME", "Europe/Warsaw"),
    ("CENTRAL STANDARD TIME", "America/Chicago"),
    ("CEST", "Europe/Paris"),
    ("CET", "Europe/Paris"),
    ("CHINA STANDARD TIME", "Asia/Shanghai"),
    ("CLT", "America/Santiago"),
    ("COT", "America/Bogota"),
    ("CST", "America/Chicago"),
    ("CST6CDT", "America/Chicago"),
    ("CUBA", "America/Havana"),
    ("E. SOUTH AMERICA STANDARD TIME", "America/Sao_Paulo"),
    ("EASTERN STANDARD TIME", "America/New_York"),
    ("EAT", "Africa/Nairobi"),
    ("EDT", "America/New_York"),
    ("EEST", "Europe/Athens"),
    ("EET", "Europe/Athens"),
    ("EGYPT", "Africa/Cairo"),
    ("EIRE", "Europe/Dublin"),
    ("EST", "America/New_York"),
    ("EST5EDT", "America/New_York"),
    ("FACTORY", "UTC"),
    ("FLE STANDARD TIME", "Europe/Helsinki"),
    ("GB", "Europe/London"),
    ("GB-EIRE", "Europe/London"),
    ("GMT", "UTC"),
    ("GMT STANDARD TIME", "Europe/London"),
    ("GREENWICH", "UTC"),
    ("GREENWICH STANDARD TIME", "Atlantic/Reykjavik"),
    ("GST", "Asia/Dubai"),
    ("GTB STANDARD TIME", "Europe/Bucharest"),
    ("HAWAIIAN STANDARD TIME", "Pacific/Honolulu"),
    ("HKT", "Asia/Hong_Kong"),
    ("HONGKONG", "Asia/Hong_Kong"),
    ("HST", "Pacific/Honolulu"),
    ("ICELAND", "Atlantic/Reykjavik"),
    ("ICT", "Asia/Bangkok"),
    ("INDIA STANDARD TIME", "Asia/Kolkata"),
    ("IRAN", "Asia/Tehran"),
    ("ISRAEL", "Asia/Jerusalem"),
    ("ISRAEL STANDARD TIME", "Asia/Jerusalem"),
    ("IST", "Asia/Kolkata"),
    ("JAMAICA", "America/Jamaica"),
    ("JAPAN", "Asia/Tokyo"),
    ("JST", "Asia/Tokyo"),
    ("KOREA STANDARD TIME", "Asia/Seoul"),
    ("KST", "Asia/Seoul"),
    ("KWAJALEIN", "Pacific/Kwajalein"),
    ("LIBYA", "Africa/Tripoli"),
    ("MDT", "America/Denver"),
    ("MET", "Europe/Brussels"),
    ("MEST", "Europe/Brussels"),
    ("MOUNTAIN STANDARD TIME", "America/Denver"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("MST7MDT", "America/Denver"),
    ("NAVAJO", "America/Denver"),
    ("NDT", "America/St_Johns"),
    ("NEW ZEALAND STANDARD TIME", "Pacific/Auckland"),
    ("NST", "America/St_Johns"),
    ("NZ", "Pacific/Auckland"),
    ("NZ-CHAT", "Pacific/Chatham"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PACIFIC STANDARD TIME", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("PHT", "Asia/Manila"),
    ("PKT", "Asia/Karachi"),
    ("POLAND", "Europe/Warsaw"),
    ("PORTUGAL", "Europe/Lisbon"),
    ("PRC", "Asia/Shanghai"),
    ("PST", "America/Los_Angeles"),
    ("PST8PDT", "America/Los_Angeles"),
    ("ROC", "Asia/Taipei"),
    ("ROK", "Asia/Seoul"),
    ("ROMANCE STANDARD TIME", "Europe/Paris"),
    ("RUSSIAN STANDARD TIME", "Europe/Moscow"),
    ("SAST", "Africa/Johannesburg"),
    ("SE ASIA STANDARD TIME", "Asia/Bangkok"),
    ("SGT", "Asia/Singapore"),
    ("SINGAPORE", "Asia/Singapore"),
    ("SINGAPORE STANDARD TIME", "Asia/Singapore"),
    ("SOUTH AFRICA STANDARD TIME", "Africa/Johannesburg"),
    ("SST", "Pacific/Pago_Pago"),
    ("TOKYO STANDARD TIME", "Asia/Tokyo"),
    ("TRT", "Europe/Istanbul"),
    ("TURKEY", "Europe/Istanbul"),
    ("TURKEY STANDARD TIME", "Europe/Istanbul"),
    ("UCT", "UTC"),
    ("UNIVERSAL", "UTC"),
    ("US MOUNTAIN STANDARD TIME", "America/Phoenix"),
    ("UT", "UTC"),
    ("W-SU", "Europe/Moscow"),
    ("W. EUROPE STANDARD TIME", "Europe/Berlin"),
    ("WAT", "Africa/Lagos"),
    ("WEST", "Europe/Lisbon"),
    ("WET", "Europe/Lisbon"),
    ("WIB", "Asia/Jakarta"),
    ("Z", "UTC"),
    ("ZULU", "UTC"),
];

/// Large cities that lend their name to no zone, by their [`key`].
const CITIES: &[(&str, &str)] = &[
    ("abudhabi", "Asia/Dubai"),
    ("atlanta", "America/New_York"),
    ("bangalore", "Asia/Kolkata"),
    ("barcelona", "Europe/Madrid"),
    ("beijing", "Asia/Shanghai"),
    ("boston", "America/New_York"),
    ("calgary", "America/Edmonton"),
    ("canberra", "Australia/Sydney"),
    ("capetown", "Africa/Johannesburg"),
    ("cologne", "Europe/Berlin"),
    ("dallas", "America/Chicago"),
    ("delhi", "Asia/Kolkata"),
    ("edinburgh", "Europe/London"),
    ("frankfurt", "Europe/Berlin"),
    ("geneva", "Europe/Zurich"),
    ("guangzhou", "Asia/Shanghai"),
    ("hamburg", "Europe/Berlin"),
    ("hanoi", "Asia/Bangkok"),
    ("houston", "America/Chicago"),
    ("krakow", "Europe/Warsaw"),
    ("lasvegas", "America/Los_Angeles"),
    ("lyon", "Europe/Paris"),
    ("manchester", "Europe/London"),
    ("miami", "America/New_York"),
    ("milan", "Europe/Rome"),
    ("mumbai", "Asia/Kolkata"),
    ("munich", "Europe/Berlin"),
    ("newdelhi", "Asia/Kolkata"),
    ("osaka", "Asia/Tokyo"),
    ("ottawa", "America/Toronto"),
    ("philadelphia", "America/New_York"),
    ("portland", "America/Los_Angeles"),
    ("riodejaneiro", "America/Sao_Paulo"),
    ("saltlakecity", "America/Denver"),
    ("sandiego", "America/Los_Angeles"),
    ("sanfrancisco", "America/Los_Angeles"),
    ("seattle", "America/Los_Angeles"),
    ("shenzhen", "Asia/Shanghai"),
    ("stpetersburg", "Europe/Moscow"),
    ("washington", "America/New_York"),
    ("wellington", "Pacific/Auckland"),
];

/// Longer texts are not names, and are not compared with all that are.
const LONGEST: usize = 60;

/// Finds the name to use in place of a refused one, among the accepted `names`.
pub(super) fn for_zone<'a>(refused: &str, names: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if refused.len() > LONGEST {
        return None;
    }
    let refused = refused.trim();
    let owned = str::to_string;
    // Offsets come before spelling, which ignores their sign.
    let bare = refused.strip_prefix("Etc/").unwrap_or(refused);
    instead(bare)
        .map(owned)
        .or_else(|| fixed_offset(bare))
        .or_else(|| spelled_otherwise(refused, names.clone()).map(owned))
        .or_else(|| find(CITIES, &key(last_part(refused))).map(owned))
        .or_else(|| same_place(refused, names.clone()).map(owned))
        .or_else(|| nearest(refused, names))
}

/// The end of a sentence that names the suggestion, if there is one.
pub(super) fn sentence(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(name) => format!(", use {name}"),
        None => String::new(),
    }
}

/// Knows abbreviations, alone or at the head of a POSIX string such as `EST5`.
fn instead(refused: &str) -> Option<&'static str> {
    let upper = refused.to_ascii_uppercase();
    let is_posix = |rest: &str| rest.starts_with(['+', '-']) || rest.starts_with(char::is_numeric);
    find(INSTEAD, &upper).or_else(|| {
        let letters = upper.find(|c: char| !c.is_ascii_alphabetic())?;
        let (abbreviation, rest) = upper.split_at(letters);
        let place = find(INSTEAD, abbreviation)?;
        (is_posix(rest) && place != "UTC").then_some(place)
    })
}

/// The same letters in another case, with other separators or after a stray prefix.
fn spelled_otherwise<'a>(refused: &str, mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let prefixes = ["posix/", "right/"];
    let bare = prefixes.iter().find_map(|p| refused.strip_prefix(p));
    let wanted = key(bare.unwrap_or(refused));
    names.find(|name| key(name) == wanted)
}

/// The same place in another area.
fn same_place<'a>(refused: &str, mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = key(last_part(refused));
    names.find(|name| key(last_part(name)) == wanted)
}

/// Reads `UTC+1`, `GMT-03:00`, `+0500`. The `Etc` zones count the other way round: west is positive.
fn fixed_offset(refused: &str) -> Option<String> {
    let upper = refused.to_ascii_uppercase();
    let prefixes = ["UTC", "GMT"];
    let bare = prefixes.iter().find_map(|p| upper.strip_prefix(p));
    let offset = bare.unwrap_or(&upper);
    let (reversed, furthest) = match offset.chars().next()? {
        '+' => ('-', 14),
        '-' => ('+', 12),
        _ => return None,
    };
    let digits = offset[1..].replace(':', "");
    let hours = match digits.len() {
        1 | 2 => digits.as_str(),
        4 => digits.strip_suffix("00")?,
        _ => return None,
    };
    match hours.parse::<u8>().ok()? {
        0 => Some("UTC".to_string()),
        hours if hours <= furthest => Some(format!("Etc/GMT{reversed}{hours}")),
        _ => None,
    }
}

/// The name with the fewest letters changed, if they are few.
fn nearest<'a>(refused: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let wanted = key(refused);
    let most = match wanted.len() {
        ..6 => return None,
        6..10 => 1,
        _ => 2,
    };
    names.filter_map(|name| Some((edits(&wanted, &key(name), most)?, name))).min().map(|(_, name)| name.to_string())
}

/// Counts the letters to insert, remove or replace, giving up past `most`.
fn edits(from: &str, to: &str, most: usize) -> Option<usize> {
    if from.len().abs_diff(to.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
        if row.iter().all(|&edits| edits > most) {
            return None;
        }
    }
    row.last().copied().filter(|&edits| edits <= most)
}

/// What remains of a name when case and punctuation are ignored.
fn key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn find(table: &[(&str, &'static str)], wanted: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == wanted).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::super::ZoneDatabase;
    use super::*;

    #[test]
    fn every_suggestion_is_an_accepted_name() {
        let bundled = ZoneDatabase::bundled();
        for (refused, place) in INSTEAD.iter().chain(CITIES) {
            assert!(bundled.zone(place).is_ok(), "{refused}: {place}");
        }
    }
}
