//! What holds for PostgreSQL alone.

use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::join_all;
use punctual_domain::fire::DueSchedule;
use punctual_domain::id::TaskId;
use punctual_domain::news::News;
use punctual_domain::store::{Lateness, StoreError, Ticked};
use punctual_store::{MIGRATIONS, Options, connect};
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::*;

#[test]
fn eight_nodes_that_start_at_once_make_one_schema() {
    on_postgres(async |world: World| {
        let empty = world.database.empty_sibling().await;
        let url = empty.url();
        let opened = join_all((0..8).map(|_| connect(&url, options(None)))).await;
        for store in opened {
            store.unwrap();
        }
        assert_eq!(empty.count("punctual_schema").await, MIGRATIONS.len() as i64);
    });
}

#[test]
fn an_unreachable_server_is_an_error_that_hides_the_password() {
    let error = block_on(connect("postgres://me:secret@127.0.0.1:1/nowhere", options(None)));
    let sentence = error.err().expect("nobody listens there").to_string();
    assert!(!sentence.contains("secret"), "{sentence}");
}

/// A node that stands still in the middle of deciding until it may go on, and decides by the rules then.
struct StandingStill {
    go_on: mpsc::Sender<()>,
    node: JoinHandle<Result<Ticked, StoreError>>,
}

impl StandingStill {
    /// Returns once it stands still.
    async fn on(world: &World, deadline: Duration) -> Self {
        let (decides, is_deciding) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let (url, options) = (world.database.url(), Options { deadline, ..options(Some(world.clock.clone())) });
        // On a thread and a runtime of its own, because the decision blocks.
        let node = std::thread::spawn(move || {
            block_on(async move {
                let decide = move |due: &DueSchedule, now| {
                    decides.send(()).unwrap();
                    // An error means that the test is over.
                    let _ = may_go_on.lock().unwrap().recv();
                    by_the_rules(due, now)
                };
                connect(&url, options).await.unwrap().tick(Lateness::Any, 10, &decide).await
            })
        });
        tokio::task::spawn_blocking(move || is_deciding.recv().unwrap()).await.unwrap();
        Self { go_on, node }
    }

    /// Lets it go on; what its tick answers.
    fn goes_on(self) -> Result<Ticked, StoreError> {
        self.go_on.send(()).unwrap();
        self.node.join().unwrap()
    }
}

#[test]
fn a_schedule_in_the_hands_of_another_node_is_passed_over() {
    on_postgres(async |world: World| {
        let schedule = world.every_minute("nightly").await;
        world.advance_secs(61);
        let another = StandingStill::on(&world, Duration::from_secs(30)).await;
        assert_eq!(world.tick_by_the_rules().await, Ticked::default());
        assert_eq!(another.goes_on().unwrap().fired, 1);
        assert_eq!(world.tick_by_the_rules().await, Ticked::default());
        assert_eq!(world.schedule(schedule.id).await.unwrap().unwrap().fires_made, 1);
    });
}

#[test]
fn a_node_that_stands_still_while_it_decides_keeps_its_schedules_from_others_for_a_while_only() {
    on_postgres(async |world: World| {
        let schedule = world.every_minute("nightly").await;
        world.advance_secs(61);
        let another = StandingStill::on(&world, Duration::from_secs(1)).await;
        while world.tick_by_the_rules().await.fired == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let late = another.goes_on();
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        assert_eq!(world.schedule(schedule.id).await.unwrap().unwrap().fires_made, 1);
    });
}

#[test]
fn a_statement_that_takes_too_long_is_an_error_and_the_next_one_works() {
    on_postgres(async |world: World| {
        let impatient = Options { deadline: Duration::from_secs(2), ..options(None) };
        let store = connect(&world.database.url(), impatient).await.unwrap();
        let mut blocker = PgConnection::connect(&world.database.url()).await.unwrap();
        let mut blocking = blocker.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE punctual_tasks").execute(&mut *blocking).await.unwrap();
        let late = store.create_tasks(vec![task("mail").build()], None).await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        blocking.rollback().await.unwrap();
        store.create_tasks(vec![task("mail").build()], None).await.unwrap();
    });
}

/// A database of its own, so that its connections can be told from those of other tests.
#[test]
fn a_store_recovers_when_the_server_ends_its_connections() {
    let Some(server) = postgres_server() else { return };
    let name = format!("conformance_{}", Uuid::now_v7().simple());
    let (server_part, query) = server.split_once('?').map_or((server.as_str(), ""), |(left, right)| (left, right));
    let host =
        server_part.rfind('/').filter(|at| *at > "postgresql://".len()).map_or(server_part, |at| &server_part[..at]);
    let url = format!("{host}/{name}?{query}");
    let administer = async |sql: String| {
        let mut connection = PgConnection::connect(&server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    };
    block_on(administer(format!("CREATE DATABASE {name}")));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(async {
            let store = connect(&url, options(None)).await.unwrap();
            let node = NodeStore { id: punctual_domain::id::NodeId::generate(), store };
            let first = node.add(task("mail")).await;
            for _ in 0..3 {
                administer(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
                    .await;
                // The first calls may meet dead connections: an ordinary error, no panic, no hang.
                let mut errors = 0;
                while let Err(error) = node.create(task("mail")).await {
                    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
                    errors += 1;
                    assert!(errors <= 20, "{error:?}");
                }
            }
            assert!(node.claim_up_to(9, "mail").await.len() >= 4);
            // A connection that nobody has used for a while is asked whether it is well: no caller meets a dead one.
            node.create(task("mail")).await.unwrap();
            node.task(first.id).await.unwrap();
            administer(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
                .await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            node.create(task("mail")).await.unwrap();
            assert_eq!(node.claim_up_to(9, "mail").await.len(), 2);
            assert!(node.task(first.id).await.unwrap().is_some());
            // It can only be read, or lets nobody in: away, and not broken.
            let end_all = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
            for (close, open) in [
                ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
                ("ALLOW_CONNECTIONS false", "ALLOW_CONNECTIONS true"),
            ] {
                assert_eq!(node.check().await, Ok(()));
                administer(format!("ALTER DATABASE {name} {close}")).await;
                administer(end_all.clone()).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
                for answer in [node.check().await, node.create(task("mail")).await.map(drop)] {
                    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{close}: {answer:?}");
                }
                // What was opened meanwhile is not used again.
                administer(format!("ALTER DATABASE {name} {open}")).await;
                assert_eq!(node.check().await, Ok(()));
                node.create(task("mail")).await.unwrap();
            }
        });
    }));
    block_on(administer(format!("DROP DATABASE {name} WITH (FORCE)")));
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn an_answer_that_is_refreshed_while_the_old_one_is_pruned_stays() {
    on_postgres(async |world: World| {
        world
            .database
            .execute(
                "INSERT INTO punctual_answers (owner, key, fingerprint, status, body, created_at)
                 VALUES ('me', 'key', 'f', 201, 'old', '2026-01-01T00:00:00Z')",
            )
            .await;
        let mut refreshing = Blocker::begin(&world.database).await;
        refreshing.execute("UPDATE punctual_answers SET body = 'new', created_at = '2026-03-02T12:00:00Z'").await;
        let pruning = world.prune(Duration::from_secs(60), 10);
        let (pruned, ()) = futures::join!(pruning, async {
            refreshing.until_it_blocks(1).await;
            refreshing.commit().await;
        });
        assert_eq!(pruned.unwrap().answers, 0);
        assert_eq!(world.database.count("punctual_answers").await, 1);
    });
}

#[test]
fn a_statement_that_was_given_up_does_not_go_on_in_the_server() {
    on_postgres(async |world: World| {
        let impatient = Options { deadline: Duration::from_secs(3), ..options(None) };
        let store = connect(&world.database.url(), impatient).await.unwrap();
        let mut blocker = Blocker::begin(&world.database).await;
        blocker.execute("LOCK TABLE punctual_tasks").await;
        let late = futures::join!(store.create_tasks(vec![task("mail").build()], None), blocker.until_it_blocks(1)).0;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        blocker.until_it_blocks(0).await;
        blocker.commit().await;
        assert_eq!(world.database.count("punctual_tasks").await, 0);
    });
}

#[test]
fn a_session_whose_commits_do_not_wait_for_the_disk_is_refused() {
    on_postgres(async |world: World| {
        let url = format!("{}%20-csynchronous_commit%3Doff", world.database.url());
        let refused = connect(&url, options(None)).await.err().expect("a refusal").to_string();
        assert!(refused.contains("synchronous_commit=off"), "{refused}");
        for waits in ["on", "local", "remote_write"] {
            let url = format!("{}%20-csynchronous_commit%3D{waits}", world.database.url());
            connect(&url, options(None)).await.unwrap();
        }
    });
}

/// Every claim of a task with a serial key loses its race.
pub(crate) const LOSE: &str = "
    CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE unique_violation USING CONSTRAINT = 'punctual_tasks_serial_running';
    END $$;
    CREATE TRIGGER lose BEFORE UPDATE ON punctual_tasks FOR EACH ROW
    WHEN (NEW.serial_key IS NOT NULL AND NEW.status = 'running') EXECUTE FUNCTION lose()";

#[test]
fn a_lost_race_for_a_serial_key_does_not_hold_up_other_tasks() {
    on_postgres(async |world: World| {
        world.database.execute(LOSE).await;
        world.add(task("mail").serial_key("k").priority(9)).await;
        assert_eq!(world.claim_up_to(9, "mail").await, []);
        let others = world.add_all((0..2).map(|_| task("mail"))).await;
        assert_eq!(ids(&world.claim_up_to(9, "mail").await), ids(&others));
    });
}

#[test]
fn an_announcement_reaches_whoever_listens() {
    on_postgres(async |world: World| {
        let mut listener = PgListener::connect(&world.database.url()).await.unwrap();
        listener.listen("punctual_tasks").await.unwrap();
        world.store.announce(&News::of_tasks()).await.unwrap();
        assert_eq!(listener.recv().await.unwrap().channel(), "punctual_tasks");
    });
}

#[test]
fn what_is_announced_is_what_is_heard() {
    on_postgres(async |world: World| {
        // Whoever begins to listen may have missed anything.
        assert_eq!(world.store.hear().await, Ok(News::unheard()));
        let cancelled: Vec<_> = (0..News::MOST_CANCELLED + 1).map(|_| TaskId::generate()).collect();
        let mut heard = News::default();
        world.store.announce(&News::of_cancelled(cancelled.clone())).await.unwrap();
        while heard.cancelled.len() < cancelled.len() {
            heard.merge(world.store.hear().await.unwrap());
        }
        assert_eq!(heard, News::of_cancelled(cancelled));
        world.store.announce(&News::of_schedules()).await.unwrap();
        assert_eq!(world.store.hear().await, Ok(News::of_schedules()));
    });
}

/// A transaction that others have to wait for.
struct Blocker {
    connection: PgConnection,
    pid: i32,
    observer: PgConnection,
}

impl Blocker {
    async fn begin(database: &Database) -> Self {
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        let observer = PgConnection::connect(&database.url()).await.unwrap();
        let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.unwrap();
        Self { connection, pid, observer }
    }

    async fn execute(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.connection).await.unwrap();
    }

    async fn commit(mut self) {
        self.execute("COMMIT").await;
    }

    /// Returns once so many others wait for this transaction.
    async fn until_it_blocks(&mut self, others: i64) {
        let waiting = async {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
            while sqlx::query_scalar::<_, i64>(count).bind(self.pid).fetch_one(&mut self.observer).await.unwrap()
                != others
            {}
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("so many others wait in time");
    }
}
