//! Entries, rates, silence and failure.

use super::*;

#[test]
fn equal_questions_within_ten_seconds_are_one_entry_and_a_count() {
    let mut bench = Bench::new("internet");
    for _ in 0..4 {
        bench.query("shop.example", RecordType::A);
    }
    bench.query("shop.example", RecordType::AAAA);
    let asks = bench.asks();
    let asked: Vec<_> = asks
        .iter()
        .map(|(_, entry)| (entry.qtype, entry.count))
        .collect();
    assert_eq!(asked, [(1, 1), (28, 1)]);
    assert!(
        bench.exchanges().is_empty(),
        "equal ones wait for the same entry"
    );
    bench
        .dns
        .handle_committed(bench.now, asks[0].0, &bench.policy);
    bench.drain();
    let asked = bench.exchanges();
    assert_eq!(asked.len(), 1, "one ask for all of them");
    bench.answer(asked[0].0, asked[0].1, &with(&asked[0].3, &[]));
    assert_eq!(bench.replies().len(), 4);
    // Entered already: at once.
    bench.query("shop.example", RecordType::A);
    assert!(bench.asks().is_empty());
    assert_eq!(bench.exchanges().len(), 1);
    bench.wait(SECOND * 10);
    let counts = bench.counts();
    assert_eq!(
        counts,
        [NameAsked {
            host: host("shop.example"),
            qtype: 1,
            count: 4
        }]
    );
    bench.query("shop.example", RecordType::A);
    assert_eq!(bench.asks().len(), 1);
}

#[test]
fn equal_questions_under_way_share_one_ask_and_each_has_its_own_answer() {
    let mut bench = Bench::new("internet");
    let first = bench.asked("shop.example", RecordType::A);
    // Other ids, another spelling, another transport, without EDNS.
    for (id, text, transport, edns) in [
        (7, "Shop.Example", Transport::Udp, Some(4096)),
        (8, "shop.example", Transport::Tcp, None),
    ] {
        bench.send(transport, &question(id, text, RecordType::A, edns));
    }
    // What is not equal, or has no entry yet, goes by itself or not at all.
    bench.query("shop.example", RecordType::TXT);
    assert!(bench.exchanges().is_empty());
    bench.commit_all();
    let other = bench.exchanges();
    assert_eq!(other.len(), 1);
    assert_eq!(other[0].3.queries[0].query_type(), RecordType::TXT);
    let address = addr_record("shop.example", "93.184.216.34");
    bench.answer(first.0, first.1, &with(&first.3, &[address]));
    let replies = bench.replies();
    let told: Vec<_> = replies
        .iter()
        .map(|reply| (reply.metadata.id, addrs(reply), reply.edns.is_some()))
        .collect();
    let address = vec!["93.184.216.34".to_owned()];
    let expected = [
        (101, address.clone(), true),
        (7, address.clone(), true),
        (8, address, false),
    ];
    assert_eq!(told, expected);
    let spelt: Vec<_> = replies
        .iter()
        .map(|reply| reply.queries[0].name().to_ascii())
        .collect();
    assert_eq!(spelt, ["shop.example.", "Shop.Example.", "shop.example."]);
    assert_eq!(bench.dns.questions(), 1, "the other type is under way");
}

#[test]
fn whoever_shares_an_ask_keeps_it_when_the_one_that_began_it_is_given_up() {
    let mut bench = Bench::new("internet");
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    bench.wait(SECOND * 2);
    let again = bench.exchanges();
    for _ in 0..2 {
        bench.query("shop.example", RecordType::A);
    }
    assert!(bench.exchanges().is_empty());
    // The first one's time is over; the others' is not.
    bench.wait(ANSWER_WITHIN - SECOND * 2);
    assert_eq!(bench.reply().metadata.response_code, ResponseCode::ServFail);
    assert!(!bench.cancels().contains(&id));
    let address = addr_record("shop.example", "93.184.216.34");
    bench.answer(id, server, &with(&asked, &[address]));
    let replies = bench.replies();
    assert_eq!(replies.len(), 2);
    assert!(
        replies
            .iter()
            .all(|reply| addrs(reply) == ["93.184.216.34"])
    );
    let mut ended = bench.cancels();
    ended.sort_unstable();
    assert!(ended.contains(&id) && again.iter().all(|of| ended.contains(&of.0)));
    assert_eq!((bench.dns.questions(), bench.dns.exchanges.len()), (0, 0));
}

#[test]
fn what_no_resolver_answers_fails_for_all_that_share_it() {
    let mut bench = Bench::new("internet");
    let first = bench.asked("shop.example", RecordType::A);
    bench.query("shop.example", RecordType::A);
    bench.dns.handle_unreachable(bench.now, first.0);
    bench.drain();
    while let [(id, ..), ..] = bench.exchanges()[..] {
        bench.dns.handle_unreachable(bench.now, id);
        bench.drain();
    }
    let replies = bench.replies();
    assert_eq!(replies.len(), 2);
    let failed = |reply: &Message| reply.metadata.response_code == ResponseCode::ServFail;
    assert!(replies.iter().all(failed));
    assert_eq!(bench.dns.questions(), 0);
}

#[test]
fn many_equal_questions_are_one_ask_and_no_more_than_their_bound() {
    let mut bench = Bench::new("internet");
    let mut asks = 0;
    for _ in 0..2 * MAX_QUESTIONS {
        bench.query("shop.example", RecordType::A);
        bench.commit_all();
        asks += bench.exchanges().len();
        bench.now += Duration::from_millis(10);
    }
    assert_eq!(asks, 1);
    assert!(bench.dns.questions() <= MAX_QUESTIONS);
    assert_eq!(bench.dns.exchanges.len(), 1);
    bench.dns.close();
    assert_eq!((bench.dns.questions(), bench.dns.exchanges.len()), (0, 0));
}

#[test]
fn without_its_entry_nothing_is_asked_and_the_name_fails() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    bench.query("shop.example", RecordType::A);
    let (id, _) = bench.asks().remove(0);
    bench.dns.handle_refused(bench.now, id);
    bench.drain();
    let replies = bench.replies();
    assert_eq!(replies.len(), 2);
    assert!(
        replies
            .iter()
            .all(|reply| reply.metadata.response_code == ResponseCode::ServFail)
    );
    assert!(bench.exchanges().is_empty());
    let refusals = bench.refusals();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].refusal, Refusal::StoreUnavailable);
    // The next one is entered anew.
    bench.query("shop.example", RecordType::A);
    assert_eq!(bench.asks().len(), 1);
}

#[test]
fn an_entry_committed_too_late_asks_nothing() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    let (id, _) = bench.asks().remove(0);
    bench.wait(ANSWER_WITHIN);
    assert_eq!(bench.reply().metadata.response_code, ResponseCode::ServFail);
    bench.dns.handle_committed(bench.now, id, &bench.policy);
    bench.drain();
    assert!(bench.exchanges().is_empty());
    // Entered within the window: the next one goes at once.
    bench.query("shop.example", RecordType::A);
    assert_eq!(bench.exchanges().len(), 1);
}

#[test]
fn a_name_that_left_the_reach_before_its_entry_stood_is_not_asked() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    bench.policy.reach = "other.example".parse().unwrap();
    bench.commit_all();
    assert!(bench.exchanges().is_empty());
    assert!(is_nxdomain(&bench.reply()));
    assert_eq!(bench.refusals().len(), 1);
}

#[test]
fn an_answer_is_judged_by_the_policy_of_its_moment() {
    let mut bench = Bench::new("internet");
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    bench
        .policy
        .addrs
        .own
        .push("93.184.216.34".parse().unwrap());
    bench.answer(
        id,
        server,
        &with(&asked, &[addr_record("shop.example", "93.184.216.34")]),
    );
    assert!(is_nodata(&bench.reply()));
}

#[test]
fn silent_resolvers_are_tried_in_turn_and_end_in_servfail_within_four_seconds() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    bench.commit_all();
    let start = bench.now;
    let mut servers = Vec::new();
    let mut exchanges = Vec::new();
    while bench.dns.questions() > 0 {
        for (id, server, _, _) in bench.exchanges() {
            servers.push(server);
            exchanges.push(id);
        }
        bench.now = bench.dns.poll_timeout().unwrap().max(bench.now);
        bench.dns.handle_timeout(bench.now, &bench.names);
        bench.drain();
    }
    assert_eq!(
        servers,
        [resolver(1), resolver(2), resolver(1), resolver(2)]
    );
    assert!(bench.now - start < SECOND * 4);
    let reply = bench.reply();
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(extended(&reply).unwrap().0, 22);
    assert_eq!(bench.cancels(), exchanges);
}

#[test]
fn a_late_answer_of_the_first_resolver_still_counts() {
    let mut bench = Bench::new("internet");
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    bench.wait(SECOND);
    assert_eq!(bench.exchanges()[0].1, resolver(2));
    bench.answer(
        id,
        server,
        &with(&asked, &[addr_record("shop.example", "93.184.216.34")]),
    );
    assert_eq!(addrs(&bench.reply()), ["93.184.216.34"]);
    assert_eq!(bench.cancels().len(), 2);
}

#[test]
fn a_resolver_that_fails_is_passed_over_at_once() {
    for code in [
        ResponseCode::ServFail,
        ResponseCode::Refused,
        ResponseCode::FormErr,
    ] {
        let mut bench = Bench::new("internet");
        let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
        let mut failed = answer_to(&asked);
        failed.metadata.response_code = code;
        bench.answer(id, server, &failed);
        assert_eq!(bench.exchanges()[0].1, resolver(2));
    }
}

#[test]
fn when_no_resolver_can_be_reached_the_name_fails_at_once() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    bench.commit_all();
    let mut tries = 0;
    while let Some((id, ..)) = bench.exchanges().pop() {
        tries += 1;
        bench.dns.handle_unreachable(bench.now, id);
        bench.drain();
    }
    assert_eq!(tries, 4);
    let reply = bench.reply();
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(extended(&reply).unwrap().0, 22);
    // And where the node has none, nothing is entered either.
    bench.dns.set_facts(DnsFacts::default());
    bench.query("shop.example", RecordType::A);
    assert_eq!(bench.reply().metadata.response_code, ResponseCode::ServFail);
    assert!(bench.asks().is_empty());
}

#[test]
fn the_second_round_is_without_edns() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::A);
    bench.commit_all();
    let mut edns = Vec::new();
    while let Some((id, _, _, asked)) = bench.exchanges().pop() {
        edns.push(asked.edns.is_some());
        bench.dns.handle_unreachable(bench.now, id);
        bench.drain();
    }
    assert_eq!(edns, [true, true, false, false]);
}

#[test]
fn past_fifty_questions_a_second_a_box_gets_servfail_and_one_entry() {
    for reach in ["internet", "nothing"] {
        let mut bench = Bench::new(reach);
        for number in 0..80 {
            bench.query(&format!("n{number}.example"), RecordType::A);
        }
        let failed = bench
            .replies()
            .iter()
            .filter(|reply| reply.metadata.response_code == ResponseCode::ServFail)
            .count();
        assert_eq!(failed, 30);
        let refusals = bench.refusals();
        let limits: Vec<_> = refusals
            .iter()
            .filter(|refused| refused.refusal == Refusal::Limit)
            .collect();
        assert_eq!(limits.len(), 1);
        assert_eq!((limits[0].count, &limits[0].host), (1, &None));
        assert_eq!(bench.asks().len() + refusals.len() - 1, 50);
        bench.wait(SECOND);
        for number in 0..50 {
            bench.query(&format!("m{number}.example"), RecordType::A);
        }
        let refusals = bench.refusals();
        assert!(
            refusals
                .iter()
                .all(|refused| refused.refusal != Refusal::Limit)
        );
    }
}

#[test]
fn what_is_answered_here_does_not_count_against_the_rate() {
    let mut bench = Bench::new("local");
    for _ in 0..200 {
        bench.query("localhost", RecordType::A);
        bench.query("nas.home", RecordType::A);
    }
    assert!(bench.replies().iter().all(|reply| addrs(reply).len() == 1));
}

#[test]
fn the_same_message_again_is_answered_once() {
    let mut bench = Bench::new("internet");
    let bytes = question(7, "shop.example", RecordType::A, None);
    bench.send(Transport::Udp, &bytes);
    bench.send(Transport::Udp, &bytes);
    assert_eq!(bench.dns.questions(), 1);
}

#[test]
fn questions_at_once_are_bounded() {
    let mut bench = Bench::new("internet");
    for number in 0..MAX_QUESTIONS + 10 {
        bench.now += Duration::from_millis(1);
        bench.dns.level_at = Now::ZERO;
        bench.query(&format!("n{number}.example"), RecordType::A);
        bench.commit_all();
    }
    assert_eq!(bench.dns.questions(), MAX_QUESTIONS);
    assert_eq!(bench.replies().len(), 10);
}

#[test]
fn closing_tells_every_count_and_answers_nothing_more() {
    let mut bench = Bench::new("shop.example");
    bench.query("shop.example", RecordType::A);
    bench.query("shop.example", RecordType::A);
    bench.query("evil.example", RecordType::A);
    bench.query("evil.example", RecordType::A);
    bench.commit_all();
    let open = bench.exchanges().len();
    bench.out.clear();
    bench.dns.close();
    bench.drain();
    assert_eq!(bench.cancels().len(), open);
    assert_eq!(bench.counts()[0].count, 1);
    assert_eq!(bench.refusals()[0].count, 1);
    assert!(bench.out.is_empty());
    assert_eq!(bench.dns.poll_timeout(), None);
}

#[test]
fn exchanges_over_tcp_are_bounded_and_others_are_asked_elsewhere() {
    let mut bench = Bench::new("internet");
    let mut over_tcp = 0;
    for number in 0..2 * MAX_TCP_EXCHANGES {
        let name = format!("n{number}.example");
        let (id, server, _, asked) = bench.asked(&name, RecordType::TXT);
        let mut cut = with(&asked, &[]);
        cut.metadata.truncation = true;
        bench.answer(id, server, &cut);
        let next = bench.exchanges().remove(0);
        if next.2 == Transport::Tcp {
            assert_eq!(next.1, server);
            over_tcp += 1;
        } else {
            assert_ne!(next.1, server);
        }
        bench.now += Duration::from_millis(20);
    }
    assert_eq!(over_tcp, MAX_TCP_EXCHANGES);
}
