use super::*;
use proptest::prelude::*;

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

fn policy(reach: &str) -> Policy {
    let addrs = NodeAddrs {
        own: vec!["192.168.1.5".parse().unwrap(), "2a00:1::5".parse().unwrap()],
        on_link: vec![
            ("192.168.1.0".parse().unwrap(), 24),
            ("2a00:1::".parse().unwrap(), 64),
        ],
        has_v6_default: true,
        ..NodeAddrs::default()
    };
    let listeners = vec![(Transport::Tcp, "192.168.1.5:4433".parse().unwrap())];
    Policy {
        reach: reach.parse().unwrap(),
        addrs,
        listeners,
        generation: 0,
    }
}

fn allowed(reach: &str, transport: Transport, dst: &str, names: &[&str]) -> Option<String> {
    let names: Vec<Host> = names.iter().map(|name| host(name)).collect();
    match policy(reach)
        .decide(transport, dst.parse().unwrap(), &names)
        .verdict
    {
        Verdict::Allow(Granted(term)) => Some(term),
        Verdict::Refuse(_) => None,
    }
}

#[test]
fn a_word_grants_its_class_and_no_other() {
    for (reach, dst, granted) in [
        ("internet", "93.184.216.34:443", true),
        ("internet", "[2606:2800:220:1::1]:443", true),
        ("internet", "192.168.1.20:631", false),
        ("internet", "[2a00:1::20]:80", false),
        ("internet", "10.9.9.9:80", false),
        ("local", "192.168.1.20:631", true),
        ("local", "192.168.1.5:22", true),
        ("local", "[2a00:1::20]:80", true),
        ("local", "[fe80::1]:80", true),
        ("local", "93.184.216.34:443", false),
        ("local", "10.9.9.9:80", false),
        ("local", "192.168.2.20:631", false),
        ("local", "[fd00:9::1]:80", false),
        ("internet,local", "10.9.9.9:80", false),
        ("local,10.9.9.9", "10.9.9.9:80", true),
        ("10.9.0.0/16:80", "10.9.9.9:80", true),
        ("internet,local", "192.168.1.20:631", true),
        ("internet,local", "93.184.216.34:443", true),
        ("nothing", "93.184.216.34:443", false),
    ] {
        let word = allowed(reach, Transport::Tcp, dst, &[]);
        assert_eq!(word.is_some(), granted, "{reach} {dst}");
    }
}

#[test]
fn what_no_word_grants_is_refused_under_every_reach() {
    let all = "internet,local,0.0.0.0/0,::/0,shop.example";
    for dst in [
        "127.0.0.1:80",
        "[::1]:80",
        "0.0.0.0:80",
        "[::]:80",
        "[::ffff:127.0.0.1]:80",
        "[64:ff9b::127.0.0.1]:80",
        "169.254.169.254:80",
        "[fd00:ec2::254]:80",
        "100.100.100.200:80",
        "0.0.0.1:80",
        "240.0.0.1:80",
        "[2001:db8::1]:80",
        "192.0.0.1:53",
        "192.168.1.5:4433",
        "[::ffff:192.168.1.5]:4433",
    ] {
        let decision = policy(all).decide(
            Transport::Tcp,
            dst.parse().unwrap(),
            &[host("shop.example")],
        );
        assert_eq!(
            decision.verdict,
            Verdict::Refuse(Refusal::OutsideReach),
            "{dst}"
        );
    }
    for dst in [
        "239.255.255.250:1900",
        "[ff02::fb]:5353",
        "255.255.255.255:9",
        "192.168.1.255:9",
    ] {
        let decision = policy(all).decide(Transport::Udp, dst.parse().unwrap(), &[]);
        assert_eq!(
            decision.verdict,
            Verdict::Refuse(Refusal::Multicast),
            "{dst}"
        );
        assert_eq!(decision.class, AddrClass::Multicast);
    }
}

#[test]
fn a_prefix_grants_its_addresses_at_its_ports() {
    let reach = "192.168.1.20:631/tcp";
    let grant = Some(reach.to_owned());
    assert_eq!(
        allowed(reach, Transport::Tcp, "192.168.1.20:631", &[]),
        grant
    );
    assert_eq!(
        allowed(reach, Transport::Tcp, "[::ffff:192.168.1.20]:631", &[]),
        grant
    );
    assert_eq!(
        allowed(reach, Transport::Tcp, "192.168.1.21:631", &[]),
        None
    );
    assert_eq!(
        allowed(reach, Transport::Tcp, "192.168.1.20:632", &[]),
        None
    );
    assert_eq!(
        allowed(reach, Transport::Udp, "192.168.1.20:631", &[]),
        None
    );
    assert!(allowed("93.184.0.0/16:443", Transport::Udp, "93.184.9.9:443", &[]).is_some());
    assert!(allowed("93.184.0.0/16:443", Transport::Udp, "93.185.9.9:443", &[]).is_none());
}

#[test]
fn a_name_grants_the_public_addresses_given_for_it_at_its_ports() {
    let tcp = Transport::Tcp;
    let shop = "shop.example:443/tcp";
    let to = "93.184.216.34:443";
    assert!(allowed(shop, tcp, to, &["other.example", "shop.example"]).is_some());
    assert!(allowed(shop, tcp, to, &["other.example"]).is_none());
    assert!(allowed(shop, tcp, to, &[]).is_none());
    assert!(allowed(shop, tcp, "93.184.216.34:80", &["shop.example"]).is_none());
    assert!(allowed(shop, Transport::Udp, to, &["shop.example"]).is_none());
    assert!(allowed(shop, tcp, to, &["_443._tcp.shop.example"]).is_some());
    assert!(allowed(shop, tcp, to, &["www.shop.example"]).is_none());
    assert!(allowed("*.shop.example", tcp, to, &["www.shop.example"]).is_some());
    assert!(allowed("*.shop.example", tcp, to, &["shop.example"]).is_none());
}

#[test]
fn a_name_never_opens_the_nodes_networks() {
    let tcp = Transport::Tcp;
    for dst in [
        "192.168.1.20:443",
        "10.0.0.5:443",
        "[2a00:1::20]:443",
        "[64:ff9b::10.0.0.5]:443",
    ] {
        assert!(
            allowed("shop.example", tcp, dst, &["shop.example"]).is_none(),
            "{dst}"
        );
    }
    // A prefix that covers it does, at the prefix's ports and no others.
    let both = "shop.example,192.168.1.20:631";
    assert!(allowed(both, tcp, "192.168.1.20:631", &["shop.example"]).is_some());
    assert!(allowed(both, tcp, "192.168.1.20:443", &["shop.example"]).is_none());
    assert!(
        allowed(
            "shop.example,local",
            tcp,
            "192.168.1.20:443",
            &["shop.example"]
        )
        .is_some()
    );
}

#[test]
fn ports_of_two_names_on_one_address_do_not_add_up() {
    let reach = "a.example:80,b.example:443";
    let to = |port: u16| format!("93.184.216.34:{port}");
    assert!(allowed(reach, Transport::Tcp, &to(80), &["a.example"]).is_some());
    assert!(allowed(reach, Transport::Tcp, &to(443), &["a.example"]).is_none());
}

#[test]
fn the_host_is_the_name_that_granted_else_the_newest() {
    let names = [host("new.example"), host("shop.example")];
    let dst = "93.184.216.34:443".parse().unwrap();
    let named = policy("shop.example").decide(Transport::Tcp, dst, &names);
    assert_eq!(named.host, Some(host("shop.example")));
    assert_eq!(named.host_from, HostFrom::Dns);
    let any = policy("internet").decide(Transport::Tcp, dst, &names);
    assert_eq!(any.host, Some(host("new.example")));
    let refused = policy("other.example").decide(Transport::Tcp, dst, &names);
    assert_eq!(refused.host, Some(host("new.example")));
    let unknown = policy("internet").decide(Transport::Tcp, dst, []);
    assert_eq!((unknown.host, unknown.host_from), (None, HostFrom::None));
    assert_eq!(
        unknown.verdict,
        Verdict::Allow(Granted("internet".to_owned()))
    );
}

#[test]
fn an_answer_is_kept_where_some_dial_of_it_would_be_granted() {
    let judge = |reach: &str, name: &str, ip: &str| {
        policy(reach).judge_answer(&host(name), ip.parse().unwrap())
    };
    assert_eq!(
        judge("internet", "x.example", "93.184.216.34"),
        Ok(AddrClass::Internet)
    );
    for (ip, class) in [
        ("10.0.0.5", AddrClass::Private),
        ("169.254.169.254", AddrClass::Metadata),
        ("::ffff:127.0.0.1", AddrClass::Loopback),
        ("64:ff9b::a00:1", AddrClass::Private),
        ("0.0.0.0", AddrClass::Loopback),
        ("fd00::1", AddrClass::Private),
    ] {
        assert_eq!(judge("internet", "x.example", ip), Err(class), "{ip}");
        assert_eq!(judge("x.example:443", "x.example", ip), Err(class), "{ip}");
    }
    assert_eq!(
        judge("local", "printer", "192.168.1.20"),
        Ok(AddrClass::Local)
    );
    assert_eq!(
        judge("local", "printer", "93.184.216.34"),
        Err(AddrClass::Internet)
    );
    // Behind the gateway, wherever the name is from.
    for (reach, name) in [
        ("local", "printer"),
        ("internet,local", "x.example"),
        ("local,x.example", "x.example"),
    ] {
        let judged = judge(reach, name, "10.0.0.5");
        assert_eq!(judged, Err(AddrClass::Private), "{reach}");
        let granted = judge(&format!("{reach},10.0.0.5:22"), name, "10.0.0.5");
        assert_eq!(granted, Ok(AddrClass::Private), "{reach}");
    }
    assert!(judge("x.example,192.168.1.20:631", "x.example", "192.168.1.20").is_ok());
    assert!(judge("x.example,192.168.1.20:631", "x.example", "192.168.1.21").is_err());
}

#[test]
fn names_in_reach() {
    use NameReach::{Ancestor, Inside, Outside};
    let search = [host("lan.example")];
    for (reach, name, want) in [
        ("internet", "any.example", Inside),
        ("nothing", "any.example", Outside),
        ("shop.example:443", "shop.example", Inside),
        ("shop.example:443", "_https._tcp.shop.example", Inside),
        ("shop.example:443", "_a.b.shop.example", Outside),
        ("shop.example:443", "_.shop.example", Outside),
        ("shop.example:443", "www.shop.example", Outside),
        ("shop.example:443", "xshop.example", Outside),
        ("shop.example:443", "_xshop.example", Outside),
        ("a.b.example", "b.example", Ancestor),
        ("a.b.example", "example", Ancestor),
        ("a.b.example", "c.example", Outside),
        ("*.b.example", "b.example", Ancestor),
        ("*.b.example", "example", Ancestor),
        ("*.b.example", "x.y.b.example", Inside),
        ("local", "printer", Inside),
        ("local", "nas.lan.example", Inside),
        ("local", "lan.example", Inside),
        ("local", "other.example", Outside),
        ("93.184.216.34", "any.example", Outside),
    ] {
        assert_eq!(
            policy(reach).name_reach(&host(name), &search),
            want,
            "{reach} {name}"
        );
    }
}

fn any_term() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("internet".to_owned()),
        Just("local".to_owned()),
        prop::sample::select(vec![
            "shop.example",
            "shop.example:443",
            "*.example:80/udp",
            "a.example:80,443/tcp",
            "93.184.0.0/16",
            "93.184.216.34:443/tcp",
            "192.168.1.0/24:80",
            "10.0.0.0/8",
            "0.0.0.0/0:443",
            "::/0",
            "[2a00:1::/32]:443/tcp",
        ])
        .prop_map(str::to_owned),
    ]
}

fn any_dst() -> impl Strategy<Value = SocketAddr> {
    let known = prop::sample::select(vec![
        "93.184.216.34",
        "192.168.1.20",
        "10.0.0.5",
        "127.0.0.1",
        "169.254.169.254",
        "192.0.0.1",
        "224.0.0.251",
        "2a00:1::20",
        "2606:2800:220:1::1",
        "::ffff:10.0.0.5",
        "64:ff9b::a00:5",
    ])
    .prop_map(|text| text.parse().unwrap());
    let any = prop_oneof![
        known,
        any::<u32>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        any::<u128>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
    ];
    (any, prop::sample::select(vec![53_u16, 80, 443, 4433])).prop_map(SocketAddr::from)
}

fn any_names() -> impl Strategy<Value = Vec<Host>> {
    let name = prop::sample::select(vec![
        "shop.example",
        "a.example",
        "x.y.example",
        "evil.test",
    ]);
    prop::collection::vec(name.prop_map(host), 0..3)
}

fn any_transport() -> impl Strategy<Value = Transport> {
    prop::sample::select(vec![Transport::Tcp, Transport::Udp])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn taking_a_term_away_never_allows_more(
        terms in prop::collection::vec(any_term(), 1..5),
        away in any::<prop::sample::Index>(),
        dst in any_dst(),
        names in any_names(),
        transport in any_transport(),
    ) {
        let all = terms.join(",");
        let mut fewer = terms.clone();
        fewer.remove(away.index(terms.len()));
        let fewer = if fewer.is_empty() { "nothing".to_owned() } else { fewer.join(",") };
        let allows = |reach: &str, names: &[Host]| {
            matches!(policy(reach).decide(transport, dst, names).verdict, Verdict::Allow(_))
        };
        prop_assert!(!allows(&fewer, &names) || allows(&all, &names));
        // Fewer names never allow more either.
        prop_assert!(!allows(&all, &[]) || allows(&all, &names));
        prop_assert!(!allows("nothing", &names));
        for name in &names {
            let keeps = |reach: &str| policy(reach).judge_answer(name, dst.ip()).is_ok();
            prop_assert!(!keeps(&fewer) || keeps(&all));
        }
    }

    #[test]
    fn an_allowed_dial_of_a_name_is_an_address_its_answer_would_keep(
        terms in prop::collection::vec(any_term(), 1..5),
        dst in any_dst(),
        name in prop::sample::select(vec!["shop.example", "a.example", "x.y.example"]),
        transport in any_transport(),
    ) {
        let policy = policy(&terms.join(","));
        let name = host(name);
        let decision = policy.decide(transport, dst, [&name]);
        if matches!(decision.verdict, Verdict::Allow(_)) {
            prop_assert_eq!(policy.judge_answer(&name, dst.ip()), Ok(decision.class));
            prop_assert!(crate::is_grantable(decision.class));
        }
    }
}

#[test]
fn a_port_of_the_nodes_loopback_is_granted_alone_and_by_the_gates_address() {
    let mut policy = policy("lo:5432,6000/tcp,lo:7000");
    policy
        .listeners
        .push((Transport::Tcp, "127.0.0.1:6000".parse().unwrap()));
    let judge = |over, dst: &str| {
        let decision = policy.decide(over, dst.parse().unwrap(), []);
        (
            matches!(decision.verdict, Verdict::Allow(_)),
            decision.class,
        )
    };
    let (tcp, udp) = (Transport::Tcp, Transport::Udp);
    for (over, dst, granted, class) in [
        (tcp, "192.0.0.1:5432", true, AddrClass::Loopback),
        (tcp, "[fd00:ba11:e700::1]:5432", true, AddrClass::Loopback),
        (udp, "192.0.0.1:7000", true, AddrClass::Loopback),
        (tcp, "192.0.0.1:7000", true, AddrClass::Loopback),
        // Another transport, another port, where the node itself listens.
        (udp, "192.0.0.1:5432", false, AddrClass::Gate),
        (tcp, "192.0.0.1:5433", false, AddrClass::Gate),
        (tcp, "192.0.0.1:6000", false, AddrClass::Node),
        // Any other way to the loopback or to the node.
        (tcp, "127.0.0.1:5432", false, AddrClass::Loopback),
        (tcp, "[::1]:5432", false, AddrClass::Loopback),
        (tcp, "[::ffff:192.0.0.1]:5432", false, AddrClass::Gate),
        (tcp, "192.0.0.3:5432", false, AddrClass::Gate),
        (tcp, "192.168.1.5:5432", false, AddrClass::Local),
    ] {
        assert_eq!(judge(over, dst), (granted, class), "{dst}");
    }
    // A name cannot lead there.
    let name = host("shop.example");
    let lo = "192.0.0.1".parse().unwrap();
    assert_eq!(policy.judge_answer(&name, lo), Err(AddrClass::Gate));
    assert_eq!(allowed("internet,local", tcp, "192.0.0.1:5432", &[]), None);
}
