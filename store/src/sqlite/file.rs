//! The database's file: where it is, whether it can be used, and the lock that keeps other processes out.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use punctual_domain::store::StoreError;
use sqlx::sqlite::SqliteConnectOptions;

use crate::{ConnectError, bad_url};

/// How long a store that was just dropped may take to let go of its file.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Where a database is.
pub(super) enum Place {
    /// In memory: private to one store, gone with it.
    Memory,
    /// In a file.
    File(PathBuf),
}

impl Place {
    /// Reads a URL such as `sqlite://punctual.db`, `sqlite:/var/lib/punctual.db` or `sqlite::memory:`.
    pub(super) fn of(url: &str) -> Result<Self, ConnectError> {
        let options = SqliteConnectOptions::from_str(url).map_err(|error| bad_url(url, error))?;
        // The options keep what the URL says to themselves; that its parameters are well-formed is known by now.
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        let says = |wanted: &[&str]| parameters.split('&').any(|parameter| wanted.contains(&parameter));
        if address.ends_with(":memory:") || says(&["mode=memory"]) {
            return Ok(Self::Memory);
        }
        if says(&["mode=ro", "immutable=true", "immutable=1"]) {
            return Err(bad_url(url, "punctual has to write"));
        }
        match options.get_filename() {
            path if path.as_os_str().is_empty() => Err(bad_url(url, "it names no file")),
            path => Ok(Self::File(path.to_owned())),
        }
    }
}

/// Which file a path leads to: one that is deleted or replaced while we have it open leads elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    /// What is at `path` now.
    pub(super) fn of(path: &Path) -> Result<Self, ConnectError> {
        let found =
            path.metadata().map_err(|error| refused(format!("{} cannot be looked at: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Whether it is still there; what is written to a file nobody can find again is lost.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.path.metadata() {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            _ => Err(StoreError::Unavailable(format!(
                "{} was deleted or replaced while it was open: put it back, or restart punctual",
                self.path.display()
            ))),
        }
    }
}

/// Takes the lock that makes this process the only one on the file.
///
/// Beside the database and not on it: SQLite's own locks end when any descriptor of the file is closed. For the same
/// reason the database is not opened, not even for a look, before the lock is ours.
pub(super) async fn lock(path: &Path) -> Result<File, ConnectError> {
    check_folder(path)?;
    check_path(path)?;
    let lock = wait_for_lock(path).await?;
    check_has_one_name(path)?;
    check_is_writable(path)?;
    Ok(lock)
}

async fn wait_for_lock(path: &Path) -> Result<File, ConnectError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(|error| refused(format!("{} cannot be written: {error}", Path::new(&name).display())))?;
    let asked_at = tokio::time::Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if asked_at.elapsed() < LOCK_PATIENCE => {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(ConnectError::InUse(format!(
                    "{} is in use by another punctual process or store: stop that one first; SQLite serves one process, \
                     use PostgreSQL for several",
                    path.display()
                )));
            }
            Err(TryLockError::Error(error)) => {
                return Err(refused(format!("{} cannot be locked: {error}", Path::new(&name).display())));
            }
        }
    }
}

/// Refuses a file that another process could lock, and write to, by another name.
pub(super) fn check_has_one_name(path: &Path) -> Result<(), ConnectError> {
    match std::fs::metadata(path) {
        Ok(found) if found.nlink() > 1 => Err(refused(format!(
            "{} has {} names (hard links), and by another one a second process could use it unnoticed: remove the others, or \
             make a copy by `punctual backup` to use instead",
            path.display(),
            found.nlink()
        ))),
        // Whether it can be used at all is looked at elsewhere.
        _ => Ok(()),
    }
}

/// Refuses a folder that SQLite would report much later, or less clearly.
fn check_folder(path: &Path) -> Result<(), ConnectError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(refused(format!("{} is not a folder", folder.display()))),
        Ok(found) if found.permissions().readonly() => Err(refused(format!(
            "the folder {} is read-only, and SQLite keeps files beside {}: make it writable, or choose another",
            folder.display(),
            path.display()
        ))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(refused(format!(
            "the folder {} does not exist: create it, or correct the database URL",
            folder.display()
        ))),
        Err(error) => Err(refused(format!("the folder {} cannot be used: {error}", folder.display()))),
    }
}

/// Refuses a path that cannot be a database's, as far as that can be told without opening it.
fn check_path(path: &Path) -> Result<(), ConnectError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(refused(format!("{} is a folder, not a database file", path.display()))),
        Ok(found) if found.permissions().readonly() => Err(read_only(path)),
        Ok(_) => Ok(()),
        // What would be made has another name, and the lock would not be beside it.
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            Err(refused(format!("{} is a link to a file that does not exist: name that file itself", path.display())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(format!("{} cannot be used: {error}", path.display()))),
    }
}

/// Refuses a file that SQLite would open for reading only, without a word.
fn check_is_writable(path: &Path) -> Result<(), ConnectError> {
    match OpenOptions::new().append(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(read_only(path)),
        Err(error) => Err(refused(format!("{} cannot be written: {error}", path.display()))),
    }
}

/// What a failed opening means for whoever chose the file.
pub(super) fn cannot_open(path: &Path, error: sqlx::Error) -> ConnectError {
    match super::primary_code(&error) {
        Some(super::NOT_A_DATABASE) => refused(format!(
            "{} is not a SQLite database: correct the database URL, or move that file away",
            path.display()
        )),
        Some(super::READ_ONLY) => read_only(path),
        Some(super::CANNOT_OPEN) => refused(format!(
            "{} cannot be opened: check its permissions and those of its folder ({error})",
            path.display()
        )),
        _ => super::broken(error).into(),
    }
}

fn read_only(path: &Path) -> ConnectError {
    refused(format!("{} is read-only for this user: make it writable, or choose another file", path.display()))
}

fn refused(sentence: String) -> ConnectError {
    ConnectError::Refused(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_files_and_memory() {
        for (url, expected) in [
            ("sqlite://punctual.db", "punctual.db"),
            ("sqlite:punctual.db", "punctual.db"),
            ("sqlite:///var/lib/punctual.db?mode=rwc", "/var/lib/punctual.db"),
            ("sqlite://a%20b.db", "a b.db"),
        ] {
            let Place::File(path) = Place::of(url).unwrap() else { panic!("{url} is a file") };
            assert_eq!(path, Path::new(expected), "{url}");
        }
        for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite://some?mode=memory"] {
            assert!(matches!(Place::of(url).unwrap(), Place::Memory), "{url}");
        }
        for url in ["sqlite://", "sqlite://x?mode=ro", "sqlite://x?immutable=1", "sqlite://x?unknown=1"] {
            assert!(matches!(Place::of(url), Err(ConnectError::BadUrl { .. })), "{url}");
        }
    }
}
