//! The real binary as a process that never outlives its test.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary of the package that the test belongs to: `punctual`, or the one with handlers that misbehave.
const BINARY: &str = match (option_env!("CARGO_BIN_EXE_punctual"), option_env!("CARGO_BIN_EXE_punctual-bed")) {
    (Some(binary), _) | (None, Some(binary)) => binary,
    (None, None) => panic!("no binary to test"),
};

/// The command `punctual` in `folder`, without anything of this process's environment that could configure it.
pub fn punctual(folder: &Path) -> Command {
    punctual_of(Path::new(BINARY), folder)
}

/// The same with another binary.
pub fn punctual_of(binary: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(folder).env_clear().stdin(Stdio::null());
    command.envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"));
    command
}

/// A running process, with the lines it prints.
pub struct Process {
    child: Child,
    out: Receiver<String>,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        Self { child, out, log, seen: Vec::new() }
    }

    /// Waits for a line on stdout that contains `text`.
    pub fn wait_for_output(&mut self, text: &str) -> String {
        self.find_output(text).unwrap_or_else(|| panic!("{text:?} was not printed; the log: {:#?}", self.log()))
    }

    /// Waits for a line on stdout that contains `text`; none if the process ended without one.
    pub fn find_output(&mut self, text: &str) -> Option<String> {
        loop {
            let line = self.out.recv_timeout(PATIENCE).ok()?;
            if line.contains(text) {
                return Some(line);
            }
        }
    }

    /// The lines it has printed on stdout that nobody waited for yet.
    pub fn output(&self) -> Vec<String> {
        self.out.try_iter().collect()
    }

    /// Waits for a line of the log that contains `text`.
    pub fn wait_for_log(&mut self, text: &str) -> String {
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("{text:?} was not logged; instead: {:#?}", self.seen),
            }
        }
    }

    /// Writes a line to its stdin, which its command has piped.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// How many KiB of memory it has, where the system tells.
    pub fn resident_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// How long it has worked on a processor, where the system tells.
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // After its name, which may have spaces, the twelfth and the thirteenth, in hundredths of a second.
        let (_, rest) = stat.rsplit_once(')')?;
        let ticks = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok());
        Some(Duration::from_millis(ticks.sum::<Option<u64>>()? * 10))
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let asked_at = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(asked_at.elapsed() < PATIENCE, "the process does not end; the log: {:#?}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything it has logged so far.
    pub fn log(&mut self) -> &[String] {
        self.seen.extend(self.log.try_iter());
        &self.seen
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of the process: {:#?}", self.log());
        }
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
