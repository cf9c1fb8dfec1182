//! Secrets are planted wherever one can be given, and must show nowhere; and what is logged about a request can be found.

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::{Value, json};

use crate::keys::add_key;
use crate::on_each_database;
use crate::receiver::Receiver;
use crate::support::{Answer, Database, MailServer, Past, Server, punctual};

on_each_database!(secrets_show_nowhere, what_cannot_be_reached_shows_no_secret, what_is_logged_of_a_request_has_its_id,);

/// Every planted secret has this in it,
const SWORDFISH: &str = "swordfish";
/// or, if somebody has written it in base64, one of these, by where in it the word begins.
const IN_BASE64: [&str; 3] = ["c3dvcmRmaXNo", "N3b3JkZmlza", "zd29yZGZpc2"];
const ADMIN: &str = "pk_swordfish_admin";

fn has_secret(text: &str) -> bool {
    text.contains(SWORDFISH) || IN_BASE64.iter().any(|word| text.contains(word))
}

/// Writes the file of the configuration, with secrets that are nowhere else.
fn write_file(database: &Database, topic_url: &str) {
    let file = format!(
        "[clearpath]\nlab_api_key = \"lab_swordfish\"\nlab_api_url = \"https://me:swordfish-lab@lab.invalid/?key=swordfish-lab-key\"\n\
         [signup]\ndashboard_url = \"https://me:swordfish-app@app.invalid/\"\n\
         [notify]\nwebhook_secrets = [\"swordfish-new\", \"swordfish-old\"]\n\
         [topics.filed]\nroute = {{ type = \"webhook\", url = \"{topic_url}\", secrets = [\"swordfish-filed\"] }}\n"
    );
    let folder = database.folder.path().join("config");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("punctual.toml"), file).unwrap();
}

/// Calls with an API key, a cookie and an id that are not to be seen, and answers what came back.
async fn call(server: &Server, method: Method, path: &str, key: &str, body: &str) -> Answer {
    let request = server.request(method, path).bearer_auth(key).header("content-type", "application/json");
    let request = request.header("cookie", "session=swordfish-cookie").header("x-request-id", "swordfish id");
    Answer::to(request.body(body.to_owned())).await
}

/// What a path shows, looked at until that is what is waited for.
async fn wait_for(server: &Server, path: &str, shows: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = call(server, Method::GET, path, ADMIN, "").await.json();
        if shows(&answer) {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

/// What commands print about this configuration.
fn printed(database: &Database, planted: &[(&str, String)], arguments: &[&str]) -> String {
    let variables = planted.iter().map(|(name, value)| (*name, value));
    let output = punctual(database.folder.path()).envs(variables).args(arguments).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

const COMMANDS: [&[&str]; 5] =
    [&["config", "show"], &["config", "show", "--json"], &["config", "check"], &["doctor"], &["doctor", "--json"]];

/// Everything that it logged, which it did in every detail.
fn log(server: Server) -> Vec<String> {
    let mut server = server;
    server.process.signal("TERM");
    assert_eq!(server.process.wait().code(), Some(0));
    let log = server.process.log().to_vec();
    assert!(log.iter().any(|line| line.contains(r#""level":"TRACE""#)), "nothing was traced: {log:#?}");
    log
}

fn check(shown: &[String]) {
    let leaks: Vec<_> = shown.iter().filter(|text| has_secret(text)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

async fn secrets_show_nowhere(mut database: Database) {
    let Some(mut mails) = MailServer::start(&json!({"auth": "swordfish-smtp"})) else { return };
    let (mut resend, mut receiver) = (Receiver::start().await, Receiver::start().await);
    resend.answer(200, &[], r#"{"id":"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}"#);
    write_file(&database, &format!("{}/filed/swordfish-path?token=swordfish-filed-query", receiver.url));
    add_key(&database, ADMIN, Role::Admin, &[]).await;
    let past = Past::of(&database).await;
    past.webhook("hook", &format!("{}/hook?token=swordfish-hook", receiver.url), "swordfish-signing").await;
    for transport in ["smtp", "resend", "webhook"] {
        let body =
            json!({"subject": "swordfish-subject", "text": "swordfish-text", "data": {"code": "swordfish-code"}});
        past.message(transport, transport, body).await;
    }
    past.close().await;
    // The server asks for no password, and takes any.
    database.url = database.url.replace("postgres://postgres@", "postgres://postgres:swordfish-db@");
    let planted = [
        ("DATABASE_URL", database.url.clone()),
        ("REDIS_URL", "redis://user:swordfish-redis@127.0.0.1:1/".to_owned()),
        ("SMTP_URL", format!("smtp://me:swordfish-smtp@127.0.0.1:{}", mails.port)),
        ("RESEND_API_KEY", "re_swordfish".to_owned()),
        ("RESEND_URL", resend.url.clone()),
        ("NOTIFY_WEBHOOK_URL", format!("{}/swordfish-notify?token=swordfish-notify-query", receiver.url)),
        ("ADMIN_ALERT_WEBHOOK_URL", format!("{}/swordfish-alert?token=swordfish-alert-query", receiver.url)),
        ("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8".to_owned()),
        ("PUNCTUAL_PLUGINS", "signup,clearpath".to_owned()),
        ("PUNCTUAL_LOG", "trace".to_owned()),
    ];
    let server = Server::start_with(&database, |command| command.envs(planted.clone()));
    let mut shown: Vec<String> = Vec::new();
    let payload = r#""payload":{"password":"swordfish-payload"},"metadata":{"k":"swordfish-metadata"}"#;
    let task = format!(r#"{{"topic":"echo",{payload}}}"#);
    for topic in ["echo", "hook", "filed"] {
        let body = format!(r#"{{"topic":"{topic}",{payload}}}"#);
        let made = call(&server, Method::POST, "/api/v1/tasks", ADMIN, &body).await;
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/api/v1/tasks/{}", made.json()["id"].as_str().unwrap());
        wait_for(&server, &path, |task| task["status"] == "completed").await;
    }
    // What was planted is what was used.
    assert_eq!(mails.next()["authenticated"], true);
    assert_eq!(resend.next().await.header("authorization"), "Bearer re_swordfish");
    let mut called: Vec<_> = Vec::new();
    for _ in 0..3 {
        let delivery = receiver.next().await;
        called.push(format!("{}?{}", delivery.path, delivery.query.unwrap_or_default()));
    }
    called.sort();
    let expected = [
        "/filed/swordfish-path?token=swordfish-filed-query",
        "/hook?token=swordfish-hook",
        "/swordfish-notify?token=swordfish-notify-query",
    ];
    assert_eq!(called, expected);
    wait_for(&server, "/api/v1/outbox?status=sent", |sent| sent["items"].as_array().unwrap().len() == 3).await;
    for (key, body) in [
        ("pk_swordfish_wrong", task.as_str()),
        (ADMIN, r#"{"topic":"echo","payload":{"password":"swordfish-payload"}"#),
        (ADMIN, r#"{"topic":"echo","payload":{"a":"swordfish-1"},"delayMs":"soon"}"#),
        (ADMIN, r#"{"topic":"echo","payload":{"a":"swordfish-1","a":"swordfish-2"}}"#),
    ] {
        let refused = call(&server, Method::POST, "/api/v1/tasks", key, body).await;
        assert!(refused.status.is_client_error(), "{refused:?}");
        shown.push(refused.text);
    }
    // The dashboard's page for logging in is not part of the API.
    let login = server.request(Method::POST, "/login").header("content-type", "application/x-www-form-urlencoded");
    let answer = login.body("key=pk_swordfish_login").send().await.unwrap();
    shown.push(format!("{:?}", answer.headers()));
    shown.push(answer.text().await.unwrap());
    for path in ["/metrics", "/readyz", "/api/v1/nodes", "/api/v1/audit"] {
        shown.push(call(&server, Method::GET, path, ADMIN, "").await.text);
    }
    shown.extend(COMMANDS.map(|arguments| printed(&database, &planted, arguments)));
    assert!(shown.iter().any(|text| text.contains("lab_api_key") && text.contains("***")), "{shown:#?}");
    for (name, value) in [
        ("DATABASE_URL", "mysql://me:swordfish@db/x"),
        ("REDIS_URL", "http://:swordfish@cache"),
        ("SMTP_URL", "imap://me:swordfish@mail"),
        ("RESEND_URL", "ftp://me:swordfish@resend?key=swordfish"),
        ("NOTIFY_WEBHOOK_URL", "http://10.0.0.1/swordfish?token=swordfish"),
        ("ADMIN_ALERT_WEBHOOK_URL", "swordfish"),
        ("NOTIFY_WEBHOOK_SECRETS", "whsec_swordfish,"),
    ] {
        for arguments in [["config", "check"], ["config", "show"]] {
            let text =
                printed(&database, &[("DATABASE_URL", database.url.clone()), (name, value.to_owned())], &arguments);
            assert!(arguments[1] == "show" || text.contains(name), "{name}: {text}");
            shown.push(text);
        }
    }
    shown.extend(log(server));
    check(&shown);
}

async fn what_cannot_be_reached_shows_no_secret(database: Database) {
    write_file(&database, "http://127.0.0.1:1/filed/swordfish-path?token=swordfish-filed-query");
    add_key(&database, ADMIN, Role::Admin, &[]).await;
    let past = Past::of(&database).await;
    let transports = ["smtp", "resend", "webhook"];
    for transport in transports {
        past.message(transport, transport, json!({"subject": "swordfish-subject", "text": "swordfish-text"})).await;
    }
    past.close().await;
    let planted = [
        ("DATABASE_URL", database.url.clone()),
        ("REDIS_URL", "redis://user:swordfish-redis@127.0.0.1:1/".to_owned()),
        ("SMTP_URL", "smtp://me:swordfish-smtp@127.0.0.1:1".to_owned()),
        ("RESEND_API_KEY", "re_swordfish".to_owned()),
        ("RESEND_URL", "http://127.0.0.1:1".to_owned()),
        ("NOTIFY_WEBHOOK_URL", "http://127.0.0.1:1/swordfish-notify?token=swordfish-notify-query".to_owned()),
        ("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8".to_owned()),
        ("PUNCTUAL_LOG", "trace".to_owned()),
    ];
    let server = Server::start_with(&database, |command| command.envs(planted.clone()));
    let mut shown: Vec<String> = Vec::new();
    let body = r#"{"topic":"filed","retry":{"attempts":1}}"#;
    let made = call(&server, Method::POST, "/api/v1/tasks", ADMIN, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let failed = wait_for(&server, &format!("/api/v1/tasks/{id}"), |task| task["status"] == "failed").await;
    assert!(failed["error"].is_string(), "{failed}");
    shown.push(failed.to_string());
    shown.push(call(&server, Method::GET, &format!("/api/v1/why/{id}"), ADMIN, "").await.text);
    let all_failed_once = |outbox: &Value| {
        let messages = outbox["items"].as_array().unwrap();
        messages.len() == transports.len() && messages.iter().all(|message| message["error"].is_string())
    };
    let outbox = wait_for(&server, "/api/v1/outbox", all_failed_once).await;
    shown.extend(outbox["items"].as_array().unwrap().iter().map(|message| message["error"].to_string()));
    shown.push(call(&server, Method::GET, "/readyz", ADMIN, "").await.text);
    shown.extend(COMMANDS.map(|arguments| printed(&database, &planted, arguments)));
    shown.extend(log(server));
    check(&shown);
}

async fn what_is_logged_of_a_request_has_its_id(database: Database) {
    let mut server = Server::start_with(&database, |command| command.env("PUNCTUAL_LOG", "punctual=debug"));
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = server.request(Method::GET, "/api/v1/tasks").header("x-request-id", "mine-17");
    let answer = Answer::to(request.header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"))).await;
    assert_eq!(answer.header("x-request-id"), "mine-17");
    let line: Value = serde_json::from_str(&server.process.wait_for_log("request answered")).unwrap();
    let span = &line["span"];
    assert_eq!((&span["request_id"], &span["trace_id"]), (&Value::from("mine-17"), &Value::from(trace_id)), "{line}");
    assert_eq!((&span["route"], &line["status"]), (&Value::from("/api/v1/tasks"), &Value::from(200)));
    assert_eq!(server.get("/livez").await.header("x-request-id").len(), 36, "one of our own");
    server.stop();
}
