//! `punctual_enqueue`, the function by which callers in any language write tasks in a transaction of their own.

use punctual_domain::id::TaskId;
use punctual_domain::retry::{Backoff, Growth, RetryPolicy};
use punctual_domain::store::{StoreError, TaskFilter};
use punctual_domain::task::{NewTask, TaskStatus};
use punctual_domain::topic::{Route, TopicDefinition};
use sqlx::postgres::{PgConnection, PgListener};
use sqlx::{AssertSqlSafe, Connection};
use uuid::Uuid;

use crate::support::*;

/// A caller of the function: a connection that knows nothing of the store.
struct Caller(PgConnection);

impl Caller {
    async fn of(world: &World) -> Self {
        Self(PgConnection::connect(&world.database.url()).await.unwrap())
    }

    async fn execute(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.0).await.unwrap();
    }

    /// Calls the function with these arguments.
    async fn enqueue(&mut self, arguments: &str) -> Result<TaskId, Refusal> {
        let call = format!("SELECT punctual_enqueue({arguments})");
        match sqlx::query_scalar::<_, Uuid>(AssertSqlSafe(call)).fetch_one(&mut self.0).await {
            Ok(id) => Ok(TaskId(id)),
            Err(sqlx::Error::Database(error)) => {
                let state = error.code().unwrap_or_default().into_owned();
                Err(Refusal { state, message: error.message().to_owned() })
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// How the function refused a call.
#[derive(Debug)]
struct Refusal {
    state: String,
    message: String,
}

#[test]
fn a_topic_is_enough_and_the_task_is_like_any_other() {
    on_postgres(async |world: World| {
        let world = world.reopen_on_the_databases_clock().await;
        let before = world.store.now().await.unwrap();
        let id = Caller::of(&world).await.enqueue("'mail'").await.unwrap();
        let task = world.read(id).await;
        let expected = NewTask { id, ..NewTask::new(topic("mail")) }.into_task(task.run_at, task.run_at);
        assert_eq!(task, expected);
        assert!(before <= task.run_at && task.run_at <= world.store.now().await.unwrap());
        let claimed = world.claim_one("mail").await;
        assert_eq!(world.settle_now(&claimed, completed()).await.status, TaskStatus::Completed);
    });
}

#[test]
fn every_argument_arrives() {
    on_postgres(async |world: World| {
        let arguments = r#"
            topic => 'signup.reminder', payload => '{"z": 1.50, "a": [null]}', run_at => '2036-12-01 15:37:00-06',
            timezone => 'America/Mexico_City', priority => -100, client_request_id => 'c', dedupe_key => 'd',
            serial_key => 's', metadata => '{"ownerId": "o", "tenantId": "t", "correlationId": "k", "x": "ü"}',
            timeout_seconds => 5, attempts => 4,
            backoff => '{"type": "fixed", "delay": 10, "maxDelay": 20, "jitter": 0}'"#;
        let id = Caller::of(&world).await.enqueue(arguments).await.unwrap();
        let task = world.read(id).await;
        let mut expected = self::task("signup.reminder")
            .payload(r#"{"z": 1.50, "a": [null]}"#)
            .priority(-100)
            .client_request_id("c")
            .dedupe_key("d")
            .serial_key("s")
            .owner("o")
            .metadata("tenantId", "t")
            .metadata("correlationId", "k")
            .metadata("x", "ü")
            .build();
        let backoff = Backoff { growth: Growth::Fixed, delay: 10, max_delay: 20, jitter: 0.0 };
        expected.id = id;
        expected.timezone = "America/Mexico_City".into();
        expected.timeout_seconds = 5;
        expected.retry = RetryPolicy { attempts: 4, backoff };
        assert_eq!(task, expected.into_task("2036-12-01T21:37:00Z".parse().unwrap(), task.created_at));
        for filter in [
            TaskFilter { owner_id: Some("o".into()), ..TaskFilter::default() },
            TaskFilter { tenant_id: Some("t".into()), ..TaskFilter::default() },
            TaskFilter { correlation_id: Some("k".into()), ..TaskFilter::default() },
            TaskFilter { client_request_id: Some("c".into()), ..TaskFilter::default() },
        ] {
            assert_eq!(ids(&world.list(filter).await), [id]);
        }
    });
}

#[test]
fn a_payload_may_be_text_or_json_or_jsonb_or_left_out() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        for (payload, expected) in [
            (r#"'{"a": 1.50}'"#, r#"{"a": 1.50}"#),
            (r#"'{"b":1,"a":2}'::json"#, r#"{"b":1,"a":2}"#),
            ("jsonb_build_object('a', 1)", r#"{"a": 1}"#),
            ("to_jsonb(7)", "7"),
            ("NULL", "{}"),
            ("'null'", "null"),
        ] {
            let id = caller.enqueue(&format!("'mail', {payload}")).await.unwrap();
            assert_eq!(world.read(id).await.payload.as_str(), expected, "{payload}");
        }
        let nested = |levels: usize| format!("'{}{}'", "[".repeat(levels), "]".repeat(levels));
        caller.enqueue(&format!("'mail', {}", nested(128))).await.unwrap();
        caller.enqueue(&format!("'mail', '\"{}\"'", "x".repeat(1024 * 1024 - 2))).await.unwrap();
        let many = format!("[{}]", vec![r#"{"a":{"b":1}}"#; 70_000].join(","));
        caller.enqueue(&format!("'mail', '{many}'")).await.unwrap();
    });
}

#[test]
fn what_the_api_refuses_is_refused_by_name() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        let key = "x".repeat(201);
        let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
        let deep_objects = format!("{}1{}", r#"{"a":"#.repeat(129), "}".repeat(129));
        let very_deep = "[".repeat(1_000_000);
        let large = "x".repeat(1024 * 1024 - 1);
        let entries: Vec<_> = (0..51).map(|n| format!(r#""k{n}":"v""#)).collect();
        for (arguments, state, says) in [
            ("''".to_owned(), "22023", "INVALID: topic: a topic has 1 to 200 characters, not 0"),
            ("NULL".into(), "22023", "INVALID: topic: "),
            (format!("'{key}'"), "22023", "INVALID: topic: a topic has 1 to 200 characters, not 201"),
            ("'a b'".into(), "22023", r#"INVALID: topic: "a b" is not a topic"#),
            ("E'a\\n'".into(), "22023", r#"INVALID: topic: "a\n" is not a topic"#),
            ("'a..b'".into(), "22023", "is not a topic"),
            ("'ä'".into(), "22023", "is not a topic"),
            ("'a.*'".into(), "22023", "is not a topic"),
            ("'a', '{'".into(), "22023", "INVALID: payload: is not JSON"),
            ("'a', ''".into(), "22023", "INVALID: payload: is not JSON"),
            ("'a', 'hello'".into(), "22023", "INVALID: payload: is not JSON"),
            (r#"'a', '"\u0000"'"#.into(), "22023", "INVALID: payload: the character U+0000"),
            (r#"'a', '"\ud800"'"#.into(), "22023", "INVALID: payload: is not JSON"),
            (r#"'a', '{"a":1,"a":1}'"#.into(), "22023", "INVALID: payload: a key stands twice"),
            (r#"'a', '[{"b":[{"a":1,"\u0061":1}]}]'"#.into(), "22023", "INVALID: payload: a key stands twice"),
            (format!("'a', '{deep}'"), "22023", "INVALID: payload: nested deeper than 128 levels"),
            (format!("'a', '{deep_objects}'"), "22023", "INVALID: payload: nested deeper than 128 levels"),
            (format!("'a', '{very_deep}'"), "22023", "INVALID: payload: nested deeper than 128 levels"),
            (format!("'a', '\"{large}\"'"), "54000", "TOO_LARGE: payload: has 1048577 bytes"),
            ("'a', run_at => now() - interval '1 ms'".into(), "22023", "RUN_AT_IN_PAST: run_at: must be in the future"),
            ("'a', run_at => '-infinity'".into(), "22023", "RUN_AT_IN_PAST"),
            ("'a', run_at => 'infinity'".into(), "22023", "INVALID: run_at: must be before the year 10000"),
            ("'a', timezone => 'EST'".into(), "22023", r#"INVALID_TIMEZONE: timezone: unknown time zone "EST""#),
            ("'a', timezone => 'Mars/Base'".into(), "22023", "INVALID_TIMEZONE"),
            ("'a', timezone => 'Foo/Bar5'".into(), "22023", "INVALID_TIMEZONE"),
            ("'a', timezone => 'europe/paris'".into(), "22023", "INVALID_TIMEZONE"),
            ("'a', timezone => 'posix/Europe/Paris'".into(), "22023", "INVALID_TIMEZONE"),
            ("'a', timezone => ''".into(), "22023", "INVALID_TIMEZONE"),
            ("'a', priority => 101".into(), "22023", "INVALID: priority: must be -100 to 100"),
            ("'a', priority => -101".into(), "22023", "INVALID: priority: must be -100 to 100"),
            (
                "'a', client_request_id => ''".into(),
                "22023",
                "INVALID: client_request_id: must have 1 to 200 characters",
            ),
            (
                format!("'a', dedupe_key => '{key}'"),
                "22023",
                "INVALID: dedupe_key: must have 1 to 200 characters, not 201",
            ),
            (format!("'a', serial_key => '{key}'"), "22023", "INVALID: serial_key: "),
            ("'a', metadata => '[]'".into(), "22023", "INVALID: metadata: must be an object"),
            (r#"'a', metadata => '{"k":1}'"#.into(), "22023", "INVALID: metadata.k: must be text"),
            (r#"'a', metadata => '{"":"v"}'"#.into(), "22023", "INVALID: metadata.: keys must not be empty"),
            (
                format!(r#"'a', metadata => '{{"k":"{}"}}'"#, "x".repeat(1024)),
                "22023",
                "metadata.k: must have at most 1 KiB",
            ),
            (
                format!("'a', metadata => '{{{}}}'", entries.join(",")),
                "22023",
                "metadata: must have at most 50 entries",
            ),
            ("'a', timeout_seconds => 0".into(), "22023", "INVALID: timeout_seconds: must be 1 to 2592000"),
            ("'a', timeout_seconds => 2592001".into(), "22023", "INVALID: timeout_seconds: must be 1 to 2592000"),
            ("'a', attempts => 0".into(), "22023", "INVALID: attempts: must be 1 to 1000"),
            ("'a', attempts => 1001".into(), "22023", "INVALID: attempts: must be 1 to 1000"),
            ("'a', backoff => '7'".into(), "22023", "INVALID: backoff: must be an object"),
            (r#"'a', backoff => '{"type":"linear"}'"#.into(), "22023", "INVALID: backoff.type: must be"),
            (r#"'a', backoff => '{"delay":1.5}'"#.into(), "22023", "INVALID: backoff.delay: must be a whole number"),
            (r#"'a', backoff => '{"delay":"5"}'"#.into(), "22023", "INVALID: backoff.delay: must be a whole number"),
            (r#"'a', backoff => '{"maxDelay":31536000001}'"#.into(), "22023", "INVALID: backoff.maxDelay: must be"),
            (r#"'a', backoff => '{"jitter":2}'"#.into(), "22023", "INVALID: backoff.jitter: must be 0 to 1"),
            (r#"'a', backoff => '{"jitter":[0.5]}'"#.into(), "22023", "INVALID: backoff.jitter: must be 0 to 1"),
            (r#"'a', backoff => '{"delay":[5]}'"#.into(), "22023", "INVALID: backoff.delay: must be a whole number"),
            (r#"'a', backoff => '{"jitter":"0"}'"#.into(), "22023", "INVALID: backoff.jitter: must be 0 to 1"),
            (r#"'a', backoff => '{"colour":1}'"#.into(), "22023", "INVALID: backoff.colour: is unknown"),
            (
                r#"'a', backoff => '{"delay":9,"maxDelay":8}'"#.into(),
                "22023",
                "backoff.maxDelay: must be at least delay (9)",
            ),
        ] {
            let shown: String = arguments.chars().take(80).collect();
            let refusal = caller.enqueue(&arguments).await.expect_err(&shown);
            assert_eq!(refusal.state, state, "{shown}: {refusal:?}");
            assert!(refusal.message.contains(says), "{shown}: {refusal:?}");
        }
        assert_eq!(world.database.count("punctual_tasks").await, 0);
        assert_eq!(world.database.count("punctual_client_requests").await, 0);
    });
}

#[test]
fn every_bad_argument_is_named_at_once() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        let refusal = caller.enqueue("'a b', '{', timezone => 'CET', priority => 500").await.unwrap_err();
        for says in ["INVALID: ", "topic: ", "payload: ", "timezone: ", "priority: "] {
            assert!(refusal.message.contains(says), "{refusal:?}");
        }
    });
}

#[test]
fn the_present_of_the_callers_transaction_is_not_the_past() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        caller.execute("BEGIN; SELECT pg_sleep(0.01)").await;
        let id = caller.enqueue("'mail', run_at => now()").await.unwrap();
        caller.execute("COMMIT").await;
        assert_eq!(world.read(id).await.status, TaskStatus::Pending);
    });
}

#[test]
fn a_call_is_part_of_the_callers_transaction() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        caller.execute("BEGIN").await;
        let gone = caller.enqueue("'mail', client_request_id => 'c', dedupe_key => 'd'").await.unwrap();
        assert_eq!(world.store.task(gone).await, Ok(None), "nobody else sees it yet");
        caller.execute("ROLLBACK").await;
        assert_eq!(world.store.task(gone).await, Ok(None));

        caller.execute("BEGIN").await;
        let kept = caller.enqueue("'mail', client_request_id => 'c', dedupe_key => 'd'").await.unwrap();
        caller.execute("COMMIT").await;
        assert_ne!(gone, kept);
        assert_eq!(world.read(kept).await.client_request_id.as_deref(), Some("c"));
    });
}

#[test]
fn a_commit_notifies_and_a_rollback_does_not() {
    on_postgres(async |world: World| {
        let mut listener = PgListener::connect(&world.database.url()).await.unwrap();
        listener.listen("punctual_tasks").await.unwrap();
        listener.listen("the_end").await.unwrap();
        let mut caller = Caller::of(&world).await;
        caller.execute("BEGIN").await;
        caller.enqueue("'mail'").await.unwrap();
        caller.execute("ROLLBACK; NOTIFY the_end").await;
        assert_eq!(of_this_test(&mut listener, &mut caller).await, "the_end");
        caller.execute("BEGIN").await;
        caller.enqueue("'mail'").await.unwrap();
        caller.execute("COMMIT").await;
        assert_eq!(of_this_test(&mut listener, &mut caller).await, "punctual_tasks");
    });
}

/// The channel of the next notification that the caller sent: channels belong to the whole database, so those of other
/// tests arrive too.
async fn of_this_test(listener: &mut PgListener, caller: &mut Caller) -> String {
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut caller.0).await.unwrap();
    loop {
        let notification = listener.recv().await.unwrap();
        if notification.process_id() == pid as u32 {
            return notification.channel().to_owned();
        }
    }
}

#[test]
fn a_client_request_id_that_was_used_is_a_unique_violation_with_our_code() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        let id = caller.enqueue("'mail', client_request_id => 'c'").await.unwrap();
        let refusal = caller.enqueue("'other', client_request_id => 'c'").await.unwrap_err();
        assert_eq!(refusal.state, "23505");
        assert!(refusal.message.starts_with(r#"SCHEDULE_CLIENT_REQUEST_ID_IN_USE: the client_request_id "c""#));

        // The store and the function keep the same book.
        let again = world.create(task("mail").client_request_id("c")).await;
        assert_eq!(again, Err(StoreError::ClientRequestIdInUse("c".into())));
        world.add(task("mail").client_request_id("d")).await;
        assert_eq!(caller.enqueue("'mail', client_request_id => 'd'").await.unwrap_err().state, "23505");
        world.store.cancel(id, None).await.unwrap();
        assert_eq!(caller.enqueue("'mail', client_request_id => 'c'").await.unwrap_err().state, "23505");
    });
}

#[test]
fn a_dedupe_key_answers_the_living_task_and_leaves_the_client_request_id_free() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        let living = caller.enqueue("'mail', dedupe_key => 'd'").await.unwrap();
        assert_eq!(caller.enqueue("'mail', dedupe_key => 'd', client_request_id => 'c'").await.unwrap(), living);
        assert_ne!(caller.enqueue("'other', dedupe_key => 'd'").await.unwrap(), living);
        assert_eq!(deduplicated(world.create(task("mail").dedupe_key("d")).await.unwrap()).id, living);
        caller.enqueue("'mail', client_request_id => 'c'").await.unwrap();
        world.store.cancel(living, None).await.unwrap();
        assert_ne!(caller.enqueue("'mail', dedupe_key => 'd'").await.unwrap(), living);
    });
}

#[test]
fn callers_at_the_same_time_share_one_living_task() {
    on_postgres(async |world: World| {
        let calls = (0..8).map(|_| async {
            let mut caller = Caller::of(&world).await;
            caller.enqueue("'mail', dedupe_key => 'd'").await.unwrap()
        });
        let ids = futures::future::join_all(calls).await;
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(world.database.count("punctual_tasks").await, 1);
    });
}

#[test]
fn the_topics_defaults_fill_what_is_left_out() {
    on_postgres(async |world: World| {
        let fixed = Backoff { growth: Growth::Fixed, delay: 7, max_delay: 70, jitter: 0.5 };
        let mut definition = TopicDefinition::new("a.*".parse().unwrap(), Route::Event);
        definition.retry = Some(RetryPolicy { attempts: 9, backoff: fixed });
        definition.timeout_seconds = Some(11);
        world.store.put_topic(&definition).await.unwrap();
        world.store.put_topic(&TopicDefinition::new("a.b".parse().unwrap(), Route::Event)).await.unwrap();
        let mut caller = Caller::of(&world).await;
        for (arguments, attempts, backoff, timeout_seconds) in [
            ("'a.x'", 9, fixed, 11),
            ("'a.x', attempts => 2", 2, fixed, 11),
            (r#"'a.x', backoff => '{"delay": 8}'"#, 9, Backoff { delay: 8, ..fixed }, 11),
            (r#"'a.x', backoff => '{"delay": 80}'"#, 9, Backoff { delay: 80, max_delay: 80, ..fixed }, 11),
            ("'a.x', timeout_seconds => 5", 9, fixed, 5),
            ("'a.b'", 1, Backoff::default(), 3600),
            ("'ab', attempts => 3", 3, Backoff::default(), 3600),
            (
                r#"'b', backoff => '{"maxDelay": 100}'"#,
                1,
                Backoff { delay: 100, max_delay: 100, ..Backoff::default() },
                3600,
            ),
        ] {
            let id = caller.enqueue(arguments).await.unwrap();
            let task = world.read(id).await;
            assert_eq!(task.retry, RetryPolicy { attempts, backoff }, "{arguments}");
            assert_eq!(task.timeout_seconds, timeout_seconds, "{arguments}");
        }
    });
}

#[test]
fn ids_are_of_version_7_and_sort_as_they_were_made() {
    on_postgres(async |world: World| {
        let made = "SELECT array_agg(punctual_enqueue('mail', n::text) ORDER BY n) FROM generate_series(1, 500) AS n";
        let mut caller = Caller::of(&world).await;
        let ids: Vec<Uuid> = sqlx::query_scalar(made).fetch_one(&mut caller.0).await.unwrap();
        assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
        assert!(ids.is_sorted(), "{ids:?}");
        // Within one millisecond only those of one maker are in order.
        let (theirs, ours) = (ids[499], TaskId::generate().0);
        assert!(theirs.as_u128() >> 80 <= ours.as_u128() >> 80, "{theirs} is not after {ours}");
    });
}

#[test]
fn a_caller_whose_search_path_leads_elsewhere_names_the_schema() {
    on_postgres(async |world: World| {
        let mut caller = Caller::of(&world).await;
        let Database::Postgres { schema, .. } = &world.database else { panic!("PostgreSQL") };
        caller.execute("SET search_path TO pg_catalog").await;
        let call = format!("SELECT {schema}.punctual_enqueue('mail', jsonb_build_object('a', 1))");
        let id: Uuid = sqlx::query_scalar(AssertSqlSafe(call)).fetch_one(&mut caller.0).await.unwrap();
        assert_eq!(world.read(TaskId(id)).await.payload.as_str(), r#"{"a": 1}"#);
    });
}
