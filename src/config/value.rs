//! How the text of a key becomes a value; a refusal says what was expected.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lettre::message::Mailbox;
use reqwest::Url;

use super::Secret;
use crate::routes::signature;

/// A network, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// How many leading bits are its own.
    pub prefix: u8,
}

impl Network {
    /// Whether an address belongs to it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shared = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        shared >= u32::from(self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        network(text)
    }
}

/// The unit of a duration that is written as a bare number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
}

/// An address and port; `localhost` is 127.0.0.1.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    if let Some(port) = local {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "an address and port such as 127.0.0.1:7878 or [::1]:7878".into())
}

/// A duration inside `bounds`: a bare number in `unit`, or a number with its unit.
pub(super) fn duration(text: &str, unit: Unit, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let milliseconds: Option<u64> = match (suffix.trim_start(), unit) {
        ("", Unit::Milliseconds) | ("ms", _) => Some(1),
        ("", Unit::Seconds) | ("s", _) => Some(1_000),
        ("m" | "min", _) => Some(60_000),
        ("h", _) => Some(3_600_000),
        ("d", _) => Some(86_400_000),
        _ => None,
    };
    number
        .parse::<u64>()
        .ok()
        .zip(milliseconds)
        .and_then(|(number, milliseconds)| number.checked_mul(milliseconds))
        .map(Duration::from_millis)
        .filter(|duration| bounds.contains(duration))
        .ok_or_else(|| {
            let unit = match unit {
                Unit::Milliseconds => "milliseconds",
                Unit::Seconds => "seconds",
            };
            format!(
                "{unit} as a number, or a text such as \"30s\", from {} to {}",
                spelled(*bounds.start()),
                spelled(*bounds.end())
            )
        })
}

/// A whole number inside `bounds`.
pub(super) fn whole(text: &str, bounds: RangeInclusive<u32>) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| format!("a whole number from {} to {}", bounds.start(), bounds.end()))
}

/// One of `names`.
pub(super) fn one_of(text: &str, names: &[&'static str]) -> Result<&'static str, String> {
    names.iter().find(|name| **name == text).copied().ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// A URL with one of `schemes`, of which the password is a secret.
pub(super) fn url(text: &str, schemes: &[&str]) -> Result<Secret, String> {
    let begins_well =
        text.split_once("://").is_some_and(|(scheme, rest)| schemes.contains(&scheme) && !rest.is_empty());
    if !begins_well {
        return Err(format!("a URL that begins with {}://", schemes.join(":// or ")));
    }
    match Url::parse(text).map(|url| url.port()) {
        Ok(Some(0)) => Err("a URL whose port is 1 to 65535".into()),
        Ok(_) => Ok(Secret::url(text)),
        Err(error) => Err(format!("a URL that can be read, with a port of 1 to 65535 if it names one ({error})")),
    }
}

/// The URL of a database.
pub(super) fn database_url(text: &str) -> Result<Secret, String> {
    match text.strip_prefix("sqlite:") {
        Some(rest) if !rest.is_empty() => Ok(Secret::url(text)),
        Some(_) => Err("the name of a file behind sqlite://".into()),
        None => url(text, &["sqlite", "postgres", "postgresql"]),
    }
}

/// A plain web address.
pub(super) fn web_address(text: &str) -> Result<String, String> {
    url(text, &["https", "http"]).map(|url| url.expose().trim_end_matches('/').to_owned())
}

/// Something like `name@host`, alone or as `Name <name@host>`.
pub(super) fn mailbox(text: &str) -> Result<Mailbox, String> {
    let refused = || "an e-mail address such as ops@example.com or Ops <ops@example.com>".to_owned();
    if text.contains(char::is_control) {
        return Err(refused());
    }
    text.parse().map_err(|_| refused())
}

/// The same, as it was given.
pub(super) fn mail_address(text: &str) -> Result<String, String> {
    mailbox(text).map(|_| text.to_owned())
}

/// What signs webhooks: one secret, two during a rotation, none where nothing is signed.
pub(super) fn webhook_secrets(text: &str) -> Result<Vec<Secret>, String> {
    const EXPECTED: &str = "one or two secrets of at least 8 characters, separated by commas";
    let secrets = list(text, |secret| match signature::check_secret(secret) {
        Ok(()) if secret.len() >= 8 => Ok(Secret::hidden(secret)),
        Ok(()) => Err(EXPECTED.into()),
        Err(refused) => Err(refused),
    })?;
    if secrets.len() > signature::MAX_SECRETS { Err(EXPECTED.into()) } else { Ok(secrets) }
}

/// The name of a queue of BullMQ, or what its keys begin with.
pub(super) fn queue_name(text: &str) -> Result<String, String> {
    let is_name = (1..=200).contains(&text.chars().count()) && !text.contains(|c: char| c.is_control() || c == ':');
    if is_name { Ok(text.to_owned()) } else { Err("1 to 200 characters, no colon among them".into()) }
}

/// A folder that is there.
pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() { Ok(folder) } else { Err("a folder that exists".into()) }
}

/// Names or other items, separated by commas.
pub(super) fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(item).collect()
}

/// A network, or a single address.
pub(super) fn network(text: &str) -> Result<Network, String> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let refused = || "networks such as 10.1.0.0/16 or fd00::/8, separated by commas".to_owned();
    let address: IpAddr = address.parse().map_err(|_| refused())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(widest), |prefix| prefix.parse().ok()).filter(|prefix| *prefix <= widest);
    Ok(Network { address, prefix: prefix.ok_or_else(refused)? })
}

fn spelled(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    match [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| milliseconds > 0 && milliseconds.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None => format!("{milliseconds}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_in_the_unit_of_the_key_or_say_their_own() {
        let any = Duration::ZERO..=Duration::from_secs(86_400);
        for (text, unit, milliseconds) in [
            ("5", Unit::Seconds, 5_000),
            ("5", Unit::Milliseconds, 5),
            ("250ms", Unit::Seconds, 250),
            ("15m", Unit::Milliseconds, 900_000),
            ("1 h", Unit::Seconds, 3_600_000),
            ("1d", Unit::Seconds, 86_400_000),
        ] {
            assert_eq!(duration(text, unit, any.clone()), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "-1", "1.5s", "1w", "2d", "99999999999999999999", "1s2s"] {
            let refusal = duration(text, Unit::Seconds, any.clone()).unwrap_err();
            assert_eq!(refusal, "seconds as a number, or a text such as \"30s\", from 0ms to 1d");
        }
    }

    #[test]
    fn addresses_name_a_port() {
        assert_eq!(address("localhost:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert!(address("[::1]:0").is_ok());
        for text in ["nonsense", "127.0.0.1", "localhost:", "localhost:70000", ":80"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn urls_can_be_read_and_name_a_port_that_there_is() {
        for text in
            ["redis://cache", "redis://:secret@cache:65535/1", "redis://[::1]:6379", "rediss://cache:6380#insecure"]
        {
            assert_eq!(url(text, &["redis", "rediss"]).unwrap().expose(), text);
        }
        for text in [
            "redis://cache:99999",
            "redis://:secret@cache:0",
            "redis://[::1]:65536",
            "redis://cache:port",
            "redis://[::1",
        ] {
            let refusal = url(text, &["redis"]).unwrap_err();
            assert!(refusal.contains("1 to 65535"), "{text}: {refusal}");
        }
        assert!(database_url("postgres:///app?host=/run/postgresql").is_ok());
        assert!(database_url("postgres://%2Frun%2Fpostgresql/app").is_ok());
        assert!(database_url("postgres://me@db:70000/app").is_err());
        assert!(web_address("https://example.com:443000/").is_err());
    }

    #[test]
    fn networks_have_a_prefix_that_fits() {
        assert_eq!(list("10.0.0.0/8, ::1", network).unwrap().len(), 2);
        assert_eq!(list("", network), Ok(vec![]));
        for text in ["10.0.0.0/33", "fd00::/129", "x", "10.0.0.0/"] {
            assert!(network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_holds_its_own_addresses_only() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.1.128/25", "192.168.1.128", "192.168.1.127"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "ffff::", "1.1.1.1"),
        ] {
            let network = network(text).unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{text} {outside}");
        }
    }

    #[test]
    fn mail_addresses_cannot_carry_a_line_break() {
        assert!(mail_address("Ops <ops@example.com>").is_ok());
        for text in ["ops", "@example.com", "ops@example.com\r\nBcc: x@y.z"] {
            assert!(mail_address(text).is_err(), "{text:?}");
        }
    }
}
