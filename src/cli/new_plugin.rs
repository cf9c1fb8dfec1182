//! `punctual new-plugin NAME`: a crate to begin a plugin with.
//!
//! It is `plugins/echo` under another name: that one is compiled and tested with everything else, and so is this.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::output::print;

const SOURCE: &str = include_str!("../../plugins/echo/src/lib.rs");

/// Writes a crate with the smallest plugin there is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual new-plugin greeting                       plugins/greeting, in Punctual's own folder
  punctual new-plugin greeting --sdk ../punctual/plugins/sdk")]
pub(super) struct NewPluginArgs {
    /// Its name, such as greeting or send-mail: the folder, the plugin and its first topic are called so
    name: String,
    /// Where punctual-sdk is; by default plugins/sdk of the folder we are in, or of one around it
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

impl NewPluginArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        check(&self.name)?;
        let here = std::env::current_dir()?;
        let sdk = match self.sdk {
            Some(sdk) => sdk,
            None => {
                around(&here).context("there is no plugins/sdk here or around: say where it is with --sdk FOLDER")?
            }
        };
        let sdk = sdk.canonicalize().with_context(|| format!("there is no folder {}", sdk.display()))?;
        if !sdk.join("Cargo.toml").is_file() {
            bail!("{} holds no crate: it should be the folder of punctual-sdk", sdk.display());
        }
        let siblings = sdk
            .parent()
            .filter(|parent| parent.ends_with("plugins") && here.starts_with(parent.parent().unwrap_or(parent)));
        let folder = siblings.unwrap_or(&here).join(&self.name);
        if folder.exists() {
            bail!("{} is there already", folder.display());
        }
        std::fs::create_dir_all(folder.join("src"))?;
        // Inside Punctual's folder by a path that holds in every checkout.
        let sdk = match sdk.file_name().filter(|_| siblings.is_some()) {
            Some(name) => Path::new("..").join(name),
            None => sdk.clone(),
        };
        std::fs::write(folder.join("Cargo.toml"), manifest(&self.name, &sdk))?;
        std::fs::write(folder.join("src/lib.rs"), source(&self.name))?;
        print(&format!(
            "{}\nNext: cd there, and `cargo test`. `cargo doc --open -p punctual-sdk` is the guide.\n\
             docs/plugins.md tells how to link it into the service, which runs it with PUNCTUAL_PLUGINS={}.",
            folder.display(),
            self.name
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn check(name: &str) -> Result<()> {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if name.len() > 50 || !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.split('-').all(is_part) {
        bail!("{name:?} cannot be a plugin's name: use small letters and digits, in words with a hyphen between them");
    }
    Ok(())
}

/// The SDK of the repository that we are in.
fn around(here: &Path) -> Option<PathBuf> {
    here.ancestors().map(|folder| folder.join("plugins/sdk")).find(|sdk| sdk.join("Cargo.toml").is_file())
}

fn manifest(name: &str, sdk: &Path) -> String {
    let testing = sdk.parent().unwrap_or(sdk).join("testing");
    format!(
        "[package]\nname = \"punctual-{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\npunctual-sdk = {{ path = {sdk:?} }}\n\n\
         [dev-dependencies]\npunctual-testing = {{ path = {testing:?} }}\nserde_json = {{ version = \"1\", features = [\"raw_value\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         # It stands by itself. Take this away where it becomes a member of a workspace.\n[workspace]\n",
        sdk = sdk.display().to_string(),
        testing = testing.display().to_string(),
    )
}

/// The smallest plugin under another name.
fn source(name: &str) -> String {
    let word = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
    let plugin: String = name.split('-').map(word).collect();
    let topic = name.replace('-', "_");
    SOURCE
        .replace("Echo", &plugin)
        .replace("\"echo\"", &format!("{name:?}"))
        .replace("`echo`", &format!("`{name}`"))
        .replace("async fn echo(", &format!("async fn {topic}("))
        .replace("Box::new(echo)", &format!("Box::new({topic})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_its_own_name_it_is_the_plugin_that_is_tested() {
        assert_eq!(source("echo"), SOURCE);
    }

    #[test]
    fn under_another_name_nothing_is_left_of_the_first() {
        let made = source("send-mail");
        assert!(!made.to_lowercase().contains("echo"), "{made}");
        for line in
            ["pub struct SendMail;", "(\"send-mail\", Box::new(send_mail))", "async fn send_mail(", "start(SendMail)"]
        {
            assert!(made.contains(line), "{line}: {made}");
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for name in ["", "-", "Echo", "a b", "a--b", "9lives", "ünter", "a-", &"x".repeat(51)] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["echo", "send-mail", "v2"] {
            assert!(check(name).is_ok(), "{name:?}");
        }
    }
}
