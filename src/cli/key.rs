//! `punctual key`: makes, lists and revokes API keys, of a running service or, where none runs, in a database itself.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use punctual_domain::audit::AuditEntry;
use punctual_domain::id::{AuditId, KeyId};
use punctual_domain::invalid::check_name;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::store::Store;
use punctual_domain::topic::TopicPattern;
use punctual_store::Options;
use serde_json::{Value, json};

use super::client::{Client, ClientArgs};
use super::output::{Table, field, print};
use super::url;
use crate::config::{Config, Secret, Sources};
use crate::keyring::NewKey;
use crate::plugins::Plugins;

/// Who the audit log says it was.
const ACTOR: &str = "command line";

/// What nobody should find out later.
const NO_ADMIN: &str = "no key has the role admin now: nobody can make, list or revoke keys of the service. The way out is \
    `punctual key create --name N --role admin --database URL` (on SQLite while no service runs)";
const NO_KEY: &str = "no key is left: a service that only this machine can reach asks nobody for one now, any other lets \
    nobody in. `punctual key create --name N --role admin --database URL` makes one (on SQLite while no service runs)";

#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Makes an API key and prints it, once
    Create(CreateArgs),
    /// Lists API keys, revoked ones too
    List(ListArgs),
    /// Revokes an API key, at once
    Revoke(RevokeArgs),
}

/// Whose keys.
#[derive(Debug, clap::Args)]
struct WhereArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Work on this database itself, without a service: sqlite://FILE or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL", value_parser = url, help_heading = "Connection")]
    database: Option<Secret>,
    /// Print the API's answer as it is
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual key create --name deploy --role admin
  punctual key create --name mailer --role submit --topic 'mail.*'
  punctual key create --name first --role admin --database sqlite://punctual.db   without a service")]
pub(super) struct CreateArgs {
    /// What people call it
    #[arg(long, value_name = "N")]
    name: String,
    /// What its bearer may do: read, submit, operate or admin
    #[arg(long, value_name = "R", value_parser = role)]
    role: Role,
    /// A topic or prefix such as mail.* that it is limited to; may stand several times
    #[arg(long = "topic", value_name = "T", value_parser = topic)]
    topics: Vec<TopicPattern>,
    #[command(flatten)]
    at: WhereArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    at: WhereArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Its id, as `key list` shows it; not its name
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    at: WhereArgs,
}

/// Where keys are kept, as far as this command can get at them.
enum Keys {
    Service(Client),
    Database(Arc<dyn Store>),
}

impl WhereArgs {
    async fn open(&self, plugins: Plugins) -> Result<Keys> {
        let Some(url) = &self.database else { return Ok(Keys::Service(self.client.connect()?.or_database())) };
        let flags = vec![("database.url", "--database", url.expose().to_owned())];
        let url = Config::load(&Sources { flags, ..Sources::of_process(plugins) })?.config.database_url;
        let store = punctual_store::connect(url.expose(), Options { connections: 2, ..Options::default() })
            .await
            .with_context(|| {
                format!("the database {url} cannot be used (a running service is asked without --database)")
            })?;
        Ok(Keys::Database(store))
    }
}

impl KeyCommand {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        match self {
            Self::Create(args) => args.run(plugins).await?,
            Self::List(args) => args.run(plugins).await?,
            Self::Revoke(args) => args.run(plugins).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CreateArgs {
    async fn run(self, plugins: Plugins) -> Result<()> {
        check_name(&self.name).map_err(|message| anyhow::anyhow!("--name {message}"))?;
        let (is_json, is_admin) = (self.at.json, self.role == Role::Admin);
        let (text, is_first, has_admin) = match self.at.open(plugins).await? {
            Keys::Service(client) => {
                let body = json!({"name": self.name, "role": self.role, "topics": self.topics});
                // Where there are keys, nobody makes one without an admin's.
                let is_first = !client.has_token();
                (client.post(&["keys"], body).await?.text, is_first, is_admin || !is_first)
            }
            Keys::Database(store) => {
                let mut valid = store.keys().await?;
                valid.retain(|key| key.revoked_at.is_none());
                let has_admin = is_admin || valid.iter().any(|key| key.role == Role::Admin);
                let NewKey { secret, stored } =
                    NewKey::make(self.name, self.role, self.topics, store.now().await?).map_err(anyhow::Error::msg)?;
                store.create_key(&stored).await?;
                note(&*store, "key create", stored.id).await?;
                store.close().await?;
                let mut shown = view(&stored);
                shown["key"] = json!(secret.expose());
                (shown.to_string(), valid.is_empty(), has_admin)
            }
        };
        if is_json {
            print(&text)?;
            warn((!has_admin).then_some(NO_ADMIN));
            return Ok(());
        }
        let made: Value = serde_json::from_str(&text)?;
        print(&field(&made["key"]))?;
        eprintln!("Keep it: it is not shown again. Its id is {}.", field(&made["id"]));
        if is_first {
            eprintln!(
                "It is the first: from now on every caller needs a key, on this machine too. PUNCTUAL_TOKEN gives it to this \
                 command, `Authorization: Bearer` to curl."
            );
        }
        warn((!has_admin).then_some(NO_ADMIN));
        Ok(())
    }
}

impl ListArgs {
    async fn run(self, plugins: Plugins) -> Result<()> {
        let text = match self.at.open(plugins).await? {
            Keys::Service(client) => client.all(&["keys"]).await?.text,
            Keys::Database(store) => {
                let items: Vec<_> = store.keys().await?.iter().map(view).collect();
                store.close().await?;
                json!({"items": items, "nextCursor": null}).to_string()
            }
        };
        if self.at.json {
            return print(&text);
        }
        let found: Value = serde_json::from_str(&text)?;
        let mut table = Table::new(["ID", "NAME", "ROLE", "TOPICS", "STATE"]);
        for key in found["items"].as_array().into_iter().flatten() {
            let topics: Vec<_> = key["topics"].as_array().into_iter().flatten().map(field).collect();
            table.row([
                field(&key["id"]),
                field(&key["name"]),
                field(&key["role"]),
                if topics.is_empty() { "all".to_owned() } else { topics.join(", ") },
                if key["revokedAt"].is_null() { "valid" } else { "revoked" }.to_owned(),
            ]);
        }
        print(&if table.is_empty() { "no keys".to_owned() } else { table.text() })
    }
}

impl RevokeArgs {
    async fn run(self, plugins: Plugins) -> Result<()> {
        let Ok(id) = self.id.parse::<KeyId>() else {
            bail!("{:?} is not the id of a key; `punctual key list` shows the ids beside the names", self.id);
        };
        let before = match self.at.open(plugins).await? {
            Keys::Service(client) => {
                // Asked before: it may be the caller's own.
                let before = client.all(&["keys"]).await;
                let before = before.ok().and_then(|answer| answer.json().ok());
                client.delete(&["keys", &id.to_string()]).await?;
                before
            }
            Keys::Database(store) => {
                let items: Vec<_> = store.keys().await?.iter().map(view).collect();
                let is_revoked = store.revoke_key(id).await?;
                if is_revoked {
                    note(&*store, "key revoke", id).await?;
                }
                store.close().await?;
                if !is_revoked {
                    bail!("there is no API key {id}, or it was revoked before");
                }
                Some(json!({"items": items, "nextCursor": null}))
            }
        };
        if !self.at.json {
            print(&format!("revoked {id}"))?;
        }
        warn(before.and_then(|before| left_without(&before, &id.to_string())));
        Ok(())
    }
}

fn warn(what: Option<&str>) {
    if let Some(what) = what {
        eprintln!("warning: {what}");
    }
}

/// What is wrong with the keys that are left once `revoked` is not among them.
fn left_without(before: &Value, revoked: &str) -> Option<&'static str> {
    let is_left = |key: &&Value| key["revokedAt"].is_null() && key["id"] != revoked;
    let mut left = before["items"].as_array().into_iter().flatten().filter(is_left).peekable();
    if left.peek().is_none() {
        return Some(NO_KEY);
    }
    left.all(|key| key["role"] != Role::Admin.as_str()).then_some(NO_ADMIN)
}

async fn note(store: &dyn Store, action: &str, id: KeyId) -> Result<()> {
    let entry = AuditEntry {
        id: AuditId::generate(),
        at: store.now().await?,
        key_id: None,
        actor: ACTOR.into(),
        action: action.into(),
        target: id.to_string(),
        status: 200,
        request_id: String::new(),
    };
    Ok(store.record(vec![entry]).await?)
}

fn view(key: &ApiKey) -> Value {
    let at = |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    json!({
        "id": key.id, "name": key.name, "role": key.role, "topics": key.topics,
        "createdAt": at(key.created_at), "revokedAt": key.revoked_at.map(at),
    })
}

fn role(text: &str) -> Result<Role, String> {
    Role::from_name(text).ok_or_else(|| format!("use one of {}", Role::ALL.map(Role::as_str).join(", ")))
}

fn topic(text: &str) -> Result<TopicPattern, String> {
    text.parse().map_err(|error: punctual_domain::topic::TopicError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_revokes_the_last_admin_key_or_the_last_of_all_is_told() {
        let key = |id: &str, role: &str, revoked: Option<&str>| json!({"id": id, "role": role, "revokedAt": revoked});
        let of = |items: &[Value]| json!({"items": items, "nextCursor": null});
        let (boss, old, mail) =
            (key("boss", "admin", None), key("old", "admin", Some("2026-01-01")), key("mail", "submit", None));
        assert_eq!(left_without(&of(&[boss.clone(), old.clone(), mail.clone()]), "mail"), None);
        assert_eq!(left_without(&of(&[boss.clone(), old.clone(), mail]), "boss"), Some(NO_ADMIN));
        assert_eq!(left_without(&of(&[boss.clone(), old]), "boss"), Some(NO_KEY));
    }
}
