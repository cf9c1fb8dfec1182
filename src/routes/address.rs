//! Where a webhook may lead: to the open internet, and to private networks that the configuration allows.
//!
//! Pure: it looks at an address or a URL as it is written. Names are looked up by whoever sends, and every address they
//! stand for is checked again then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

use crate::config::Network;

/// The longest URL of a webhook.
const MAX_URL_BYTES: usize = 2048;

/// IPv4 networks that are not the open internet.
const SPECIAL_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, reserved, broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The only IPv6 network that is the open internet, and parts of it that are not.
const OPEN_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const SPECIAL_V6: [(Ipv6Addr, u8); 3] = [
    // Protocols, Teredo among them, which hides an IPv4 address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Reads the URL of a webhook as a topic has it.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn check_url(text: &str, allowed: &[Network]) -> Result<Url, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("must have at most {MAX_URL_BYTES} bytes"));
    }
    let url = Url::parse(text).map_err(|error| format!("must be a URL such as https://example.com/hook ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or http://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user or a password; the signature says who is calling".into());
    }
    // The parser has turned every spelling of an IPv4 address into the usual one by now.
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse::<IpAddr>();
    match address {
        Ok(address) => check_address(address, allowed)?,
        Err(_) if host.is_empty() => return Err("must name a host".into()),
        Err(_) if host == "localhost" || host.ends_with(".localhost") => {
            check_address(Ipv4Addr::LOCALHOST.into(), allowed)?;
        }
        Err(_) => {}
    }
    Ok(url)
}

/// Whether a webhook may be sent to this address.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn check_address(address: IpAddr, allowed: &[Network]) -> Result<(), String> {
    // Whatever form it is written in, the network it leads to counts.
    let meant = embedded(address);
    if is_open(meant) || allowed.iter().any(|network| network.contains(address) || network.contains(meant)) {
        return Ok(());
    }
    Err(format!(
        "leads to {address}, which is not on the open internet; allow its network in webhook.allow (PUNCTUAL_WEBHOOK_ALLOW)"
    ))
}

/// The IPv4 address that an IPv6 address stands for, if it does.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let parts = v6.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // Nobody and this machine, in IPv6's own way.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        // IPv4-mapped, IPv4-compatible, and translated in one way or the other.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

fn is_open(address: IpAddr) -> bool {
    let is_in = |(network, prefix): &(IpAddr, u8)| Network { address: *network, prefix: *prefix }.contains(address);
    match address {
        IpAddr::V4(_) => !SPECIAL_V4.iter().any(|(network, prefix)| is_in(&((*network).into(), *prefix))),
        IpAddr::V6(_) => {
            is_in(&(OPEN_V6.0.into(), OPEN_V6.1))
                && !SPECIAL_V6.iter().any(|(network, prefix)| is_in(&((*network).into(), *prefix)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn addresses_of_the_open_internet_are_told_from_others() {
        for open in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(check_address(open.parse().unwrap(), &[]), Ok(()), "{open}");
        }
        for closed in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:a9fe:a9fe",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff:ffff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(check_address(closed.parse().unwrap(), &[]).is_err(), "{closed}");
        }
    }

    #[test]
    fn what_the_configuration_allows_may_be_reached_however_it_is_written() {
        let allowed = [network("10.1.0.0/16"), network("fd00::/8"), network("127.0.0.1/32")];
        for fine in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd12::1", "127.0.0.1"] {
            assert_eq!(check_address(fine.parse().unwrap(), &allowed), Ok(()), "{fine}");
        }
        for refused in ["10.2.0.1", "::ffff:10.2.0.1", "fc00::1", "127.0.0.2", "::1"] {
            assert!(check_address(refused.parse().unwrap(), &allowed).is_err(), "{refused}");
        }
    }

    #[test]
    fn urls_are_checked_in_every_spelling() {
        for fine in [
            "https://example.com/hook",
            "http://example.com:8080/a?b=c#d",
            "https://8.8.8.8/",
            "https://[2606:4700::1]:443/x",
            "HTTPS://EXAMPLE.COM",
            "https://xn--bcher-kva.example/",
            "https://bücher.example/",
            "https://localhost.example.com/",
        ] {
            assert!(check_url(fine, &[]).is_ok(), "{fine}: {:?}", check_url(fine, &[]));
        }
        for refused in [
            "",
            "example.com",
            "ftp://example.com",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://",
            "https://user@example.com",
            "https://user:pass@example.com",
            "http://localhost",
            "http://LOCALHOST:80/",
            "http://localhost./",
            "http://api.localhost/",
            "http://127.0.0.1",
            "http://127.0.0.1./",
            "http://127.1",
            "http://127.0.1",
            "http://2130706433",
            "http://0x7f000001",
            "http://0x7f.0.0.1",
            "http://017700000001",
            "http://0177.0.0.1",
            "http://0",
            "http://0.0.0.0",
            "http://１２７.0.0.1",
            "http://127。0。0。1",
            "http://%31%32%37.0.0.1",
            "http://10.0.0.1",
            "http://169.254.169.254/latest/meta-data",
            "http://0xa9fea9fe/",
            "http://2852039166/",
            "http://[::1]",
            "http://[::]",
            "http://[0:0:0:0:0:0:0:1]",
            "http://[::ffff:127.0.0.1]",
            "http://[::ffff:7f00:1]",
            "http://[::127.0.0.1]",
            "http://[64:ff9b::127.0.0.1]",
            "http://[2002:7f00:1::]",
            "http://[fe80::1]",
            "http://[fd00::1]",
        ] {
            assert!(check_url(refused, &[]).is_err(), "{refused}");
        }
        let allowed = [network("127.0.0.0/8")];
        for fine in ["http://127.0.0.1:9", "http://localhost:9", "http://2130706433", "http://[::ffff:127.0.0.1]"] {
            assert!(check_url(fine, &allowed).is_ok(), "{fine}");
        }
        assert!(check_url(&format!("https://example.com/{}", "x".repeat(MAX_URL_BYTES)), &[]).is_err());
    }
}
