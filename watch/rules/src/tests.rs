use super::*;
use bailey_model::{
    AddrClass, BoxStarted, DeviceId, Direction, FlowRefused, HostFrom, Proto, Refusal, Rule,
};

const BOX: BoxId = BoxId([1; 16]);

fn run(reach: &str, tries: &[(AddrClass, Proto, u64)]) -> Vec<Notice> {
    let mut rules = Rules::default();
    let started = Event::BoxStarted(BoxStarted {
        box_id: BOX,
        name: "yard".to_owned(),
        incarnation: Incarnation([3; 16]),
        command: Vec::new(),
        reach: reach.to_owned(),
        image: "host".to_owned(),
    });
    fn observe<'a>(no: u64, ts: u64, event: &'a Event) -> Observation<'a> {
        let entry = EntryRef {
            writer: DeviceId([2; 32]),
            box_id: BOX,
            no,
        };
        Observation {
            entry,
            ts: Timestamp(ts),
            event,
        }
    }
    rules.handle(&observe(1, 0, &started), NoticeId([0; 16]));
    let mut no = 1;
    for (class, proto, ts) in tries {
        no += 1;
        let event = Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: *proto,
            src: None,
            dst: Some("192.168.1.9:631".parse().unwrap()),
            host: None,
            host_from: HostFrom::None,
            class: Some(*class),
            refusal: Refusal::OutsideReach,
            count: 1,
        });
        rules.handle(&observe(no, *ts, &event), NoticeId([4; 16]));
    }
    std::iter::from_fn(|| rules.poll_notice()).collect()
}

#[test]
fn a_refused_local_dial_of_an_internet_only_box_raises_one_notice_citing_its_entry() {
    let notices = run(
        "internet",
        &[
            (AddrClass::Local, Proto::Tcp, 5),
            (AddrClass::Local, Proto::Udp, 6),
        ],
    );
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].rule, Rule::LocalFromInternetOnly);
    assert_eq!(notices[0].evidence.len(), 1);
    assert_eq!(notices[0].evidence[0].no, 2);
    assert!(
        notices[0].text.contains("192.168.1.9:631/tcp"),
        "{}",
        notices[0].text
    );
}

#[test]
fn an_echo_is_a_try_and_a_public_address_in_the_reach_changes_nothing() {
    for (reach, proto, place) in [
        ("internet", Proto::Other(1), "192.168.1.9/icmp"),
        ("93.184.216.34:443", Proto::Tcp, "192.168.1.9:631/tcp"),
        (
            "internet,93.184.216.0/24",
            Proto::Udp,
            "192.168.1.9:631/udp",
        ),
    ] {
        let notices = run(reach, &[(AddrClass::Local, proto, 5)]);
        assert_eq!(notices.len(), 1, "{reach}");
        assert!(notices[0].text.contains(place), "{}", notices[0].text);
    }
    let one = "internet,192.168.1.20:631";
    assert!(run(one, &[(AddrClass::Local, Proto::Tcp, 5)]).is_empty());
}

#[test]
fn a_private_network_beyond_the_own_one_is_said_to_be_that() {
    let tried = [(AddrClass::Private, Proto::Tcp, 5)];
    let notices = run("internet", &tried);
    assert_eq!(notices.len(), 1);
    let text = &notices[0].text;
    assert!(text.contains("a private network beyond your own"), "{text}");
    assert!(run("internet,local", &tried).is_empty());
}

#[test]
fn other_classes_and_other_reaches_raise_nothing() {
    assert!(run("internet", &[(AddrClass::Internet, Proto::Tcp, 5)]).is_empty());
    assert!(run("internet", &[(AddrClass::Loopback, Proto::Tcp, 5)]).is_empty());
    assert!(run("internet,local", &[(AddrClass::Local, Proto::Tcp, 5)]).is_empty());
    assert!(run("nothing", &[(AddrClass::Local, Proto::Tcp, 5)]).is_empty());
}

#[test]
fn the_quiet_after_a_notice_ends_by_time_or_by_a_clock_set_back() {
    let local = AddrClass::Local;
    assert_eq!(
        run(
            "internet",
            &[(local, Proto::Tcp, 1000), (local, Proto::Tcp, 700_000)]
        )
        .len(),
        2
    );
    assert_eq!(
        run(
            "internet",
            &[(local, Proto::Tcp, 1000), (local, Proto::Tcp, 999)]
        )
        .len(),
        2
    );
}

#[test]
fn a_reach_that_was_changed_is_what_a_try_is_held_to() {
    let event = |event: Event| {
        let entry = EntryRef {
            writer: DeviceId([2; 32]),
            box_id: BOX,
            no: 1,
        };
        (entry, event)
    };
    let changed = |new: &str| {
        Event::ReachChanged(bailey_model::ReachChanged {
            box_id: BOX,
            incarnation: Incarnation([3; 16]),
            old: String::new(),
            new: new.to_owned(),
            by: bailey_model::ChangedBy::Here,
        })
    };
    let refused = |port: u16| {
        Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Tcp,
            src: None,
            dst: Some(([192, 168, 1, 9], port).into()),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Local),
            refusal: Refusal::OutsideReach,
            count: 1,
        })
    };
    let started = Event::BoxStarted(BoxStarted {
        box_id: BOX,
        name: "yard".to_owned(),
        incarnation: Incarnation([3; 16]),
        command: Vec::new(),
        reach: "internet".to_owned(),
        image: "host".to_owned(),
    });
    let raised = |changes: Vec<Event>| {
        let mut rules = Rules::default();
        let all = [started.clone()].into_iter().chain(changes);
        for (entry, happened) in all.chain([refused(631)]).map(event) {
            let ts = Timestamp(1);
            let observation = Observation {
                entry,
                ts,
                event: &happened,
            };
            rules.handle(&observation, NoticeId([4; 16]));
        }
        std::iter::from_fn(|| rules.poll_notice()).count()
    };
    assert_eq!(raised(vec![]), 1);
    assert_eq!(raised(vec![changed("internet,192.168.1.9:80")]), 0);
    assert_eq!(
        raised(vec![changed("internet,local"), changed("internet")]),
        1
    );
}
