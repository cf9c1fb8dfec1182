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
    courier.take(parcel, Duration::from_secs(60)).await.map_err(|error| error.to_string())
}

/// The URLs that must never be called, as they lead to a port.
fn closed_targets(port: u16) -> Vec<String> {
    let lines = include_str!("../../tests/testdata/closed_targets.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.replace("{port}", &port.to_string())).collect()
}

#[tokio::test]
async fn no_closed_target_is_visited() {
    let canary = Canary::new().await;
    // Names are looked up as everybody does: those of this machine lead there.
    let courier = Courier::new(&[], Arc::new(SystemClock::new())).unwrap();
    let urls = closed_targets(canary.port);
    assert!(urls.len() >= 150, "{}", urls.len());
    for url in &urls {
        let refused = call(&courier, url).await.err().unwrap_or_else(|| panic!("{url} was called"));
        let is_refusal = refused.contains("not on the open internet") || refused.contains("must ");
        assert!(is_refusal, "{url}: {refused}");
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
async fn a_name_that_means_something_else_the_next_moment_leads_nowhere_else() {
    let canary = Canary::answering("127.0.0.1:0", "HTTP/1.1 204 No Content\r\n\r\n".into()).await;
    let address = format!("127.0.0.2:{}", canary.port);
    let open = Canary::answering(&address, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".into()).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    // The first answer is harmless, the next is not, and so on.
    let look_up: LookUp = Arc::new(move |_| {
        let is_first = counted.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        let address = if is_first { Ipv4Addr::new(127, 0, 0, 2) } else { Ipv4Addr::LOCALHOST };
        async move { Ok(vec![IpAddr::V4(address)]) }.boxed()
    });
    let allowed = [Network { address: Ipv4Addr::new(127, 0, 0, 2).into(), prefix: 32 }];
    let courier = Courier::looking_up(&allowed, Arc::new(SystemClock::new()), look_up).unwrap();
    for _ in 0..10 {
        // What was looked up and checked is where it goes.
        let answered = call(&courier, &format!("http://changing.example:{}/", canary.port)).await;
        assert_eq!(answered.is_ok(), asked.load(Ordering::SeqCst) % 2 == 1, "{:?}", answered.err());
    }
    assert_eq!((canary.visits(), open.visits(), asked.load(Ordering::SeqCst)), (0, 5, 10));
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
    let names: &[(&'static str, &[&'static str])] =
        &[("inside.example", &["127.0.0.1", "127.0.0.3"]), ("inside6.example", &["::1"])];
    let courier = courier(&["127.0.0.0/8", "::1/128"], names);
    let hosts = ["127.0.0.1", "2130706433", "inside.example", "inside6.example", "[::1]", "[::ffff:127.0.0.1]"];
    for host in hosts {
        let answered = call(&courier, &format!("http://{host}:{}/", canary.port)).await;
        assert_eq!(answered.map(|answered| answered.status.as_u16()), Ok(204), "{host}");
    }
    assert!(canary.visits() >= 5, "{}", canary.visits());
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
    let parcel = Parcel {
        url: "http://127.0.0.1:9/",
        secrets: &[],
        id: "1".into(),
        body: "{}".into(),
        headers: HeaderMap::new(),
    };
    let busy = courier.take(parcel, Duration::from_millis(10)).await;
    assert_eq!(busy.err(), Some(Unanswered::Busy));
    assert!(courier.places(&Url::parse("http://127.0.0.1:9/other").unwrap()).try_acquire().is_err());
    assert!(courier.places(&Url::parse("http://127.0.0.1:10/").unwrap()).try_acquire().is_ok());
    drop(all);
    drop(places);
    // Nobody calls there any more, and nothing is kept of it once another host is called.
    courier.places(&Url::parse("http://127.0.0.1:11/").unwrap());
    assert_eq!(courier.hosts.lock().unwrap().len(), 1);
}
