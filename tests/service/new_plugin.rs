//! `punctual new-plugin`: what it writes is a crate that compiles, and whose tests pass.

use std::path::Path;
use std::process::Command;

use crate::support::punctual;

/// As a user would: in a folder of their own, with Punctual beside it. What was compiled for our own tests is used again, as far as
/// it is the same.
#[test]
fn the_crate_compiles_and_its_tests_pass() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let written =
        punctual(folder.path()).args(["new-plugin", "send-mail", "--sdk"]).arg(ours.join("plugins/sdk")).output();
    let written = written.unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let plugin = folder.path().join("send-mail");
    assert!(
        String::from_utf8_lossy(&written.stdout).starts_with(&plugin.canonicalize().unwrap().display().to_string())
    );

    // The versions that we have; nothing is fetched.
    std::fs::copy(ours.join("Cargo.lock"), plugin.join("Cargo.lock")).unwrap();
    std::fs::create_dir(plugin.join(".cargo")).unwrap();
    std::fs::write(plugin.join(".cargo/config.toml"), profile(ours)).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&plugin).args(["test", "--offline", "--target-dir"]).arg(target());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_our_own_build(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    let tested = command.output().unwrap();
    let said = String::from_utf8_lossy(&[tested.stdout, tested.stderr].concat()).into_owned();
    assert!(tested.status.success() && said.contains("test result: ok. 2 passed"), "{said}");
}

#[test]
fn in_punctuals_own_folder_its_paths_hold_in_every_checkout() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("plugins/sdk")).unwrap();
    std::fs::write(folder.path().join("plugins/sdk/Cargo.toml"), "").unwrap();
    assert!(punctual(folder.path()).args(["new-plugin", "greeting"]).output().unwrap().status.success());
    let manifest = std::fs::read_to_string(folder.path().join("plugins/greeting/Cargo.toml")).unwrap();
    for path in ["punctual-sdk = { path = \"../sdk\" }", "punctual-testing = { path = \"../testing\" }"] {
        assert!(manifest.contains(path), "{manifest}");
    }
}

/// How our own debug builds are made.
fn profile(ours: &Path) -> String {
    let manifest = std::fs::read_to_string(ours.join("Cargo.toml")).unwrap();
    let tables = manifest.split("\n[").filter(|table| table.starts_with("profile.dev"));
    tables.map(|table| format!("[{table}\n")).collect()
}

/// Where our own tests were built.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// Whether a variable is about the build or the run of this test.
fn is_of_our_own_build(name: &str) -> bool {
    let ours = ["CARGO_PKG_", "CARGO_BIN_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_TARGET_TMPDIR", "NEXTEST"];
    ours.iter().any(|prefix| name.starts_with(prefix))
}
