//! Where the courier must not go: a canary listens there, and hears of nobody.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::clock::SystemClock;

/// Listens on every address of this machine, and counts who comes.
struct Canary {
    port: u16,
    visits: Arc<AtomicUsize>,
}

impl Canary {
    async fn new() -> Self {
        Self::answering("[::]:0", "HTTP/1.1 204 No Content\r\n\r\n".into()).await
    }

    async fn answering(address: &str, answer: String) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (port, visits) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = visits.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                tokio::spawn(async move {
                    let _ = socket.read(&mut [0; 4096]).await;
                    let _ = socket.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { port, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

/// A courier that may go to these networks as well, and knows these names.
fn courier(allowed: &[&str], names: &[(&'static str, &[&'static str])]) -> Courier {
    let network = |text: &&str| {
        let (address, prefix) = text.split_once('/').unwrap();
        Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    };
    let allowed: Vec<_> = allowed.iter().map(network).collect();
    let names: HashMap<String, Vec<IpAddr>> = names
        .iter()
        .map(|(name, addresses)| ((*name).to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect()))
        .collect();
    let look_up: LookUp = Arc::new(move |name| {
        let found = names.get(&name).cloned().ok_or_else(|| io::Error::other("there is no such name"));
        async move { found }.boxed()
    });
    Courier::looking_up(&allowed, Arc::new(SystemClock::new()), look_up).unwrap()
}

async fn call(courier: &Courier, url: &str) -> Result<Answered, String> {
    let secrets = ["swordfish".to_owned()];
    let parcel = Parcel { url, secrets: &secrets, id: "1".into(), body: "{}".into(), headers: HeaderMap::new() };
    courier.take(parcel).await
}

/// An address in every way in which it can be written in a URL.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let number = u32::from(address);
    let v6 = |prefix: &str| format!("[{prefix}{:x}:{:x}]", number >> 16, number & 0xffff);
    let full_width: String = format!("{a}.{b}.{c}.{d}")
        .chars()
        .map(|c| c.to_digit(10).map_or(c, |digit| char::from_u32(0xff10 + digit).unwrap()))
        .collect();
    let percent: String = format!("{a}").bytes().map(|byte| format!("%{byte:02x}")).collect();
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0X{number:X}"),
        format!("0{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0x{a:x}.{b}.0{c:o}.{d}"),
        format!("{a}.{b}.{}", u32::from(c) * 256 + u32::from(d)),
        format!("{a}.{}", number & 0x00ff_ffff),
        format!("00{a:o}.{b}.{c}.{d}"),
        full_width,
        format!("{percent}.{b}.{c}.{d}"),
        format!("{a}\u{3002}{b}\u{ff0e}{c}\u{ff61}{d}"),
        v6("::ffff:"),
        v6("::"),
        v6("0:0:0:0:0:ffff:"),
        v6("64:ff9b::"),
        v6("::ffff:0:"),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[2002:{:x}:{:x}::1]", number >> 16, number & 0xffff),
    ]
}

#[tokio::test]
async fn no_spelling_of_a_closed_address_is_visited() {
    let canary = Canary::new().await;
    let courier = courier(&[], &[]);
    let addresses = [
        [127, 0, 0, 1],
        [127, 1, 2, 3],
        [10, 0, 0, 1],
        [172, 16, 0, 1],
        [192, 168, 1, 1],
        [169, 254, 169, 254],
        [100, 64, 0, 1],
        [0, 0, 0, 0],
    ];
    let mut hosts: Vec<String> = addresses.into_iter().flat_map(|octets| spellings(octets.into())).collect();
    let others = [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "x.localhost",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::0001]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fec0::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[2001:db8::1]",
        "[100::1]",
        "user@127.0.0.1",
        "user:password@127.0.0.1",
        "example.com@127.0.0.1",
        "127.0.0.1#@example.com",
    ];
    hosts.extend(others.map(str::to_owned));
    assert!(hosts.len() >= 100, "{}", hosts.len());
    for host in &hosts {
        for scheme in ["http", "https"] {
            let url = match host.split_once('#') {
                Some((host, rest)) => format!("{scheme}://{host}:{}/#{rest}", canary.port),
                None => format!("{scheme}://{host}:{}/hook", canary.port),
            };
            let refused = call(&courier, &url).await.err().unwrap_or_else(|| panic!("{url} was called"));
            let is_refusal = refused.contains("not on the open internet") || refused.contains("must ");
            assert!(is_refusal, "{url}: {refused}");
        }
    }
    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn no_name_that_stands_for_a_closed_address_is_visited() {
    let canary = Canary::new().await;
    let names: &[(&'static str, &[&'static str])] = &[
        ("loopback.example", &["127.0.0.1"]),
        ("loopback6.example", &["::1"]),
        ("private-a.example", &["10.1.2.3"]),
        ("private-b.example", &["172.31.0.1"]),
        ("private-c.example", &["192.168.0.10"]),
        ("link.example", &["169.254.169.254"]),
        ("link6.example", &["fe80::1"]),
        ("unique.example", &["fd12:3456::1"]),
        ("shared.example", &["100.64.1.1"]),
        ("unspecified.example", &["0.0.0.0"]),
        ("unspecified6.example", &["::"]),
        ("mapped.example", &["::ffff:127.0.0.1"]),
        ("compatible.example", &["::127.0.0.1"]),
        ("translated.example", &["64:ff9b::7f00:1"]),
        ("tunnel.example", &["2002:7f00:1::1"]),
        ("multicast.example", &["224.0.0.1"]),
        ("broadcast.example", &["255.255.255.255"]),
        ("mixed-first.example", &["127.0.0.1", "1.1.1.1"]),
        ("mixed-last.example", &["1.1.1.1", "8.8.8.8", "127.0.0.1"]),
        ("mixed-families.example", &["2606:4700:4700::1111", "127.0.0.1"]),
        ("mixed-six.example", &["1.1.1.1", "::1"]),
        ("xn--bcher-kva.example", &["127.0.0.1"]),
        ("dotted.example.", &["127.0.0.1"]),
    ];
    let courier = courier(&[], names);
    for (name, _) in names {
        let name = name.replace("xn--bcher-kva", "bücher");
        let url = format!("http://{name}:{}/", canary.port);
        let refused = call(&courier, &url).await.err().unwrap_or_else(|| panic!("{url} was called"));
        assert!(refused.contains("not on the open internet"), "{url}: {refused}");
    }
    let unknown = call(&courier, "http://nobody.example/").await.err().unwrap();
    assert!(unknown.contains("there is no such name"), "{unknown}");
    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let canary = Canary::new().await;
    let courier = courier(&["127.0.0.2/32"], &[("door.example", &["127.0.0.2"])]);
    for status in [301, 302, 303, 307, 308, 300] {
        for target in ["127.0.0.1", "localhost", "[::1]", "2130706433", "door.example"] {
            let location = format!("http://{target}:{}/", canary.port);
            let answer = format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let redirecting = Canary::answering("127.0.0.2:0", answer).await;
            let answered = call(&courier, &format!("http://door.example:{}/", redirecting.port)).await.unwrap();
            assert_eq!((answered.status.as_u16(), redirecting.visits()), (status, 1));
        }
    }
    assert_eq!(canary.visits(), 0);
}

#[tokio::test]
async fn what_is_allowed_is_visited_by_name_and_by_number() {
    let canary = Canary::new().await;
    let courier = courier(&["127.0.0.0/8"], &[("inside.example", &["127.0.0.1", "127.0.0.3"])]);
    for host in ["127.0.0.1", "2130706433", "inside.example", "[::ffff:127.0.0.1]"] {
        let answered = call(&courier, &format!("http://{host}:{}/", canary.port)).await;
        assert_eq!(answered.map(|answered| answered.status.as_u16()), Ok(204), "{host}");
    }
    assert!(canary.visits() >= 3, "{}", canary.visits());
}

#[tokio::test]
async fn the_beginning_of_an_answer_is_kept() {
    let courier = courier(&["127.0.0.0/8"], &[]);
    let exactly = |body: String| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for (answer, kept, is_cut) in [
        (exactly("fine".into()), "fine".to_owned(), false),
        (exactly("a\0b\u{1b}\n".into()), "a\u{fffd}b\u{fffd}\n".to_owned(), false),
        (exactly("x".repeat(KEPT)), "x".repeat(KEPT), false),
        (exactly("x".repeat(KEPT + 1)), "x".repeat(KEPT), true),
        // It breaks off.
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine".into(), "fine".to_owned(), false),
    ] {
        let server = Canary::answering("127.0.0.1:0", answer).await;
        let answered = call(&courier, &format!("http://127.0.0.1:{}/", server.port)).await.unwrap();
        assert_eq!((answered.body, answered.is_cut), (kept, is_cut));
    }
}

#[tokio::test]
async fn no_more_calls_than_places_go_to_one_host() {
    let courier = courier(&["127.0.0.0/8"], &[]);
    let url = Url::parse("http://127.0.0.1:9/").unwrap();
    let places = courier.places(&url);
    let all = places.try_acquire_many(PER_HOST as u32).unwrap();
    assert!(courier.places(&Url::parse("http://127.0.0.1:9/other").unwrap()).try_acquire().is_err());
    assert!(courier.places(&Url::parse("http://127.0.0.1:10/").unwrap()).try_acquire().is_ok());
    drop(all);
    drop(places);
    // Nobody calls there any more, and nothing is kept of it once another host is called.
    courier.places(&Url::parse("http://127.0.0.1:11/").unwrap());
    assert_eq!(courier.hosts.lock().unwrap().len(), 1);
}
