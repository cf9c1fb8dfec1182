//! What holds for SQLite alone.

use std::time::Duration;

use punctual_domain::store::{Page, StoreError, TaskFilter};
use punctual_store::{Access, ConnectError, Migrate, Options, connect};
use sqlx::{Connection, SqliteConnection};

use crate::support::*;

async fn refusal(url: &str, options: Options) -> String {
    connect(url, options).await.err().expect("a refusal").to_string()
}

#[test]
fn a_second_store_on_one_file_is_refused() {
    on_sqlite(async |world: World| {
        let sentence = match connect(&world.database.url(), options(None)).await {
            Err(ConnectError::InUse(sentence)) => sentence,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was opened twice"),
        };
        assert!(sentence.contains("punctual.db"), "names the file: {sentence}");
        // The first is none the worse for it.
        world.add(task("mail")).await;
        world.claim_one("mail").await;
        world.reopen().await;
    });
}

#[test]
fn a_file_that_has_another_name_is_refused() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("punctual.db"), folder.path().join("other.db"));
        let url = format!("sqlite://{}", file.display());
        drop(connect(&url, options(None)).await.unwrap());
        std::fs::hard_link(&file, &other).unwrap();
        for name in [&file, &other] {
            let refusal = refusal(&format!("sqlite://{}", name.display()), options(None)).await;
            assert!(refusal.contains("has 2 names"), "{refusal}");
        }
        std::fs::remove_file(other).unwrap();
        connect(&url, options(None)).await.unwrap();
    });
}

#[test]
fn a_link_to_a_file_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("punctual.db");
    std::os::unix::fs::symlink("real.db", &link).unwrap();
    let refusal = block_on(refusal(&format!("sqlite://{}", link.display()), options(None)));
    assert!(refusal.contains("a link to a file that does not exist"), "{refusal}");
    assert!(!folder.path().join("real.db").exists());
}

/// Locks belong to the process, and closing any descriptor of the file ends them all.
#[cfg(target_os = "linux")]
#[test]
fn a_second_store_that_is_refused_leaves_the_locks_of_the_first() {
    use std::os::unix::fs::MetadataExt;

    on_sqlite(async |world: World| {
        world.add(task("mail")).await;
        let file = std::path::PathBuf::from(world.database.url().trim_start_matches("sqlite://"));
        let inode = format!(":{} ", std::fs::metadata(file).unwrap().ino());
        let locks = || {
            let all = std::fs::read_to_string("/proc/locks").unwrap();
            all.lines().filter(|line| line.contains("POSIX") && line.contains(&inode)).count()
        };
        let held = locks();
        assert!(held > 0, "SQLite holds a lock while a file with a write-ahead log is open");
        refusal(&world.database.url(), options(None)).await;
        assert_eq!(locks(), held);
    });
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let letter = "Dear somebody,\n".repeat(1000);
    std::fs::write(&path, &letter).unwrap();
    let url = Database::sqlite(&folder, "letter.txt").url();
    let sentence = block_on(refusal(&url, options(None)));
    assert!(sentence.contains("letter.txt"), "names the file: {sentence}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), letter);
}

#[test]
fn a_missing_folder_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let url = Database::sqlite(&folder, "nowhere/punctual.db").url();
    let sentence = block_on(refusal(&url, options(None)));
    assert!(sentence.contains("nowhere"), "names the folder: {sentence}");
}

#[test]
fn a_missing_file_is_refused_where_nothing_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let url = Database::sqlite(&folder, "punctual.db").url();
    let sentence = block_on(refusal(&url, Options { migrate: Migrate::Check, ..options(None) }));
    assert!(sentence.contains("punctual migrate"), "{sentence}");
    assert!(!folder.path().join("punctual.db").exists());
}

#[test]
fn what_was_answered_is_on_the_disk() {
    on_sqlite(async |world: World| {
        world.add(task("mail")).await;
        let folder = std::path::PathBuf::from(world.database.url().trim_start_matches("sqlite://"));
        // WAL: the file beside the database is where commits go first.
        assert!(folder.with_file_name("punctual.db-wal").exists());
    });
}

#[test]
fn a_file_that_somebody_else_is_writing_is_an_error_and_the_next_call_works() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::sqlite(&folder, "punctual.db");
    block_on(async {
        let impatient = Options { deadline: Duration::from_secs(1), ..options(None) };
        let store = connect(&database.url(), impatient).await.unwrap();
        let mut blocker = SqliteConnection::connect(&database.url()).await.unwrap();
        let blocking = blocker.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let late = store.create_tasks(vec![task("mail").build()], None).await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        // Readers do not mind.
        store.tasks(&Default::default(), Page::first(1)).await.unwrap();
        blocking.rollback().await.unwrap();
        let mut errors = 0;
        while let Err(error) = store.create_tasks(vec![task("mail").build()], None).await {
            assert!(matches!(error, StoreError::Unavailable(_)) && errors < 20, "{error:?}");
            errors += 1;
        }
    });
}

#[tokio::test]
async fn a_store_that_was_closed_leaves_everything_in_the_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
    let store = punctual_store::connect(&url, Options::default()).await.unwrap();
    store.create_tasks(vec![task("mail").build()], None).await.unwrap();
    store.close().await.unwrap();
    let copy = folder.path().join("copy.db");
    std::fs::copy(folder.path().join("punctual.db"), &copy).unwrap();
    let copied = punctual_store::connect(&format!("sqlite://{}", copy.display()), Options::default()).await.unwrap();
    let tasks = copied.tasks(&TaskFilter::default(), Page::first(10)).await.unwrap();
    assert_eq!(tasks.len(), 1);
}

#[test]
fn a_file_that_was_deleted_under_the_store_takes_no_more_tasks() {
    on_sqlite(async |world: World| {
        world.add(task("mail")).await;
        let path = world.database.url().trim_start_matches("sqlite://").split('?').next().unwrap().to_owned();
        let (aside, back) = (format!("{path}.aside"), path.clone());
        std::fs::rename(&path, &aside).unwrap();
        let refused = world.create(task("mail")).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        // Put back, it goes on where it was.
        std::fs::rename(&aside, &back).unwrap();
        world.add(task("mail")).await;
    });
}

#[test]
fn a_look_at_a_file_that_is_not_there_creates_none() {
    let folder = tempfile::tempdir().unwrap();
    let url = Database::sqlite(&folder, "missing.db").url();
    let sentence = block_on(refusal(&url, Options { access: Access::Look, ..options(None) }));
    assert!(sentence.contains("no database at") && sentence.contains("missing.db"), "{sentence}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
