use bailey_docs_store::{DocId, Hash};
use bailey_model::{DeviceId, Incarnation};

use super::*;

fn topic(n: u8) -> TopicId {
    TopicId([n; 32])
}

fn follow(n: u8, from: u64) -> Order {
    Order::Follow {
        topic: topic(n),
        from,
    }
}

fn unfollow(n: u8) -> Order {
    Order::Unfollow { topic: topic(n) }
}

fn chain() -> ChainId {
    ChainId {
        doc: DocId::Node,
        writer: DeviceId([1; 32]),
        incarnation: Incarnation([2; 16]),
    }
}

fn heads(seq: u64) -> BTreeMap<ChainId, Head> {
    let head = Head {
        chain: chain(),
        seq,
        hash: Hash([1; 32]),
    };
    BTreeMap::from([(head.chain, head)])
}

#[test]
fn topics_come_and_go_and_are_read_on_from_where_they_were() {
    let mut takes = Takes::resume([(topic(1), 40)]);
    assert_eq!(takes.want(vec![topic(1), topic(2)], false), []);
    assert_eq!(takes.up(true), [follow(1, 40), follow(2, 0)]);
    assert!(!takes.is_caught_up());
    takes.took(topic(1), 44);
    assert!(!takes.caught_up(topic(1), 45));
    assert!(!takes.caught_up(topic(2), 0));
    assert!(takes.is_caught_up());
    assert_eq!(
        takes.want(vec![topic(1), topic(3)], true),
        [unfollow(2), follow(3, 0)]
    );
    assert!(!takes.is_caught_up());
    takes.down();
    assert_eq!(takes.up(true), [follow(1, 45), follow(3, 0)]);
    assert_eq!(takes.next(), [(topic(1), 45), (topic(3), 0)]);
    assert_eq!(
        takes.up(false),
        [follow(1, 0), follow(3, 0)],
        "another store"
    );
}

#[test]
fn what_waits_is_read_again_once_it_can_be_taken() {
    let mut takes = Takes::default();
    takes.want(vec![topic(1)], false);
    takes.up(true);
    takes.wait(topic(1), 10, Why::Chain(chain()), 4);
    takes.wait(topic(1), 11, Why::Chain(chain()), 5);
    takes.took(topic(1), 12);
    assert_eq!(
        takes.next(),
        [(topic(1), 10)],
        "a restart reads it again too"
    );
    assert_eq!(takes.heads(&heads(3)), []);
    assert_eq!(takes.heads(&heads(4)), [unfollow(1), follow(1, 10)]);
    assert_eq!(takes.heads(&heads(4)), [], "once");
    takes.wait(topic(1), 10, Why::Members, 0);
    takes.wait(topic(1), 12, Why::Later, 0);
    assert_eq!(takes.members(), [unfollow(1), follow(1, 10)]);
    takes.wait(topic(1), 12, Why::Later, 0);
    assert_eq!(takes.later(), [unfollow(1), follow(1, 12)]);
}

#[test]
fn of_what_waits_in_another_order_the_first_that_can_be_taken_counts() {
    let mut takes = Takes::default();
    takes.want(vec![topic(1)], false);
    takes.up(true);
    takes.wait(topic(1), 10, Why::Chain(chain()), 6);
    takes.wait(topic(1), 11, Why::Chain(chain()), 5);
    assert_eq!(takes.heads(&heads(5)), [unfollow(1), follow(1, 10)]);
}

#[test]
fn a_mailbox_that_went_back_is_noticed_and_one_that_expired_is_not() {
    let mut takes = Takes::default();
    takes.want(vec![topic(1)], false);
    takes.up(true);
    takes.took(topic(1), 99);
    assert!(!takes.caught_up(topic(1), 100));
    assert!(!takes.caught_up(topic(1), 0), "all of it expired");
    assert!(takes.caught_up(topic(1), 50));
    assert_eq!(takes.again(topic(1)), [unfollow(1), follow(1, 0)]);
}

#[test]
fn what_waits_is_bounded() {
    let mut takes = Takes::default();
    takes.want(vec![topic(1)], false);
    takes.up(true);
    for n in 0..2000_u32 {
        let mut incarnation = [0; 16];
        incarnation[..4].copy_from_slice(&n.to_be_bytes());
        let chain = ChainId {
            incarnation: Incarnation(incarnation),
            ..chain()
        };
        takes.wait(topic(1), n.into(), Why::Chain(chain), 9);
    }
    assert_eq!(takes.waits.len(), MAX_WAITS);
}
