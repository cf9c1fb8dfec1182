//! `punctual key`: makes, lists and revokes API keys, straight in the database: no service needs to run.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use punctual_domain::audit::AuditEntry;
use punctual_domain::id::{AuditId, KeyId};
use punctual_domain::invalid::check_key;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::store::Store;
use punctual_domain::topic::TopicPattern;
use punctual_store::Options;
use serde_json::{Value, json};

use super::ConfigArgs;
use crate::keyring::NewKey;
use crate::plugins::Plugins;

/// Who the audit log says it was.
const ACTOR: &str = "command line";

#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Makes an API key and prints it, once
    Create(CreateArgs),
    /// Lists API keys, revoked ones too
    List(ListArgs),
    /// Revokes an API key, at once
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// What people call it
    #[arg(long, value_name = "N")]
    name: String,
    /// What its bearer may do: read, submit, operate or admin
    #[arg(long, value_name = "R", value_parser = role)]
    role: Role,
    /// A topic or prefix such as mail.* that it is limited to; may stand several times
    #[arg(long = "topic", value_name = "T", value_parser = topic)]
    topics: Vec<TopicPattern>,
    /// Print what is stored of it as JSON, with the key
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Its id, as `key list` shows it
    #[arg(value_name = "ID")]
    id: String,
}

impl KeyCommand {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        match self {
            Self::Create(args) => args.run(plugins).await,
            Self::List(args) => args.run(plugins).await,
            Self::Revoke(args) => args.run(plugins).await,
        }
    }
}

impl CreateArgs {
    async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        check_key(&self.name).map_err(|message| anyhow::anyhow!("--name {message}"))?;
        let store = open(&self.config, plugins).await?;
        let NewKey { secret, stored } =
            NewKey::make(self.name, self.role, self.topics, store.now().await?).map_err(anyhow::Error::msg)?;
        store.create_key(&stored).await?;
        note(&*store, "key create", stored.id).await?;
        store.close().await?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let mut shown = view(&stored);
            shown["key"] = json!(secret.expose());
            writeln!(out, "{shown}")?;
        } else {
            writeln!(out, "{}", secret.expose())?;
            eprintln!("Keep it: it is not shown again. Its id is {}.", stored.id);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ListArgs {
    async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let store = open(&self.config, plugins).await?;
        let keys = store.keys().await?;
        store.close().await?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let items: Vec<_> = keys.iter().map(view).collect();
            writeln!(out, "{}", json!({"items": items, "nextCursor": null}))?;
            return Ok(ExitCode::SUCCESS);
        }
        for key in &keys {
            let topics: Vec<_> = key.topics.iter().map(TopicPattern::as_str).collect();
            let topics = if topics.is_empty() { "all topics".to_owned() } else { topics.join(", ") };
            let state = if key.revoked_at.is_some() { "revoked" } else { "valid" };
            writeln!(out, "{}  {:<8} {state:<8} {}  ({topics})", key.id, key.role.as_str(), key.name)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RevokeArgs {
    async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let id: KeyId = self.id.parse().with_context(|| format!("{:?} is not the id of a key", self.id))?;
        let store = open(&self.config, plugins).await?;
        let is_revoked = store.revoke_key(id).await?;
        if is_revoked {
            note(&*store, "key revoke", id).await?;
        }
        store.close().await?;
        if !is_revoked {
            bail!("there is no API key {id}, or it was revoked before");
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn open(config: &ConfigArgs, plugins: Plugins) -> Result<Arc<dyn Store>> {
    let url = config.load(plugins)?.config.database_url;
    punctual_store::connect(url.expose(), Options { connections: 2, ..Options::default() })
        .await
        .with_context(|| format!("the database {url} cannot be used"))
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
