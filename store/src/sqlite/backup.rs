//! A whole database in one other file, and back.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sqlx::{ConnectOptions, Connection};
use uuid::Uuid;

use super::file::{self, Place};
use super::{broken, migrate, reading};
use crate::{ConnectError, SchemaState};

/// Writes the database at `url`, as it is at one moment, into a new file; answers how many bytes that has.
///
/// The process that owns the database goes on meanwhile. The file appears under its name once it is complete and on disk.
///
/// # Errors
/// When the database cannot be read, or there is such a file already.
pub async fn backup(url: &str, to: &Path) -> Result<u64, ConnectError> {
    let Place::File(from) = Place::of(url)? else {
        return Err(refused("a database in memory cannot be backed up".to_owned()));
    };
    refuse_existing(to)?;
    let part = part_of(to);
    if !from.exists() {
        return Err(refused(format!("there is no database at {}: correct the URL", from.display())));
    }
    // What is not written back yet stands beside the name that the service has it by.
    file::check_has_one_name(&from)?;
    // Of any version: a backup is what one makes before an upgrade.
    let mut connection = reading(&from).connect().await.map_err(|error| file::cannot_open(&from, error))?;
    let copied = sqlx::query("VACUUM INTO ?1").bind(part.to_string_lossy().as_ref()).execute(&mut connection).await;
    let closed = connection.close().await;
    let done = copied.and(closed).map_err(broken).map_err(ConnectError::from).and_then(|()| put_in_place(&part, to));
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done
}

/// Puts a backup where `url` says. The database there must not exist yet, and no other process can take it meanwhile.
///
/// # Errors
/// When the backup cannot be used, or there is something where it would go.
pub async fn restore(from: &Path, url: &str) -> Result<(), ConnectError> {
    let Place::File(to) = Place::of(url)? else {
        return Err(refused("a backup cannot be restored into memory".to_owned()));
    };
    check_is_backup(from).await?;
    let _lock = file::lock(&to).await?;
    // What SQLite keeps beside a database belongs to that one alone.
    for end in ["", "-wal", "-shm", "-journal"] {
        refuse_existing(&with_end(&to, end))?;
    }
    let part = part_of(&to);
    let copied = std::fs::copy(from, &part);
    let copied = copied.map_err(|error| refused(format!("{} cannot be copied: {error}", from.display())));
    let done = copied.and_then(|_| put_in_place(&part, &to));
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done.map(|_| ())
}

/// Refuses what is no complete database of ours.
async fn check_is_backup(path: &Path) -> Result<(), ConnectError> {
    if !path.exists() {
        return Err(refused(format!("there is no backup at {}", path.display())));
    }
    let mut connection = reading(path).connect().await.map_err(|error| file::cannot_open(path, error))?;
    let schema = migrate::state(&mut connection).await?;
    if schema == SchemaState::EMPTY {
        return Err(refused(format!("{} is not a backup of punctual: it has none of its tables", path.display())));
    }
    schema.check_not_newer().map_err(ConnectError::Refused)?;
    let verdict: String =
        sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut connection).await.map_err(broken)?;
    connection.close().await.map_err(broken)?;
    match verdict.as_str() {
        "ok" => Ok(()),
        damage => Err(refused(format!("{} is damaged: {damage}", path.display()))),
    }
}

/// Gives a complete file its name, once it is on disk; answers how many bytes it has.
fn put_in_place(part: &Path, path: &Path) -> Result<u64, ConnectError> {
    let place = || {
        let file = File::open(part)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        // Unlike a rename it replaces nothing; not every file system can.
        match std::fs::hard_link(part, path) {
            Ok(()) => std::fs::remove_file(part)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
            Err(_) => std::fs::rename(part, path)?,
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(bytes)
    };
    place().map_err(|error: std::io::Error| refused(format!("{} cannot be written: {error}", path.display())))
}

fn refuse_existing(path: &Path) -> Result<(), ConnectError> {
    match path.exists() {
        true => Err(refused(format!("{} is there already: move it away, or choose another file", path.display()))),
        false => Ok(()),
    }
}

/// Where a file is written until it is complete. Nobody else writes to the same, and nothing is there.
fn part_of(path: &Path) -> PathBuf {
    with_end(path, &format!(".{}.part", Uuid::now_v7().simple()))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn refused(sentence: String) -> ConnectError {
    ConnectError::Refused(sentence)
}
